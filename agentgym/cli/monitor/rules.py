"""Show the table of rules.

Example:
    agentgym monitor rules
    agentgym monitor rules --json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym monitor rules``."""

    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor rules``."""
    args = parse(Args, "monitor rules", __doc__, words)
    from agentgym.monitor.rules import RULES

    if args.json:
        console.print_json(
            [
                {"name": rule.name, "class": rule.hack_class, "sees": sorted(rule.sees), "why": rule.why}
                for rule in RULES
            ]
        )
        return console.OK
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("rule", "class"):
        table.add_column(column, no_wrap=True)
    table.add_column("flags", overflow="fold")
    for rule in RULES:
        table.add_row(rule.name, rule.hack_class, rule.why)
    console.out().print(table)
    return console.OK
