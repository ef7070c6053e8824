"""Prove tasks: gold passes, nothing fails.

Example:
    agentgym swe validate tasks/tasks.jsonl --repeats 3 --jobs 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import RECORDS, parse


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe validate``."""

    records: RECORDS
    """The records."""
    repeats: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How often each patch is graded; gold must pass and nothing fail every time."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How many records are looked at at once."""
    backend: str = "auto"
    """Of the sandbox: auto, bubblewrap or docker."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe validate``."""
    args = parse(Args, "swe validate", __doc__, words)
    with console.stdout_reserved(args.json):
        from agentgym.envs.swe.grading import validate_records
        from agentgym.envs.swe.records import load_records

        records = load_records(args.records)
        with console.Progress("records", len(records)) as progress:
            report = validate_records(
                records,
                repeats=args.repeats,
                jobs=args.jobs,
                backend=args.backend,
                progress=progress.show,
            )
    if args.json:
        console.print_json(report)
    else:
        _print_validation(report)
    if report["unknown"]:
        return console.INFRASTRUCTURE
    return console.OK if report["ok"] == report["n"] else console.NO


def _print_validation(report: dict[str, Any]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("record", no_wrap=True)
    for column in ("gold", "null", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("problem", overflow="fold")
    for row in report["records"]:
        mark = "[green]ok[/]" if row["ok"] else "[red bold]NOT OK[/]"
        scores = ["-" if row[key] is None else f"{row[key]:g}" for key in ("gold", "null")]
        table.add_row(
            mark, escape(row["instance_id"]), *scores, f"{row['seconds']:.1f}", escape(row["problem"] or "")
        )
    screen = console.out()
    screen.print(table)
    screen.print(f"{report['ok']} of {report['n']} records are ok")
