"""Programs, and models behind honest programs, that try for more than they were given."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from agentgym.gateway import Gateway

from .toys import AGENT, Spelled, bash

ROOT = Path(__file__).parents[2]

ANSWER = "echo 5 > answer.txt"


def said(trajectory) -> str:
    """What the first call printed."""
    return trajectory.steps[0].calls[0].text


def running(mark: str) -> list[int]:
    """Processes of this machine that have `mark` in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(mark in word for word in process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def test_daemons_die_with_the_program(play):
    mark = f"9{secrets.randbelow(10**8):08d}"
    t = play([bash(f"{ANSWER}; setsid nohup sleep {mark} >/dev/null 2>&1 & disown"), "Done."]).only
    assert t.reward == 1.0
    assert running(mark) == []


@pytest.mark.slow
def test_a_fork_bomb_is_a_crash_of_its_own(play):
    t = play([bash(ANSWER), bash("bomb() { bomb | bomb & }; bomb; sleep 1"), "Done."], timeout=5.0).only
    assert t.infrastructure_error == ""
    assert t.reward == 1.0


def test_a_flood_of_output(play):
    t = play([bash(f"{ANSWER}; yes | head -c 30000000 > /proc/$PPID/fd/1"), "Done."]).only
    assert t.reward == 1.0
    assert len(t.extra["program"]["stdout"]) <= 4000


def test_other_hosts_and_other_ports_of_this_one(play):
    with Gateway(Spelled(["hello"])) as other:
        command = (
            f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {other.port}), 3)' 2>&1 | tail -1;"
            "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 3)' 2>&1 | tail -1"
        )
        t = play([bash(command), "Done."]).only
    refused, unreachable = said(t).splitlines()[:2]
    assert "refused" in refused
    assert "unreachable" in unreachable


class Keeper(Spelled):
    """Has the program print its key, and keeps that."""

    def __init__(self) -> None:
        super().__init__([bash("echo $OPENAI_API_KEY"), self.keep])
        self.keys: list[str] = []

    def keep(self, conversation):
        self.keys += [line for line in conversation[-1].content.splitlines() if line.startswith("sk-")]
        return "Done."


def status(url: str, key: str) -> int:
    """What is answered to a call with a key."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Authorization": f"Bearer {key}"})
    try:
        return urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code


def test_nobody_is_answered_after_the_end(play):
    keeper = Keeper()
    found: list[int] = []
    t = play(keeper, after=lambda gateway: found.append(status(gateway.url, keeper.keys[0]))).only
    assert t.infrastructure_error == ""
    assert found == [401]


def test_the_key_of_another_is_not_to_be_seen(play):
    """A key is all that a session takes. So each program sees its own processes only, and its own variables."""
    look = (
        "ls /proc | grep -c '^[0-9]'; "
        "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep OPENAI_API_KEY | sort -u | wc -l"
    )
    played = play([bash(look), "Done."], tasks=("desk-3", "desk-5", "desk-7"), workers=3)
    for t in played.trajectories:
        processes, keys = said(t).splitlines()[:2]
        assert int(processes) < 20
        assert keys == "1"


def test_nothing_that_grades_it_is_within_reach(play, tmp_path, monkeypatch):
    """Of this machine's files it sees the system, the program and the workspace."""
    # The program asks env for its Python, which must not be that of an active environment beside these tests.
    elsewhere = [each for each in os.environ["PATH"].split(os.pathsep) if not each.startswith(str(ROOT))]
    monkeypatch.setenv("PATH", os.pathsep.join(elsewhere))
    (tmp_path / "hidden_test.py").write_text("secret")
    command = f"ls {tmp_path}; find {ROOT} -type f; touch /usr/x; ls -A /agentgym"
    t = play([bash(command), "Done."]).only
    missing, shown, kept, *rest = said(t).splitlines()
    assert "No such file" in missing
    assert shown == str(AGENT)
    assert "Read-only file system" in kept
    assert rest == ["task.md", "[status 0]"]


RUN = """
import sys, time
sys.path.insert(0, {root!r})
from tests.blackbox.toys import *
from agentgym.blackbox import Program, ProgramPlayer
from agentgym.gateway import Gateway
from agentgym.rollout import collect, make_env
policy = Spelled([bash("echo 3 > answer.txt"), "Done."])
slow = bash("echo {mark} > answer.txt; sleep {mark}")
class Slow(Spelled):
    def start(self):
        super().start()
        if self.env is not None and self.agent_env.episode.task.id == "desk-5":
            self.actions = (slow, "Done.") if {slow} else (bash("echo 5 > answer.txt"), "Done.")
policy = Slow(policy.actions)
with Gateway(policy) as gateway:
    player = ProgramPlayer(Program(str(AGENT), show={{str(AGENT): str(AGENT)}}), gateway)
    played = collect(lambda: make_env(DESK), policy, episodes=None, tasks=("desk-3", "desk-5"), player=player,
                     workers=1, out={out!r})
    print([t.reward for t in played])
"""


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_loses_no_episode(tmp_path):
    mark = f"9{secrets.randbelow(10**8):08d}"
    root = str(ROOT)

    def script(slow: bool) -> list[str]:
        return [sys.executable, "-c", RUN.format(root=root, mark=mark, out=str(tmp_path), slow=slow)]

    run = subprocess.Popen(script(True), cwd=root)
    lines = tmp_path / "trajectories.jsonl"
    deadline = time.monotonic() + 60
    while not (lines.exists() and lines.read_text().count("\n") and len(running(f"sleep {mark}")) > 0):
        assert time.monotonic() < deadline
        assert run.poll() is None
        time.sleep(0.1)
    run.kill()
    run.wait()
    deadline = time.monotonic() + 20
    while running(mark):
        assert time.monotonic() < deadline, running(mark)
        time.sleep(0.1)
    (row,) = [json.loads(line) for line in lines.read_text().splitlines()]
    assert (row["task_id"], row["reward"]) == ("desk-3", 1.0)
    done = subprocess.run(script(False), cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[1.0, 1.0]\n"
    assert lines.read_text().count("\n") == 2
    assert os.path.exists(tmp_path / "run.json")
