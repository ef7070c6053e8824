"""``agentgym run --agent-cmd``: an agent program plays."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.toys import AGENT, DESK

ENV = f"tests.blackbox.toys:{DESK}"
WRITE = "tests.blackbox.toys:write"


def test_a_program_plays_and_the_run_resumes(call, tmp_path):
    words = ["run", ENV, "--policy", WRITE, "--task", "desk-5", "--episodes", 1, "--out", tmp_path, "--json"]
    words += ["--agent-cmd", AGENT, "--agent-timeout", 60, "--agent-env", "NAME=value"]
    ran = call(*words)
    assert ran.code == 0, ran.err
    assert (ran.json["resolved"], ran.json["infrastructure_errors"]) == (1, 0)
    (line,) = (tmp_path / "trajectories.jsonl").read_text().splitlines()
    assert json.loads(line)["extra"]["program"]["outcome"] == "ended"
    settings = json.loads((tmp_path / "run.json").read_text())["player"]["program"]
    assert settings == {"command": str(AGENT), "timeout": 60.0, "env": {"NAME": "value"}, "show": {}}
    again = call(*words[: words.index("--json")], *words[words.index("--json") + 1 :])
    assert again.code == 0
    assert f"replies per episode   {ran.json['turns']:.1f}" in again.out
    assert (tmp_path / "trajectories.jsonl").read_text().count("\n") == 1


def test_the_monitor_screens_in_the_gateway(call, tmp_path):
    words = ["run", ENV, "--policy", WRITE, "--task", "desk-5", "--episodes", 1, "--out", tmp_path, "--json"]
    ran = call(*words, "--agent-cmd", AGENT, "--anti-hack", "block")
    assert ran.json["clean_resolved"] == 1
    settings = json.loads((tmp_path / "run.json").read_text())
    assert settings["player"]["anti_hack"] == "block"
    assert "AntiHack" not in json.dumps(settings["env"])


def test_a_program_that_never_starts_is_infrastructure(call):
    ran = call("run", ENV, "--policy", WRITE, "--episodes", 1, "--agent-cmd", "bash -c 'exit 3'")
    assert ran.code == 3
    assert "never asked the model: it crashed with exit status 3" in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--agent-timeout", "5"], "--agent-timeout means something only with --agent-cmd"),
        (["--agent-show", "/usr"], "--agent-show means something only with --agent-cmd"),
        (["--agent-cmd", "no-such-agent"], "there is no 'no-such-agent' on this machine"),
        (["--agent-cmd", "true", "--agent-env", "NAME"], "expected --agent-env KEY=VALUE, got 'NAME'"),
        (
            ["--agent-cmd", "true", "--agent-show", "/nowhere"],
            "expected --agent-show to name a file or folder",
        ),
        (["--agent-cmd", "true", "--agent-timeout", "0"], "above 0 s"),
        (["--agent-cmd", "true", "--compact", "500"], "--compact does not go with --agent-cmd"),
        (["--agent-cmd", "true", "--delegate", "1"], "--delegate does not go with --agent-cmd"),
        (["--agent-cmd", "true", "--prompts", "text"], "--prompts does not go with --agent-cmd"),
        (
            ["--agent-cmd", "true", "--anti-hack", "block", "--mask-blocked"],
            "--mask-blocked does not go with --agent-cmd",
        ),
        (["--agent-cmd", "true", "--anti-hack", "audit", "--penalty", "1"], "penalty means something only"),
        (["--agent-cmd", "true", "--agent-protocol", "hermse"], "Did you mean 'hermes'?"),
    ],
)
def test_mistakes_are_told_in_one_line(call, words, says):
    called = call("run", ENV, "--policy", WRITE, *words)
    assert called.code == 2
    assert says in called.complaint


def test_a_backend_that_reaches_everything(call):
    called = call("run", "tests.blackbox.toys:agentgym-test/Bare-v0", "--agent-cmd", "true")
    assert called.code == 2
    assert "an agent program needs a sandbox of bubblewrap, this is 'process'" in called.complaint
