"""``agentgym swe judge``; the stages themselves are tested in tests/envs/swe/test_quality.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe.quality import assess
from agentgym.envs.swe.quality.runs import RunPlan, RunResult
from agentgym.errors import SandboxError
from tests.envs.swe.quality_tasks import make_records, write_records
from tests.policies.fake_server import FakeServer, completion

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

GOOD, LEAKING, WORD = "good-behaviour", "leaking-patch", "misaligned-word"
YES = {"instruct_clear": True, "instruct_ut_align": True, "overall_good": True, "reason": "fits"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    records = make_records(folder)
    write_records({name: records[name] for name in (GOOD, LEAKING, WORD)}, folder)
    return folder


def test_the_tasks_are_labelled(call: Callable[..., Any], folder: Path) -> None:
    called = call("swe", "judge", folder / "tasks.jsonl", "--json", "--jobs", 2)
    assert called.code == 1
    assert (called.json["n"], called.json["good"], called.json["unknown"]) == (3, 2, 0)
    rows = {row["instance_id"]: row for row in called.json["records"]}
    assert rows[LEAKING].keys() >= {
        "instruct_clear",
        "instruct_ut_align",
        "overall_good",
        "stage",
        "findings",
    }
    assert [finding["kind"] for finding in rows[LEAKING]["findings"]] == ["leaked_fix"]
    assert rows[GOOD]["stage"] == rows[LEAKING]["stage"] == "deterministic"
    shown = call("swe", "judge", folder / "tasks.jsonl").out
    assert "NOT GOOD  leaking-patch" in shown
    assert "leaked_fix: the statement has 1 of its lines" in shown
    assert "2 of 3 tasks are good" in shown


def test_labels_measure_the_judge(call: Callable[..., Any], folder: Path) -> None:
    called = call("swe", "judge", folder / "tasks.jsonl", "--labels", folder / "labels.jsonl", "--json")
    assert called.code == 0
    row = called.json["labels"]["overall_good"]
    # good-behaviour is found; misaligned-word is taken for good; leaking-patch is not
    assert (row["tp"], row["fp"], row["fn"], row["tn"]) == (1, 1, 0, 1)
    assert (row["precision"], row["recall"]) == (0.5, 1.0)
    assert row["precision_ci95"] == pytest.approx([0.0945, 0.9055], abs=1e-4)  # Wilson's, of 1 in 2
    assert called.json["labels"]["instruct_clear"]["recall"] == 1.0
    shown = call("swe", "judge", folder / "tasks.jsonl", "--labels", folder / "labels.jsonl").out
    assert "instruct_ut_align" in shown
    assert "0.500" in shown


def test_a_model_is_asked(call: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    examples = tmp_path / "examples.jsonl"
    examples.write_text(json.dumps({"problem_statement": "One?", "test_patch": "+one", **YES}) + "\n")

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        word = "its shortest leg in metres, or" in request["messages"][-1]["content"]
        return completion("no JSON" if word else json.dumps(YES))

    server = FakeServer(answer)
    with server.running() as url:
        words = ["--judge", "m", "--endpoint", url, "--gold", "--few-shot", examples]
        called = call("swe", "judge", folder / "tasks.jsonl", *words, "--json")
        shown = call("swe", "judge", folder / "tasks.jsonl", *words).out
    assert called.code == 1
    rows = {row["instance_id"]: row for row in called.json["records"]}
    assert (rows[GOOD]["stage"], rows[GOOD]["reason"], rows[GOOD]["overall_good"]) == ("judge", "fits", True)
    assert (rows[LEAKING]["stage"], rows[LEAKING]["overall_good"]) == ("deterministic", False)
    assert (rows[WORD]["stage"], rows[WORD]["overall_good"]) == ("judge_failed", False)
    counts = called.json["judge"]
    assert (counts["asked"], counts["failed"], counts["calls"], counts["parse_failures"]) == (2, 1, 3, 2)
    assert server.requests[0]["model"] == "m"
    assert len(server.requests[0]["messages"]) == 4
    assert "gave no usable answer on 1" in shown


def test_a_server_that_fails_is_no_answer(call: Callable[..., Any], folder: Path) -> None:
    with FakeServer((400, "{}")).running() as url:
        called = call("swe", "judge", folder / "tasks.jsonl", "--judge", "m", "--endpoint", url, "--json")
    assert called.code == 3
    assert called.json["unknown"] == 2
    assert called.json["good"] == 0


def test_runs_are_asked_for(call: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[RunPlan] = []

    def run(task: Any, plan: RunPlan) -> RunResult:
        plans.append(plan)
        if task.record.instance_id == GOOD:
            raise SandboxError("no sandbox")
        return RunResult(runs=7)

    monkeypatch.setattr(assess, "run_findings", run)
    words = ["--run", "--repeats", 2, "--most-runs", 5, "--seed", 4, "--backend", "docker"]
    called = call("swe", "judge", folder / "tasks.jsonl", *words, "--json")
    assert plans[0] == RunPlan(2, 5, 4, "docker")
    assert called.code == 3
    assert [row["runs"] for row in called.json["records"]] == [0, 7, 7]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--gold"], "expected --judge MODEL beside --gold"),
        (["--few-shot", "x.jsonl"], "expected --judge MODEL beside --few-shot"),
        (["--run", "--repeats", "0"], "expected repeats to be a whole number >= 1, got 0"),
        (["--jobs", "0"], "expected jobs to be a whole number >= 1, got 0"),
        (["--labels", "gone.jsonl"], "cannot read gone.jsonl"),
    ],
)
def test_bad_use(call: Callable[..., Any], folder: Path, words: list[str], problem: str) -> None:
    called = call("swe", "judge", folder / "tasks.jsonl", *words)
    assert called.code == 2
    assert problem in called.complaint
