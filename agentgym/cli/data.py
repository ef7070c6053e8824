"""Say where the official data of an environment comes from, and check a folder of it.

Example:
    agentgym data webshop
    agentgym data webshop FOLDER
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import parse


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym data``."""

    environment: tyro.conf.Positional[Literal["webshop"]]
    """Whose data."""
    folder: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FOLDER")]] = ""
    """The folder to check; without one only the source is told."""
    num_products: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Only the first rows of the product file."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym data``."""
    args = parse(Args, "data", __doc__, words)
    with console.stdout_reserved(args.json):
        from agentgym.envs.webshop.official import SOURCE, survey

        found = survey(Path(args.folder), args.num_products) if args.folder else None
    if args.json:
        console.print_json({"source": SOURCE, **(found or {})})
        return console.OK
    console.out().print(escape(SOURCE))
    if found is not None:
        _print_survey(found)
    return console.OK


def _print_survey(found: dict[str, Any]) -> None:
    screen = console.out()
    screen.print()
    for name, file in found["files"].items():
        if file is None:
            screen.print(f"  {name}: [yellow]not there[/]; goals can only be synthetic")
        else:
            screen.print(f"  {escape(file['file'])}: {file['bytes']:,} bytes, sha256 {file['sha256']}")
    for name, count in found["counts"].items():
        screen.print(f"  {name.replace('_', ' ')}: {count:,}")
