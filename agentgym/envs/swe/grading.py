"""From a record to its prepared tree, and from a patch to its grade: the one path every caller takes."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym.envs.swe.records import SweRecord, missing, write_atomic
from agentgym.envs.swe.runtime.pythonenv import swe_cache
from agentgym.envs.swe.trees import (
    REPORT_BYTES,
    TIME_S,
    cache_key,
    gold_diff,
    image_facts,
    prepared_tree,
    task_python,
    task_suite,
    task_tree,
)
from agentgym.errors import InfrastructureError, TaskError, nearest, whole_number
from agentgym.verifiers.log_parsers import PARSERS, PYTEST_IDS
from agentgym.verifiers.tests import HiddenTests, TestReport, TestSuite

__all__ = [
    "REPORT_BYTES",
    "gold_patch",
    "grade",
    "grade_patch",
    "grade_tree",
    "hidden_tests",
    "task_python",
    "task_tree",
    "validate_records",
]

_SHORTEST_LIMIT_S = 60.0  # for one run of the tests, where a record sets nothing
_CLEAN_RUNS = 10  # and how many runs on a clean tree fit; a defect may make every test slow to report

# Arguments of a record's own test command that its runner does not need or may not have, and -k, which may leave out
# the runner's own tests by a word in their names: the ids say which tests count.
_DROPPED = re.compile(
    r"-x|--exitfirst|--maxfail(=.*)?|--junit-?xml(=.*)?|-n(\d+|auto)?|--numprocesses(=.*)?|--(no-)?cov.*|--color(=.*)?"
    r"|-k.*"
)
_WITH_VALUE = "--junitxml --junit-xml -n --numprocesses --maxfail --cov --cov-report --color -k".split()


def hidden_tests(
    record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False, partial: bool = False
) -> HiddenTests:
    """The verifier of one task, with everything prepared that it needs.

    Where the record sets no time limit, the tests are run once on the repaired tree, and a run may take ten times as
    long as that, and at least a minute; the time is kept.

    Args:
        record: the task.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        partial: parts of a repair will be paid, so it is found out (once) which fail-to-pass tests pass anyway.

    Raises:
        TaskError: the record is wrong.
        InfrastructureError: something it needs could not be installed or started.
    """
    suite = task_suite(record, backend=backend, allow_unsafe=allow_unsafe)
    tests = HiddenTests(
        base=prepared_tree(record, suite),
        suite=_with_command(record, suite),
        fail_to_pass=record.fail_to_pass,
        pass_to_pass=record.pass_to_pass,
        test_patch=record.test_patch,
        held_out=record.held_out,
    )
    if record.limits.time_s is None:
        gold = gold_patch(record, backend=backend, allow_unsafe=allow_unsafe)
        seconds = _kept(record, tests, "seconds", lambda: tests.grade(gold).seconds)
        limit = min(TIME_S, max(_SHORTEST_LIMIT_S, _CLEAN_RUNS * seconds))
        tests = replace(tests, suite=replace(tests.suite, limits=replace(suite.limits, wall_s=limit)))
    if partial:
        before = _kept(record, tests, "before", lambda: _passing(tests.grade("")))
        tests = replace(tests, passing_before=frozenset(before))
    return tests


def _passing(report: TestReport) -> list[str]:
    return [name for name, status in report.statuses.items() if status == "passed"]


def _kept(record: SweRecord, tests: HiddenTests, what: str, measure: Callable[[], Any]) -> Any:
    """Something measured by running the tests, from the cache folder if it was measured before."""
    suite = tests.suite
    key = cache_key(
        *(tests.base.name, record.patch, record.test_patch, suite.targets, suite.arguments, suite.command),
        *(str(suite.python), suite.image, record.fail_to_pass),
    )
    file = swe_cache() / "measured" / f"{key}-{what}.json"
    if not file.is_file():
        write_atomic(file, json.dumps(measure()).encode())
    return json.loads(file.read_text())


def _with_command(record: SweRecord, suite: TestSuite) -> TestSuite:
    """Our own pytest runner with the record's options; or its command, if that is no pytest or the runner too new."""
    words = pytest_arguments(record)
    command = record.test_command or ("pytest", "-rA")
    if words is not None:
        runner = not suite.image or image_facts(suite.image, suite.workspace, record.image_python).runner
        if runner and record.log_parser in ("", *PYTEST_IDS):
            return replace(suite, arguments=words, log_parser=record.log_parser)
    if record.log_parser not in PARSERS:
        got = shlex.join(record.test_command) or f"{suite.python}, which is too old for the private channel"
        raise TaskError(
            f"{record.instance_id}: expected `test_command` to run pytest, or a `log_parser` that reads what it prints"
            f" ({', '.join(PARSERS)}); got {got!r} and log_parser {record.log_parser!r}"
        )
    if record.log_parser not in PYTEST_IDS and not record.test_command:
        raise TaskError(
            f"{record.instance_id}: log_parser {record.log_parser!r} needs a `test_command`, it is empty"
        )
    return replace(suite, command=command, log_parser=record.log_parser)


