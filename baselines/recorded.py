"""Record once, train many: what `agentgym run` wrote stands in for playing.

Whether old tokens may be trained on is a question of their **age**: how many updates lie between the weights that
sampled them and the weights that are trained on them.

- A reply may say which weights answered (`policy_version`, a number that grows by one with each update; trainers set
  it). A trajectory is as old as its oldest reply that is trained on. `agentgym run` sets none: then all are of the same
  weights. Data in which some of these replies say theirs and others do not is refused.
- The newest weights in the data must be those of `--model`. That is not believed but measured: their recorded
  log-probs are computed again, for some episodes drawn at random, of every agent in them.
- So at update u (from 0) a trajectory of version v is ``u + newest - v`` updates old. A run in which one would grow
  older than `--max-age` does not begin.

Policy gradients weigh such tokens by the ratio to the probability that they were sampled with, as recorded. Algorithms
that imitate (`any_data`) take any tokens of the same vocabulary, and none of this is asked: no log-probs are needed,
and the tokens are scored at the temperature that the student itself plays at (`--temperature`).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from agentgym.cli.arguments import read_run
from agentgym.errors import UsageError, nearest
from agentgym.trajectory.records import Trajectory
from baselines.actor import Actor
from baselines.flags import RunArgs
from baselines.rollouts import Rollouts, batch_of

# Mean distance of log-probs, in nats. Another engine or bfloat16 moves them by some hundredths; weights that are so
# near to the ones that sampled are no others to an importance ratio.
_SAME = 0.1
_MEASURED = 8  # trajectories of each agent


class _Learner(Protocol):
    actor: Actor
    any_data: bool

    def whole(self) -> AbstractContextManager[None]: ...


class Recorded(Rollouts):
    """Recorded episodes, given out again in the order that the seed decides.

    A group is up to `group_size` episodes of one task, in the order of the file; every group comes once before any
    comes again. Episodes that broke are left out.

    Args:
        path: a run's folder, or its file.
        live: what would be played; its environments and tasks are those that count.

    Attributes:
        kept: the trajectories.

    Raises:
        UsageError: there is no such run; it is of another environment or of tasks that would not be played, such as
            those of another split; siblings are wanted, and no task has two.
    """

    def __init__(self, path: str, live: Rollouts) -> None:
        file, found = read_run(path)
        self.file = file
        self.env, self.pool, self.policy = live.env, live.pool, live.policy
        self.seed, self.group_size = live.seed, live.group_size
        self.position = 0
        self.played = []
        self.kept = [t for t in found if t.reward is not None and not t.infrastructure_error]
        if not self.kept:
            raise UsageError(f"{file}: expected episodes to train on, got {len(found)} that broke")
        by_task: defaultdict[tuple[str, str], list[Trajectory]] = defaultdict(list)
        for trajectory in self.kept:
            trajectory.extra["env"] = self._world(trajectory)
            self._check_task(trajectory)
            by_task[trajectory.extra["env"], trajectory.task_id].append(trajectory)
        size = self.group_size
        self._groups = [own[at : at + size] for own in by_task.values() for at in range(0, len(own), size)]
        if size > 1 and max(map(len, self._groups)) == 1:
            raise UsageError(
                f"{file}: expected several episodes of a task with --group-size {size}, got one of each; record more, "
                "or give --group-size 1"
            )

    def play(self, groups: int) -> list[Trajectory]:
        """The next `groups` groups."""
        found = []
        for number in range(self.position, self.position + groups):
            epoch, at = divmod(number, len(self._groups))
            order = np.random.default_rng((self.seed, 5, epoch)).permutation(len(self._groups))
            for trajectory in self._groups[order[at]]:
                found.append(dataclasses.replace(trajectory, extra=trajectory.extra | {"group": number}))
        self.position += groups
        self.played += found
        return found

    def read_at(self, temperature: float) -> None:
        """Let all tokens be scored at one temperature, whatever they were written at: 0, or one that nobody told."""
        for trajectory in self.kept:
            for segment in trajectory.segments:
                for sampled in segment.sampled:
                    sampled.temperature = temperature

    def check_age(self, updates: int, max_age: int) -> None:
        """Refuse a run in which a trajectory would grow too old.

        Args:
            updates: of the whole run.
            max_age: see `RunArgs`.

        Raises:
            UsageError: one would; some replies say their version and others do not.
        """
        versions = versions_of(self.kept)
        spread = max(versions) - min(versions)
        oldest = max(updates - 1, 0) + spread
        if oldest > max_age:
            within = f" ({spread} of it within the data)" if spread else ""
            advice = f"--steps {max_age - spread + 1} or " if spread <= max_age else ""
            raise UsageError(
                f"{self.file}: at the last of {updates} updates there would be tokens of age {oldest}{within}, and "
                f"--max-age is {max_age}; give {advice}a larger --max-age"
            )

    def check_weights(self, actor: Actor) -> None:
        """Refuse data whose newest weights are not the actor's.

        Raises:
            UsageError: they are not; there are no log-probs to tell it by.
        """
        versions = versions_of(self.kept)
        newest = max(versions)
        chosen = self._some([t for t, of in zip(self.kept, versions, strict=True) if of == newest])
        batch = batch_of([dataclasses.replace(t, extra=t.extra | {"group": 0}) for t in chosen])
        scored, _ = actor.score(batch.rows, entropy=False)
        recorded = [of.numpy() for of in batch.on_tokens(batch.sampled)]
        distances = np.abs(scored.cpu().numpy() - np.concatenate(recorded))
        of_token = np.repeat([segment.agent for segment in batch.segments], [len(row) for row in recorded])
        for agent in sorted({segment.agent for segment in batch.segments}):
            distance = float(distances[of_token == agent].mean())
            if not distance <= _SAME:
                raise UsageError(
                    f"{self.file}: expected tokens that --model itself sampled, got those of {chosen[0].policy} as "
                    f"agent {agent!r}: its log-probs are {distance:.2f} nats from the recorded ones, on average"
                )

    def check_tokens(self, actor: Actor) -> None:
        """Refuse data in another vocabulary. Workers that another policy played may have one of their own, or none.

        Raises:
            UsageError: there are no token ids of who leads; or the actor's tokenizer reads another text from those that
                would be trained on.
        """
        known = actor.model.get_input_embeddings().num_embeddings
        for trajectory in self.kept:
            own = [s for s in trajectory.segments if s.messages and s.agent == trajectory.segments[0].agent]
            if not all(segment.token_ids for segment in own):
                raise UsageError(
                    f"{self.file}: expected token ids, got none in episode {trajectory.id}; {trajectory.policy} does "
                    "not tell them"
                )
        for trajectory in self._some(self.kept):
            for segment in trajectory.segments:
                for sampled in (reply for reply in segment.sampled if reply.trained):
                    wrote = segment.messages[sampled.message].content
                    ids = [id for id in segment.token_ids[sampled.start : sampled.stop] if id < known]
                    reads = actor.tokenizer.decode(ids, skip_special_tokens=False)
                    if not reads.startswith(wrote):
                        raise UsageError(
                            f"{self.file}: expected the vocabulary of --model; it reads {reads[:40]!r} in episode "
                            f"{trajectory.id}, where {wrote[:40]!r} was written"
                        )

    def _some(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """`_MEASURED` of them at random, and as many in which each agent wrote something that is trained on.

        Those that stand first in a file ended first, so they are the shortest.
        """
        order = np.random.default_rng((self.seed, 8)).permutation(len(trajectories))
        drawn = [trajectories[n] for n in order]
        by_agent: defaultdict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in drawn:
            for agent in {segment.agent for segment in trajectory.segments if any(segment.mask)}:
                by_agent[agent].append(trajectory)
        chosen = [t for some in (drawn, *by_agent.values()) for t in some[:_MEASURED]]
        return list({id(t): t for t in chosen}.values())

    def _world(self, trajectory: Trajectory) -> str:
        """Which of the environments an episode is of, as --env or --also names it."""
        names = sorted({name for name, _ in self.pool})
        own = str(trajectory.extra.get("env", trajectory.env_id))
        fitting = [own] if own in names else [n for n in names if n.split()[0].rpartition(":")[2] == own]
        if len(fitting) != 1:
            one = "one of these alone" if fitting else "one of these"
            raise UsageError(
                f"{self.file}: expected episodes of {one}: {', '.join(names) or self.env}; got {own}"
            )
        return fitting[0]

    def _check_task(self, trajectory: Trajectory) -> None:
        """Raise unless it would be played, where an environment lists its tasks: others may be those of evaluation."""
        world = trajectory.extra["env"]
        known = [task for name, task in self.pool if name == world]
        if known and (world, trajectory.task_id) not in self.pool:
            raise UsageError(
                f"{self.file}: expected episodes of the {len(known)} tasks that {world} would play, got one of "
                f"{trajectory.task_id!r}; see --tasks, and split of --set{nearest(trajectory.task_id, known)}"
            )


def versions_of(trajectories: Sequence[Trajectory]) -> list[int]:
    """Number of the oldest weights whose replies are trained on in each trajectory; 0 for all where none says one.

    Raises:
        UsageError: versions that are no whole numbers; some of these replies say theirs and others do not.
    """
    told = [
        {reply.policy_version for segment in t.segments for reply in segment.sampled if reply.trained}
        for t in trajectories
    ]
    known: set[str] = set().union(*told)
    if "" in known and len(known) > 1:
        silent = next(t.id for t, versions in zip(trajectories, told, strict=True) if "" in versions)
        raise UsageError(
            f"expected every reply to say the version of its weights or none to, got {sorted(known - {''})} and, in "
            f"episode {silent}, a reply without one: nobody can tell how old it is"
        )
    try:
        numbers = [[int(version or 0) for version in versions] for versions in told]
    except ValueError:
        raise UsageError(f"expected policy versions that are whole numbers, got {sorted(known)}") from None
    newest = max((number for of in numbers for number in of), default=0)
    return [min(of, default=newest) for of in numbers]  # where nobody answered, nothing is old


def open_data(args: RunArgs, live: Rollouts, learner: _Learner) -> Recorded:
    """The recorded data of a run, checked as far as its algorithm needs.

    Args:
        args: of the run.
        live: what would be played.
        learner: with the weights of the beginning.
    """
    assert args.data is not None
    recorded = Recorded(args.data, live)
    recorded.check_tokens(learner.actor)
    if learner.any_data:
        recorded.read_at(args.temperature)
    else:
        recorded.check_age(args.steps, args.max_age)
        with learner.whole():
            recorded.check_weights(learner.actor)
    return recorded
