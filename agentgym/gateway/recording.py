"""The record of a session: replies in the order in which they were asked for, and the trajectory at the end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentgym.core import Verdict
from agentgym.gateway.exchange import Asked, Given
from agentgym.gateway.history import STRANGER, Placed, Shown
from agentgym.messages import Message
from agentgym.policies.base import Reply
from agentgym.trajectory.records import Call, Event, Step, Trajectory
from agentgym.trajectory.segments import SegmentBuilder
from agentgym.trajectory.store import jsonable
from agentgym.trajectory.tree import left_out

Rewrite: TypeAlias = Literal["compaction", "fork"]


@dataclass(slots=True, eq=False)
class Pending:
    """A call, from its arrival to the end of the session.

    Attributes:
        number: of the call in its session, in order of arrival.
        asked: the request.
        placed: its conversation, as the policy reads it.
        seed: of the sampling.
        began: when it came, in seconds of the performance counter.
        future: the answer, or the refusal.
        reply: as it was sampled; None before that, and where there is none.
        shown: the reply as the program was given it.
        settled: nothing more will come of it.
        calls: what the reply called, with the program's answers as they come in.
        ids: of its structured calls.
        observation: what the program sent after the reply.
        seconds: from its arrival to its reply.
        flags: for the step's info.
        delivered: the program got the answer.
        lost: it got none, or not all of it.
    """

    number: int
    asked: Asked
    placed: Placed
    seed: int
    began: float = field(default_factory=time.perf_counter)
    future: Future[Given] = field(default_factory=Future)
    reply: Reply | None = None
    shown: Shown | None = None
    settled: bool = False
    calls: list[Call] = field(default_factory=list)
    ids: tuple[str, ...] = ()
    observation: str = ""
    seconds: float = 0.0
    flags: dict[str, Any] = field(default_factory=dict)
    delivered: bool = False
    lost: bool = False

    def answered_by(self, news: Sequence[Message]) -> None:
        """Take in what the program sent after the reply; the first time counts."""
        if self.observation or not news:
            return
        self.observation = text_of(news)
        answers = [message for message in news if message.role == "tool"] or list(news[:1])
        for position, answer in enumerate(answers):
            index = self.ids.index(answer.tool_call_id) if answer.tool_call_id in self.ids else position
            if index < len(self.calls):
                self.calls[index].text = answer.content


class Recorder:
    """Puts replies into segments in order of arrival. Its caller holds the session's lock."""

    def __init__(self) -> None:
        self._builder = SegmentBuilder()
        self._waiting: list[Pending] = []  # began, and not recorded since something before it is not settled
        self._steps: list[Pending] = []
        self._step_of: dict[int, int] = {}  # number of a call -> its step
        self._counted: dict[tuple[str, str], Event] = {}

    def note(self, kind: str, **data: Any) -> Event:
        """Log an event."""
        event = Event(kind, len(self._steps), jsonable(data))
        self._builder.events.append(event)
        return event

    def count(self, kind: str, what: str, **data: Any) -> None:
        """Log something that a program may do ten thousand times: one event for each `what`, with how often it came."""
        event = self._counted.get((kind, what))
        if event is None:
            event = self._counted[kind, what] = self.note(kind, what=what, times=0, **data)
        event.data["times"] += 1

    def expect(self, pending: Pending) -> None:
        """A call has begun."""
        self._waiting.append(pending)

    def settle(self, pending: Pending, reply: Reply | None) -> None:
        """A call has its reply, or will get none."""
        pending.reply, pending.settled = reply, True
        pending.seconds = time.perf_counter() - pending.began
        while self._waiting and self._waiting[0].settled:
            first = self._waiting.pop(0)
            if first.reply is not None:
                self._record(first, first.reply)

    def finish(self, trajectory: Trajectory, verdict: Verdict | None, reward: float | None) -> None:
        """Fill in what was recorded, and pay the last reply of the main agent, unless infrastructure failed."""
        for pending in list(self._waiting):
            if not pending.settled:
                self.note("unanswered", call=pending.number)
                self.settle(pending, None)
        accepted = self._judge()
        names = self._name_agents()
        trajectory.segments = self._builder.segments
        # A call that is still on its way may note something yet
        trajectory.events = list(self._builder.events)
        trajectory.steps = [self._step(index, names) for index in range(len(self._steps))]
        if self._steps:
            asked = self._steps[0].asked.conversation
            trajectory.prompt = text_of([m for m in asked if m.role != "system"])
        if verdict is not None:
            trajectory.verdict = {
                "score": verdict.score,
                "passed": verdict.passed,
                "components": jsonable(verdict.components),
                "held_out": jsonable(verdict.held_out),
                "evidence": jsonable(verdict.evidence),
            }
            trajectory.resolved = verdict.passed
            reward = verdict.score if reward is None else reward
        trajectory.reward = None if trajectory.infrastructure_error else float(reward or 0.0)
        if trajectory.reward:
            self._pay(trajectory, trajectory.reward, accepted)

    def _record(self, pending: Pending, reply: Reply) -> None:
        placed = pending.placed
        cause, parent = placed.boundary, None
        if placed.summary is not None and placed.agent != placed.summary.agent:
            # Whether it is its author's conversation shows at the end; it begins a segment after that one in any case.
            cause, parent = "delegation", self._builder.segment_of(self._step_of[placed.summary.number])
        self._step_of[pending.number] = len(self._steps)
        self._builder.add(
            placed.conversation,
            reply,
            agent=placed.agent,
            cause=cause if cause in ("compaction", "delegation") else None,  # type: ignore[arg-type]
            step=len(self._steps),
            message=None if pending.shown is None else pending.shown.sampled,
            parent=parent,
        )
        self._steps.append(pending)

    def _judge(self) -> set[int]:
        """Say of every reply whether it was acted on, now that nothing more can follow.

        The builder decides that by what extends its segments. A program may also go on from a reply in a conversation
        that it rewrites at the same time, and it may never have got a reply: only the session knows.

        Returns:
            The steps whose reply was acted on.
        """
        tries: dict[tuple[str, int, Message], list[int]] = {}
        for index, pending in enumerate(self._steps):
            placed = pending.placed  # tools stand in the first message only
            tries.setdefault((placed.agent, placed.node, placed.conversation[0]), []).append(index)
        accepted: set[int] = set()
        for steps in tries.values():
            continued = [i for i in steps if (shown := self._steps[i].shown) is not None and shown.continued]
            accepted.update(continued or [i for i in steps if not self._steps[i].lost][-1:])
        for segment in self._builder.segments:
            for sampled in segment.sampled:
                assert sampled.step is not None
                taken = sampled.step in accepted
                if sampled.superseded is taken:
                    sampled.superseded = not taken
                    segment.mask[sampled.start : sampled.stop] = [int(taken)] * (sampled.stop - sampled.start)
                    if taken and segment.cause == "retry":
                        segment.cause = "fork"
        self._log_superseded()
        return accepted

    def _log_superseded(self) -> None:
        """One event for each reply that was not acted on, in the place of what the builder has logged."""
        events = self._builder.events
        events[:] = [event for event in events if event.kind != "superseded"]
        for segment in self._builder.segments:
            for sampled in segment.sampled:
                if sampled.superseded:
                    events.append(Event("superseded", sampled.step or 0, {"segment": segment.index}))

    def _name_agents(self) -> dict[str, str]:
        """Name the agents, and the causes of rewrites, now that it is known which replies were summaries.

        Returns:
            The name of each agent, by what it was called so far.
        """
        called = {pending.placed.agent for pending in self._steps}
        free = (name for n in itertools.count(1) if (name := f"agent-{n}") not in called)
        names: dict[str, str] = {}
        for index, pending in enumerate(self._steps):
            agent, summary = pending.placed.agent, pending.placed.summary
            stranger = agent.startswith(STRANGER)
            if summary is not None and not summary.continued:
                self._set_cause(index, "compaction")
                names.setdefault(agent, names[summary.agent] if stranger else agent)
            elif summary is not None and not stranger:
                self._set_cause(index, "fork")
            if agent not in names:
                names[agent] = next(free) if stranger else agent
        for segment in self._builder.segments:
            segment.agent = names[segment.agent]
        for event in self._builder.events:
            if event.data.get("agent") in names:
                event.data["agent"] = names[event.data["agent"]]
        return names

    def _set_cause(self, step: int, cause: Rewrite) -> None:
        """Say why the segment began that begins with this step, if one does."""
        index = self._builder.segment_of(step)
        if index is None:
            return
        segment = self._builder.segments[index]
        if segment.parent is None or segment.cause not in ("compaction", "delegation"):
            return
        if segment.cause == cause or segment.sampled[0].step != step:
            return
        depth, parent = segment.copied_messages, self._builder.segments[segment.parent]
        told = self._steps[step].placed.conversation
        segment.dropped = left_out(parent.messages[depth:], told[depth:])
        for event in self._builder.events:
            if event.kind == segment.cause and event.data.get("segment") == segment.index:
                event.kind, event.data["dropped"] = cause, len(segment.dropped)
        segment.cause = cause

    def _pay(self, trajectory: Trajectory, reward: float, accepted: set[int]) -> None:
        """Give the reward to the last reply of the main agent that was acted on."""
        steps = trajectory.steps
        mine = [i for i in sorted(accepted) if steps[i].agent == steps[0].agent]
        if mine:
            steps[mine[-1]].reward = reward
            self._builder.assign_reward(mine[-1], reward)

    def _step(self, index: int, names: Mapping[str, str]) -> Step:
        pending = self._steps[index]
        reply, agent = pending.reply, names[pending.placed.agent]
        assert reply is not None
        return Step(
            kind="turn" if agent == names[self._steps[0].placed.agent] else "delegated",
            agent=agent,
            action=reply.text,
            observation=pending.observation,
            calls=pending.calls,
            info=pending.flags | ({"lost": True} if pending.lost else {}),
            segment=self._builder.segment_of(index),
            prompt_tokens=reply.prompt_tokens,
            sampled_tokens=reply.sampled_tokens,
            policy_seconds=pending.seconds,
        )


def text_of(messages: Sequence[Message]) -> str:
    """Messages as one text, for people."""
    return "\n\n".join(message.content for message in messages)
