"""From a record to its prepared tree, and from a patch to its grade: the one path every caller takes."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentgym.envs.swe.pythonenv import environment, publish, swe_cache
from agentgym.envs.swe.records import SweRecord
from agentgym.envs.swe.repo import apply_patch, clean_tree, tree_diff, unpack
from agentgym.errors import TaskError, nearest
from agentgym.sandbox import make_sandbox, python_binds, scratch_folder
from agentgym.sandbox.base import Limits
from agentgym.verifiers.tests import HiddenTests, TestReport, TestSuite, copy_tree

REPORT_BYTES = 64 << 20  # a suite of some hundred thousand tests
TIME_S = 300.0  # for one run of the tests, where a record sets nothing

# Arguments of a record's own test command that its runner does not need or may not have.
_DROPPED = re.compile(
    r"-x|--exitfirst|--maxfail(=.*)?|--junit-?xml(=.*)?|-n|--numprocesses(=.*)?|--cov.*|--color(=.*)?"
)
_WITH_VALUE = "--junitxml --junit-xml -n --numprocesses --maxfail --cov --cov-report --color".split()


def task_python(record: SweRecord) -> Path:
    """Interpreter of the task's environment, installed on first use.

    Raises:
        TaskError: the record wants another Python version.
    """
    running = sys.version_info[:3]
    for clause in filter(None, record.python.replace(" ", "").split(",")):
        if not _satisfies(running, clause):
            version = ".".join(map(str, running))
            raise TaskError(f"{record.instance_id}: needs Python {record.python}, this is {version}")
    return environment(record.requirements)


def _satisfies(running: tuple[int, ...], clause: str) -> bool:
    match = re.fullmatch(r"(>=|<=|==|!=|~=|>|<)([0-9]+(?:\.[0-9]+)*)(\.\*)?", clause)
    if match is None:
        raise TaskError(f"expected `python` to be a version range such as '>=3.9,<3.13', got {clause!r}")
    operator, digits, star = match.groups()
    wanted = tuple(int(part) for part in digits.split("."))
    if star or operator == "~=":
        prefix = wanted if star else wanted[:-1]
        same = running[: len(prefix)] == prefix
        return same != (operator == "!=") and (operator != "~=" or running >= wanted)
    wanted = (*wanted, 0, 0)[:3]
    answers = {">=": running >= wanted, "<=": running <= wanted, ">": running > wanted, "<": running < wanted}
    return {**answers, "==": running == wanted, "!=": running != wanted}[operator]


def task_tree(record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False) -> Path:
    """The tree as the policy gets it, without `.git`: snapshot, bug patch, set-up commands.

    Prepared once and kept in the cache folder: only read it, copy to use.

    Raises:
        TaskError: the snapshot is wrong, the bug patch does not apply, or a set-up command fails.
    """
    snapshot = record.snapshot_path()
    requirements = record.requirements if record.setup else ()
    key = [_digest(snapshot.read_bytes()), record.bug_patch, record.setup, requirements]
    place = swe_cache() / "trees" / _digest(json.dumps(key).encode())[:20]
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=place.parent) as folder:
            tree = Path(folder, "tree")
            unpack(snapshot, tree)
            clean_tree(tree)
            try:
                apply_patch(tree, record.bug_patch)
            except TaskError as error:
                raise TaskError(f"{record.instance_id}: its bug patch: {error}") from None
            if record.setup:
                tree = _set_up(record, tree, backend, allow_unsafe)
            publish(tree, place)
    return place


def _set_up(record: SweRecord, tree: Path, backend: str, allow_unsafe: bool) -> Path:
    python = task_python(record)
    prepared = tree.with_name("prepared")
    binds = python_binds(str(python))
    env = {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp"}
    with make_sandbox(backend, limits=task_limits(record), binds=binds, allow_unsafe=allow_unsafe) as sandbox:
        sandbox.upload(tree)
        for command in record.setup:
            result = sandbox.exec(command if isinstance(command, str) else list(command), env=env)
            if result.exit_code:
                text = command if isinstance(command, str) else shlex.join(command)
                raise TaskError(
                    f"{record.instance_id}: set-up command {text!r} failed with exit status {result.exit_code}:"
                    f" {(result.stderr or result.stdout).strip()[-300:]}"
                )
        sandbox.download(".", prepared)
    return prepared


def task_limits(record: SweRecord) -> Limits:
    """The sandbox limits of one test run."""
    default = Limits()
    return Limits(
        wall_s=record.limits.time_s or TIME_S,
        memory_mb=record.limits.memory_mb or default.memory_mb,
        processes=record.limits.processes or default.processes,
        output_bytes=REPORT_BYTES,
    )


def hidden_tests(record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False) -> HiddenTests:
    """The verifier of one task, with everything prepared that it needs."""
    return HiddenTests(
        base=task_tree(record, backend=backend, allow_unsafe=allow_unsafe),
        suite=TestSuite(
            python=task_python(record),
            targets=record.test_targets,
            python_path=record.python_path,
            arguments=_command_arguments(record),
            limits=task_limits(record),
            backend=backend,
            allow_unsafe=allow_unsafe,
        ),
        fail_to_pass=record.fail_to_pass,
        pass_to_pass=record.pass_to_pass,
        test_patch=record.test_patch,
    )


def _command_arguments(record: SweRecord) -> tuple[str, ...]:
    """What a record's own test command says to pytest; targets and report options are the runner's."""
    if not record.test_command:
        return ()
    names = [word.rpartition("/")[2] for word in record.test_command]
    programs = [number for number, name in enumerate(names) if name in ("pytest", "py.test")]
    if not programs:
        raise TaskError(
            f"{record.instance_id}: expected `test_command` to run pytest, got {shlex.join(record.test_command)!r}"
        )
    words = list(record.test_command[programs[0] + 1 :])
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if _DROPPED.fullmatch(word):
            if word in _WITH_VALUE and words and not words[0].startswith("-"):
                words.pop(0)
        elif word not in record.test_targets and not (word.startswith("{") and word.endswith("}")):
            kept.append(word)
    return tuple(kept)


def gold_patch(record: SweRecord) -> str:
    """The record's gold patch; for a synthetic task without one, the reverse of its bug patch."""
    if record.patch or not record.bug_patch:
        return record.patch
    with scratch_folder("gold") as folder:
        clean, broken = Path(folder, "clean"), Path(folder, "broken")
        unpack(record.snapshot_path(), clean)
        copy_tree(clean, broken)
        apply_patch(broken, record.bug_patch)
        return tree_diff(broken, clean)


