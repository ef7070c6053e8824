from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import gymnasium
import pytest

from agentgym.cli.arguments import parse
from agentgym.cli.run import Args
from agentgym.errors import ContextOverflow
from agentgym.policies import Policy
from tests.cli.tiny import BROKEN, TINY

KEYS = (
    "id policy episodes mean_reward ci95 resolved clean_resolved hacked_resolved infrastructure_errors turns"
    " segments tokens seconds out"
).split()


def test_json_is_what_is_documented_and_what_is_written(call, tmp_path):
    out = tmp_path / "run"
    called = call("run", TINY, "--policy", "gold", "--episodes", 5, "--out", out, "--json")
    assert called.code == 0
    answer = called.json
    assert list(answer) == KEYS
    assert (answer["id"], answer["policy"], answer["out"]) == (TINY, "gold", str(out))
    assert (answer["episodes"], answer["mean_reward"], answer["resolved"]) == (5, 1.0, 5)
    assert json.loads((out / "summary.json").read_text()) == answer
    assert len((out / "trajectories.jsonl").read_text().splitlines()) == 5


def test_people_get_a_table_and_the_paths(call, tmp_path):
    called = call("run", TINY, "--policy", "gold", "--episodes", 2, "--out", tmp_path / "run")
    assert called.code == 0
    assert "mean reward" in called.out
    assert "trajectories.jsonl" in called.out.replace("\n", "")


def test_without_out_nothing_is_written(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("run", TINY, "--policy", "null", "--episodes", 2, "--json").json["out"] is None
    assert os.listdir(tmp_path) == []


def test_nothing_but_json_on_standard_output(call):
    called = call("run", TINY, "--policy", "gold", "--episodes", 2, "--set", "noisy=true", "--json")
    assert called.json["episodes"] == 2
    assert "noise" in called.err


def test_a_run_is_resumed(call, tmp_path):
    words = ["run", TINY, "--policy", "gold", "--out", tmp_path / "run", "--json", "--episodes"]
    call(*words, 2)
    first = (tmp_path / "run" / "trajectories.jsonl").read_text()
    assert call(*words, 4).json["episodes"] == 4
    second = (tmp_path / "run" / "trajectories.jsonl").read_text()
    assert second.startswith(first)
    assert len(second.splitlines()) == 4


def test_the_summary_is_of_everything_in_the_folder(call, tmp_path):
    out = tmp_path / "run"
    words = ["run", TINY, "--policy", "gold", "--out", out, "--json", "--episodes"]
    call(*words, 4)
    fewer = call(*words, 2).json
    assert fewer["episodes"] == 4
    assert json.loads((out / "summary.json").read_text()) == fewer
    (reported,) = call("report", out, "--json").json
    assert {key: reported[key] for key in KEYS} == fewer


def test_run_report_and_settings_name_the_same(call, tmp_path):
    out, words = tmp_path / "run", ["--policy", "agentgym.policies.scripted:Gold", "--episodes", 2]
    ran = call("run", f"tests.cli.tiny:{TINY}", *words, "--out", out, "--json").json
    (reported,) = call("report", out, "--json").json
    settings = json.loads((out / "run.json").read_text())
    assert (ran["id"], ran["policy"]) == (reported["id"], reported["policy"]) == (TINY, "gold")
    assert (settings["env_id"], settings["policy"]) == (TINY, "gold")


def test_changed_tasks_are_refused(call, tmp_path):
    file, out = tmp_path / "tasks.jsonl", tmp_path / "run"
    words = ["run", TINY, "--policy", "gold", "--episodes", 2, "--tasks", file, "--out", out]
    file.write_text('{"id": "one", "prompt": "Say 7.", "n": "7"}\n')
    assert call(*words).code == 0
    file.write_text('{"id": "one", "prompt": "Say 7.", "n": "8"}\n')
    called = call(*words)
    assert called.code == 2
    assert "tasks that have changed since" in called.complaint


def counted(conversation):
    """A counter of tokens for the flag."""
    return 7 + sum(len(message.content) for message in conversation)


def test_the_budget_is_counted_as_told(call, tmp_path):
    words = ["run", TINY, "--policy", "gold", "--episodes", 1, "--compact", 4000, "--out", tmp_path / "run"]
    assert call(*words, "--tokens", f"{__name__}:counted").code == 0
    (line,) = (tmp_path / "run" / "trajectories.jsonl").read_text().splitlines()
    row = json.loads(line)
    said = len(row["prompt"]) + len(row["steps"][0]["action"]) + len(row["steps"][0]["observation"])
    assert row["steps"][0]["info"]["context_tokens"] == 7 + said


def test_a_model_counts_its_own_tokens():
    def tokens(*words):
        args = parse(Args, "run", "", [TINY, *words])
        return args.stack.keywords(args.policy).get("tokens")

    assert tokens("--policy", "hf:smollm2", "--compact", "900") == "hf:smollm2"
    assert tokens("--policy", "hf:smollm2", "--compact", "900", "--tokens", "chars") == "chars"
    assert tokens("--policy", "gold", "--compact", "900") is None  # chars, the default of the wrapper
    assert tokens("--policy", "hf:smollm2") is None


def test_one_folder_holds_one_run(call, tmp_path):
    words = ["run", TINY, "--episodes", 2, "--out", tmp_path / "run"]
    call(*words, "--policy", "gold")
    called = call(*words, "--policy", "null")
    assert called.code == 2
    assert "another policy" in called.complaint


def test_tasks_are_chosen(call, tmp_path):
    call("run", TINY, "--policy", "gold", "--episodes", 2, "--task", "tiny-4", "--out", tmp_path / "a")
    call("run", TINY, "--policy", "gold", "--episodes", 2, "--split", "test", "--out", tmp_path / "b")
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"id": "mine", "prompt": "Say 7.", "n": "7"}\n')
    call("run", TINY, "--policy", "gold", "--episodes", 2, "--tasks", file, "--out", tmp_path / "c")
    for folder, expected in (("a", "tiny-4"), ("b", "tiny-4"), ("c", "mine")):
        lines = (tmp_path / folder / "trajectories.jsonl").read_text().splitlines()
        assert {json.loads(line)["task_id"] for line in lines} == {expected}


