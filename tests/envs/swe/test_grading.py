"""How a record becomes a test run, and how records are validated."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe import grading
from agentgym.envs.swe.builtin import builtin_records
from agentgym.envs.swe.grading import gold_patch, grade_patch, hidden_tests, validate_records
from agentgym.envs.swe.records import RecordLimits, SweRecord
from agentgym.envs.swe.trees import ImageFacts, task_suite
from agentgym.errors import SandboxError, TaskError, UsageError
from agentgym.verifiers.patches import apply_patch
from agentgym.verifiers.suite import open_sandbox
from agentgym.verifiers.tests import TestReport, TestSuite, copy_tree

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


@pytest.fixture
def record() -> SweRecord:
    return replace(builtin_records()[2], limits=RecordLimits(time_s=60))


# What runs the tests


@pytest.mark.parametrize(
    ("command", "parser", "arguments"),
    [
        ((), "", ()),
        (
            ("pytest", "-x", "--maxfail=1", "-n", "4", "-n2", "--strict-markers", "tests"),
            "",
            ("--strict-markers",),
        ),
        (("python", "-m", "pytest", "-p", "no:randomly", "{targets}"), "pytest", ("-p", "no:randomly")),
        (("LANG=C", "pytest", "-rA"), "pytest_options", ("-rA",)),
        (("pytest", "-k", "not timezone", "-v"), "", ("-v",)),
    ],
)
def test_pytest_commands_go_to_our_runner(
    record: SweRecord, command: tuple[str, ...], parser: str, arguments: tuple[str, ...]
) -> None:
    suite = hidden_tests(replace(record, test_command=command, log_parser=parser)).suite
    assert (suite.arguments, suite.command, suite.log_parser) == (arguments, (), parser)


def test_other_commands_need_a_parser_that_is_known(record: SweRecord) -> None:
    command = ("./tests/runtests.py", "--verbosity", "2")
    suite = hidden_tests(replace(record, test_command=command, log_parser="django")).suite
    assert (suite.command, suite.log_parser) == (command, "django")
    for parser in ("", "nose"):
        with pytest.raises(TaskError, match=r"`log_parser` that reads what it prints \(pytest, .*runtests"):
            hidden_tests(replace(record, test_command=command, log_parser=parser))
    with pytest.raises(TaskError, match="needs a `test_command`"):
        hidden_tests(replace(record, log_parser="django"))


def test_an_interpreter_too_old_for_our_runner_is_read_by_its_log(
    record: SweRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = ImageFacts(Path("/opt/old/bin/python"), runner=False)
    monkeypatch.setattr(grading, "image_facts", lambda image, workspace, python: facts)
    suite = TestSuite(facts.python, image="old", workspace="/testbed")
    assert grading._with_command(replace(record, log_parser="pytest"), suite).command == ("pytest", "-rA")
    with pytest.raises(TaskError, match="too old for the private channel"):
        grading._with_command(record, suite)


def test_an_image_needs_docker(record: SweRecord) -> None:
    with pytest.raises(TaskError, match="needs the backend 'docker', got 'bubblewrap'"):
        task_suite(replace(record, snapshot="", image="x:latest"), backend="bubblewrap")


# Limits


def test_the_limit_is_a_multiple_of_the_measured_clean_run(
    record: SweRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(grading, "swe_cache", lambda: tmp_path)
    seconds = iter([20.0, 0.5, 1e6])

    def run(self: Any, diff: str) -> TestReport:
        assert "self.balance -= last" in diff
        assert self.suite.limits.wall_s == grading.TIME_S
        return TestReport(True, seconds=next(seconds))

    monkeypatch.setattr(grading.HiddenTests, "grade", run)
    unlimited = replace(record, limits=RecordLimits())
    assert hidden_tests(unlimited).suite.limits.wall_s == 200.0
    assert hidden_tests(unlimited).suite.limits.wall_s == 200.0  # kept
    assert hidden_tests(replace(unlimited, test_targets=("tests", "ledger.py"))).suite.limits.wall_s == 60.0
    assert hidden_tests(replace(unlimited, test_targets=("ledger.py",))).suite.limits.wall_s == grading.TIME_S
    assert hidden_tests(record).suite.limits.wall_s == 60.0


# Validation


class Reports:
    """Grading that answers from a list, by patch; counts how many records are looked at at once."""

    def __init__(self, gold: list[bool], null: list[bool]) -> None:
        self.left = {True: list(gold), False: list(null)}

    def grade(self, diff: str) -> TestReport:
        resolved = self.left[bool(diff)].pop(0)
        return TestReport(resolved, statuses={"t::a": "passed" if resolved else "failed"})


@pytest.mark.parametrize(
    ("gold", "null", "row"),
    [
        ([True] * 3, [False] * 3, {"gold": 1.0, "null": 0.0, "ok": True, "problem": None}),
        (
            [True, False, True],
            [False] * 3,
            {
                "gold": 0.0,
                "null": 0.0,
                "ok": False,
                "problem": "the gold patch leaves 1 of 1 tests not passed: t::a (failed); it resolves the task in 2"
                " of 3 runs",
            },
        ),
        (
            [True] * 3,
            [False, True, False],
            {
                "gold": 1.0,
                "null": 1.0,
                "ok": False,
                "problem": "the empty patch passes in 1 of 3 runs: the tests do not see the defect",
            },
        ),
    ],
)
def test_repeats(
    record: SweRecord,
    monkeypatch: pytest.MonkeyPatch,
    gold: list[bool],
    null: list[bool],
    row: dict[str, Any],
) -> None:
    monkeypatch.setattr(grading, "hidden_tests", lambda *args, **kwargs: Reports(gold, null))
    report = validate_records([record], repeats=3)
    found = report["records"][0]
    assert {key: found[key] for key in row} == row
    assert (report["n"], report["ok"], report["unknown"]) == (1, int(row["ok"]), 0)


def test_a_sandbox_that_does_not_start_says_nothing_about_a_task(
    record: SweRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise SandboxError("no daemon")

    monkeypatch.setattr(grading, "hidden_tests", fail)
    report = validate_records([record])
    assert report["unknown"] == 1
    assert report["records"][0]["gold"] is None
    assert report["records"][0]["problem"] == "infrastructure: no daemon"


def test_what_is_missing_is_told_per_record(record: SweRecord) -> None:
    records = [
        replace(record, instance_id="a", snapshot=""),
        replace(record, instance_id="b", fail_to_pass=()),
    ]
    seen: list[tuple[str, int, int]] = []
    report = validate_records(records, progress=lambda *row: seen.append(row))
    assert [row["ok"] for row in report["records"]] == [False, False]
    assert "no snapshot and no image" in report["records"][0]["problem"]
    assert "FAIL_TO_PASS is empty" in report["records"][1]["problem"]
    assert [row[1:] for row in seen] == [(1, 2), (2, 2)]
    for bad in ({"repeats": 0}, {"jobs": 0}):
        with pytest.raises(UsageError, match="expected"):
            validate_records(records, **bad)


@pytest.mark.slow
def test_jobs_give_the_same_verdicts() -> None:
    records = list(builtin_records())
    keys = ("instance_id", "gold", "null", "ok", "problem")
    rows = [
        [{key: row[key] for key in keys} for row in validate_records(records, jobs=jobs)["records"]]
        for jobs in (1, 3)
    ]
    assert rows[0] == rows[1]
    assert all(row["ok"] for row in rows[0])


def test_a_patch_that_does_not_apply_is_told_with_git_s_line(record: SweRecord) -> None:
    verdict = grade_patch([record], record.instance_id, "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n")
    assert verdict["components"]["applied"] is False
    assert verdict["problem"] == "the diff does not apply: error: x.py: No such file or directory"
    json.dumps(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("record", builtin_records(), ids=lambda record: record.instance_id)
@pytest.mark.parametrize("repaired", [True, False])
def test_grading_agrees_with_the_exit_status_of_plain_pytest(
    record: SweRecord, repaired: bool, tmp_path: Path
) -> None:
    tests = hidden_tests(record)
    diff = gold_patch(record) if repaired else ""
    tree = tmp_path / "tree"
    copy_tree(tests.base, tree)
    apply_patch(tree, tests.test_patch)
    apply_patch(tree, diff)
    with open_sandbox(tests.suite, tree, env={"PYTHONPATH": ":".join(tests.suite.python_path)}) as sandbox:
        plain = sandbox.exec([str(tests.suite.python), "-m", "pytest", "-q", *tests.suite.targets])
    assert (plain.exit_code == 0) is tests.grade(diff).resolved is repaired, plain.stdout