def pytest_arguments(record: SweRecord) -> tuple[str, ...] | None:
    """What a record's test command says to pytest, without targets and options of the report; None if it runs another.

    A record without a command says nothing: ().
    """
    names = [word.rpartition("/")[2] for word in record.test_command]
    places = [number for number, name in enumerate(names, start=1) if name in ("pytest", "py.test")]
    if names and not places:
        return None
    waiting = list(record.test_command[places[0] :]) if places else []
    kept: list[str] = []
    while waiting:
        word = waiting.pop(0)
        if _DROPPED.fullmatch(word):
            if word in _WITH_VALUE and waiting and not waiting[0].startswith("-"):
                waiting.pop(0)
        elif word not in record.test_targets and not (word.startswith("{") and word.endswith("}")):
            kept.append(word)
    return tuple(kept)


def gold_patch(record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False) -> str:
    """The record's gold patch; for a synthetic task without one, what takes its bug patch back."""
    if record.patch or not record.bug_patch:
        return record.patch
    return gold_diff(record, task_tree(record, backend=backend, allow_unsafe=allow_unsafe))


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
    repeats: int = 1,
    jobs: int = 1,
    backend: str = "auto",
    allow_unsafe: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Grade the gold patch and the empty patch of each record; a task is sound if they get 1 and 0 every time.

    Args:
        records: the tasks.
        repeats: how often each patch is graded; `gold` is the least and `null` the most of what they got.
        jobs: how many records are looked at at once, each in sandboxes of its own.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        progress: called with an instance id, how many are done, and how many there are.

    Returns:
        What ``agentgym swe validate --json`` prints, `missing` being what keeps a record from being played. One whose
        sandbox did not start has no `gold` and `null`, and counts as `unknown`: nothing is said about the task then.
    """
    repeats, jobs = whole_number("repeats", repeats, least=1), whole_number("jobs", jobs, least=1)
    done = itertools.count(1)

    def look(record: SweRecord) -> dict[str, Any]:
        row = _validate(record, repeats, backend, allow_unsafe)
        if progress is not None:
            progress(record.instance_id, next(done), len(records))
        return row

    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(look, records))
    unknown = sum(row["gold"] is None for row in rows)
    return {"n": len(rows), "ok": sum(row["ok"] for row in rows), "unknown": unknown, "records": rows}


def _validate(record: SweRecord, repeats: int, backend: str, allow_unsafe: bool) -> dict[str, Any]:
    start = time.monotonic()
    row: dict[str, Any] = {"instance_id": record.instance_id, "gold": 0.0, "null": 0.0, "ok": False}
    row["missing"] = missing(record)
    problems: list[str] = []
    try:
        if not record.fail_to_pass:
            raise TaskError("FAIL_TO_PASS is empty: nothing tells a repaired tree from a broken one")
        tests = hidden_tests(record, backend=backend, allow_unsafe=allow_unsafe)
        gold = gold_patch(record, backend=backend, allow_unsafe=allow_unsafe)
        if not gold:
            raise TaskError("there is no gold patch: neither `patch` nor `bug_patch` is given")
        golds = [tests.grade(gold) for _ in range(repeats)]
        nulls = [tests.grade("") for _ in range(repeats)]
        row |= {"gold": min(run.score for run in golds), "null": max(run.score for run in nulls)}
        row["ok"] = row["gold"] == 1.0 and row["null"] == 0.0
        problems = _faults(golds, nulls)
    except TaskError as error:
        problems = row["missing"] or [str(error)]
    except InfrastructureError as error:
        row |= {"gold": None, "null": None}
        problems = [f"infrastructure: {error}"]
    row["seconds"] = round(time.monotonic() - start, 3)
    return {**row, "problem": "; ".join(problems) or None}


def _faults(golds: Sequence[TestReport], nulls: Sequence[TestReport]) -> list[str]:
    failed = [run for run in golds if not run.resolved]
    faults = [_fault("the gold patch", failed[0])] if failed else []
    if failed and len(golds) > 1:
        faults.append(f"it resolves the task in {len(golds) - len(failed)} of {len(golds)} runs")
    passes = sum(run.resolved for run in nulls)
    if passes:
        often = f" in {passes} of {len(nulls)} runs" if len(nulls) > 1 else ""
        faults.append(f"the empty patch passes{often}: the tests do not see the defect")
    return faults


def _fault(what: str, report: TestReport) -> str:
    if report.problem:
        return f"{what} cannot be graded: {report.problem}"
    failed = report.not_passed
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
        "problem": report.problem or None,
        "not_passed": report.not_passed,
        "channel": report.channel,
        **({"held_out": report.held_out} if report.held_out else {}),
    }
