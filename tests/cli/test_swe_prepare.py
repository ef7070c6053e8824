"""``agentgym swe prepare``; what it calls is tested in tests/envs/swe and replaced here."""

from __future__ import annotations

import json

import pytest

from agentgym.envs.swe.runtime import repositories
from agentgym.envs.swe.runtime.repositories import Outcome

GOOD = Outcome(
    "good==1", True, name="good", python="3.11.7", tests=5, stable=4, unstable=1, notes=("[built]",)
)
BAD = Outcome("bad", False, stage="green", reason="bad: 3 of its 4 tests fail", notes=("tried x",))
BROKEN = Outcome("broken", False, infrastructure=True, reason="no network")


@pytest.fixture
def asked(monkeypatch):
    """The arguments of each call; the repositories are prepared without doing anything."""
    calls = []
    outcomes = {outcome.repository: outcome for outcome in (GOOD, BAD, BROKEN)}

    def prepare(repository, out, *, timeout, **more):
        print("noise on standard output")
        calls.append((repository, timeout))
        return outcomes[repository]

    monkeypatch.setattr(repositories, "prepare_repository", prepare)
    return calls


def test_table_and_exit_code(call, asked, tmp_path):
    called = call("swe", "prepare", "good==1", "--out", tmp_path / "out")
    assert called.code == 0
    assert "[built]" in called.out
    assert "1 of 1 repositories" in called.out
    called = call("swe", "prepare", "good==1", "bad", "broken", "--out", tmp_path / "out", "--timeout", 7)
    assert called.code == 1
    rows = {line.split()[0]: line for line in called.out.splitlines() if line.strip()}
    assert "not green" in rows["bad"]
    assert "3 of its 4 tests fail; tried x" in rows["bad"]
    assert "no answer" in rows["broken"]
    assert asked == [("good==1", 300.0), ("bad", 7.0), ("broken", 7.0)]  # the first is not done again
    assert (tmp_path / "out/prepare.json").is_file()


def test_json_is_all_there_is_on_standard_output(call, asked, tmp_path):
    called = call("swe", "prepare", "bad", "good==1", "--out", tmp_path, "--json")
    assert called.code == 1
    assert called.json == json.loads((tmp_path / "prepare.json").read_text())
    assert called.json["stages"] == ["fetched", "understood", "installed", "collected", "green", "stable"]
    assert [(row["repository"], row["ok"], row["stage"]) for row in called.json["repositories"]] == [
        ("bad", False, "green"),
        ("good==1", True, ""),
    ]


def test_names_from_a_file(call, asked, tmp_path):
    (tmp_path / "list.txt").write_text("# two of them\ngood==1  # with a remark\n\nbad\n")
    called = call("swe", "prepare", "--from", tmp_path / "list.txt", "--out", tmp_path / "out", "--json")
    assert called.json["n"] == 2
    assert [name for name, _ in asked] == ["good==1", "bad"]


def test_retry(call, asked, tmp_path):
    for words in ([], [], ["--retry"]):
        call("swe", "prepare", "good==1", "bad", "--out", tmp_path, *words)
    assert [name for name, _ in asked] == ["good==1", "bad", "bad"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "expected at least one repository"),
        (["good", "--jobs", "0"], "expected --jobs >= 1"),
        (["good", "--timeout", "0"], "--timeout > 0"),
        (["--from", "no-such-file"], "expected --from to be a text file"),
    ],
)
def test_bad_use(call, asked, words, reason):
    called = call("swe", "prepare", *words)
    assert called.code == 2
    assert reason in called.complaint
    assert asked == []
