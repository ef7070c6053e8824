"""Search the sandbox a policy would get for what gives the solution away.

Example:
    agentgym swe audit tasks/tasks.jsonl
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import RECORDS, parse
from agentgym.errors import InfrastructureError, TaskError, whole_number

if TYPE_CHECKING:
    from agentgym.envs.swe.records import SweRecord


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe audit``."""

    records: RECORDS
    """The records."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How many sandboxes are searched at once."""
    backend: str = "auto"
    """Of the sandbox: auto, bubblewrap or docker."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe audit``."""
    args = parse(Args, "swe audit", __doc__, words)
    jobs = whole_number("--jobs", args.jobs, least=1)
    with console.stdout_reserved(args.json):
        from agentgym.envs.swe.records import load_records

        records = load_records(args.records)
        done = itertools.count(1)
        with console.Progress("records", len(records)) as progress, ThreadPoolExecutor(jobs) as pool:

            def look(record: SweRecord) -> dict[str, Any]:
                row = _audit(record, args.backend)
                progress.show(record.instance_id, next(done), len(records))
                return row

            rows = list(pool.map(look, records))
    report = {"n": len(rows), "ok": sum(row["ok"] for row in rows), "records": rows}
    if args.json:
        console.print_json(report)
    else:
        _print_report(report)
    if any(row["unknown"] for row in rows):
        return console.INFRASTRUCTURE
    return console.OK if report["ok"] == report["n"] else console.NO


def _audit(record: SweRecord, backend: str) -> dict[str, Any]:
    from agentgym.envs.swe.audit import audit_task

    row = {"instance_id": record.instance_id, "ok": False, "unknown": False, "findings": [], "problem": None}
    try:
        report = audit_task(record, backend=backend)
    except TaskError as error:
        return {**row, "problem": str(error)}
    except InfrastructureError as error:
        return {**row, "unknown": True, "problem": f"infrastructure: {error}"}
    if not report.complete:
        row["problem"] = "the search stopped at its bounds"
    return {**row, **report.to_dict()}


def _print_report(report: dict[str, Any]) -> None:
    screen = console.out()
    for row in report["records"]:
        mark = "[green]ok[/]" if row["ok"] else "[red bold]NOT OK[/]"
        read = (
            f"  {row['files']} files, {row['bytes'] / 1e6:.0f} MB, {row['seconds']:.1f} s"
            if "files" in row
            else ""
        )
        screen.print(f"{mark}  {escape(row['instance_id'])}{read}")
        for finding in row["findings"]:
            screen.print(escape(f"    {finding['kind']}: {finding['where']}: {finding['detail']}"))
        if row["problem"]:
            screen.print(escape(f"    {row['problem']}"))
    screen.print(f"{report['ok']} of {report['n']} sandboxes give nothing away")
