"""Make tasks from a source distribution.

Example:
    agentgym swe build --sdist NAME==VERSION --count 3 --out tasks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe build``."""

    sdist: Annotated[str, tyro.conf.arg(metavar="NAME==VERSION")]
    """The source distribution to start from, or the path of a source archive or folder."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder for tasks.jsonl and the snapshots."""
    count: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """How many tasks."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Which bugs are tried, and in what order."""
    test_targets: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="PATH")]] = ()
    """What the test command gets, relative to the source. Default: found in the source."""
    json: bool = False
    """Print JSON: the records file and the ids in it."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe build``."""
    args = parse(Args, "swe build", __doc__, words)
    with console.stdout_reserved(args.json), console.Progress("tasks", args.count) as progress:
        from agentgym.envs.swe.build import build_tasks

        records = build_tasks(
            args.sdist,
            args.out,
            count=args.count,
            seed=args.seed,
            test_targets=args.test_targets or None,
            progress=progress.show,
        )
    file = Path(args.out) / "tasks.jsonl"
    ids = [record.instance_id for record in records]
    if args.json:
        console.print_json({"records": str(file), "n": len(ids), "instance_ids": ids})
        return console.OK
    for name in ids:
        print(name)
    few = (
        ""
        if len(ids) == args.count
        else f"; no more of the bugs tried were noticed ({args.count} were asked for)"
    )
    print(f"wrote {len(ids)} tasks to {file}{few}")
    print(f"next: agentgym swe validate {file}")
    return console.OK
