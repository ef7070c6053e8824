"""Bring other projects' records into our form.

Example:
    agentgym swe import SWE-bench/SWE-bench_Verified --split test --out verified
    agentgym swe import dump.jsonl --out tasks
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.errors import InfrastructureError, whole_number

if TYPE_CHECKING:
    from agentgym.envs.swe.importers.writing import ImportReport


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe import``."""

    source: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="SOURCE")]]
    """A file (.jsonl, .json, .parquet), a folder of them or of task folders, or a dataset on the Hugging Face hub."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder for tasks.jsonl and copies of the snapshots."""
    format: Annotated[str, tyro.conf.arg(metavar="FORMAT")] = "auto"
    """swebench, swesmith, swegym, rebench, r2egym, pro, live, harbor or own; auto: told by the fields of each row."""
    split: Annotated[str, tyro.conf.arg(metavar="S")] = ""
    """Only this split."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """At most so many rows, of the split where one is given. Default: all."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe import``."""
    args = parse(Args, "swe import", __doc__, words)
    if args.limit is not None:
        whole_number("--limit", args.limit, least=1)
    with console.stdout_reserved(args.json), console.Progress("records", args.limit) as progress:
        from agentgym.envs.swe.importers.writing import import_records

        report = import_records(
            args.source,
            args.out,
            form=args.format,
            split=args.split,
            limit=args.limit,
            image_here=_image_asker(),
            progress=progress.step,
        )
    if args.json:
        console.print_json(_as_json(report))
    else:
        _print(report)
    return console.NO if report.skipped else console.OK


def _image_asker() -> Callable[[str], bool]:
    """Asks Docker, once for each name, whether it has an image; without Docker, which is said once, there is none."""
    reachable = True

    @functools.cache
    def image_here(name: str) -> bool:
        from agentgym.sandbox.docker import image_is_here

        nonlocal reachable
        try:
            return reachable and image_is_here(name)
        except InfrastructureError as error:
            reachable = False
            console.complain(f"images are taken as missing: {error}")
            return False

    return image_here


def _as_json(report: ImportReport) -> dict[str, Any]:
    return {
        "records": str(report.file),
        "n": len(report.imported),
        "playable": report.playable,
        "imported": [
            {"instance_id": entry.record.instance_id, "format": entry.form, "missing": list(entry.missing)}
            for entry in report.imported
        ],
        "skipped": [{"row": row, "problem": problem} for row, problem in report.skipped],
    }


def _print(report: ImportReport) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("record", no_wrap=True)
    table.add_column("format")
    table.add_column("missing to play it", overflow="fold")
    for entry in report.imported:
        lacks = escape("; ".join(entry.missing)) or "[green]nothing[/]"
        table.add_row(escape(entry.record.instance_id), entry.form, lacks)
    screen = console.out()
    screen.print(table)
    for _, problem in report.skipped:
        screen.print(f"[red]skipped[/] {escape(problem)}")
    print(f"wrote {len(report.imported)} records to {report.file}, {report.playable} of them playable")
    print(f"next: agentgym swe validate {report.file}")
