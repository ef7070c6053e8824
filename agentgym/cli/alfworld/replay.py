"""Play recorded ALFWorld episodes, and compare every answer with the recording.

Example:
    agentgym alfworld replay transcripts.jsonl --data DIR
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import parse


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym alfworld replay``."""

    transcripts: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TRANSCRIPTS.jsonl")]]
    """The recorded episodes, one game a line."""
    data: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The folder that the games' paths are below."""
    engine: str = "native"
    """What plays."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym alfworld replay``."""
    args = parse(Args, "alfworld replay", __doc__, words)
    with console.stdout_reserved(args.json):
        from agentgym.envs.alfworld.replay import read_recordings, replay

        recordings = read_recordings(args.transcripts)
        with console.Progress("games", len(recordings)) as progress:
            report = replay(recordings, args.data, engine=args.engine, progress=progress.step)
    if args.json:
        console.print_json(report)
    else:
        _print_report(report)
    return console.OK if report["equal"] == report["episodes"] else console.NO


def _print_report(report: dict[str, Any]) -> None:
    screen = console.out()
    for row in report["episodes_detail"]:
        if (difference := row["first_difference"]) is not None:
            kind = row["kind"] if row["seed"] is None else f"{row['kind']} {row['seed']}"
            screen.print(
                escape(f"{row['game']}, {kind}, step {difference['step']}: {difference['field']} differs")
            )
            screen.print(escape(f"  expected {difference['expected']!r}"))
            screen.print(escape(f"  got      {difference['got']!r}"))
    cpu = report["cpu_s"]
    screen.print(
        f"{report['equal']} of {report['episodes']} episodes of {report['games']} games are equal;"
        f" CPU: {cpu['reset']:.2f} s resets, {cpu['step']:.2f} s steps"
    )
