"""Show every environment: its family, splits, and whether it runs here or what is missing.

Nothing heavy is imported and the network is not touched.

Example:
    agentgym list
    agentgym list --json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from agentgym import registration
from agentgym.cli import console
from agentgym.cli.arguments import parse


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym list``."""

    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym list``."""
    args = parse(Args, "list", __doc__, words)
    rows = [_row(entry) for entry in registration.ENTRIES]
    if args.json:
        console.print_json(rows)
        return console.OK
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("id", "family", "splits", "description", "runs here"):
        table.add_column(column, no_wrap=column in ("id", "family"), overflow="fold")
    for row in rows:
        state = "[green]yes[/]" if row["available"] else f"[yellow]{escape(row['needs'])}[/]"
        table.add_row(row["id"], row["family"], ", ".join(row["splits"]), row["description"], state)
    console.out().print(table)
    return console.OK


def _row(entry: registration.Entry) -> dict[str, Any]:
    missing = entry.missing()
    return {
        "id": entry.id,
        "registry": entry.registry,
        "family": entry.family,
        "available": missing is None,
        "needs": missing,
        "splits": list(entry.splits),
        "description": entry.description,
    }
