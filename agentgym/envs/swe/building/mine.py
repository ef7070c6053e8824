"""Make SWE tasks out of a project's history: undo what a change did to the sources, keep what it did to the tests.

A change becomes a task if its tests fail without its sources and pass with them, and others pass with and without,
each over `RUNS` runs; tests that differ from run to run are left out. The policy gets the tree before the change. What
the change did to the tests is the record's `test_patch`, what it did to the sources is the gold patch; what it did to
configuration, documents and version numbers is in neither, so that no later changelog is in any tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentgym.envs.swe.building.candidates import (
    BROKEN,
    KEPT,
    Candidate,
    Found,
    Outcome,
    Progress,
    Trials,
    digest,
)
from agentgym.envs.swe.building.changes import (
    SOURCE,
    TESTS,
    carry,
    in_library,
    keep_version,
    paths_of,
    why_unfit,
)
from agentgym.envs.swe.building.history import Change, History, history_of_sdists
from agentgym.envs.swe.building.statements import change_statement, failures_of, first_line, problem_text
from agentgym.envs.swe.records import (
    RecordLimits,
    SweRecord,
    record_from_dict,
    record_to_dict,
    write_atomic,
    write_records,
)
from agentgym.envs.swe.repo import clean_tree, make_repository, pack_tree, tree_diff
from agentgym.envs.swe.runtime.attempt import Say
from agentgym.envs.swe.runtime.prepared import Runtime, prepare_runtime
from agentgym.envs.swe.runtime.project import library_files
from agentgym.envs.swe.runtime.pythonenv import canonical
from agentgym.errors import InfrastructureError, MissingDependency, SandboxError, TaskError, whole_number
from agentgym.sandbox import scratch_folder
from agentgym.texts import safe_label
from agentgym.verifiers.tests import Protected, copy_tree, run_suite

RUNS = 2  # of the tests, with the change's sources and without
SHORTEST_RUN_S = 60.0  # that a run without them may take


@dataclass(frozen=True, slots=True)
class _Mine:
    """One history and how its tasks are made."""

    history: History
    origin: str
    out: Path
    test_targets: tuple[str, ...]
    requirements: tuple[str, ...]
    backend: str
    allow_unsafe: bool
    library: frozenset[str]  # files of this Python's own library


def mine_repository(
    repository: Path | str,
    out: Path | str,
    *,
    since: str = "",
    count: int | None = None,
    jobs: int = 1,
    test_targets: Sequence[str] = (),
    requirements: Sequence[str] = (),
    backend: str = "auto",
    allow_unsafe: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Make tasks out of a git repository, the newest changes first, and write ``tasks.jsonl`` into `out`.

    The repository is only read. A second call with the same `out` continues an interrupted one. The same history,
    arguments and versions of the requirements give the same records, whatever `jobs`.

    Args:
        repository: its folder.
        out: folder for records, snapshots, journal and report.
        since: the commit to stop before; empty: go back to the first.
        count: how many tasks; None: as many as there are.
        jobs: how many changes are tried at once, each in sandboxes of its own.
        test_targets: test files or folders, instead of looking for them.
        requirements: what the tests need besides what the project declares.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        progress: called with what is being done, the tasks found, and `count`.

    Raises:
        TaskError: no such repository or commit, or an argument makes no sense. No task found is no error.
        InfrastructureError: the sandbox failed, or pip for all that was tried.
    """
    path = Path(repository)
    mine = _Mine(
        history=History(path),
        origin=path.resolve().name.removesuffix(".git"),
        out=Path(out),
        test_targets=tuple(test_targets),
        requirements=tuple(requirements),
        backend=backend,
        allow_unsafe=allow_unsafe,
        library=frozenset(library_files()),
    )
    inputs = {"repository": mine.origin, "since": since, "count": count}
    return _mine(mine, mine.history.changes(since=since), inputs, count, jobs, progress)


