"""Make tasks from a project's history: changes whose tests fail without their sources. An interrupted run continues.

Example:
    agentgym swe mine --repo path/to/repository --since v2.0 --count 10 --jobs 2 --out tasks
    agentgym swe mine --sdists NAME==1.0 NAME==1.1 NAME==1.2 --out tasks
    agentgym swe mine --sdists NAME --last 10 --out tasks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.swe.found import TARGETS, print_found
from agentgym.errors import UsageError


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe mine``."""

    repo: Annotated[str, tyro.conf.arg(metavar="PATH")] = ""
    """A git repository. It is only read; its changes are tried from the newest on, along first parents."""
    sdists: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME==VERSION")] = ()
    """Instead of a repository: source distributions, the oldest first, or one NAME with --last."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = "tasks"
    """Folder for tasks.jsonl, the snapshots, the journal of what was tried and report.json."""
    since: Annotated[str, tyro.conf.arg(metavar="REV")] = ""
    """With --repo: the commit to stop before. Default: back to the first."""
    last: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """With --sdists NAME: the last N versions that the package index has."""
    count: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """How many tasks. Default: as many as there are."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How many changes are tried at once. The tasks do not depend on it."""
    test_targets: TARGETS = ()
    """What the test command gets, relative to the source. Default: found in the source."""
    json: bool = False
    """Print JSON: the records file, the ids in it, and why candidates were dropped."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe mine``; the exit code is 1 where nothing became a task."""
    args = parse(Args, "swe mine", __doc__, words)
    if bool(args.repo) == bool(args.sdists):
        raise UsageError("expected either --repo PATH or --sdists NAME==VERSION ...")
    if args.since and not args.repo:
        raise UsageError("--since goes with --repo")
    if args.last is not None and len(args.sdists) != 1:
        raise UsageError("--last goes with --sdists and one NAME")
    with console.stdout_reserved(args.json), console.Progress("tasks", args.count) as progress:
        from agentgym.envs.swe.building.history import last_versions
        from agentgym.envs.swe.building.mine import mine_repository, mine_sdists

        def show(what: str, done: int, total: int) -> None:
            progress.show(what, done, args.count)

        if args.repo:
            found = mine_repository(
                args.repo,
                args.out,
                since=args.since,
                count=args.count,
                jobs=args.jobs,
                test_targets=args.test_targets,
                progress=show,
            )
        else:
            sdists = args.sdists if args.last is None else last_versions(args.sdists[0], args.last)
            found = mine_sdists(
                sdists,
                args.out,
                count=args.count,
                jobs=args.jobs,
                test_targets=args.test_targets,
                progress=show,
            )
    print_found(found, args.out, wanted=args.count, as_json=args.json)
    return console.OK if found.records else console.NO