def grade(record: SweRecord, diff: str, *, backend: str = "auto", allow_unsafe: bool = False) -> TestReport:
    """Grade a unified diff against the task's tree."""
    return hidden_tests(record, backend=backend, allow_unsafe=allow_unsafe).grade(diff)


def grade_tree(
    record: SweRecord, tree: Path, *, backend: str = "auto", allow_unsafe: bool = False
) -> TestReport:
    """Grade the tree an agent left behind."""
    return hidden_tests(record, backend=backend, allow_unsafe=allow_unsafe).grade_tree(tree)


def validate_records(
    records: Sequence[SweRecord],
    *,
    backend: str = "auto",
    allow_unsafe: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Grade the gold patch and the empty patch of each record; a task is sound if they get 1 and 0.

    Args:
        records: the tasks.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        progress: called with an instance id, how many are done, and how many there are.

    Returns:
        What ``agentgym swe validate --json`` prints.

    Raises:
        InfrastructureError: a sandbox did not start; nothing is said about the tasks then.
    """
    rows = []
    for done, record in enumerate(records):
        if progress is not None:
            progress(record.instance_id, done, len(records))
        start = time.monotonic()
        row: dict[str, Any] = {"instance_id": record.instance_id, "gold": 0.0, "null": 0.0, "ok": False}
        try:
            if not record.fail_to_pass:
                raise TaskError("FAIL_TO_PASS is empty: nothing tells a repaired tree from a broken one")
            tests = hidden_tests(record, backend=backend, allow_unsafe=allow_unsafe)
            gold, null = tests.grade(gold_patch(record)), tests.grade("")
            row |= {"gold": gold.score, "null": null.score, "ok": gold.resolved and not null.resolved}
            problem = _fault("the gold patch", gold) if not gold.resolved else ""
            if null.resolved:
                passes = "the empty patch passes: the tests do not see the defect"
                problem = f"{problem}; {passes}" if problem else passes
        except TaskError as error:
            problem = str(error)
        rows.append({**row, "seconds": round(time.monotonic() - start, 3), "problem": problem or None})
    return {"n": len(rows), "ok": sum(row["ok"] for row in rows), "records": rows}


def _fault(what: str, report: TestReport) -> str:
    if report.problem:
        return f"{what} cannot be graded: {report.problem}"
    failed = [f"{name} ({status})" for name, status in report.statuses.items() if status != "passed"]
    return f"{what} leaves {len(failed)} of {len(report.statuses)} tests not passed: {', '.join(failed[:3])}"


def grade_patch(
    records: Sequence[SweRecord],
    instance_id: str,
    diff: str,
    *,
    backend: str = "auto",
    allow_unsafe: bool = False,
) -> dict[str, Any]:
    """Grade one diff for one task; the answer is what ``agentgym swe grade --json`` prints.

    Raises:
        TaskError: there is no such task, or it is broken.
    """
    by_id = {record.instance_id: record for record in records}
    if instance_id not in by_id:
        raise TaskError(f"no task {instance_id!r} in these records.{nearest(instance_id, by_id)}")
    report = grade(by_id[instance_id], diff, backend=backend, allow_unsafe=allow_unsafe)
    flags = {"applied": report.applied, "tests_touched": report.tests_touched}
    return {
        "instance_id": instance_id,
        "resolved": report.resolved,
        "score": report.score,
        "components": {**report.components, **flags},
        "seconds": round(report.seconds, 3),
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
