"""Make tasks from a package's source: inject bugs, keep those its own tests notice. An interrupted run continues.

Example:
    agentgym swe build --sdist NAME==VERSION --count 3 --out tasks
    agentgym swe build --sdist NAME==VERSION --count 6 --bugs 1..3 --spread files --jobs 2 --out hard-tasks
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.swe.found import TARGETS, print_found
from agentgym.errors import UsageError


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe build``."""

    sdist: Annotated[str, tyro.conf.arg(metavar="NAME==VERSION")]
    """The source distribution to start from, or the path of a source archive, folder or repository."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder for tasks.jsonl, the snapshots, the journal of what was tried and report.json."""
    count: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """How many tasks."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Which bugs are tried, and in what order."""
    bugs: Annotated[str, tyro.conf.arg(metavar="N|N..M")] = "1"
    """How many bugs a task has; of a range, the tasks take turns from its least to its most."""
    spread: Literal["any", "file", "files"] = "any"
    """Where the bugs of one task lie: anywhere, all in one file, or each in another file."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How many bugs are tried at once. The tasks do not depend on it."""
    test_targets: TARGETS = ()
    """What the test command gets, relative to the source. Default: found in the source."""
    json: bool = False
    """Print JSON: the records file and the ids in it."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe build``."""
    args = parse(Args, "swe build", __doc__, words)
    bugs = _range(args.bugs)
    with console.stdout_reserved(args.json), console.Progress("tasks", args.count) as progress:
        from agentgym.envs.swe.building.build import build_tasks

        found = build_tasks(
            args.sdist,
            args.out,
            count=args.count,
            seed=args.seed,
            bugs=bugs,
            spread=args.spread,
            jobs=args.jobs,
            test_targets=args.test_targets,
            progress=progress.show,
        )
    print_found(found, args.out, wanted=args.count, as_json=args.json)
    return console.OK


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if match is None:
        raise UsageError(f"expected --bugs N or N..M, got {text!r}")
    return int(match[1]), int(match[2] or match[1])
