"""Write records as Harbor task folders or as SWE-bench records.

Example:
    agentgym swe export tasks/tasks.jsonl --to harbor --out harbor
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import RECORDS, parse


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe export``."""

    records: RECORDS
    """The records."""
    to: Annotated[str, tyro.conf.arg(metavar="harbor|swebench")]
    """The form."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """A new or empty folder."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe export``."""
    args = parse(Args, "swe export", __doc__, words)
    with console.stdout_reserved(args.json):
        from agentgym.envs.swe.exporters import export_records
        from agentgym.envs.swe.records import load_records

        records = load_records(args.records)
        with console.Progress("records", len(records)) as progress:
            report = export_records(records, args.out, to=args.to, progress=progress.step)
    if args.json:
        console.print_json(
            {
                "n": len(report.exported),
                "exported": {name: str(path) for name, path in report.exported.items()},
                "skipped": [
                    {"instance_id": name, "problem": problem} for name, problem in report.skipped.items()
                ],
            }
        )
    else:
        screen = console.out()
        for problem in report.skipped.values():
            screen.print(f"[red]skipped[/] {escape(problem)}")
        print(f"wrote {len(report.exported)} of {len(records)} records to {args.out}")
    return console.NO if report.skipped else console.OK
