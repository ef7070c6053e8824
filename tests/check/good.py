"""A small environment without a fault; each file in `broken` adds exactly one to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym import AgentEnv, Episode, Task, TaskSet, ToolCall, ToolError, Verdict, tool
from agentgym.tasks import FrozenDict


class Lockbox(AgentEnv):
    """Turn a dial to three digits, each named by a riddle, then open the box."""

    tasks = TaskSet(
        [
            Task(
                f"box-{split}-{n}",
                split=split,
                data={"digits": digits, "solution": f"open sesame, box {n} {split}"},
            )
            for split, boxes in (
                ("train", [(3, 1, 4), (2, 7, 1), (9, 8, 9)]),
                ("test", [(1, 4, 1), (5, 7, 7)]),
            )
            for n, digits in enumerate(boxes)
        ],
        name="lockbox",
    )
    default_max_turns = 8
    instructions = "Find the three digits of the box."

    def begin(self, task: Task) -> str:
        self.position = 0
        self.dial = int(self.np_random.integers(10))
        self.notes: list[str] = []
        rattles = self.np_random.integers(1000)
        return f"A box with a dial, which stands at {self.dial}. Something rattles {rattles} times."

    @tool
    def turn(self, digit: int) -> str:
        """Turn the dial.

        Args:
            digit: 0 to 9.
        """
        if not 0 <= digit <= 9:
            raise ToolError("The dial has the digits 0 to 9.")
        self.dial = digit
        right = digit == self._digits[self.position]
        self.position = self.position + 1 if right else 0
        if self.position == len(self._digits):
            self.finish()
        return "Click." if right else f"Clunk, and {self.np_random.integers(100)} rattles."

    @tool
    def note(self, text: str) -> str:
        """Write on a piece of paper and read all of it.

        Args:
            text: what to write.
        """
        self.notes.append(text[:100])
        return "The paper says: " + " / ".join(self.notes)

    def verify(self, episode: Episode) -> Verdict:
        return Verdict(1.0 if self.position == len(self._digits) else 0.0)

    def anchor(self) -> str:
        return f"{self.position} right, dial at {self.dial}"

    def gold(self) -> str:
        return self._write(self._digits[self.position])

    def cheats(self) -> Mapping[str, Sequence[str]]:
        return {"all digits in one message": ["\n".join(self._write(digit) for digit in range(10))]}

    def secrets(self, task: Task) -> Sequence[str]:
        return [task.data["solution"]]

    @property
    def _digits(self) -> tuple[int, ...]:
        return self.episode.task.data["digits"]

    def _write(self, digit: int) -> str:
        return self.protocol.render_call(ToolCall("turn", FrozenDict(digit=digit)))


class NoTask(Lockbox):
    """Has nothing to draw from."""

    tasks: Any = ()
