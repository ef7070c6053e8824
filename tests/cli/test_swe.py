"""The verbs around SWE tasks; what they call is tested in tests/envs/swe and replaced here."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentgym.cli.swe import VERBS
from agentgym.errors import InfrastructureError, MissingDependency, TaskError

pytest.importorskip("agentgym.envs.swe.grading")

RECORD = {"instance_id": "pkg-1", "snapshot": "s.tar.gz", "FAIL_TO_PASS": ["t::a"], "PASS_TO_PASS": []}


@pytest.fixture
def records(tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps(RECORD) + "\n")
    return file


@pytest.fixture
def patch(tmp_path):
    file = tmp_path / "fix.diff"
    file.write_text("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
    return file


def row(ok):
    return {
        "instance_id": "pkg-1",
        "gold": 1.0,
        "null": 0.0,
        "ok": ok,
        "seconds": 1.5,
        "problem": None if ok else "red",
    }


@pytest.mark.parametrize("ok", [True, False])
def test_validate(call, records, monkeypatch, ok):
    report = {"n": 1, "ok": int(ok), "unknown": 0, "records": [row(ok)]}

    def validate(given, *, repeats, jobs, backend, progress):
        assert (repeats, jobs, backend) == (1, 1, "auto")
        print("noise on standard output")
        progress("pkg-1", 0, 1)
        assert [record.instance_id for record in given] == ["pkg-1"]
        return report

    monkeypatch.setattr("agentgym.envs.swe.grading.validate_records", validate)
    called = call("swe", "validate", records, "--json")
    assert called.json == report
    assert called.code == (0 if ok else 1)
    called = call("swe", "validate", records)
    assert called.code == (0 if ok else 1)
    assert "pkg-1" in called.out
    assert ("red" in called.out) is not ok


@pytest.mark.parametrize("resolved", [True, False])
def test_grade(call, records, patch, monkeypatch, resolved):
    parts = {"f2p": 1.0, "p2p": 0.5, "applied": True, "tests_touched": False}
    verdict = {
        "instance_id": "pkg-1",
        "resolved": resolved,
        "score": 1.0,
        "components": parts,
        "seconds": 2.0,
        "problem": None,
        "not_passed": [] if resolved else ["t::a (failed)"],
        "channel": "report",
    }
    monkeypatch.setattr("agentgym.envs.swe.grading.grade_patch", lambda given, name, diff, backend: verdict)
    called = call("swe", "grade", records, "--patch", f"pkg-1={patch}", "--json")
    assert called.json == verdict
    assert called.code == (0 if resolved else 1)
    called = call("swe", "grade", records, "--patch", f"pkg-1={patch}")
    assert ("not resolved" in called.out) is not resolved
    assert ("t::a (failed)" in called.out) is not resolved


@pytest.mark.parametrize("given", ["pkg-1", "=x", "pkg-1=", "pkg-1=/no/such.diff"])
def test_grade_needs_a_patch_file(call, records, given):
    called = call("swe", "grade", records, "--patch", given)
    assert called.code == 2
    assert called.complaint


def test_a_patch_of_a_file_in_another_encoding(call, records, tmp_path, monkeypatch):
    given = tmp_path / "latin.diff"
    given.write_bytes(b"+# caf\xe9\r\n")
    verdict = {"instance_id": "pkg-1", "resolved": True}
    taken = []
    monkeypatch.setattr(
        "agentgym.envs.swe.grading.grade_patch",
        lambda records, name, diff, backend: taken.append(diff) or verdict,
    )
    assert call("swe", "grade", records, "--patch", f"pkg-1={given}", "--json").code == 0
    assert [diff.encode("utf-8", "surrogateescape") for diff in taken] == [given.read_bytes()]


def test_every_verb_is_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    section = page.partition("\n## swe\n")[2].partition("\n## ")[0]
    assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == list(VERBS)


def test_grade_names_the_nearest_task(call, records, patch):
    called = call("swe", "grade", records, "--patch", f"pkg-2={patch}")
    assert called.code == 2
    assert "Did you mean 'pkg-1'?" in called.complaint


def test_records_with_a_broken_line(call, records):
    records.write_text(json.dumps(RECORD) + "\n{broken\n")
    called = call("swe", "validate", records, "--json")
    assert called.code == 2
    assert "line 2" in called.complaint


def test_records_that_are_not_there(call, tmp_path):
    called = call("swe", "validate", tmp_path / "none.jsonl")
    assert called.code == 2
    assert "none.jsonl" in called.complaint


def test_build(call, tmp_path, monkeypatch):
    rows = [{"candidate": "integer in a.py", "outcome": "not noticed", "detail": "", "seconds": 1.0}]
    report = {"tried": 1, "outcomes": {"not noticed": 1}, "candidates": rows}

    def build(sdist, out, *, count, seed, bugs, spread, jobs, test_targets, progress):
        progress("trying bug 1", 0, count)
        assert (sdist, count, seed, test_targets) == ("pkg==1.0", 1, 7, ())
        assert (bugs, spread, jobs) == ((1, 2), "files", 2)
        return SimpleNamespace(records=[SimpleNamespace(instance_id="pkg-1")], report=report)

    monkeypatch.setattr("agentgym.envs.swe.building.build.build_tasks", build)
    words = ["swe", "build", "--sdist", "pkg==1.0", "--count", "1", "--seed", "7", "--out", tmp_path]
    words += ["--bugs", "1..2", "--spread", "files", "--jobs", "2"]
    assert call(*words, "--json").json == {
        "records": str(tmp_path / "tasks.jsonl"), "n": 1, "instance_ids": ["pkg-1"],
        "tried": 1, "outcomes": {"not noticed": 1},
    }  # fmt: skip
    called = call(*words)
    assert called.code == 0
    assert "pkg-1" in called.out
    assert "integer in a.py" in called.out
    called = call(*words[:-6], "--bugs", "few")
    assert called.code == 2
    assert "N..M" in called.complaint


def test_mine(call, tmp_path, monkeypatch):
    def mine(sdists, out, *, count, jobs, test_targets, progress):
        progress("trying", 0, 0)
        assert (list(sdists), count, jobs) == (["pkg==1", "pkg==2"], None, 1)
        return SimpleNamespace(records=[], report={"tried": 0, "outcomes": {}, "candidates": []})

    monkeypatch.setattr("agentgym.envs.swe.building.mine.mine_sdists", mine)
    monkeypatch.setattr(
        "agentgym.envs.swe.building.history.last_versions",
        lambda name, n: [f"{name}=={i + 1}" for i in range(n)],
    )
    for words in (["--sdists", "pkg==1", "pkg==2"], ["--sdists", "pkg", "--last", "2"]):
        called = call("swe", "mine", "--out", tmp_path, *words, "--json")
        assert called.code == 1
        assert called.json["n"] == 0
    for words in (
        [],
        ["--repo", ".", "--sdists", "pkg"],
        ["--since", "x", "--sdists", "p"],
        ["--repo", ".", "--last", "2"],
    ):
        assert call("swe", "mine", "--out", tmp_path, *words).code == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TaskError("no tests"), 2),
        (InfrastructureError("pip failed"), 3),
        (MissingDependency("needs unidiff"), 3),
    ],
)
def test_build_failures(call, tmp_path, monkeypatch, error, code):
    def build(*args, **kwargs):
        raise error

    monkeypatch.setattr("agentgym.envs.swe.building.build.build_tasks", build)
    called = call("swe", "build", "--sdist", "pkg==1.0", "--out", tmp_path)
    assert called.code == code
    assert str(error) in called.complaint
