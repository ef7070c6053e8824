"""The records of a run: turns, episode, verdict, and the table of `info` keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

from agentgym.errors import InfrastructureError, finite
from agentgym.tasks import FrozenDict, Task, freeze
from agentgym.tools import CallRecord

# Every key an `info` may hold. A key that is not known at a step is absent, never None: vector environments turn None
# into False or 0. Values are frozen and of one type per key.
INFO_KEYS: dict[str, str] = {
    "task_id": "str: the task of this episode",
    "tools": "tuple[Tool, ...]: what the policy may call; absent where it writes plain moves",
    "calls": "tuple[CallRecord, ...]: what this turn called, how it was answered, whether blocked, how long it took",
    "anchor": "str: the state as text without history; equal states have equal anchors (for step-level groups)",
    "admissible_actions": "tuple[str, ...]: the actions that make sense now, where that is a finite list",
    "invalid_action": "bool: True where the action could not be read or is not allowed; absent otherwise",
    "verdict": "Verdict: at the end of the episode",
    "resolved": "bool: verdict.passed, at the end of the episode",
    "hacked": "bool: whether a forbidden crossing took effect; only where a monitor watches",
    "masked": "bool: True where the reply of this turn takes no part in the loss; absent otherwise (AntiHack)",
    "waits": "bool: True while the agent has nothing to decide; absent otherwise (multi-agent environments)",
    "infrastructure_error": "str: what broke; the episode is no evidence about the policy",
    "segment": "int: how often the conversation was rewritten so far (context wrappers)",
    "context_tokens": "int: tokens of the conversation handed out (context wrappers)",
    "summary_requested": "bool: the next action is taken as a summary (ContextCompaction)",
    "malformed": "bool: True where the reply was not in the asked form; absent otherwise (PublishedPrompts)",
    "malformed_total": "int: how many replies of this episode were not (PublishedPrompts)",
    "inadmissible_total": "int: how many were, with an action the environment refused (PublishedPrompts)",
    "delegated": "Delegated: what sub-agents did in this step; absent where nothing (Delegation)",
    "compaction": "Compaction: what the rewrite before this observation dropped and kept (context wrappers)",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier says of an episode.

    Attributes:
        score: in [0, 1].
        passed: whether the task counts as solved; by default, whether the score is 1.
        components: named parts of the score.
        held_out: parts the policy never sees and is never paid for.
        evidence: texts for people, such as a test log with its times. They take no part in comparisons.

    Raises:
        InfrastructureError: the score is not a finite number in [0, 1], a part is not a finite number, or evidence is
            not text: the verifier is broken.
    """

    score: float
    passed: bool = None  # type: ignore[assignment]  # set below, so that readers see a bool
    components: Mapping[str, float] = field(default_factory=FrozenDict)
    held_out: Mapping[str, float] = field(default_factory=FrozenDict)
    evidence: Mapping[str, str] = field(default_factory=FrozenDict, compare=False)

    def __post_init__(self) -> None:
        score = finite(self.score) if isinstance(self.score, Real) else None
        if score is None or not 0.0 <= score <= 1.0:
            raise InfrastructureError(f"expected a verdict with a score in [0, 1], got {self.score!r}")
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "passed", score >= 1.0 if self.passed is None else bool(self.passed))
        for name in ("components", "held_out"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        for name, text in self.evidence.items():
            if not isinstance(text, str):
                raise InfrastructureError(f"expected the evidence {name!r} to be text, got {text!r:.80}")
        object.__setattr__(self, "evidence", freeze(self.evidence))


def _numbers(what: str, parts: Mapping[str, float]) -> FrozenDict:
    """The parts of a score as Python floats."""
    numbers: dict[str, float] = {}
    for name, value in parts.items():
        number = finite(value) if isinstance(value, Real) else None
        if number is None:
            raise InfrastructureError(f"expected {what}[{name!r}] to be a finite number, got {value!r:.80}")
        numbers[str(name)] = number
    return FrozenDict(numbers)


def expect_verdict(verdict: object, by: str) -> Verdict:
    """What was returned by `by`, if it is a verdict."""
    if not isinstance(verdict, Verdict):
        raise TypeError(f"expected {by} to return a Verdict, got {verdict!r:.60}")
    return verdict


class Turn(NamedTuple):
    """One step: what the policy wrote, what it was answered, what it called."""

    action: str
    observation: str
    calls: tuple[CallRecord, ...]


@dataclass(slots=True)
class Episode:
    """What a verifier and a monitor see of one run.

    Attributes:
        task: the problem.
        prompt: the first observation.
        turns: the steps so far, in order.
        workspace: handle on where the policy worked (a sandbox, a browser, a game); None if there is none. A verifier
            reads it; it never grades inside it.
        done: the environment called `finish`, as opposed to running into a limit.
    """

    task: Task
    prompt: str = ""
    turns: list[Turn] = field(default_factory=list)
    workspace: Any = None
    done: bool = False

    @property
    def calls(self) -> list[CallRecord]:
        """All calls of the episode, in order."""
        return [record for turn in self.turns for record in turn.calls]

    def __deepcopy__(self, memo: dict[int, Any]) -> Episode:
        return Episode(self.task, self.prompt, list(self.turns), self.workspace, self.done)
