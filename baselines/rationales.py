"""Whose words a generative critic imitates first: rationales that end with an answer.

rate                any environment: repeats what the question says and answers with the agent's score of late. It
                    teaches the form; what a state is worth is left to the outcomes.
openai:MODEL        a model behind an OpenAI-compatible endpoint (OPENAI_BASE_URL) answers the critic's own question.
module:attribute    a function of a `State` and its `Agent`, for environments whose values are known;
                    baselines.rationales:relay is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from agentgym.endpoint import Endpoint
from agentgym.errors import InfrastructureError, UsageError
from agentgym.wrappers.tokens import load_attribute
from baselines.critic_prompt import ANSWER_END, Agent, State, answer, parse, value_prompt

__all__ = [
    "Answer",
    "Rationales",
    "Teacher",
    "asked",
    "endpoint_teacher",
    "rate",
    "relay",
    "relay_rationale",
    "teacher_of",
    "usable",
]

# The rationale for a state, its answer at the end; None where the teacher has none to give.
Teacher: TypeAlias = Callable[[State, Agent], str | None]
Answer: TypeAlias = str | InfrastructureError | None  # a teacher's, or why its server gave none
_TRIES = 2
_WORKERS = 8


@dataclass(frozen=True)
class Rationales:
    """What a teacher wrote about some states.

    Attributes:
        states: indices of those with a usable rationale.
        texts: theirs.
        dropped: share of the states without one: the teacher had none, it held no well-formed answer, or it failed.
        failed: share of the states at which the teacher's server failed.
    """

    states: list[int]
    texts: list[str]
    dropped: float
    failed: float


def teacher_of(name: str) -> Teacher:
    """The teacher that a flag names; see the top of this file.

    Raises:
        UsageError: nothing of that name.
    """
    kind, colon, rest = name.partition(":")
    if name == "rate":
        return rate
    if kind == "openai" and rest:
        return endpoint_teacher(Endpoint(rest))
    if not colon or not rest:
        raise UsageError(f"expected --teacher rate, openai:MODEL or module:attribute, got {name!r}")
    teacher = load_attribute(name, "teacher")
    if not callable(teacher):
        raise UsageError(f"expected --teacher {name} to be a function, got {type(teacher).__name__}")
    return teacher  # type: ignore[no-any-return]


def asked(teacher: Teacher, states: Sequence[State], agent: Agent) -> list[Answer]:
    """What a teacher answers about each state; several are asked about at a time."""

    def ask(state: State) -> Answer:
        try:
            return teacher(state, agent)
        except InfrastructureError as error:  # one lost call is no reason to lose the run
            return error

    with ThreadPoolExecutor(_WORKERS) as threads:
        return list(threads.map(ask, states))


def usable(answers: Sequence[Answer]) -> Rationales:
    """Those of the answers to a batch's states that a critic can imitate.

    A text ends with its first closing tag; what a teacher writes after it is left out, as the critic stops there too.

    Raises:
        InfrastructureError: the teacher's server failed at every state.
        UsageError: a teacher of one's own gave something else than text.
    """
    errors = [answer for answer in answers if isinstance(answer, InfrastructureError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
    said = [None if isinstance(answer, InfrastructureError) else answer for answer in answers]
    for text in said:
        if text is not None and not isinstance(text, str):
            raise UsageError(f"expected a teacher to write text, or None, got {text!r:.60}")
    # Cut before it is read: what a stray tag cuts off is no answer, to the critic either.
    cut = [None if text is None else "".join(text.partition(ANSWER_END)[:2]) for text in said]
    kept = [(n, text) for n, text in enumerate(cut) if text is not None and parse(text) is not None]
    return Rationales(
        [n for n, _ in kept],
        [text for _, text in kept],
        1 - len(kept) / len(answers),
        len(errors) / len(answers),
    )


def endpoint_teacher(endpoint: Endpoint) -> Teacher:
    """A model that answers the critic's question; asked twice where its answer is malformed."""

    def teacher(state: State, agent: Agent) -> str | None:
        for _ in range(_TRIES):
            text = endpoint.chat(value_prompt(state, agent), temperature=1.0).text
            if parse(text) is not None:
                return text
        return None

    return teacher


def rate(state: State, agent: Agent) -> str:
    """The form alone: what was asked, and the agent's score of late."""
    of_late = 0.5 if agent.success is None else agent.success
    return f"After {state.turns} turns. Score of late {10 * of_late:.1f} of 10. {answer(of_late)}"


def relay(state: State, agent: Agent) -> str | None:
    """`agentgym/Relay-v0` with its default `slip`, for an agent of which only its score of late is known.

    It reads the run as a policy would: which signposts were not followed, and whether the word still stands in the
    context; a policy that forgot it guesses. It takes all that the agent lost of late for words that it did not recall,
    so that its value of a run that begins is that score.
    """
    return relay_rationale(state, recall=0.5 if agent.success is None else agent.success, error=0.0)


def relay_rationale(state: State, *, recall: float, error: float) -> str | None:
    """The value of a state of Relay-v0 for a policy that errs at a hop and recalls the word so often.

    Args:
        state: which.
        recall: probability that a policy with the word in its context delivers it.
        error: probability of a mistake at a hop.

    Returns:
        None inside a reply; where the conversation is none of Relay-v0, or a compaction took its hops away.
    """
    if state.partial:
        return None
    text = "\n".join(message.content for message in state.messages)
    task = re.search(r"follow (\d+) signposts.*?one of: ([\w, ]+)\.", text, re.DOTALL)
    if task is None:
        return None
    hops, words = int(task[1]), task[2].split(", ")
    signs = re.findall(r"Signpost (\d+) of \d+ says (\w+)", text)
    gone = [
        message.content.lower().split()[-1]
        for message in state.messages
        if message.role == "assistant" and re.fullmatch(r"\s*go \w+\s*", message.content.lower())
    ]
    arrived = "You have arrived" in text
    done = hops if arrived else int(signs[-1][0]) - 1 if signs else 0
    if len(gone) != done or len(signs) != done + (not arrived and bool(signs)):
        return None
    checked = ["ok" if sign == to else "wrong" for (_, sign), to in zip(signs, gone, strict=False)]
    mistakes = checked.count("wrong")
    known = (not signs and not arrived) or any(
        re.search(rf"\b{word}\b", text[task.end() :]) for word in words
    )
    of_word = recall if known else 1 / len(words)
    value = of_word * (1 - 0.5 / max(hops, 1) * (mistakes + error * (hops - done)))
    memory = "The word is known." if known else "The word is lost."
    return (
        f"Hops: {' '.join(checked) or 'none'}. {mistakes} wrong, {hops - done} left. {memory} {answer(value)}"
    )
