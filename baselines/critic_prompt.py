"""What a generative critic reads and how its answer is read, and where in a reply a state is judged.

The run so far stands before what changes from state to state (the budget, the question), so the prompts of one segment
share their beginning and it is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym.messages import Conversation, system, user
from agentgym.trajectory.records import Segment, Trajectory

__all__ = ["ANSWER_END", "Agent", "State", "answer", "parse", "span_starts", "states_of", "value_prompt"]

ANSWER_END = "</answer>"
SCALE = 10  # the largest answer
INSTRUCTIONS = (
    "You judge an agent in the middle of a task. Predict the score it will still get, from here to the end, as a whole "
    "number from 0 (no chance) to 10 (full score for certain).\n"
    "1. How hard is the task?\n"
    "2. Which progress, mistakes or confusion does the run show so far?\n"
    "3. How likely is success if this agent goes on, with the budget that is left?\n"
    "4. Write the number as <answer>NUMBER</answer> and stop."
)
_ANSWER = re.compile(r"<answer>\s*(\d+)\s*</answer>")


@dataclass(frozen=True, slots=True)
class Agent:
    """Whom the critic judges, as far as it is told.

    Attributes:
        name: of the model.
        parameters: how many it has.
        success: its mean return of late, in [0, 1]; None before there is any.
    """

    name: str
    parameters: int
    success: float | None = None

    def __str__(self) -> str:
        of_late = "unknown" if self.success is None else f"{SCALE * self.success:.1f} of {SCALE}"
        return f"Agent: {self.name}, {_short(self.parameters)} parameters. Score of late: {of_late}."


@dataclass(frozen=True, slots=True)
class State:
    """A moment of a run: the policy has written `partial` of its present reply.

    Attributes:
        messages: the conversation that the reply answers: the context of the segment it stands in, so that after a
            compaction the critic knows what the policy knows.
        partial: text; "" before the reply's first token.
        turns: steps of the environment made before.
        turns_left: that the environment still allows; None where unknown.
        written: tokens of `partial`.
        most: tokens that a reply may have; None where unknown.
    """

    messages: Conversation
    partial: str = ""
    turns: int = 0
    turns_left: int | None = None
    written: int = 0
    most: int | None = None


def value_prompt(state: State, agent: Agent | None = None) -> Conversation:
    """The question about one state.

    Args:
        state: which.
        agent: whose run it is; None leaves it out.
    """
    run = [f"{message.role}: {message.content}" for message in state.messages]
    if state.partial:
        run.append(f"assistant: {state.partial}")
    budget = f"Budget: {state.turns} turns used"
    if state.turns_left is not None:
        budget += f", {state.turns_left} left"
    if state.most is not None:
        budget += f"; {state.written} of {state.most} tokens of this reply written"
    parts = [] if agent is None else [str(agent)]
    parts += ["The run so far:\n" + "\n".join(run), f"{budget}.\nWhich score, from 0 to {SCALE}?"]
    return (system(INSTRUCTIONS), user("\n\n".join(parts)))


def answer(value: float) -> str:
    """The tag that says a value in [0, 1]."""
    return f"<answer>{round(SCALE * value)}{ANSWER_END}"


def parse(text: str) -> float | None:
    """The value in [0, 1] that a critic's text says: its first tag that holds a whole number from 0 to 10.

    Nothing is repaired: a first tag with a larger number, a fraction or words makes the answer malformed, None.
    """
    found = _ANSWER.search(text)
    if found is None or text.find("<answer>") != found.start() or int(found[1]) > SCALE:
        return None
    return int(found[1]) / SCALE


def span_starts(
    mask: ArrayLike, logprobs: ArrayLike, *, probability: float = 0.2, every: int = 0, most: int = 16
) -> list[int]:
    """Where in a segment a state is judged: positions of trainable tokens; V is that of the state before each.

    The first token of each reply is always one, so that a span never reaches over an observation. Inside a reply it
    is each token that was unlikely when it was sampled, or every Nth. Above `most` the latter are thinned evenly,
    and only where the replies alone are more, these too; the segment's first stays.

    Args:
        mask: (T,), True at trainable tokens; not the first.
        logprobs: (T,), of the sampling.
        probability: a token less probable than this begins a span.
        every: above 0, in place of that: a span has so many trainable tokens at most.
        most: spans of the segment, at least 1.
    """
    trainable = np.asarray(mask, dtype=bool)
    tokens = np.flatnonzero(trainable)
    replies = tokens[~trainable[tokens - 1]]
    unlikely = np.asarray(logprobs, dtype=np.float64)[tokens] < np.log(max(probability, 1e-300))
    inside = tokens[::every] if every else tokens[unlikely]
    replies = _thinned(replies, most)
    inside = _thinned(np.setdiff1d(inside, replies), most - len(replies))
    return [int(at) for at in np.sort(np.concatenate([replies, inside]))]


def states_of(
    trajectory: Trajectory,
    segment: Segment,
    starts: Sequence[int],
    decode: Callable[[Sequence[int]], str],
    *,
    max_turns: int | None = None,
    max_new_tokens: int | None = None,
) -> list[State]:
    """The states before some sampled tokens of a segment.

    Args:
        trajectory: whose segment it is.
        segment: with token ids.
        starts: positions of sampled tokens.
        decode: ids to text.
        max_turns: that the environment allows.
        max_new_tokens: that a reply may have.
    """
    states = []
    for at in starts:
        reply = next(sampled for sampled in segment.sampled if sampled.start <= at < sampled.stop)
        before = trajectory.steps[: len(trajectory.steps) if reply.step is None else reply.step]
        turns = sum(step.kind == "turn" for step in before)
        states.append(
            State(
                segment.messages[: reply.message],
                decode(segment.token_ids[reply.start : at]),
                turns,
                None if max_turns is None else max_turns - turns,
                at - reply.start,
                max_new_tokens,
            )
        )
    return states


def _thinned(positions: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most `most` of them, evenly spread, the first among them."""
    if len(positions) <= most:
        return positions
    chosen = np.linspace(0, len(positions) - 1, most).round().astype(int)
    return np.take(positions, chosen)


def _short(count: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
