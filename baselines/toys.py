"""Small environments to see an algorithm learn in: ``baselines.toys:Box-v0`` and ``baselines.toys:Word-v0``."""

from __future__ import annotations

import re

import gymnasium
from gymnasium.envs.registration import register

from agentgym.core import AgentEnv, Episode, Task, TaskSet, Verdict
from agentgym.errors import ToolError

_TRAIN, _TEST = range(10, 74), range(74, 100)  # codes
_PROMPT = "A box is locked. Write <look> to see its code."
_EXAMPLE = f"""{_PROMPT}

Example:
user: {_PROMPT}
assistant: <look>
user: The code is 35.
assistant: <open 35>"""


class BoxEnv(AgentEnv):
    """Read a code with one tool call, use it in the next.

    ## Description
    Two turns, as small as a task with tools can be: ``<look>`` shows a number of two digits, ``<open NUMBER>`` opens
    the box. The prompt holds one example. The number is in no prompt, so the second call has to copy it from the
    answer to the first one. Test tasks have numbers that training never shows.

    ## Actions
    A text with one call in it; what stands around the call does not matter. Anything else costs a turn.

    ## Reward
    1 if the box is open at the end, else 0.

    ## Episode end
    Terminated by ``<open ...>``, right or wrong; truncated after `max_turns` (default: 2, none to spare).

    ## Version history
    v0: first.
    """

    tasks = TaskSet(
        [Task(f"box-{code}", split=split, data={"code": code})
         for split, codes in (("train", _TRAIN), ("test", _TEST)) for code in codes],
        name="box",
    )  # fmt: skip
    default_max_turns = 2

    def begin(self, task: Task) -> str:
        """The instructions, the same for every task."""
        self.code = str(task.data["code"])
        self.looked = self.opened = False
        return _EXAMPLE

    def respond(self, action: str) -> str:
        """Look or open."""
        found = re.search(r"<(look|open) ?(\w*)>", action)
        if found is None:
            raise ToolError("Write <look> or <open CODE>.")
        if found[1] == "look":
            self.looked = True
            return f"The code is {self.code}."
        self.opened = self.looked and found[2] == self.code
        self.finish()
        return "It opens." if self.opened else "It stays shut."

    def verify(self, episode: Episode) -> Verdict:
        """Open or not."""
        return Verdict(float(self.opened))

    def anchor(self) -> str:
        """Whether the note was read; not what it says."""
        return f"looked={self.looked}"

    def gold(self) -> str:
        """Look, then open."""
        return f"<open {self.code}>" if self.looked else "<look>"


class WordEnv(AgentEnv):
    """One turn, one right word: a bandit, for tests that must see learning within seconds.

    ## Description
    The reward is 1 if the message begins with `word`. Everything that a policy can do wrong is done in one turn, so a
    random model of a few thousand parameters finds out.

    Args:
        word: the right one.
        **kwargs: see `AgentEnv`.

    ## Version history
    v0: first.
    """

    tasks = TaskSet(
        [
            Task(f"word-{split}-{n}", split=split)
            for split, count in (("train", 8), ("test", 4))
            for n in range(count)
        ],
        name="word",
    )
    default_max_turns = 1

    def __init__(self, *, word: str = "blue", **kwargs: object) -> None:
        self.word = word
        super().__init__(**kwargs)  # type: ignore[arg-type]

    def begin(self, task: Task) -> str:
        """Always the same question."""
        self.right = False
        return "Say red, green, blue or grey."

    def respond(self, action: str) -> str:
        """The only move."""
        self.right = action.split()[:1] == [self.word]
        self.finish()
        return "Yes." if self.right else "No."

    def verify(self, episode: Episode) -> Verdict:
        """The right word or not."""
        return Verdict(float(self.right))

    def gold(self) -> str:
        """The word."""
        return self.word


for _name, _maker in (("Box-v0", BoxEnv), ("Word-v0", WordEnv)):
    if _name not in gymnasium.registry:
        register(_name, entry_point=f"{__name__}:{_maker.__name__}")
