"""What the tests of sub-agents share: environments to delegate in, policies with token ids, and calls written short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from agentgym import AgentEnv, Episode, Task, ToolError, Verdict, tool
from agentgym.messages import Conversation
from agentgym.policies import Policy, Reply
from agentgym.protocols import Hermes
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall

_HERMES = Hermes()
_END = 0


def call(tool_name: str, /, **arguments: Any) -> str:
    """An action that makes one call."""
    return _HERMES.render_call(ToolCall(tool_name, FrozenDict(arguments)))


class Store(AgentEnv):
    """Things on a shelf: `view` looks, `put` changes, `submit` ends; 1.0 for the word "key" in the hall."""

    tasks = [Task("hall", "Put the key in the hall."), Task("yard", "Put the key in the hall, then wait.")]
    default_max_turns = 8

    def __init__(self, *, shelf: str = "dust", **kwargs: Any) -> None:
        self.shelf = shelf
        super().__init__(**kwargs)

    def begin(self, task: Task) -> str:
        self.rooms = {"hall": "", "shelf": self.shelf}
        self.luck = int(self.np_random.integers(10**6))
        return task.prompt

    @tool(read_only=True)
    def view(self, room: str) -> str:
        """See what is in a room.

        Args:
            room: its name.
        """
        if room == "luck":
            return str(self.np_random.integers(10**6))
        if room not in self.rooms:
            raise ToolError(f"there is no room {room}")
        return self.rooms[room] or "nothing"

    @tool
    def put(self, room: str, thing: str) -> str:
        """Put a thing somewhere.

        Args:
            room: where.
            thing: what.
        """
        self.rooms[room] = thing
        return "Done."

    @tool
    def submit(self) -> str:
        """End."""
        self.finish()
        return "Handed in."

    def verify(self, episode: Episode) -> Verdict:
        return Verdict(float(self.rooms["hall"] == "key"))


class Door(AgentEnv):
    """Plain moves: "push" three times opens the door."""

    tasks = [Task("door", "Open the door.")]
    default_max_turns = 9

    def begin(self, task: Task) -> str:
        self.pushes = 0
        return task.prompt

    def respond(self, action: str) -> str:
        if action != "push":
            raise ToolError("You can only push.")
        self.pushes += 1
        if self.pushes == 3:
            self.finish()
        return f"It moves, {self.pushes} of 3."

    def verify(self, episode: Episode) -> Verdict:
        return Verdict(float(self.pushes >= 3))

    def gold(self) -> str:
        return "push"


for _name, _class in (("Store", Store), ("Door", Door)):
    if f"test/{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            f"test/{_name}-v0",
            entry_point=f"{__name__}:{_class.__name__}",
            order_enforce=False,
            disable_env_checker=True,
        )


def encode(text: str) -> tuple[int, ...]:
    """A token a character; 0 ends a message."""
    return tuple(ord(letter) for letter in text)


def prompt_of(conversation: Conversation) -> tuple[int, ...]:
    """A chat template: each message and its end."""
    return tuple(token for message in conversation for token in (*encode(message.content), _END))


class Tokens(Policy):
    """Answers from a function, with exact token ids.

    Args:
        answer: from a conversation to a text.
    """

    name = "tokens"

    def __init__(self, answer: Callable[[Conversation], str]) -> None:
        self.answer = answer
        self.asked: list[Conversation] = []

    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        self.asked += conversations
        return [self._reply(conversation) for conversation in conversations]

    def _reply(self, conversation: Conversation) -> Reply:
        text = self.answer(conversation)
        ids = (*encode(text), _END)
        return Reply(text, prompt_of(conversation), ids, (-1.0,) * len(ids), 1.0, "stop", end_of_turn=(_END,))


class Script(Tokens):
    """Plays lists of actions: each conversation's n-th reply is the n-th of the list that its first user message names.

    Args:
        scripts: by the first user message, a list of actions; "" for any other.
    """

    def __init__(self, **scripts: Sequence[str]) -> None:
        super().__init__(self._next)
        self.scripts = scripts

    def _next(self, conversation: Conversation) -> str:
        task = next(message.content for message in conversation if message.role == "user")
        written = sum(message.role == "assistant" for message in conversation)
        return (self.scripts.get(task) or self.scripts["lead"])[written]
