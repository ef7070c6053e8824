"""Turns of a conversation that is rewritten, and the search for how much of it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from agentgym.messages import Conversation, Message, user
from agentgym.wrappers.summaries import DROPPED, cut


class Turn(NamedTuple):
    """An action with its answer; they stay or go together."""

    action: Message
    observation: Message
    line: str = ""  # for the summary by rule


def flat(turns: Iterable[Turn]) -> Conversation:
    """The messages of turns, in order."""
    return tuple(message for turn in turns for message in (turn.action, turn.observation))


def changed(message: Message, content: str) -> Message:
    """A message with that content; the same object where nothing changes, so that it counts as kept."""
    return message if message.content == content else Message(message.role, content)


def cut_message(message: Message, keep: int) -> Message:
    """The message with at most `keep` characters, and a line that says how many were cut."""
    return changed(message, cut(message.content, keep))


def without_answer(turn: Turn) -> Turn:
    """The turn with a marker for its answer, if that is shorter."""
    if len(turn.observation.content) <= len(DROPPED):
        return turn
    return turn._replace(observation=user(DROPPED))


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 0 to `most` that fits, if all below it do; -1 if none does."""
    if fits(most):
        return most
    low, high = -1, most - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
