"""``agentgym gateway`` as a user runs it: a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time

import httpx
import pytest

from agentgym.cli import gateway
from agentgym.trajectory.store import TrajectoryStore

POLICY = """
from agentgym.policies import Policy, Reply

class Echo(Policy):
    name = "echo"

    def act(self, conversations):
        return [Reply("heard: " + c[-1].content, prompt_tokens=1, sampled_tokens=2) for c in conversations]
"""


class Served:
    """The process, what it printed first, and a client."""

    def __init__(self, folder, *words, background=False):
        (folder / "echo.py").write_text(textwrap.dedent(POLICY))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentgym", "gateway", "--policy", "echo:Echo", "--json", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # As a shell starts what runs in the background: Ctrl-C is not for it.
            preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if background else None,
        )
        lines = []
        while not lines or lines[-1] != "}\n":
            lines.append(self.process.stdout.readline())
            assert lines[-1], self.process.stderr.read()
        self.told = json.loads("".join(lines))
        self.http = httpx.Client(base_url=self.told["url"], timeout=30)

    def ask(self, key, text="hi"):
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        answer = self.http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        return (
            answer.json()["choices"][0]["message"]["content"]
            if answer.status_code == 200
            else answer.status_code
        )

    def admin(self, method, path, body=None, token=None):
        headers = {"Authorization": f"Bearer {token or self.told['admin_token']}"}
        return self.http.request(method, path, json=body, headers=headers)

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        self.http.close()
        return self.process.returncode, out, err


@pytest.fixture
def serve(tmp_path):
    running = []

    def start(*words, **how):
        running.append(Served(tmp_path, "--out", str(tmp_path / "out"), *words, **how))
        return running[-1]

    yield start
    for served in running:
        if served.process.poll() is None:
            served.end(signal.SIGKILL)


def written(tmp_path):
    return {t.id: t for t in TrajectoryStore(tmp_path / "out")}


@pytest.mark.slow
def test_sessions_from_outside_and_ctrl_c(serve, tmp_path):
    served = serve("--key", "k1", "--key", "k2", "--max-calls", "2")
    assert served.told["keys"] == ["k1", "k2"]
    assert served.told["openai_base_url"] == served.told["url"] + "/v1"
    assert [served.ask("k1", text) for text in ("a", "b", "c")] == ["heard: a", "heard: b", 403]
    ended = served.admin("DELETE", "/sessions/k1", {"reward": 0.5})
    assert (ended.status_code, ended.json()["replies"], ended.json()["reward"]) == (200, 2, 0.5)
    assert served.ask("k1") == 401
    assert set(written(tmp_path)) == {"gateway/echo/0"}

    opened = served.admin("POST", "/sessions", {"task_id": "t", "id": "mine"})
    assert opened.status_code == 201
    assert served.ask(opened.json()["key"]) == "heard: hi"
    listed = {row["key"]: row["calls"] for row in served.admin("GET", "/sessions").json()}
    assert listed == {"k2": 0, opened.json()["key"]: 1}
    assert served.admin("GET", "/sessions", token="k2").status_code == 401
    assert served.admin("DELETE", "/sessions/none").status_code == 400
    misspelt = served.admin("DELETE", "/sessions/k2", {"rewrad": 1}).json()["error"]["message"]
    assert misspelt == "unknown field 'rewrad'. Did you mean 'reward'?"
    assert (
        served.admin("POST", "/sessions", {"id": "mine"})
        .json()["error"]["message"]
        .startswith("expected an id")
    )
    wrong = served.admin("DELETE", f"/sessions/{opened.json()['key']}", {"score": 2})
    assert (wrong.status_code, "[0, 1]" in wrong.json()["error"]["message"]) == (400, True)

    code, out, err = served.end()
    assert (code, out, err) == (0, "", "")
    trajectories = written(tmp_path)
    assert set(trajectories) == {"gateway/echo/0", "mine"}
    assert trajectories["mine"].task_id == "t"
    how = {id: (t.reward, t.terminated, t.truncated) for id, t in trajectories.items()}
    assert how == {"gateway/echo/0": (0.5, True, False), "mine": (0.0, False, False)}


@pytest.mark.slow
def test_killed_in_the_middle_of_an_episode(serve, tmp_path):
    served = serve("--key", "k1", "--key", "k2")
    served.ask("k1")
    served.admin("DELETE", "/sessions/k1", {"score": 1.0})
    served.ask("k2")
    children = subprocess.run(["pgrep", "-P", str(served.process.pid)], capture_output=True, text=True).stdout
    assert children == "", "the gateway has no process that could be left behind"
    assert served.end(signal.SIGKILL)[0] == -signal.SIGKILL
    (trajectory,) = written(tmp_path).values()
    assert (trajectory.reward, trajectory.resolved, trajectory.outcome) == (1.0, True, "clean_resolved")
    again = serve(background=True)  # the file is whole, and ids go on
    again.ask(again.told["keys"][0])
    assert again.end(signal.SIGTERM)[0] == 0
    assert set(written(tmp_path)) == {"gateway/echo/0", "gateway/echo/1"}


@pytest.mark.slow
def test_idle_sessions_end(serve, tmp_path):
    served = serve("--idle", "0.3", "--key", "k1", "--key", "unused")
    served.ask("k1")
    for _ in range(200):
        if served.ask("k1") == 401:
            break
        time.sleep(0.5)
    (trajectory,) = written(tmp_path).values()
    assert (trajectory.truncated, trajectory.terminated) == (True, False)
    assert served.ask("unused") == "heard: hi"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--policy"),
        (("--policy", "gold"), "must be an AgentEnv, got Env; hf:NAME"),
        (("--policy", "null", "--idle", "0"), "--idle"),
        (("--policy", "null", "--key", "a", "--key", "a"), "each --key once"),
        (("--policy", "null", "--max-calls", "0"), "calls"),
        (("--policy", "null", "--port", "70000"), "port <= 65535"),
        (("--policy", "null", "--seed", "-1"), "seed"),
        (("--policy", "null", "--host", ""), "host"),
        (("--policy", "null", "--out", ""), "--out"),
        (("--policy", "null", "--out", f"{__file__}/runs"), "Not a directory"),
        (("--policy", "null", "--key", "a b\n"), "printable ASCII"),
    ],
)
def test_bad_use(call, words, says, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    called = call("gateway", *words)
    assert called.code == 2
    assert says in called.complaint


def test_a_server_that_ends_by_itself_is_no_success(call, monkeypatch, tmp_path):
    def ask_and_kill(args, served, keys, token):
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        served.open("k")
        assert httpx.post(
            f"{served.url}/v1/chat/completions", json=body, headers={"x-api-key": "k"}
        ).is_success
        served._running._server.should_exit = True
        served._running.thread.join()

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(gateway, "_announce", ask_and_kill)
    called = call("gateway", "--policy", "null", "--out", tmp_path / "out")
    assert (called.code, called.err) == (3, "agentgym: the gateway's server ended by itself\n")
    (trajectory,) = written(tmp_path).values()
    assert (trajectory.reward, trajectory.infrastructure_error) == (
        None,
        "the gateway's server ended by itself",
    )


def test_what_it_prints(call, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(gateway, "_serve", lambda args, served: None)
    called = call("gateway", "--policy", "null", "--key", "my-key")
    assert called.code == 0
    for name in (
        "OPENAI_BASE_URL=http://127.0.0.1:",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:",
        "my-key",
        "/v1/responses",
    ):
        assert name in called.out
    assert "not kept" in called.out
