"""Make SWE tasks out of a package's source: put small bugs in, keep those its own tests notice.

The clean tree's tests must be green, and the same over two runs; what differs is left out. A task is kept if the bug
makes at least one and at most 30 % of the tests fail, the same ones in each of two runs. The test files that notice any
kept bug are **hidden**: they are left out of the snapshot, so no policy sees them, and every record's `test_patch`
brings them back for grading (`hidden_paths` names them). The other tests stay in the tree, and their original state is
what grading uses.

All tasks of one package share one snapshot; each has a `bug_patch` of its own. The number of its bugs and of the files
that have one tell how hard a task is: `difficulty` in the record.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

from agentgym.envs.swe.building.bugs import (
    ANYWHERE,
    SPREADS,
    Bench,
    Bug,
    Place,
    bug_of,
    group,
    places_for_bugs,
)
from agentgym.envs.swe.building.candidates import KEPT, Found, Progress, Trials
from agentgym.envs.swe.building.statements import defect_statement
from agentgym.envs.swe.records import RecordLimits, SweRecord, write_atomic, write_records
from agentgym.envs.swe.repo import apply_patch, make_repository, pack_tree, tree_diff
from agentgym.envs.swe.runtime.prepared import Runtime, prepare_runtime
from agentgym.envs.swe.runtime.pythonenv import canonical
from agentgym.envs.swe.runtime.sources import fetch
from agentgym.errors import TaskError, whole_number
from agentgym.sandbox import scratch_folder
from agentgym.texts import safe_label
from agentgym.verifiers.tests import copy_tree

TRIES_PER_BUG = 10


def build_tasks(
    source: str,
    out: Path | str,
    *,
    count: int = 3,
    seed: int = 0,
    bugs: tuple[int, int] = (1, 1),
    spread: str = ANYWHERE,
    jobs: int = 1,
    test_targets: Sequence[str] = (),
    requirements: Sequence[str] = (),
    backend: str = "auto",
    allow_unsafe: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Build tasks and write ``tasks.jsonl`` and the snapshot into `out`, both or neither.

    A second call with the same `out` continues an interrupted one. The same source, seed and versions of the
    requirements give the same records, whatever `jobs`.

    Args:
        source: what `fetch` takes: ``NAME==VERSION``, or the path of a source archive, folder or repository.
        out: folder for records, snapshot, journal and report.
        count: how many tasks; fewer come back where no more bugs are noticed.
        seed: of the choice of bugs.
        bugs: least and most bugs in a task; the tasks take turns from least to most.
        spread: where the bugs of one task lie: "any", "file" (all in one) or "files" (each in another).
        jobs: how many bugs are tried at once, each in sandboxes of its own.
        test_targets: test files or folders, instead of looking for them.
        requirements: what the tests need besides what the project declares.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        progress: called with what is being done, the tasks found, and `count`.

    Raises:
        TaskError: no such source, no tests in it, tests that are red without a bug, no bug that they notice.
        InfrastructureError: pip or the sandbox failed.
    """
    for name, value in (("count", count), ("jobs", jobs), ("the least number of bugs", bugs[0])):
        whole_number(name, value, least=1)
    whole_number("the most bugs", bugs[1], least=bugs[0])
    if spread not in SPREADS:
        raise TaskError(f"expected spread to be one of {', '.join(SPREADS)}, got {spread!r}")
    say = progress or (lambda what, done, total: None)
    out = Path(out)
    plan = [bugs[0] + number % (bugs[1] - bugs[0] + 1) for number in range(count)]
    with scratch_folder("build") as folder:
        tree = Path(folder, "tree")
        say("fetching the source", 0, count)
        version = fetch(source, tree)
        runtime = prepare_runtime(
            tree,
            test_targets=test_targets,
            requirements=requirements,
            version=version,
            backend=backend,
            allow_unsafe=allow_unsafe,
            say=lambda what: say(what, 0, count),
        )
        places = places_for_bugs(tree, runtime.project, random.Random(seed), spread)
        inputs = {"source": source, "seed": seed, "count": count, "bugs": list(bugs), "spread": spread}
        trials = Trials(out, jobs, inputs)
        search = _Search(
            Bench(tree, runtime, Path(folder)), trials, spread, lambda what: say(what, len(found), count)
        )
        found: list[Bug] = []
        try:
            with closing(search.tasks(list(islice(places, TRIES_PER_BUG * sum(plan))), plan)) as tasks:
                for bug in tasks:
                    found.append(bug)
        finally:
            report = trials.write_report(len(found))
        if not found:
            raise TaskError(
                f"{runtime.project.name}: its tests notice none of the bugs tried; choose a project with more tests"
            )
        say("writing", len(found), count)
        return Found(_write(out, tree, runtime, found), report)


