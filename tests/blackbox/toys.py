"""A desk with a sandbox on it, and a policy whose every byte is a token."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from agentgym import AgentEnv, Episode, Task, Verdict, tool
from agentgym.messages import Conversation
from agentgym.policies import Reply, Scripted
from agentgym.sandbox import Limits, make_sandbox
from agentgym.sandbox.base import Sandbox

AGENT = Path(__file__).with_name("agent.py")
DESK = "agentgym-test/Desk-v0"


class DeskEnv(AgentEnv):
    """Write the task's number into the file answer.txt."""

    tasks = [Task(f"desk-{n}", f"Write {n} into answer.txt.", data={"n": n}) for n in (3, 5, 7)]
    default_max_turns = 12
    _sandbox: Sandbox | None = None

    def begin(self, task: Task) -> str:
        self._sandbox = self.episode.workspace = make_sandbox(limits=Limits(processes=64, disk_mb=64))
        self._sandbox.write("notes.txt", "nothing yet\n")
        return task.prompt

    @tool
    def look(self) -> str:
        """Look at the desk."""
        return "a desk"

    def verify(self, episode: Episode) -> Verdict:
        try:
            answer = episode.workspace.read("answer.txt", most=100).decode()
        except OSError:
            answer = ""
        return Verdict(float(answer.strip() == str(episode.task.data["n"])))

    def boundaries(self, task: Task) -> Mapping[str, Any]:
        return {"workspace": "/workspace", "protected_paths": ["/workspace/notes.txt"], "fresh_shell": True}

    def teardown(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


class BareEnv(DeskEnv):
    """The same with a backend that does not isolate."""

    def begin(self, task: Task) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._sandbox = self.episode.workspace = make_sandbox("process", allow_unsafe=True)
        return task.prompt


for name, cls in ((DESK, DeskEnv), ("agentgym-test/Bare-v0", BareEnv)):
    if name not in gymnasium.registry:
        gymnasium.register(name, cls, order_enforce=False, disable_env_checker=True)

# One token for each byte of text, and one for the beginning and end of a message.
END, ROLES = 256, {"system": 257, "user": 258, "assistant": 259, "tool": 260}


def spell(conversation: Conversation) -> list[int]:
    """The tokens of whole messages."""
    return [
        token for message in conversation for token in (ROLES[message.role], *message.content.encode(), END)
    ]


class Spelled(Scripted):
    """Plays a list of actions and tells the tokens.

    Args:
        actions: texts, or functions of the conversation that return one.
    """

    name = "spelled"

    def __init__(
        self, actions: Iterable[str | Callable[[Conversation], str]], *, name: str = "spelled"
    ) -> None:
        super().__init__(actions, name=name)  # type: ignore[arg-type]

    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """The next action."""
        replies = []
        for conversation in conversations:
            action: Any = self.next_action(conversation)
            text = action(conversation) if callable(action) else action
            sampled = (*text.encode(), END)
            prompt = (*spell(conversation), ROLES["assistant"])
            replies.append(
                Reply(text, prompt, sampled, (-1.0,) * len(sampled), 1.0, "stop", end_of_turn=(END,))
            )
        return replies


def bash(command: str) -> str:
    """A call as the policy writes it."""
    return f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command}})}</tool_call>"


def write() -> Spelled:
    """Writes the 5; for command lines."""
    return Spelled([bash("echo 5 > answer.txt"), "Done."])
