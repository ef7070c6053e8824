"""Small environments and wrappers for the tests of the core. Importable, so that they pickle and spawn."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
from gymnasium.spaces import Dict

from agentgym import (
    AgentEnv,
    AgentWrapper,
    Conversation,
    Episode,
    InfrastructureError,
    Message,
    Task,
    ToolError,
    ToolResult,
    UnicodeText,
    Verdict,
    tool,
)

TASKS = [Task("red", "Red.", "train"), Task("green", "Green.", "train"), Task("blue", "Blue.", "test")]


class Moves(AgentEnv):
    """Plain text moves; what a move does stands in its name."""

    tasks = TASKS
    default_max_turns = 4

    def begin(self, task: Task) -> str:
        self.score = 0.0
        self.verified = 0
        return f"{task.prompt} {self.np_random.integers(10**9)}"

    def respond(self, action: str) -> str:
        if action == "win":
            self.score = 1.0
            self.finish()
        elif action == "lose":
            self.finish()
        elif action == "point":
            self.score = 0.25
        elif action == "wrong":
            raise ToolError("That is no move; expected win, lose or point.")
        elif action == "broken":
            raise InfrastructureError("the server died")
        elif action == "bug":
            raise ZeroDivisionError("a bug of the environment")
        return f"{action} {self.np_random.integers(10**9)}"

    def verify(self, episode: Episode) -> Verdict:
        self.verified += 1
        return Verdict(self.score)


class BrokenVerifier(Moves):
    """The verifier's machine is gone."""

    def verify(self, episode: Episode) -> Verdict:
        raise InfrastructureError("no room for grading")


class BrokenStart(Moves):
    """`begin` fails as long as `broken` is set."""

    broken = True

    def begin(self, task: Task) -> str:
        if self.broken:
            raise InfrastructureError("no sandbox")
        return super().begin(task)


class Notes(AgentEnv):
    """Tools over a small notebook."""

    tasks = TASKS
    default_max_turns = 6

    def begin(self, task: Task) -> str:
        self.notes: dict[str, str] = {}
        self.log: list[str] = []
        return task.prompt

    @tool
    def write(self, name: str, text: str) -> str:
        """Write a note.

        Args:
            name: of the note.
            text: what it says.
        """
        self.notes[name] = text
        self.log.append(f"write {name}")
        return "ok"

    @tool
    def read(self, name: str) -> str:
        """Read a note."""
        self.log.append(f"read {name}")
        if name not in self.notes:
            raise ToolError(f"no note {name!r}")
        return self.notes[name]

    @tool
    def pile(self, items: list[int], how: Literal["up", "down"] = "up", limit: int | None = None) -> Any:
        """Sort numbers in place, to show that a tool may change its arguments."""
        items.sort(reverse=how == "down")
        return items[:limit]

    @tool
    def breaks(self) -> str:
        """Lose the machine."""
        raise InfrastructureError("the sandbox died")

    @tool
    def exits(self) -> ToolResult:
        """Give a full result."""
        return ToolResult("bad", error=True, exit_code=3)

    @tool
    def nothing(self) -> None:
        """Answer nothing."""

    @tool
    def done(self) -> str:
        """End the task."""
        self.finish()
        return "done"

    def verify(self, episode: Episode) -> Verdict:
        return Verdict(float("secret" in self.notes))


class Logged(AgentWrapper):
    """Middleware that notes what passes; keeps a count as state of its own."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str = "log") -> None:
        super().__init__(env, name=name)
        self.name = name
        self.seen = 0

    def handle(self, call: Any, next: Any) -> ToolResult:
        self.seen += 1
        result = next(call)
        return result._replace(text=f"{self.name}({result.text})")


class Deny(AgentWrapper):
    """Middleware that answers calls of one tool itself."""

    def __init__(self, env: gymnasium.Env[Any, Any], tool: str = "write") -> None:
        super().__init__(env, tool=tool)
        self.tool = tool

    def handle(self, call: Any, next: Any) -> ToolResult:
        if call.name == self.tool:
            return ToolResult("", blocked=True, error=True, note="denied")
        return next(call)


class TextEnv(gymnasium.Env):
    """Observations of any length, as bare text."""

    metadata = {"render_modes": []}

    def __init__(self, length: int = 500_000, bound: int = 1 << 24) -> None:
        self.length = length
        self.observation_space = UnicodeText(bound)
        self.action_space = UnicodeText()

    def _text(self) -> str:
        return "汉é🙂x"[self.np_random.integers(4)] * self.length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._text(), {}

    def step(self, action):
        return self._text(), 0.0, False, False, {}


class DictTextEnv(TextEnv):
    """The same under a key."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length)
        self.observation_space = Dict(text=UnicodeText())

    def _text(self):
        return {"text": super()._text()}


class ChatEnv(gymnasium.Env):
    """The observation is the whole conversation."""

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = Conversation()
        self.action_space = UnicodeText()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.history = (Message("user", f"start {self.np_random.integers(10**6)}"),)
        return self.history, {}

    def step(self, action):
        self.history = (*self.history, Message("assistant", action), Message("user", "weiter 🙂"))
        return self.history, 0.0, len(self.history) >= 7, False, {}