class _Search:
    """Goes through places for bugs until there are as many tasks as wanted."""

    def __init__(self, bench: Bench, trials: Trials, spread: str, say: Callable[[str], None]) -> None:
        self._bench, self._trials, self._spread, self._say = bench, trials, spread, say

    def tasks(self, places: Sequence[Place], plan: Sequence[int]) -> Generator[Bug]:
        """One bug, or several in one, for each entry of the plan, as long as there are places."""
        wanted, pool = deque(plan), list[Bug]()
        with closing(self._single_bugs(places)) as bugs:
            for bug in bugs:
                pool.append(bug)
                while wanted and (chosen := group(pool, wanted[0], self._spread)):
                    pool = [bug for bug in pool if bug not in chosen]
                    whole = chosen[0] if len(chosen) == 1 else self._combined(chosen)
                    if whole is not None:
                        wanted.popleft()
                        yield whole
                if not wanted:
                    return

    def _single_bugs(self, places: Sequence[Place]) -> Generator[Bug]:
        """Those at one place that the tests notice."""
        with closing(self._trials.outcomes(map(self._bench.candidate, places))) as tried:
            for place, (candidate, outcome) in zip(places, tried, strict=True):
                self._say(f"{candidate.label}: {outcome.kind}")
                if outcome.kind == KEPT:
                    yield bug_of([place], outcome.data)

    def _combined(self, bugs: Sequence[Bug]) -> Bug | None:
        """Several bugs as one, if the tests bear it; what is shown of it tells of each."""
        places = [place for bug in bugs for place in bug.places]
        candidate = self._bench.candidate(*places)
        self._say(candidate.label)
        outcome = self._trials.outcome(candidate)
        if outcome.kind != KEPT:
            return None
        whole = bug_of(places, outcome.data)
        first = [next((f for f in whole.failures if f.node in bug.fail_to_pass), None) for bug in bugs]
        leading = list(dict.fromkeys(failure for failure in first if failure is not None))
        return replace(whole, failures=(*leading, *(f for f in whole.failures if f not in leading)))


def _write(out: Path, tree: Path, runtime: Runtime, bugs: Sequence[Bug]) -> list[SweRecord]:
    """Hide the tests, pack the snapshot, write both files; on any failure neither is left behind."""
    hidden = sorted({node.partition("::")[0] for bug in bugs for node in bug.fail_to_pass})
    project, suite = runtime.project, runtime.suite
    label = safe_label(canonical(project.name), project.version)
    records = []
    with scratch_folder("build") as folder:
        visible = Path(folder, "visible")
        copy_tree(tree, visible)
        for path in hidden:
            (visible / path).unlink()
        archive = pack_tree(visible)
        common = SweRecord(
            instance_id=label,
            repo=project.name,
            version=project.version,
            license=project.license,
            origin=f"{project.name}=={project.version}, with injected bugs",
            snapshot=f"snapshots/{label}-{hashlib.sha256(archive).hexdigest()[:8]}.tar.gz",
            snapshot_sha256=hashlib.sha256(archive).hexdigest(),
            test_patch=tree_diff(visible, tree),
            test_targets=project.targets,
            test_command=("pytest", *suite.arguments) if suite.arguments else (),
            python_path=(project.python_path,),
            python=project.python,
            requirements=runtime.pins,
            limits=RecordLimits(time_s=suite.limits.wall_s, memory_mb=suite.limits.memory_mb),
            folder=out,
        )
        for bug in bugs:
            broken = Path(folder, "broken")
            copy_tree(visible, broken)
            apply_patch(broken, bug.patch)
            records.append(_record(common, bug, hidden, broken, gold=tree_diff(broken, visible)))
            shutil.rmtree(broken)
    place = out / common.snapshot
    new = not place.exists()
    try:
        write_atomic(place, archive)
        write_records(out / "tasks.jsonl", records)
    except BaseException:
        if new:
            place.unlink(missing_ok=True)
        raise
    return records


def _record(common: SweRecord, bug: Bug, hidden: list[str], broken: Path, *, gold: str) -> SweRecord:
    """The record of one task, out of what all of its package share."""
    statement = defect_statement(
        f"{common.repo} {common.version}",
        bug.failures,
        failing=len(bug.fail_to_pass),
        causes=len(bug.places),
        files=bug.files,
    )
    return replace(
        common,
        instance_id=f"{common.instance_id}-{hashlib.sha256(bug.patch.encode()).hexdigest()[:8]}",
        problem_statement=statement,
        base_commit=make_repository(broken),
        patch=gold,
        bug_patch=bug.patch,
        fail_to_pass=bug.fail_to_pass,
        pass_to_pass=bug.pass_to_pass,
        bugs=tuple({"kind": site.kind, "file": file, "line": site.line} for file, site in bug.places),
        extra={"hidden_paths": hidden, "difficulty": {"bugs": len(bug.places), "files": len(bug.files)}},
    )
