"""`Delegation`: a learner trains the agent that gives tasks, while workers are played beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, SupportsFloat, TypeAlias

import gymnasium
import numpy as np

from agentgym.core import AgentWrapper
from agentgym.delegation import LEAD, Crew, Job
from agentgym.delegation.places import View
from agentgym.delegation.roles import RoleSource
from agentgym.errors import ContextOverflow, InfrastructureError, UsageError, real_number, whole_number
from agentgym.messages import Conversation, assistant, system, user
from agentgym.policies import Policy, Reply, ScriptedPolicy, is_model, make_policy
from agentgym.policies.base import replies
from agentgym.trajectory.records import Delegated, DelegatedTurn
from agentgym.wrappers.chat import expect_text

Asked: TypeAlias = Callable[[Conversation], Reply]
WorkerPlayer: TypeAlias = "Callable[[gymnasium.Env[Any, Any], int], Asked]"
"""Given where a worker acts and the number of its task: what answers its conversations."""


@dataclass(slots=True)
class _Talk:
    """A worker's conversation."""

    ask: Asked
    held: Conversation  # up to its last reply; at first the system prompt
    unread: str  # what it reads next
    begun: bool = False  # it has replied

    def copied(self) -> _Talk:
        """As it is now; a worker that is played by a script goes on from there in the same place."""
        ask = self.ask.copied(self.ask.env) if isinstance(self.ask, _Asked) else self.ask
        return replace(self, ask=ask)


