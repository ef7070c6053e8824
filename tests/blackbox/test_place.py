"""Environments that hold their files themselves: a program gets a folder of them, and what it made is taken back."""

from __future__ import annotations

from collections.abc import Mapping

from agentgym import AgentEnv, Episode, Task, Verdict, tool
from agentgym.blackbox import Program, ProgramPlayer
from agentgym.errors import InfrastructureError
from agentgym.gateway import Gateway
from agentgym.rollout import collect

from .toys import AGENT, Spelled, bash


class Folder(AgentEnv):
    """Files in memory; what is in `result` after an episode is what a program left."""

    tasks = [Task("folder", "Change the files.")]
    result: Mapping[str, bytes] = {}

    def begin(self, task: Task) -> str:
        return task.prompt

    @tool
    def look(self) -> str:
        """Look."""
        return "files"

    def lend_files(self) -> dict[str, str]:
        return {"a.txt": "old", "sub/b.txt": "kept"}

    def take_files(self, files: Mapping[str, bytes]) -> None:
        type(self).result = dict(files)

    def verify(self, episode: Episode) -> Verdict:
        return Verdict(float(self.result.get("a.txt") == b"new\n"))


def played(command: str):
    policy = Spelled([bash(command), "Done."])
    with Gateway(policy) as gateway:
        player = ProgramPlayer(Program(str(AGENT)), gateway)
        (trajectory,) = collect(Folder, policy, episodes=1, player=player)
    return trajectory


def test_files_are_lent_and_taken_back():
    t = played(
        "cat a.txt sub/b.txt; echo new > a.txt; rm -r sub; mkdir c; printf '\\377' > c/d; echo x > .hidden"
    )
    assert t.steps[0].calls[0].text == "oldkept[status 0]"
    assert t.reward == 1.0
    assert Folder.result == {"a.txt": b"new\n", "c/d": b"\xff"}


def test_links_lead_nowhere():
    played("echo new > a.txt; ln -s /etc/passwd b; ln -s /etc c; rm -r sub")
    assert Folder.result == {"a.txt": b"new\n"}


def test_a_folder_that_is_too_large_is_nothing(monkeypatch):
    monkeypatch.setattr("agentgym.blackbox.place._MOST_ENTRIES", 20)
    t = played("echo new > a.txt; seq 21 | xargs touch")
    assert (t.reward, t.infrastructure_error) == (0.0, "")
    assert Folder.result == {}


def test_a_page(monkeypatch):
    """Web-v0: what is judged is what the program wrote, as far as a page may have such files."""
    seen = {}

    class Judges:
        def run(self, task, files, *, seed):
            seen.update(files)
            raise InfrastructureError("only the files matter here")

    monkeypatch.setattr("agentgym.envs.web.base.shared_pool", lambda browsers: Judges())
    write = "echo '<p>' > index.html; mkdir js; echo 'let a' > js/app.js; printf '\\377' > no-text; echo x > 'odd name'"
    policy = Spelled([bash(write), "Done."])
    with Gateway(policy) as gateway:
        player = ProgramPlayer(Program(str(AGENT)), gateway)
        (t,) = collect("agentgym/Web-v0", policy, episodes=1, player=player)
    assert seen == {"index.html": b"<p>\n", "js/app.js": b"let a\n"}
    assert t.infrastructure_error == "only the files matter here"
