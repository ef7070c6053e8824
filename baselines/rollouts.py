"""Playing for a trainer: tasks in a fixed order, groups of siblings, and what of it can be trained on.

Shapes: N trajectories, K segments with trainable tokens; segment k has T_k tokens, M_k of them trainable.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentgym.cli.arguments import constructor_errors
from agentgym.core import AgentEnv
from agentgym.credit import add_reward, chains, token_weights
from agentgym.credit.weights import Reduce
from agentgym.errors import InfrastructureError, UsageError
from agentgym.policies import Policy
from agentgym.rollout import collect, make_env
from agentgym.trajectory.records import Segment, Trajectory
from baselines.actor import Row, rows_of
from baselines.parallel import Ranks

Array = NDArray[np.float64]


class Chain(NamedTuple):
    """The segments of one agent in one trajectory, in order.

    Attributes:
        segments: indices into the batch's segments; at least one.
        rollout: index of the trajectory.
        leads: it is the trajectory's first chain; others are those of sub-agents.
    """

    segments: list[int]
    rollout: int
    leads: bool


@dataclass(frozen=True)
class Batch:
    """Trajectories, and the rows of tokens that come of them.

    Episodes that infrastructure ended are in `trajectories`, with return NaN, and in nothing else: nobody trains on
    them, and they are no sibling of anybody.

    Attributes:
        trajectories: (N,), in the order of the episodes.
        groups: (N,), siblings have equal entries.
        returns: (N,), NaN where infrastructure failed.
        segments: (K,), those with trainable tokens.
        rollouts: (K,), index of the segment's trajectory.
        chains: whose segments follow one another.
        rows: (K,), ids, mask and temperature of each segment.
    """

    trajectories: list[Trajectory]
    groups: list[int]
    returns: Array
    segments: list[Segment]
    rollouts: list[int]
    chains: list[Chain]
    rows: list[Row]

    @property
    def masks(self) -> list[NDArray[np.bool_]]:
        """Per segment, (T_k,), True at trainable tokens."""
        return [row.mask for row in self.rows]

    @property
    def sampled(self) -> list[Array]:
        """Per segment, (T_k,), log-probs under the distribution that was sampled from; 0 at masked tokens.

        Raises:
            UsageError: a segment has none.
        """
        for segment, n in zip(self.segments, self.rollouts, strict=True):
            if not segment.logprobs:
                raise UsageError(
                    f"episode {self.trajectories[n].id}: expected log-probs of its tokens, got none; a model here "
                    "tells them at a temperature above 0, one behind a server at 1"
                )
        return [np.asarray(segment.logprobs) for segment in self.segments]

    def on_tokens(self, per_segment: Sequence[Array]) -> list[Tensor]:
        """Per segment the numbers of its trainable tokens alone, (M_k,), float32."""
        pairs = zip(per_segment, self.masks, strict=True)
        return [torch.from_numpy(numbers[mask]).float() for numbers, mask in pairs]

    def weights(self, part: Sequence[int], reduce: Reduce, constant: float | None) -> dict[int, Tensor]:
        """What the tokens of some segments weigh in a loss over these, (M_k,) by segment.

        Args:
            part: the segments, whole trajectories of them.
            reduce: as for `agentgym.credit.token_weights`.
            constant: likewise.
        """
        masks = [self.masks[k] for k in part]
        weights = token_weights(masks, [self.rollouts[k] for k in part], reduce=reduce, constant=constant)
        return {k: torch.from_numpy(w[m]).float() for k, w, m in zip(part, weights, masks, strict=True)}

    def minibatches(self, count: int, seed: Sequence[int]) -> list[list[int]]:
        """The segments in `count` parts, drawn at random; all of a trajectory are in one part."""
        present = sorted(set(self.rollouts))
        if count > 1:
            present = np.random.default_rng(seed).permutation(present).tolist()
        parts = [set(part) for part in np.array_split(present, min(count, len(present)))]
        return [[k for k, n in enumerate(self.rollouts) if n in part] for part in parts]

    @property
    def rewards(self) -> list[Array]:
        """Per segment, (T_k,), what the environment paid, on the last trainable token of the reply."""
        return [np.asarray(segment.rewards) for segment in self.segments]

    def paid(self, sub_agents: Literal["team", "own", "both"] = "team") -> list[Array]:
        """Per segment, (T_k,), the rewards, and at the end of a sub-agent's chain what its trajectory brought.

        Args:
            sub_agents: "team": as much as makes the chain's sum the trajectory's return; "both": the return, beside
                what the chain was paid itself; "own": nothing.
        """
        rewards, masks = self.rewards, self.masks
        for chain, n, leads in self.chains:
            if sub_agents == "own" or leads:
                continue
            more = float(self.returns[n])
            if sub_agents == "team":
                more -= sum(float(rewards[k].sum()) for k in chain)
            paid = add_reward([rewards[k] for k in chain], [masks[k] for k in chain], more)
            for k, row in zip(chain, paid, strict=True):
                rewards[k] = row
        return rewards


def batch_of(trajectories: Sequence[Trajectory]) -> Batch:
    """What can be trained on.

    Raises:
        InfrastructureError: every episode broke.
        UsageError: there is no trainable token, with what may be the reason.
    """
    valid = [t.reward is not None and not t.infrastructure_error for t in trajectories]
    if not any(valid):
        first = trajectories[0].infrastructure_error.splitlines()[-1]
        raise InfrastructureError(f"all {len(trajectories)} episodes broke; the first: {first}")
    segments: list[Segment] = []
    rollouts: list[int] = []
    linked: list[Chain] = []
    for n, (trajectory, usable) in enumerate(zip(trajectories, valid, strict=True)):
        for position, chain in enumerate(chains(trajectory) if usable else ()):
            trained = [segment for segment in chain if any(segment.mask)]
            if trained:
                numbers = list(range(len(segments), len(segments) + len(trained)))
                linked.append(Chain(numbers, n, position == 0))
                segments += trained
                rollouts += [n] * len(trained)
    if not segments:
        raise UsageError(_nothing_to_train(trajectories))
    returns = [
        t.reward if ok and t.reward is not None else np.nan for t, ok in zip(trajectories, valid, strict=True)
    ]
    return Batch(
        list(trajectories),
        [t.extra["group"] for t in trajectories],
        np.array(returns),
        segments,
        rollouts,
        linked,
        rows_of(segments),
    )


def _nothing_to_train(trajectories: Sequence[Trajectory]) -> str:
    steps = [step for t in trajectories for step in t.steps]
    full = [
        event.data.get("why") for t in trajectories for event in t.events if event.kind == "context_overflow"
    ]
    if not steps and full:
        why = f"the first message did not fit the model's context: {full[0]}"
    elif not any(segment.token_ids for t in trajectories for segment in t.segments):
        why = (
            "the policy gave no token ids" if any(step.action for step in steps) else "every reply was empty"
        )
    else:
        why = "every reply was masked (a monitor with --mask-blocked?) or thrown away"
    return (
        f"expected trainable tokens, got none in {len(trajectories)} episodes of {len(steps)} replies: {why}"
    )


class Rollouts:
    """Plays groups of episodes with one policy, on tasks in an order that only the seed decides.

    Every task comes once before any comes again, in a new order each time. Episodes run in lockstep, so the same
    position and the same weights give the same tokens.

    Args:
        env: a registered id.
        stack: keywords of `agentgym.rollout.make_env`.
        policy: who plays.
        ranks: each process plays a part of the groups; all get all trajectories.
        seed: of tasks, environments and sampling.
        group_size: episodes that share task and environment seed.
        order: "shuffled", or "listed": as the tasks stand in the environment, for evaluation.
        workers: most episodes at a time, in each process.
        episode_timeout: seconds an episode may take; None: any.

    Attributes:
        env: as it was asked for; every trajectory has it in ``extra["env"]``.
        pool: the environment's tasks, by environment as it was asked for and id.
        position: groups played so far; with the seed all there is to know.
        played: what `play` returned since somebody emptied this list.
    """

    def __init__(
        self,
        env: str,
        stack: Mapping[str, Any],
        policy: Policy,
        ranks: Ranks,
        *,
        seed: int,
        group_size: int = 1,
        order: Literal["shuffled", "listed"] = "shuffled",
        workers: int = 64,
        episode_timeout: float | None = None,
    ) -> None:
        self.env = env
        self.policy = policy
        self.seed = seed
        self.group_size = group_size
        self.position = 0
        self.played: list[Trajectory] = []
        self._make = functools.partial(make_env, env, **stack)
        self._ranks = ranks
        self._order = order
        self._workers = workers
        self._timeout = episode_timeout
        with constructor_errors():
            probe = self._make()
        with contextlib.closing(probe):
            if stack.get("compact") is not None:  # whether a budget holds the task shows at a reset
                probe.reset(seed=seed)
            inner = probe.unwrapped
            listed = inner.task_pool if isinstance(inner, AgentEnv) else ()
            self.pool = {(env, task.id): task for task in listed}
            self.tasks = [task.id for task in listed]

    def play(self, groups: int) -> list[Trajectory]:
        """The next `groups` groups, ``groups * group_size`` trajectories in order."""
        part = self._ranks.part([1] * groups)
        count = part.stop - part.start
        first = self.position + part.start
        played = []
        if count:
            # Of `count` tasks `collect` gives group n the one at n % count.
            listed = sorted(range(first, first + count), key=lambda n: n % count)
            played = collect(
                self._make,
                self.policy,
                episodes=count * self.group_size,
                seed=self.seed,
                tasks=[self.task(n) for n in listed] if self.tasks else None,
                group_size=self.group_size,
                first=first * self.group_size,
                workers=self._workers,
                episode_timeout=self._timeout,
                lockstep=True,
            )
        self.position += groups
        for trajectory in played:
            trajectory.extra["env"] = self.env
        everybody = self._ranks.gather(played)
        self.played += everybody
        return everybody

    def task(self, number: int) -> str:
        """Id of the task that group `number` plays."""
        epoch, at = divmod(number, len(self.tasks))
        if self._order == "listed":
            return self.tasks[at]
        return self.tasks[int(np.random.default_rng((self.seed, 2, epoch)).permutation(len(self.tasks))[at])]


class Mixture(Rollouts):
    """Several environments in turn: with E of them, group n is of environment n % E.

    Each environment goes through its own tasks, so one that has few repeats them more often.

    Args:
        parts: how each is played, by what it is called; of equal group size.
    """

    def __init__(self, parts: Mapping[str, Rollouts]) -> None:
        self._parts = parts
        self.env = ", ".join(parts)
        first = next(iter(parts.values()))
        self.seed, self.group_size = first.seed, first.group_size
        self.pool = {(name, id): task for name, part in parts.items() for (_, id), task in part.pool.items()}
        self.position = 0
        self.played = []

    @property
    def policy(self) -> Policy:
        """Who plays, everywhere."""
        return next(iter(self._parts.values())).policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        for part in self._parts.values():
            part.policy = policy

    def play(self, groups: int) -> list[Trajectory]:
        """The next `groups` groups."""
        size, stop = len(self._parts), self.position + groups
        found: list[Trajectory] = []
        for at, (name, part) in enumerate(self._parts.items()):
            part.position = -(
                (at - self.position) // size
            )  # numbers below the position that are `at` modulo size
            played = part.play(-((at - stop) // size) - part.position)
            part.played = []  # ours has them
            for trajectory in played:
                trajectory.id = f"{name}: {trajectory.id}"
                trajectory.extra["env"] = name
                trajectory.extra["group"] = trajectory.extra["group"] * size + at
                found.append(trajectory)
        self.position = stop
        found.sort(key=lambda trajectory: int(trajectory.extra["group"]))
        self.played += found
        return found
