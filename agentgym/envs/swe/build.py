"""Make SWE tasks out of a package's source archive: put small bugs in, keep those its own tests notice.

A task is kept if the clean tree's tests are green and the same over two runs, and the bug makes at least one
and at most 30 % of them fail. The test files that notice any kept bug are **hidden**: they are left out of
the snapshot, so no policy sees them, and every record's `test_patch` brings them back for grading
(`hidden_paths` names them). The other tests stay in the tree, and their original state is what grading uses.

All tasks of one package share one snapshot; each has a `bug_patch` of its own.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentgym.envs.swe.grading import REPORT_BYTES
from agentgym.envs.swe.mutate import Site, apply, find_sites
from agentgym.envs.swe.project import Project, add_metadata, inspect_project, library_files
from agentgym.envs.swe.pythonenv import canonical, download_sdist, environment, resolve
from agentgym.envs.swe.records import RecordLimits, SweRecord, write_atomic, write_records
from agentgym.envs.swe.repo import apply_patch, clean_tree, make_repository, pack_tree, tree_diff, unpack
from agentgym.errors import TaskError
from agentgym.sandbox import scratch_folder
from agentgym.sandbox.base import Limits
from agentgym.verifiers.tests import SuiteRun, TestSuite, copy_tree, run_suite

MOST_FAILING = 0.3  # a bug that breaks more of the tests is no subtle one
TRIES_PER_TASK = 10
FIRST_RUN_S = 300.0
SHORTEST_LIMIT_S = 300.0
_SHOWN_FAILURES = 3

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Bug:
    """A defect that the tests notice, and how."""

    file: str
    site: Site
    patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    failures: tuple[tuple[str, str, str], ...]  # test id, failing statement, error


def build_tasks(
    sdist: str,
    out: Path | str,
    *,
    count: int = 3,
    seed: int = 0,
    test_targets: Sequence[str] | None = None,
    requirements: Sequence[str] = (),
    backend: str = "auto",
    allow_unsafe: bool = False,
    progress: Progress | None = None,
) -> list[SweRecord]:
    """Build tasks and write ``tasks.jsonl`` and the snapshot into `out`, both or neither.

    The same source archive, seed and versions of the requirements give the same records.

    Args:
        sdist: ``NAME==VERSION``, downloaded with pip, or the path of a source archive or folder.
        out: folder for the result.
        count: how many tasks; fewer come back where no more bugs are noticed.
        seed: of the choice of bugs.
        test_targets: test files or folders, instead of looking for them.
        requirements: what the tests need besides what the project declares.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        progress: called with what is being done, the tasks found, and `count`.

    Raises:
        TaskError: no such archive, no tests in it, tests that are red without a bug, no bug that they notice.
        InfrastructureError: pip or the sandbox failed.
    """
    if count < 1:
        raise TaskError(f"expected count to be at least 1, got {count}")
    say = progress or (lambda what, done, total: None)
    out = Path(out)
    with scratch_folder("build") as folder:
        tree = Path(folder, "tree")
        say("fetching the source", 0, count)
        _fetch(sdist, tree)
        project = inspect_project(
            tree, test_targets=tuple(test_targets or ()), requirements=tuple(requirements)
        )
        add_metadata(tree, project)
        say("installing what the tests need", 0, count)
        pins = resolve(project.requirements)
        if canonical(project.name) in {canonical(pin.partition("==")[0]) for pin in pins}:
            raise TaskError(
                f"{project.name}: pytest or its tests need the package itself, so it cannot be a task"
            )
        suite = TestSuite(
            python=environment(pins),
            targets=project.targets,
            python_path=(project.python_path,),
            limits=Limits(wall_s=FIRST_RUN_S, output_bytes=REPORT_BYTES),
            backend=backend,
            allow_unsafe=allow_unsafe,
        )
        say("running the tests of the clean tree", 0, count)
        stable, seconds = _clean_runs(project, tree, suite)
        limits = RecordLimits(time_s=_generous(seconds), memory_mb=suite.limits.memory_mb)
        suite = replace(suite, limits=replace(suite.limits, wall_s=max(20.0, 6 * seconds)))
        bugs: list[Bug] = []
        candidates = _candidates(tree, project, random.Random(seed))
        for tried, (file, site) in enumerate(candidates):
            if len(bugs) == count or tried == TRIES_PER_TASK * count:
                break
            say(f"trying bug {tried + 1}: {file}", len(bugs), count)
            bug = _try(tree, suite, stable, file, site, Path(folder))
            if bug is not None:
                bugs.append(bug)
        if not bugs:
            raise TaskError(
                f"{project.name}: its tests notice none of the bugs tried; choose a project with more tests"
            )
        say("writing", len(bugs), count)
        return _write(out, tree, project, pins, limits, bugs)


def _fetch(sdist: str, tree: Path) -> None:
    path = Path(sdist)
    if path.is_dir():
        copy_tree(path, tree)
    elif path.is_file():
        unpack(path, tree)
    elif "/" in sdist or sdist.endswith((".gz", ".zip")):
        raise TaskError(
            f"expected NAME==VERSION or a path to a source archive or folder; {sdist!r} does not exist"
        )
    else:
        unpack(download_sdist(sdist), tree)
    clean_tree(tree)


def _clean_runs(project: Project, tree: Path, suite: TestSuite) -> tuple[frozenset[str], float]:
    """Ids of the tests that pass twice without a bug, and the seconds of the slower run."""
    runs = [run_suite(tree, suite)]
    _must_be_green(project, runs[0])
    runs.append(run_suite(tree, suite))
    _must_be_green(project, runs[1])
    # Parameters may be numbered in the order of a set, which differs from run to run: such ids are not stable.
    shifting = {_function(node) for node in set(runs[0].statuses) ^ set(runs[1].statuses)}
    passed = runs[0].passed() & runs[1].passed()
    stable = frozenset(node for node in passed if _function(node) not in shifting)
    if not stable:
        raise TaskError(f"{project.name}: none of its tests pass in two runs; all are skipped or unstable")
    return stable, max(run.seconds for run in runs)


def _function(node: str) -> str:
    """A test without its parameters."""
    return node.partition("[")[0]


def _must_be_green(project: Project, run: SuiteRun) -> None:
    if run.problem:
        raise TaskError(f"{project.name}: its tests cannot be run: {run.problem}; {_last_line(run.output)}")
    red = sorted(run.failures)
    if red:
        why = (run.failures[red[0]][1].splitlines() or [""])[0][:200]
        raise TaskError(
            f"{project.name}: {len(red)} of its tests are red without any bug, for example {red[0]}: {why}"
            " (missing packages can be named with `requirements`)"
        )


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


def _generous(seconds: float) -> float:
    """Time limit of a record: at least ten clean runs, in steps so coarse that a loaded machine gives the same."""
    return SHORTEST_LIMIT_S * 2.0 ** max(0, math.ceil(math.log2(max(seconds, 0.01) * 10 / SHORTEST_LIMIT_S)))


def _candidates(tree: Path, project: Project, rng: random.Random) -> Iterator[tuple[str, Site]]:
    """All places for a bug, in random order, with files and kinds taking turns."""
    library = library_files()
    files = [file for file in project.sources if "/".join(file.split("/")[-2:]) not in library]
    if not files:
        raise TaskError(
            f"{project.name}: this Python's own library holds a copy of it, where a policy could look up the original"
        )
    places = [(file, site) for file in files for site in find_sites((tree / file).read_bytes())]
    if not places:
        raise TaskError(f"{project.name}: no place for a bug was found in its sources")
    rng.shuffle(places)
    used: Counter[str] = Counter()
    while places:
        index = min(range(len(places)), key=lambda i: (used[places[i][1].kind] + used[places[i][0]], i))
        file, site = places.pop(index)
        used.update([file, site.kind])
        yield file, site


def _try(
    tree: Path, suite: TestSuite, stable: frozenset[str], file: str, site: Site, work: Path
) -> Bug | None:
    """The bug at one place, if the tests notice it and not too many do."""
    source = (tree / file).read_bytes()
    try:
        mutated = apply(source, site)
    except ValueError:
        return None
    with tempfile.TemporaryDirectory(dir=work) as folder:
        broken = Path(folder, "tree")
        copy_tree(tree, broken)
        (broken / file).write_bytes(mutated)
        run = run_suite(broken, suite)
        if run.problem:
            return None
        patch = tree_diff(tree, broken)
    failing = sorted(stable - run.passed())
    passing = sorted(stable & run.passed())
    if not failing or not passing or len(failing) > MOST_FAILING * len(stable):
        return None
    reported = run.statuses.keys()
    if any(node not in reported and node.partition("::")[0] not in reported for node in failing):
        return None  # gone without a trace: its id was not stable after all
    # A file that cannot be imported has one error for all its tests.
    failures = [
        (node, *run.failures.get(node, run.failures.get(node.partition("::")[0], ("", ""))))
        for node in failing
    ]
    if not any(error for _, _, error in failures):
        return None  # only skipped: nothing could be told
    return Bug(file, site, patch, tuple(failing), tuple(passing), tuple(failures))


def _write(
    out: Path, tree: Path, project: Project, pins: tuple[str, ...], limits: RecordLimits, bugs: list[Bug]
) -> list[SweRecord]:
    """Hide the tests, pack the snapshot, write both files; on any failure neither is left behind."""
    hidden = sorted({node.partition("::")[0] for bug in bugs for node in bug.fail_to_pass})
    label = f"{canonical(project.name)}-{project.version}"
    records = []
    with scratch_folder("build") as folder:
        visible = Path(folder, "visible")
        copy_tree(tree, visible)
        for path in hidden:
            (visible / path).unlink()
        archive = pack_tree(visible)
        test_patch = tree_diff(visible, tree)
        digest = hashlib.sha256(archive).hexdigest()
        snapshot = f"snapshots/{label}-{digest[:8]}.tar.gz"
        for bug in bugs:
            broken = Path(folder, "broken")
            copy_tree(visible, broken)
            apply_patch(broken, bug.patch)
            gold = tree_diff(broken, visible)
            record = SweRecord(
                instance_id=f"{label}-{hashlib.sha256(bug.patch.encode()).hexdigest()[:8]}",
                problem_statement=_statement(project, bug),
                repo=project.name,
                version=project.version,
                license=project.license,
                origin=f"{project.name}=={project.version} (source archive), with an injected bug",
                snapshot=snapshot,
                snapshot_sha256=digest,
                base_commit=make_repository(broken),
                patch=gold,
                test_patch=test_patch,
                bug_patch=bug.patch,
                test_targets=project.targets,
                python_path=(project.python_path,),
                python=project.python,
                requirements=pins,
                fail_to_pass=bug.fail_to_pass,
                pass_to_pass=bug.pass_to_pass,
                limits=limits,
                bugs=({"kind": bug.site.kind, "file": bug.file, "line": bug.site.line},),
                extra={"hidden_paths": hidden},
                folder=out,
            )
            records.append(record)
            shutil.rmtree(broken)
    place = out / snapshot
    new = not place.exists()
    try:
        write_atomic(place, archive)
        write_records(out / "tasks.jsonl", records)
    except BaseException:
        if new:
            place.unlink(missing_ok=True)
        raise
    return records


def _statement(project: Project, bug: Bug) -> str:
    """What the policy reads: what was called and what came of it, as the tests saw it; not where or why."""
    shown: dict[str, str] = {}
    for node, statement, error in bug.failures:
        name = node.partition("::")[2].partition("[")[0]
        if error and name not in shown and len(shown) < _SHOWN_FAILURES:
            lines = [line.rstrip() for line in statement.strip().splitlines()]
            lines += _readable(error)
            shown[name] = "\n".join([f"Checked by `{name}`:", "", "```", *lines, "```", ""])
    more = len(bug.failures) - len(shown)
    others = f"{more} more {'checks fail' if more > 1 else 'check fails'} for the same reason."
    return "\n".join(
        [
            f"Something in {project.name} {project.version} does not work as it should. What was seen:",
            "",
            *shown.values(),
            *([others, ""] if more > 0 else []),
            f"Find the cause in the sources of {project.name} and repair it there. The checks above are not in"
            " the repository, and changes to tests or to their configuration do not count. Everything that works"
            " now must still work.",
        ]
    )


def _readable(error: str) -> list[str]:
    """The lines of an error, shortened and without what differs from run to run."""
    error = re.sub(r"0x[0-9a-fA-F]{6,}", "0x...", error)
    return [line.rstrip() for line in error.strip().splitlines()[:12]]
