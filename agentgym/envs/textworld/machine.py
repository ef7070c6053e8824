"""The z-machine that runs a story: commands in, what the game prints out."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from agentgym.envs.textworld.package import LOCK, jericho

LONGEST_COMMAND = 118  # characters; what the games read of a line
_SEED = 1234  # of the interpreter, whose default is the time of day

# What stands below every answer: the prompt, and a status line with the room, the score and the turns.
_STATUS = re.compile(r"\s*>?\s*-= [^\n]* =-(-?\d+)/\d+\s*\Z")
_EVENT = re.compile(r"\[[^\]]+\]\n?")  # of the trace: "[taking the key]", "[taking the key - succeeded]"
_SUCCEEDED = " - succeeded"
_FINAL_SCORE = re.compile(r"^You scored (?:a total of )?(-?\d+)\b", re.MULTILINE)
_WON = re.compile(r"^ *\*\*\* The End \*\*\* *$", re.MULTILINE)
_LOST = re.compile(r"^ *\*\*\* You lost! \*\*\* *$", re.MULTILINE)
_QUESTION = "Would you like to RESTART, RESTORE a saved game, QUIT or UNDO the last command?"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a game says to a command.

    Attributes:
        text: what it prints, without the prompt, the status line, the trace of events and the question at its end.
        events: what was done successfully, in order, in lower case.
        score: points so far; None where the answer shows none.
        won: whether this is the end, and a good one.
        lost: whether this is the end, and a bad one.
    """

    text: str
    events: tuple[str, ...] = ()
    score: int | None = None
    won: bool = False
    lost: bool = False


def read_answer(raw: str) -> Answer:
    """Take apart what the interpreter prints, with the trace of events on."""
    status = _STATUS.search(raw)
    body = raw[: status.start()] if status else raw
    events = [match[0].strip()[1:-1] for match in _EVENT.finditer(body)]
    text = _EVENT.sub("", body)
    won, lost = bool(_WON.search(text)), bool(_LOST.search(text))
    score = int(status[1]) if status else None
    if won or lost:  # the status line is not drawn again then
        total = _FINAL_SCORE.search(text)
        score = int(total[1]) if total else score
        text = text.removesuffix(">").rstrip().removesuffix(_QUESTION)
    return Answer(
        text.strip(),
        tuple(
            event.removesuffix(_SUCCEEDED).lower()
            for event in events
            if event.endswith(_SUCCEEDED) and "(" not in event  # those in brackets are steps of another one
        ),
        score,
        won,
        lost,
    )


def read_opening(raw: str) -> str:
    """The first text, without the picture of the word TextWorld above it."""
    lines = read_answer(raw).text.split("\n")
    while lines and not re.search("[a-z]", lines[0]):
        lines.pop(0)
    return "\n".join(lines)


class Machine:
    """An interpreter with a story in it, and memory of its own outside Python.

    Args:
        story: path of a whole ``.z8``; with a broken one the interpreter ends the process.
    """

    def __init__(self, story: str) -> None:
        # The games are not among those that the interpreter knows the insides of, and it warns of that.
        with LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore", jericho.UnsupportedGameWarning)
            self._interpreter = jericho.FrotzEnv(story, _SEED)
        self._opening = ""
        self._beginning: Any = None

    def restart(self) -> str:
        """Go to the start of the game; returns the first text."""
        if self._beginning is None:
            raw, _ = self._interpreter.reset()
            self._opening = read_opening(raw)
            self._interpreter.step("tw-trace-actions")
            self._beginning = self._interpreter.get_state()
        else:
            self._interpreter.set_state(self._beginning)
        return self._opening

    def send(self, command: str) -> Answer:
        """One command: a line of at most `LONGEST_COMMAND` characters of ASCII."""
        return read_answer(self._interpreter.step(command)[0])

    def save(self) -> Any:
        """The state of the game, as values that can be pickled."""
        return self._interpreter.get_state()

    def load(self, state: Any) -> None:
        """Go back to a `save` of the same story."""
        self._interpreter.set_state(state)
