"""The records of a rollout: what is written to disk, viewed, counted and trained on.

A `Trajectory` is one rollout of one task. Its `steps` say what happened, in order, in text; its `segments`
hold the same in the form a trainer needs: token sequences that only ever grew by appending.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentgym.messages import Conversation, Message
from agentgym.tools import CallRecord

SCHEMA_VERSION = 1

Cause: TypeAlias = Literal["start", "compaction", "delegation", "fork", "retry"]
Outcome: TypeAlias = Literal["clean_resolved", "hacked_resolved", "clean_unresolved", "hacked_unresolved"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy answered to one conversation.

    Attributes:
        text: the action.
        prompt_ids: token ids the model was conditioned on; None where the backend does not tell.
        sampled_ids: token ids the model generated, end-of-turn token included where it was sampled.
        logprobs: of the sampled ids under the sampling distribution (after temperature), natural logarithm; None
            where unknown, and at temperature 0, where there is no such distribution.
        temperature: it was sampled at; None where unknown.
        finish_reason: "stop", "length", or the backend's own word; "" for scripted policies.
        prompt_tokens: length of the prompt where only a count is known.
        sampled_tokens: length of the reply where only a count is known.
        policy_version: which weights answered, for trainers that update while sampling.
        end_of_turn: token ids that end a turn in this backend; () where it does not tell. With them a turn that the
            template renders in other tokens is told from a rewritten one, also if no reply ever came to its end.
    """

    text: str
    prompt_ids: tuple[int, ...] | None = None
    sampled_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    temperature: float | None = None
    finish_reason: str = ""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    policy_version: str = ""
    end_of_turn: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"expected the text of a reply to be str, got {type(self.text).__name__}")
        if not self.text.isascii():  # half of a surrogate pair is no text: nothing after us could encode it
            object.__setattr__(self, "text", self.text.encode("utf-8", "replace").decode())
        if (self.prompt_ids is None) != (self.sampled_ids is None):
            raise ValueError(
                "expected a reply with both prompt_ids and sampled_ids or neither, got one of them"
            )
        if self.logprobs is not None and not all(map(math.isfinite, self.logprobs)):
            raise ValueError(f"expected finite log-probs in a reply, got {self.logprobs!r:.80}")
        if self.prompt_ids is not None:
            object.__setattr__(self, "prompt_tokens", len(self.prompt_ids))
        if self.sampled_ids is not None:
            object.__setattr__(self, "sampled_tokens", len(self.sampled_ids))
            if self.logprobs is not None and len(self.logprobs) != len(self.sampled_ids):
                raise ValueError(f"{len(self.sampled_ids)} sampled ids but {len(self.logprobs)} log-probs")


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a rewrite of the conversation did; context wrappers put one into ``info["compaction"]``.

    Attributes:
        segment: number of the segment that begins with it, the first rewrite being 1.
        strategy: "drop", "last", "rule", "policy" or the summarizer's name; "window" of `PublishedPrompts`.
        before_tokens, after_tokens: of the conversation, by the wrapper's token counter.
        dropped: messages that are gone, in order; a cut message counts as dropped.
        kept: how many messages of the old conversation the new one holds unchanged.
        summary: the text that stands for what is gone; "" for strategies without one.
    """

    segment: int
    strategy: str
    before_tokens: int
    after_tokens: int
    dropped: Conversation
    kept: int
    summary: str = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> Compaction:
        return self


@dataclass(frozen=True, slots=True)
class DelegatedTurn:
    """A reply of a sub-agent, while the agent that is recorded took its step.

    Attributes:
        agent: who replied.
        conversation: what it answered.
        reply: with token ids, where the policy tells.
        observation: what it was answered.
        calls: what it called.
        begins: it is the first reply of a delegated task.
        caller: whose reply gave the task: number of a delegated turn, counted through the episode from 0; None: the
            recorded agent's, in this step.
        of_environment: a policy that the environment was given replied, not the one that plays the episode: nothing of
            it is for a trainer.
    """

    agent: str
    conversation: Conversation
    reply: Reply
    observation: str = ""
    calls: tuple[CallRecord, ...] = ()
    begins: bool = False
    caller: int | None = None
    of_environment: bool = False


@dataclass(frozen=True, slots=True)
class Delegated:
    """What sub-agents did in a step; `Delegation` puts it into ``info["delegated"]``.

    Attributes:
        turns: their replies, in order.
        pay: at the end of the episode, what sub-agents earned by themselves: number of the turn, amount.
    """

    turns: tuple[DelegatedTurn, ...] = ()
    pay: tuple[tuple[int, float], ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Delegated:
        return self


@dataclass(slots=True)
class Sampled:
    """Where one reply lies inside a segment.

    Attributes:
        message: index of the reply's message in the segment's messages.
        start, stop: the sampled tokens are ``token_ids[start:stop]``; both 0 where ids are unknown.
        step: index into the trajectory's `steps`.
        temperature: it was sampled at.
        finish_reason: as in `Reply`.
        superseded: sampled, but not what was acted on (a retry); kept, mask 0.
        policy_version: which weights answered, as in `Reply`; "" where the policy does not say.
        masked: acted on, but left out of the loss on purpose (a blocked call, see `AntiHack`; a worker that another
            policy played, see `Delegation`); mask 0.
    """

    message: int
    start: int = 0
    stop: int = 0
    step: int | None = None
    temperature: float | None = None
    finish_reason: str = ""
    superseded: bool = False
    policy_version: str = ""
    masked: bool = False

    @property
    def trained(self) -> bool:
        """Whether it has tokens with mask 1."""
        return self.stop > self.start and not (self.superseded or self.masked)


@dataclass(slots=True)
class Segment:
    """A maximal token sequence that only ever grew by appending.

    Attributes:
        index: position in the trajectory's list; segments are in order of creation.
        agent: who acted in it.
        parent: index of the segment it branched off; None for a first segment.
        cause: why it began; "fork" where nobody announced the rewrite, "retry" for a superseded reply kept
            aside.
        messages: the conversation, last reply included.
        sampled: the replies in it that the policy generated here (copied ones are not listed).
        token_ids: prompt and sampled tokens of the whole conversation; empty where ids are unknown.
        mask: 1 exactly at tokens the policy sampled here that were acted on and not left out of the loss.
        logprobs: of sampled tokens under the sampling distribution; 0.0 elsewhere; empty where unknown.
        rewards: per token; the environment's reward of a step lies on the last trainable token of its reply,
            or of another of the same agent's where it has none (`SegmentBuilder.assign_reward`).
        copied_messages: length of the longest common prefix with the parent, in messages.
        copied_tokens: the same in tokens.
        dropped: the parent's messages that the rewrite left out.
    """

    index: int
    agent: str = "policy"
    parent: int | None = None
    cause: Cause = "start"
    messages: Conversation = ()
    sampled: list[Sampled] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    copied_messages: int = 0
    copied_tokens: int = 0
    dropped: tuple[Message, ...] = ()


@dataclass(slots=True)
class Call:
    """A tool call as recorded; the fields of `agentgym.core.CallRecord`, flat."""

    name: str
    arguments: dict[str, Any]
    text: str
    error: bool = False
    exit_code: int | None = None
    blocked: bool = False
    note: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Step:
    """One reply and what came of it.

    Attributes:
        kind: "turn" for a step of the environment, "summary" for a reply that was taken as a summary, "delegated" for
            one of a sub-agent; it belongs to the turn before it, whose time its own is part of.
        agent: who replied.
        action: the reply's text.
        observation: the environment's answer (text; for a summary, empty).
        reward: the environment's.
        calls: what the action called.
        info: the scalar entries of info worth keeping (invalid_action, segment, context_tokens).
        segment: the segment the reply lies in; None for an empty reply.
        prompt_tokens, sampled_tokens: costs of the reply.
        seconds: the environment's time in this step, and `policy_seconds` the policy's.
    """

    kind: Literal["turn", "summary", "delegated"]
    agent: str
    action: str
    observation: str = ""
    reward: float = 0.0
    calls: list[Call] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    segment: int | None = None
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    seconds: float = 0.0
    policy_seconds: float = 0.0


@dataclass(slots=True)
class Event:
    """Something worth counting that is not a step: a compaction, a realigned prompt, an empty reply, a retry.

    Attributes:
        kind: "compaction", "append", "realign", "fork", "empty_reply", "superseded", "delegation",
            "context_overflow" or a user's own.
        step: how many steps had been taken.
        data: JSON values.
    """

    kind: str
    step: int
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Trajectory:
    """One rollout of one task.

    Attributes:
        id: unique in its file; a rerun with the same id is the same rollout.
        env_id: the registered id, and `env_spec` the JSON of the whole wrapper stack where it has one.
        task_id, seed, policy: what was run.
        prompt: the first observation, as text.
        steps, segments, events: see the classes.
        reward: sum of the rewards; None where infrastructure failed: such a rollout says nothing.
        terminated, truncated: how it ended; both False where it was cut off from outside.
        verdict: score, passed, components, held_out, evidence; empty where there is none.
        resolved, hacked: as in info; None where unknown.
        infrastructure_error: what broke; "" if nothing.
        started: seconds since the epoch; `seconds` the wall time of the rollout.
        extra: a user's own JSON values.
    """

    id: str
    env_id: str = ""
    task_id: str = ""
    seed: int | None = None
    policy: str = ""
    prompt: str = ""
    env_spec: str = ""
    steps: list[Step] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    reward: float | None = 0.0
    terminated: bool = False
    truncated: bool = False
    verdict: Mapping[str, Any] = field(default_factory=dict)
    resolved: bool | None = None
    hacked: bool | None = None
    infrastructure_error: str = ""
    started: float = 0.0
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def outcome(self) -> Outcome | None:
        """Resolved or not, and whether a forbidden crossing took effect; None where infrastructure failed."""
        if self.infrastructure_error or self.resolved is None:
            return None
        if self.resolved:
            return "hacked_resolved" if self.hacked else "clean_resolved"
        return "hacked_unresolved" if self.hacked else "clean_unresolved"

    @property
    def turns(self) -> int:
        """Steps of the environment; summaries are none."""
        return sum(step.kind == "turn" for step in self.steps)
