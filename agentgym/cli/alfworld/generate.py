"""Make ALFWorld games out of what the alfworld package ships: valid, solvable, the same for the same seed.

The folder is laid out as the official data; agentgym and the alfworld package play it alike.

Example:
    agentgym alfworld generate --out games --count 60 --seed 1
    agentgym run agentgym/ALFWorld-v0 --set data=games --policy gold
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.errors import UsageError


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym alfworld generate``."""

    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Where the games go; others that are there stay."""
    count: Annotated[int, tyro.conf.arg(metavar="N")] = 6
    """How many games, of the types in turn: 60 are ten of each of the six types."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """The same seed and flags make the same files."""
    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "train"
    """train, valid_seen or valid_unseen; the last is in rooms that the others never use."""
    type: Annotated[tuple[str, ...], tyro.conf.arg(metavar="T ..")] = ()
    """Task types; all six where none is given."""
    copies: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """At most so many things of a kind."""
    distractors: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """At most so many things that are not wanted; all that come where it is not given."""
    hidden: bool = False
    """Start the wanted things in closed furniture, where a room has some that takes them."""
    min_steps: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """The shortest way to win takes at least so many commands."""
    package: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """The folder of an alfworld package that is not installed, in an unpacked wheel."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym alfworld generate``."""
    args = parse(Args, "alfworld generate", __doc__, words)
    if not args.out:  # as from a variable of the shell that is not set: not the folder one stands in
        raise UsageError("expected --out DIR, got ''")
    with console.stdout_reserved(args.json):
        from agentgym.envs.alfworld.files import TASK_TYPES
        from agentgym.envs.alfworld.generate import write_games
        from agentgym.envs.alfworld.layouts import find_package
        from agentgym.envs.alfworld.recipes import Recipe

        recipe = Recipe(
            count=args.count,
            seed=args.seed,
            split=args.split,
            task_types=args.type or TASK_TYPES,
            copies=args.copies,
            distractors=args.distractors,
            hidden=args.hidden,
            min_steps=args.min_steps,
        )
        package = find_package(args.package)
        with console.Progress("games", args.count) as progress:
            report = write_games(package, recipe, Path(args.out), each=progress.step)
    if args.json:
        console.print_json(report)
    else:
        _print_report(report, args.out)
    return console.OK


def _print_report(report: dict[str, Any], out: str) -> None:
    table = Table("type", "games", "commands to win")
    for task_type in dict.fromkeys(row["task_type"] for row in report["games"]):
        steps = [row["steps"] for row in report["games"] if row["task_type"] == task_type]
        table.add_row(task_type, str(len(steps)), f"{min(steps)} to {max(steps)}")
    screen = console.out()
    screen.print(table)
    screen.print(
        escape(f"{len(report['games'])} games are in {out}; {report['redraws']} rooms were drawn in vain")
    )
