"""RecordTrajectory: what happened in an episode, as a `Trajectory`, and as a line of ``trajectories.jsonl``."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, SupportsFloat

import gymnasium
import numpy as np

from agentgym.core import AgentEnv, AgentWrapper, CallRecord, Verdict
from agentgym.errors import InfrastructureError, UsageError, finite
from agentgym.messages import Conversation, Message, assistant, system, user
from agentgym.trajectory.records import Call, Compaction, Delegated, Event, Reply, Step, Trajectory
from agentgym.trajectory.replay import info_text, observation_text, prompt_text, turns_of
from agentgym.trajectory.segments import SegmentBuilder
from agentgym.trajectory.store import TrajectoryStore, jsonable, messages_to_rows


class RecordTrajectory(AgentWrapper):
    """Records every episode. The outermost wrapper: it sees what the policy sees.

    The conversation a reply is recorded under is the observation itself where that is a conversation
    (`ChatContext`, `ContextCompaction`); around a plain text environment it is the growing chat of system
    prompt, observations and actions. An episode that is reset or closed before its end is not written: it is
    no rollout. Where `step` raises, the record ends with that step, unanswered; later steps are not recorded.

    Args:
        env: the environment with its other wrappers.
        path: file or folder of a `TrajectoryStore`, to which every finished episode is appended; None: none.
        policy: name of the policy, for the record.
        forks: what a rewrite of the conversation that no wrapper announced is: "count" logs it, "error" raises
            `SegmentError` before the action is taken.

    Attributes:
        trajectory: the record of the running, or the last, episode; None before the first.
        next_id: id of the next episode's trajectory; if None, "<environment id>-<n>", unused in the file so
            far.
    """

    snapshot_exclude: ClassVar[frozenset[str]] = frozenset({"_store", "_used_ids"})

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        path: str | Path | None = None,
        *,
        policy: str = "",
        forks: Literal["count", "error"] = "count",
    ) -> None:
        super().__init__(env, path=None if path is None else str(path), policy=policy, forks=forks)
        self.next_id: str | None = None
        self.policy = policy
        self._forks = forks
        self._builder = SegmentBuilder(forks)
        self._store = None if path is None else TrajectoryStore(path)
        self._used_ids: set[str] | None = None
        self._count = 0  # episodes named here
        self._env_spec: str | None = None
        self.trajectory: Trajectory | None = None
        self._running = False
        self._started = 0.0
        self._conversation: Conversation = ()
        self._info: dict[str, Any] = {}
        self._attached: list[tuple[Reply, str, float]] = []
        self._rewrites: list[Compaction] = []  # announced, and no segment begun since
        self._unplaced: list[tuple[int, float]] = []  # step and what it was paid, while no token can take it
        self._delegated: list[int] = []  # which step each reply of a sub-agent is
        # By sub-agent with a new task and no reply yet: the step that gave it
        self._callers: dict[str, int] = {}

    def attach(self, reply: Reply, *, agent: str = "policy", policy_seconds: float = 0.0) -> None:
        """Say which reply the next action is, with its token ids. Of several before a step only the last counts.

        Args:
            reply: its text must be the action of the next `step`. Replies attached before it were thrown
                away; they are kept, superseded and untrained.
            agent: who replied.
            policy_seconds: how long the policy took.
        """
        self._attached.append((reply, agent, policy_seconds))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and its record."""
        self._running = False
        self._attached = []
        self._rewrites = []
        self._delegated, self._callers = [], {}
        self._unplaced = []
        began, self._started = time.time(), time.perf_counter()
        observation, info = self.env.reset(seed=seed, options=options)
        self._builder = SegmentBuilder(self._forks)
        self.trajectory = trajectory = Trajectory(
            id=self._take_id(),
            env_id=self._env_id(),
            task_id=info_text(info, "task_id"),
            seed=None if seed is None else int(seed),
            policy=self.policy,
            prompt=prompt_text(self.env, observation),
            env_spec=self._spec_json(),
            segments=self._builder.segments,
            events=self._builder.events,
            started=began,
        )
        if options and options.get("task") is not None:
            trajectory.extra["task_chosen"] = True
        if info.get("anchor") is not None:
            trajectory.extra["anchor"] = _anchor(info["anchor"])
        if boundaries := self._boundaries():
            trajectory.extra["boundaries"] = jsonable(boundaries)
        prompt = self.unwrapped.system_prompt if isinstance(self.unwrapped, AgentEnv) else ""
        self._conversation = (system(prompt),) if prompt else ()
        self._observe(observation, info)
        self._running = True
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the action and record it."""
        trajectory = self.trajectory
        if trajectory is None or not self._running or not isinstance(action, str):
            return self.env.step(action)  # it says what is wrong
        index = len(trajectory.steps)
        reply, agent, policy_seconds = self._take_reply(action, index)
        segment = self._builder.add(
            self._conversation,
            reply,
            agent=agent,
            cause="compaction" if self._rewrites else None,
            step=index,
            accepted=True,
        )
        if segment is not None:  # an empty reply leaves the boundary to the next one
            self._log_rewrites(index)
        is_summary = bool(self._info.get("summary_requested"))
        step = Step(
            kind="summary" if is_summary else "turn",
            agent=agent,
            action=action,
            segment=segment,
            prompt_tokens=reply.prompt_tokens,
            sampled_tokens=reply.sampled_tokens,
            policy_seconds=policy_seconds,
        )
        # The reply is in its segment, so the step is in the record too, answered or not. Where the environment's
        # code raises it stays unanswered and the record ends: nobody knows what state is left.
        trajectory.steps.append(step)
        self._running = False

        turns = turns_of(self.env)
        start = time.perf_counter()
        observation, given, terminated, truncated, info = self.env.step(action)
        step.seconds = time.perf_counter() - start

        reward = finite(given)
        if reward is None:
            raise InfrastructureError(f"expected a finite reward from the environment, got {given!r:.60}")
        step.observation = "" if is_summary else observation_text(self.env, observation, turns)
        step.reward = reward
        given_calls = info.get("calls")
        if isinstance(given_calls, tuple | list):
            step.calls = [_call_row(record) for record in given_calls if isinstance(record, CallRecord)]
        step.info = _scalars(info)
        if info.get("masked"):
            self._builder.leave_out(index)
        if isinstance(info.get("delegated"), Delegated):
            self._record_delegated(info["delegated"], index, masked=bool(info.get("masked")))
        if reward:
            self._pay(index, reward)
        trajectory.reward = (trajectory.reward or 0.0) + reward
        if info.get("hacked") is not None:
            trajectory.hacked = bool(info["hacked"])
        self._conversation = (*self._conversation, assistant(action))
        self._observe(observation, info)
        self._running = True
        if terminated or truncated:
            self._finish(trajectory, terminated, truncated, info)
        return observation, reward, terminated, truncated, info

    def cut_off(self, event: str, why: str) -> None:
        """End the running episode from outside, truncated: its agent has run out of something, such as context.

        What it was paid so far is its reward. The environment, which knows nothing of it, is not asked for a
        verdict; the task counts as not resolved.

        Args:
            event: kind of the event that says so, such as "context_overflow".
            why: a text for people.
        """
        if self.trajectory is None or not self._running:
            raise UsageError("expected a running episode, got none; call reset first")
        self.trajectory.events.append(Event(event, len(self.trajectory.steps), {"why": why}))
        self._finish(self.trajectory, False, True, {"resolved": False})

    def close(self) -> None:
        """Close the environment and the file. An unfinished episode is dropped."""
        self._running = False
        if self._store is not None:
            self._store.close()
        self.env.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _observe(self, observation: Any, info: dict[str, Any]) -> None:
        """What the next reply will be conditioned on."""
        if isinstance(observation, tuple) and (not observation or isinstance(observation[-1], Message)):
            self._conversation = observation
        elif isinstance(observation, str):
            self._conversation = (*self._conversation, user(observation))
        else:
            raise UsageError(
                f"RecordTrajectory records text or conversations, got an observation of type "
                f"{type(observation).__name__}; put the wrapper that makes it outside"
            )
        self._info = info
        if isinstance(info.get("compaction"), Compaction):
            self._rewrites.append(info["compaction"])

    def _record_delegated(self, delegated: Delegated, index: int, *, masked: bool) -> None:
        """The replies of sub-agents in step `index`, each a step in a segment of its agent's."""
        assert self.trajectory is not None
        for turn in delegated.turns:
            at = len(self.trajectory.steps)
            if turn.begins:
                self._callers[turn.agent] = index if turn.caller is None else self._delegated[turn.caller]
            caller = self._callers.get(turn.agent)
            segment = self._builder.add(
                turn.conversation,
                turn.reply,
                agent=turn.agent,
                cause=None if caller is None else "delegation",
                step=at,
                accepted=True,
                parent=None if caller is None else self._builder.segment_of(caller),
            )
            if segment is not None and caller is not None:
                self._builder.events[-1].data["call"] = caller
                del self._callers[turn.agent]
            step = Step(
                kind="delegated",
                agent=turn.agent,
                action=turn.reply.text,
                observation=turn.observation,
                calls=[_call_row(record) for record in turn.calls],
                segment=segment,
                prompt_tokens=turn.reply.prompt_tokens,
                sampled_tokens=turn.reply.sampled_tokens,
            )
            self.trajectory.steps.append(step)
            self._delegated.append(at)
            if turn.of_environment or (masked and any(record.result.blocked for record in turn.calls)):
                self._builder.leave_out(at)
        for number, amount in delegated.pay:
            self._pay(self._delegated[number], amount)

    def _pay(self, index: int, amount: float) -> None:
        """Put what a step was paid on a trainable token, at once or when the episode has ended."""
        if not self._builder.assign_reward(index, amount):
            self._unplaced.append((index, amount))

    def _take_reply(self, action: str, index: int) -> tuple[Reply, str, float]:
        """The reply behind the action; those attached before it were thrown away."""
        if not self._attached:
            return Reply(action), "policy", 0.0
        if self._attached[-1][0].text != action:
            raise UsageError(
                f"expected the action to be the text of the attached reply, {self._attached[-1][0].text[:60]!r}, "
                f"got {action[:60]!r}"
            )
        *rejected, taken = self._attached
        self._attached = []
        for reply, agent, _ in rejected:
            self._builder.add(self._conversation, reply, agent=agent, step=index, accepted=False)
        return taken

    def _log_rewrites(self, index: int) -> None:
        """What the rewrites before this reply did, the last one beside the boundary that the builder found."""
        events = self._builder.events
        found = next((e for e in reversed(events) if e.kind == "compaction" and e.step == index), None)
        for number, compaction in enumerate(reversed(self._rewrites)):
            event = found if number == 0 else None
            if event is None:  # rewritten to something known, or rewritten again: no segment begins
                event = Event("compaction", index)
                events.append(event)
            event.data |= {
                "strategy": compaction.strategy,
                "before_tokens": compaction.before_tokens,
                "after_tokens": compaction.after_tokens,
                "kept": compaction.kept,
                "dropped_messages": messages_to_rows(compaction.dropped),
                "summary": compaction.summary,
            }
        self._rewrites = []

    def _finish(
        self, trajectory: Trajectory, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> None:
        self._running = False
        for index, amount in self._unplaced:  # there may be a token now
            self._builder.assign_reward(index, amount)
        self._log_rewrites(len(trajectory.steps))
        trajectory.terminated, trajectory.truncated = bool(terminated), bool(truncated)
        trajectory.seconds = time.perf_counter() - self._started
        if isinstance(info.get("verdict"), Verdict):
            trajectory.verdict = _verdict_row(info["verdict"])
        if info.get("resolved") is not None:
            trajectory.resolved = bool(info["resolved"])
        if info.get("infrastructure_error"):
            trajectory.infrastructure_error = info_text(info, "infrastructure_error")
            trajectory.reward = None
        trajectory.id = self._unused(trajectory.id)
        self._ids().add(trajectory.id)
        if self._store is not None:
            self._store.append(trajectory)

    def _boundaries(self) -> Mapping[str, Any]:
        """What a monitor would hold the episode against, so that it can be looked at later."""
        if not isinstance(self.unwrapped, AgentEnv):
            return {}
        found: Mapping[str, Any] = self.env.get_wrapper_attr("boundaries")(self.unwrapped.episode.task)
        return found

    def _take_id(self) -> str:
        given, self.next_id = self.next_id, None
        if given is not None:
            return given
        while True:
            self._count += 1
            wanted = f"{self._env_id()}-{self._count}"
            if wanted not in self._ids():
                return wanted

    def _unused(self, wanted: str) -> str:
        """The id, with a number if it was used: an episode that was restored may end a second time."""
        numbered = (wanted if k == 1 else f"{wanted}.{k}" for k in itertools.count(1))
        return next(candidate for candidate in numbered if candidate not in self._ids())

    def _ids(self) -> set[str]:
        """Ids that are in the file, or were finished here."""
        if self._used_ids is None:
            self._used_ids = self._store.ids() if self._store is not None else set()
        return self._used_ids

    def _env_id(self) -> str:
        spec = self.env.spec
        return spec.id if spec is not None else type(self.unwrapped).__name__

    def _spec_json(self) -> str:
        """The stack inside this wrapper; "" where an argument in it cannot be written as JSON."""
        if self._env_spec is None:
            spec = self.env.spec
            try:
                self._env_spec = spec.to_json() if spec is not None else ""
            except (TypeError, ValueError):
                self._env_spec = ""
        return self._env_spec


def _call_row(record: CallRecord) -> Call:
    call, result = record.call, record.result
    return Call(call.name, jsonable(call.arguments), *result, record.seconds)


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    return {
        "score": verdict.score,
        "passed": verdict.passed,
        "components": jsonable(verdict.components),
        "held_out": jsonable(verdict.held_out),
        "evidence": jsonable(verdict.evidence),
    }


_HAS_ITS_PLACE = frozenset(
    {"task_id", "tools", "calls", "admissible_actions", "verdict", "resolved", "hacked"}
)


def _scalars(info: dict[str, Any]) -> dict[str, Any]:
    """The numbers and truth values of info that the record has no other place for, and the anchor."""
    kept: dict[str, Any] = {}
    for key, value in info.items():
        if not isinstance(key, str) or key in _HAS_ITS_PLACE:
            continue
        if key == "anchor" and value is not None:
            kept[key] = _anchor(value)
            continue
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            kept[key] = value
    return dict(sorted(kept.items()))


def _anchor(value: Any) -> Any:
    """A state that is told in parts as one text, by which steps can be grouped; what is no state shows in writing."""
    value = jsonable(value)
    return str(value) if isinstance(value, list | dict) else value