class Delegation(AgentWrapper):
    """Gives an environment's agent workers: it hands them tasks, they act in a view of the environment and report.

    The calls ``delegate(task, role)``, ``wait(worker)``, ``message(worker, text)`` and ``cancel(worker)`` come beside
    the environment's own tools; where it takes plain moves, a message that holds such a call is one, any other is a
    move. In each step, after the agent's own calls, every worker that has a task takes one turn, in their order; after
    ``wait`` they go on until one of those waited for is done. What they report stands below the answers to the agent's
    calls.

    Workers write in conversations of their own: the role's instructions and tools, the task, and what their calls were
    answered. They end with ``report(text)``, or without one when their turns, tokens or the model's context run out.
    When the episode ends, who still works is stopped.

    Put it inside the monitor and the context: ``RecordTrajectory(ChatContext(AntiHack(Delegation(env))))``. Workers'
    calls pass the same middleware as the agent's, so one monitor sees all of the team in one memory: what a worker was
    told to do and did counts as the agent's, too.

    **Observation, action.** Those of the environment.

    **Reward, ends.** Those of the environment. Where the workers' policy or what their calls need is broken, the
    episode ends truncated, with ``info["infrastructure_error"]`` and reward 0.0.

    **Info.** ``delegated``, a `Delegated`, where a worker replied: `RecordTrajectory` makes steps and segments of it.
    At the end it holds what each worker earned by itself: the verdict's score if a report of its arrived, less
    `turn_cost` for each of its replies. That is part of no reward of the environment; trainers can be told to use it.

    Args:
        env: an environment, before the wrappers that make conversations out of it.
        worker_policy: who plays the workers: a policy, or a text for `make_policy`; a model that a text names is loaded
            here, and closed with this environment. Such workers are part of the environment: their replies are recorded
            with mask 0, and what they earned lies on no token. None: the policy that plays the episode, as
            `agentgym.rollout.collect` tells by `play_workers`.
        max_workers: workers at a time.
        roles: as which they work, see `agentgym.delegation.read_roles`.
        view: where they act, see `agentgym.delegation.Places`.
        worker_turns: replies a worker may write for one task.
        worker_tokens: tokens of them together; None: any.
        report_chars: longest report; the middle of a longer one is cut.
        depth: how deep tasks may be handed on; with 1 workers have no workers.
        turn_cost: taken off what a worker earns by itself, for each of its replies.

    Raises:
        UsageError: an argument makes no sense, or the environment has tools of these names; from `step`, where nobody
            plays the workers.
    """

    snapshot_exclude: ClassVar[frozenset[str]] = frozenset(
        {"crew", "turn_cost", "_policy", "_made", "_player", "_talks"}
    )

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        worker_policy: Policy | str | None = None,
        *,
        max_workers: int = 2,
        roles: RoleSource = None,
        view: View = "copy",
        worker_turns: int = 8,
        worker_tokens: int | None = None,
        report_chars: int = 1000,
        depth: int = 1,
        turn_cost: float = 0.0,
    ) -> None:
        expect_text(self, env)
        if not isinstance(worker_policy, Policy | str | None):
            raise UsageError(f"expected worker_policy to be a policy or a text, got {worker_policy!r:.60}")
        limits = {
            "roles": roles,
            "view": view,
            "worker_turns": worker_turns,
            "worker_tokens": worker_tokens,
            "report_chars": report_chars,
            "depth": depth,
        }
        super().__init__(
            env, worker_policy=worker_policy, max_workers=max_workers, turn_cost=turn_cost, **limits
        )
        names = [f"worker_{n}" for n in range(whole_number("max_workers", max_workers, least=1))]
        self.crew = Crew(env, names, **limits)  # type: ignore[arg-type]
        self.turn_cost = real_number("turn_cost", turn_cost, least=0)
        self._policy = make_policy(worker_policy) if isinstance(worker_policy, str) else worker_policy
        self._made = self._policy if is_model(worker_policy) else None
        self._player: WorkerPlayer | None = None if self._policy is None else self._own_player
        self._rng = np.random.default_rng(0)
        self._talks: dict[int, _Talk] = {}  # by number of the job
        self._start(0)

    def play_workers(self, player: WorkerPlayer) -> None:
        """Say who plays the workers of the episode that has begun; where a `worker_policy` was given, it stays."""
        if self._policy is None:
            self._player = player

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode, with no task given."""
        self.crew.dismiss()
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            # Neither the environment's stream nor a summarizer's.
            self._rng = np.random.default_rng((seed, 2))
        self._start(int(self._rng.integers(1 << 31)))
        return observation, info

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn of the agent, and what the workers do meanwhile."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        turns: list[DelegatedTurn] = []
        pay: tuple[tuple[int, float], ...] = ()
        if not (terminated or truncated):
            try:
                self._round(turns)
                while self.crew.waits(LEAD):
                    self._round(turns)
            except InfrastructureError as error:
                reward, truncated = 0.0, True
                info["infrastructure_error"] = str(error)
        if terminated or truncated:
            self.crew.dismiss()
            if "verdict" in info:
                pay = self._pay(info["verdict"].score)
        elif news := self.crew.collect_news(LEAD):
            observation = f"{observation}\n\n{news}"
            recorded = self.agent_env.episode.turns  # what was read is what is on record
            recorded[-1] = recorded[-1]._replace(observation=observation)
        if turns or pay:
            info["delegated"] = Delegated(tuple(turns), pay)
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Close the workers' instances, a model that was made here for them, and the environment."""
        self.crew.close()
        if self._made is not None:
            self._made.close()
        self.env.close()

    def snapshot(self) -> dict[str, Any]:
        """The state of the environment, the workers and their conversations."""
        talks = {number: talk.copied() for number, talk in self._talks.items()}
        return super().snapshot() | {"crew": self.crew.snapshot(), "talks": talks}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to a `snapshot` of the same stack."""
        super().restore(snapshot)
        self.crew.restore(snapshot["crew"])
        self._talks = {number: talk.copied() for number, talk in snapshot["talks"].items()}

    # -- inside ----------------------------------------------------------------------------------------------------

    def _start(self, seed: int) -> None:
        self.crew.reset(seed)
        self._talks = {}
        self._callers: dict[int, int] = {}  # by number of the job: the turn that gave it, if a worker's did
        self._taken = 0  # turns of workers in this episode
        self._turns_of: dict[str, list[int]] = {}  # their numbers, by worker

    def _round(self, turns: list[DelegatedTurn]) -> None:
        """One turn of each worker that has one to take, added to `turns`."""
        for job in self.crew.running:
            if self.agent_env.episode.done:  # one of them ended it, in an environment that all share
                return
            if not job.over and not self.crew.waits(job.worker):
                talk = self._talks.get(job.number) or self._begin(job)
                turn = self._turn(job, talk)
                if turn is not None:
                    turns.append(turn)

    def _begin(self, job: Job) -> _Talk:
        if self._player is None:
            raise UsageError(
                "nobody plays the workers: give Delegation a worker_policy, or run with agentgym.rollout.collect"
            )
        prompt, task = self.crew.briefing(job)
        ask = self._player(self.crew.places.env(job.worker), job.number)
        self._talks[job.number] = talk = _Talk(ask, (system(prompt),), task)
        return talk

    def _turn(self, job: Job, talk: _Talk) -> DelegatedTurn | None:
        """Ask a worker and run what it calls; None where it cannot answer any more."""
        news = self.crew.collect_news(job.worker)
        conversation = (*talk.held, user("\n\n".join(filter(None, (talk.unread, news)))))
        try:
            reply = talk.ask(conversation)
        except ContextOverflow:  # the worker ran out, as at a limit of turns
            self.crew.stop(job.worker, "its context was full")
            return None
        number, given = self._taken, len(self.crew.jobs)
        self._taken += 1
        self._turns_of.setdefault(job.worker, []).append(number)
        outcome = self.crew.act(job.worker, reply.text, reply.sampled_tokens or None)
        self._callers |= dict.fromkeys((new.number for new in self.crew.jobs[given:]), number)
        begins, talk.begun = not talk.begun, True
        talk.held = (*conversation, assistant(reply.text))
        talk.unread = outcome.text
        return DelegatedTurn(
            agent=job.worker,
            conversation=conversation,
            reply=reply,
            observation=outcome.text,
            calls=outcome.calls,
            begins=begins,
            caller=self._callers.get(job.number) if begins else None,
            of_environment=self._policy is not None,
        )

    def _pay(self, score: float) -> tuple[tuple[int, float], ...]:
        """What each worker earned by itself, at the last of its turns."""
        return tuple(
            (numbers[-1], score * bool(self.crew.helped.get(worker)) - self.turn_cost * len(numbers))
            for worker, numbers in self._turns_of.items()
        )

    def _own_player(self, env: gymnasium.Env[Any, Any], number: int) -> Asked:
        assert self._policy is not None
        rng = np.random.default_rng(int(self._rng.integers(1 << 63)))
        return _Asked(self._policy.for_episode(env, rng), rng)


class _Asked:
    """A policy in one conversation, with random numbers of its own."""

    def __init__(self, policy: Policy, rng: np.random.Generator) -> None:
        self._policy, self._rng = policy, rng

    def __call__(self, conversation: Conversation) -> Reply:
        seeds = (int(self._rng.integers(1 << 63)),) if self._policy.takes_seeds else ()
        return replies(self._policy, (conversation,), seeds)[0]

    @property
    def env(self) -> gymnasium.Env[Any, Any] | None:
        """What a script looks at."""
        return self._policy.env if isinstance(self._policy, ScriptedPolicy) else None

    def copied(self, env: gymnasium.Env[Any, Any] | None) -> _Asked:
        """The same in the same state, looking at `env`. A model is shared: it has no state."""
        rng, policy = copy.deepcopy(self._rng), self._policy
        if isinstance(policy, ScriptedPolicy):
            script = copy.copy(policy)
            known = {id(policy): script, id(self._rng): rng, id(policy.env): env}
            script.__dict__ = copy.deepcopy(vars(policy), known)
            policy = script
        return _Asked(policy, rng)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Asked:
        return self.copied(copy.deepcopy(self.env, memo))
