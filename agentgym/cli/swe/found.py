"""What `agentgym swe build` and `agentgym swe mine` say at their end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console

if TYPE_CHECKING:
    from agentgym.envs.swe.building.candidates import Found

TARGETS = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="PATH")]]


def print_found(found: Found, out: str, *, wanted: int | None, as_json: bool) -> None:
    """Print the tasks, and a table of why candidates were dropped.

    Args:
        found: the tasks and the report.
        out: their folder.
        wanted: how many were asked for; None: all there are.
        as_json: print the same for machines.
    """
    file = Path(out) / "tasks.jsonl"
    ids = [record.instance_id for record in found.records]
    if as_json:
        outcomes = {"tried": found.report["tried"], "outcomes": found.report["outcomes"]}
        console.print_json({"records": str(file), "n": len(ids), "instance_ids": ids, **outcomes})
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("outcome", no_wrap=True)
    table.add_column("candidates", justify="right")
    table.add_column("for example", overflow="fold")
    for outcome, number in found.report["outcomes"].items():
        row = next(row for row in found.report["candidates"] if row["outcome"] == outcome)
        detail = f": {row['detail']}" if row["detail"] else ""
        table.add_row(outcome, str(number), escape(f"{row['candidate']}{detail}"[:200]))
    console.out().print(table)
    for name in ids:
        print(name)
    few = f"; {wanted} were asked for" if wanted is not None and len(ids) < wanted else ""
    if not ids:
        print(
            f"none of {found.report['tried']} candidates became a task; {Path(out) / 'report.json'} says why"
        )
        return
    print(f"wrote {len(ids)} tasks to {file}{few}")
    print(f"next: agentgym swe validate {file}")