def test_compaction_does_not_change_what_a_scripted_policy_gets(call):
    words = ["run", "agentgym/Relay-v0", "--policy", "gold", "--episodes", 2, "--set", "hops=30", "--json"]
    plain = call(*words).json
    for summarizer in ("rule", "drop", "last", "policy"):
        compacted = call(*words, "--compact", 700, "--reply-tokens", 50, "--summarizer", summarizer).json
        assert compacted["mean_reward"] == plain["mean_reward"] == 1.0
        assert compacted["turns"] == plain["turns"]
        assert compacted["segments"] > plain["segments"] == 2


def test_every_episode_broken_is_no_answer(call, tmp_path):
    called = call("run", BROKEN, "--policy", "gold", "--episodes", 2, "--out", tmp_path / "run", "--json")
    assert called.code == 3
    assert called.json["infrastructure_errors"] == 2
    assert called.json["mean_reward"] is None
    assert "the sandbox did not start" in called.err.splitlines()[-1]


class Cramped(Policy):
    """Has no room for any reply."""

    name = "cramped"

    def act(self, conversations, *, seeds=None):
        raise ContextOverflow("30 tokens do not fit 16", 0)


def test_a_context_that_holds_nothing_is_told(call, tmp_path):
    """Reward 0 of a policy that never spoke is no measurement of it."""
    called = call("run", TINY, "--policy", f"{__name__}:Cramped", "--episodes", 3, "--json")
    assert called.code == 0
    assert called.err.splitlines()[-1].startswith(
        "agentgym: warning: 3 of 3 episodes met a full context of the model, 3 of them before the first reply; the "
        "first: 30 tokens do not fit 16 (--compact"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["agentgym-test/Tyni-v0"], "Did you mean 'agentgym-test/Tiny-v0'"),
        (["agentgym/Relay-v7"], "agentgym/Relay-v0"),
        (["no_such_module:Env-v0"], "no_such_module"),
        (["not an id"], "not an id"),
        ([TINY, "--policy", "gld"], "Did you mean 'gold'"),
        ([TINY, "--policy", "no_such_module:policy"], "no_such_module"),
        ([TINY, "--policy", "gold", "--temperature", "1"], "temperature"),
        ([TINY, "--set", "nosy=1"], "Did you mean 'noisy'"),
        ([TINY, "--set", "noisy"], "key=value"),
        ([TINY, "--split", "tst"], "Did you mean 'test'"),
        ([TINY, "--split", "test", "--set", "split=test"], "both"),
        ([TINY, "--task", "tiny-9"], "Did you mean 'tiny-"),
        ([TINY, "--tasks", "none.jsonl"], "none.jsonl"),
        ([TINY, "--tasks", "tasks.csv"], ".jsonl or .parquet"),
        ([TINY, "--tasks", "broken.jsonl"], "line 2"),
        ([TINY, "--max-turns", "0"], "max_turns"),
        ([TINY, "--episodes", "0"], "--episodes"),
        ([TINY, "--episodes", "al"], "all"),
        ([TINY, "--workers", "-3"], "workers"),
        ([TINY, "--seed", "-1"], "seed"),
        ([TINY, "--episode-timeout", "nan"], "episode_timeout"),
        ([TINY, "--set", "tasks=5"], "expected tasks"),
        (["agentgym/Relay-v0", "--set", "hops=abc"], "hops"),
        ([TINY, "--set", 'max_turns="3"'], "max_turns"),
        ([TINY, "--summarizer", "drop"], "--compact"),
        ([TINY, "--tokens", "chars"], "--compact"),
        ([TINY, "--compact", "400", "--tokens", "words"], "'words'"),
        ([TINY, "--compact", "400", "--summarizer", "drp"], "drp"),
        ([TINY, "--compact", "-1"], "max_tokens"),
    ],
)
def test_bad_use_is_one_line_and_writes_nothing(call, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.jsonl").write_text('{"id": "a"}\n{"id": \n')
    if "--policy" not in words:
        words = [*words, "--policy", "gold"]
    called = call("run", *words, "--out", "run", "--json")
    assert called.code == 2
    assert says in called.complaint
    assert os.listdir(tmp_path) == ["broken.jsonl"]


@pytest.mark.parametrize("out", ["", "file/inside", "/proc/nowhere"])
def test_out_that_cannot_be_made(call, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("precious")
    called = call("run", TINY, "--policy", "gold", "--out", out)
    assert called.code == 2
    assert "\n" not in called.complaint.strip()
    assert os.listdir(tmp_path) == ["file"]


def test_out_that_is_a_file(call, tmp_path):
    (tmp_path / "file").write_text("precious")
    called = call("run", TINY, "--policy", "gold", "--out", tmp_path / "file")
    assert called.code == 2
    assert called.complaint
    assert (tmp_path / "file").read_text() == "precious"


def test_a_missing_program_is_one_line(call, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    called = call("run", "agentgym/SWE-v0", "--policy", "null", "--out", tmp_path / "run")
    assert called.code == 3
    assert "needs the program git" in called.complaint
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_one_line(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    called = call("run", TINY, "--policy", "openai:some-model", "--episodes", 1)
    assert called.code == 3
    assert "pip install" in called.complaint


def test_an_unexpected_error_of_the_constructor_is_a_bug(call):
    def fail(**kwargs):
        raise ZeroDivisionError

    gymnasium.register("agentgym-test/Fails-v0", fail)
    try:
        called = call("run", "agentgym-test/Fails-v0")
    finally:
        del gymnasium.registry["agentgym-test/Fails-v0"]
    assert called.code == 70
    assert "ZeroDivisionError" in called.err


SLOW_ENV = """
import time
import gymnasium
from tests.cli.tiny import TinyEnv

class SlowEnv(TinyEnv):
    def begin(self, task):
        time.sleep(0.05)
        return super().begin(task)

gymnasium.register("Slow-v0", SlowEnv, order_enforce=False, disable_env_checker=True)
"""


@pytest.mark.slow
def test_interrupt_leaves_valid_files(tmp_path, call):
    (tmp_path / "slow_env.py").write_text(SLOW_ENV)
    out = tmp_path / "run"
    words = "run slow_env:Slow-v0 --policy gold --episodes 100000 --workers 2".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym", *words, "--out", str(out), "--json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    file = out / "trajectories.jsonl"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert "Traceback" not in stderr
    assert "the same command goes on from there" in stderr
    lines = file.read_text().splitlines()
    assert lines
    assert all(json.loads(line)["id"] for line in lines)
    assert call("report", out, "--json").json[0]["episodes"] == len(lines)


def test_all_plays_every_task_once(call, tmp_path):
    out = tmp_path / "run"
    words = "run agentgym/Relay-v0 --split test --policy gold --episodes all --json --out".split()
    answer = call(*words, out)
    lines = (out / "trajectories.jsonl").read_text().splitlines()
    assert answer.json["episodes"] == len({json.loads(line)["task_id"] for line in lines}) == 64