def mine_sdists(
    sdists: Sequence[str],
    out: Path | str,
    *,
    count: int | None = None,
    jobs: int = 1,
    test_targets: Sequence[str] = (),
    requirements: Sequence[str] = (),
    backend: str = "auto",
    allow_unsafe: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Make tasks out of consecutive source archives: each pair of neighbours is a change, its message the changelog's.

    Args:
        sdists: ``NAME==VERSION`` or paths of archives, the oldest first; at least two.
        out: see `mine_repository`, as for all others.
        count: the same.
        jobs: the same.
        test_targets: the same.
        requirements: the same.
        backend: the same.
        allow_unsafe: the same.
        progress: the same.

    Raises:
        TaskError: fewer than two archives, or one that does not exist.
        InfrastructureError: pip or the sandbox failed.
    """
    with scratch_folder("sdists") as folder:
        if progress is not None:
            progress("fetching the source archives", 0, count or 0)
        mine = _Mine(
            history=history_of_sdists(sdists, Path(folder)),
            origin="source archives",
            out=Path(out),
            test_targets=tuple(test_targets),
            requirements=tuple(requirements),
            backend=backend,
            allow_unsafe=allow_unsafe,
            library=frozenset(library_files()),
        )
        inputs = {"sdists": list(sdists), "count": count}
        return _mine(mine, mine.history.changes(), inputs, count, jobs, progress)


def _mine(
    mine: _Mine,
    changes: Iterable[Change],
    inputs: dict[str, Any],
    count: int | None,
    jobs: int,
    progress: Progress | None,
) -> Found:
    if count is not None:
        whole_number("count", count, least=1)
    trials = Trials(mine.out, jobs, inputs)
    records: list[SweRecord] = []

    def say(what: str) -> None:
        if progress is not None:
            progress(what, len(records), count or 0)

    try:
        with closing(trials.outcomes(_candidate(mine, change, say) for change in changes)) as tried:
            for candidate, outcome in tried:
                if outcome.kind == KEPT:
                    records.append(record_from_dict(outcome.data["record"], folder=mine.out))
                    write_records(mine.out / "tasks.jsonl", records)
                say(f"{candidate.label}: {outcome.kind}")
                if len(records) == count:
                    break
    finally:
        report = trials.write_report(len(records))
    if not records and trials.broken():
        raise InfrastructureError(trials.broken())
    return Found(records, report)


def _candidate(mine: _Mine, change: Change, say: Say) -> Candidate:
    label = f"{change.commit[:10]} {first_line(change.message)[:60]}".strip()
    return Candidate(
        key=digest("mine", change.commit, change.parent, mine.test_targets, mine.requirements, RUNS),
        label=label,
        attempt=lambda: _attempt(mine, change, lambda what: say(f"{label}: {what}")),
    )


def _attempt(mine: _Mine, change: Change, say: Say) -> Outcome:
    """What becomes of one change."""
    lines = mine.history.changed_paths(change)
    why, detail = why_unfit(lines)
    if why:
        return Outcome(why, detail)
    sources, tests = paths_of(lines, SOURCE), paths_of(lines, TESTS)
    if any(in_library(path, mine.library) for path in sources):
        return Outcome("in the standard library", "this Python's own library holds a copy of a changed file")
    with scratch_folder("mine") as folder:
        base, fixed, after = Path(folder, "base"), Path(folder, "fixed"), Path(folder, "after")
        for commit, tree in ((change.parent, base), (change.commit, after)):
            mine.history.export(commit, tree)
            clean_tree(tree)
        copy_tree(base, fixed)
        carry(after, fixed, [*sources, *tests])
        keep_version(base, fixed, sources)
        try:
            runtime = prepare_runtime(
                fixed,
                test_targets=mine.test_targets,
                requirements=mine.requirements,
                runs=RUNS,
                version=mine.history.version(change.parent),
                backend=mine.backend,
                allow_unsafe=mine.allow_unsafe,
                say=say,
            )
        except TaskError as error:
            return Outcome("does not run with the change", str(error))
        except (MissingDependency, SandboxError):
            raise
        except InfrastructureError as error:
            return Outcome(BROKEN, str(error))
        broken, visible = Path(folder, "broken"), Path(folder, "visible")
        copy_tree(fixed, broken)
        carry(base, broken, sources)
        copy_tree(broken, visible)
        carry(base, visible, tests)
        say("running the tests without it")
        return _compare(mine, change, runtime, _Trees(visible, broken, fixed), sources, tests)


@dataclass(frozen=True, slots=True)
class _Trees:
    """What the policy gets; the same with the change's tests; the same with its tests and sources."""

    visible: Path
    broken: Path
    fixed: Path


def _compare(
    mine: _Mine, change: Change, runtime: Runtime, trees: _Trees, sources: list[str], tests: list[str]
) -> Outcome:
    """Run the tests without the change's sources; the outcome, if they tell it, holds the record."""
    limits = replace(runtime.suite.limits, wall_s=max(SHORTEST_RUN_S, 6 * runtime.seconds))
    runs = []
    for _ in range(RUNS):
        runs.append(run_suite(trees.broken, replace(runtime.suite, limits=limits)))
        if runs[-1].problem:
            return Outcome("does not run without the change", runs[-1].problem)
    passed = [run.passed() for run in runs]
    fail_to_pass = sorted(runtime.stable.difference(*passed))
    pass_to_pass = sorted(runtime.stable.intersection(*passed))
    if not fail_to_pass:
        return Outcome("its tests pass without it", f"{len(pass_to_pass)} tests pass with it and without")
    if not pass_to_pass:
        return Outcome("nothing passes without it", f"{len(fail_to_pass)} tests pass only with it")
    protected = Protected(runtime.project.targets, frozenset(tests), (*fail_to_pass, *pass_to_pass))
    if any(map(protected, sources)):
        return Outcome("its sources lie among the tests", ", ".join(filter(protected, sources)))
    gold = tree_diff(trees.broken, trees.fixed)
    text, failures = problem_text(change.message, gold), failures_of(runs[0], fail_to_pass)
    if not text and not failures:
        return Outcome("nothing to tell", "no message that says what is wrong, and no error of a test")
    archive = pack_tree(trees.visible)
    project, suite = runtime.project, runtime.suite
    label = safe_label(canonical(project.name), change.commit[:10])
    snapshot = f"snapshots/{label}.tar.gz"
    write_atomic(mine.out / snapshot, archive)
    named = f"{project.name} {project.version}"
    record = SweRecord(
        instance_id=label,
        problem_statement=change_statement(named, text, failures, failing=len(fail_to_pass), files=sources),
        repo=project.name,
        version=project.version,
        license=project.license,
        origin=f"{mine.origin}, before: {first_line(change.message)}",
        fixed_in=change.commit,
        snapshot=snapshot,
        snapshot_sha256=hashlib.sha256(archive).hexdigest(),
        base_commit=make_repository(trees.visible),
        patch=gold,
        test_patch=tree_diff(trees.visible, trees.broken),
        test_targets=project.targets,
        test_command=("pytest", *suite.arguments) if suite.arguments else (),
        python_path=(project.python_path,),
        python=project.python,
        requirements=runtime.pins,
        fail_to_pass=tuple(fail_to_pass),
        pass_to_pass=tuple(pass_to_pass),
        limits=RecordLimits(time_s=suite.limits.wall_s, memory_mb=suite.limits.memory_mb),
        extra={"statement_from": "message and tests" if text else "tests"},
    )
    return Outcome(KEPT, f"{len(fail_to_pass)} tests fail without it", {"record": record_to_dict(record)})
