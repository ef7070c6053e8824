"""Which teacher a task has, and what a teacher may know of it that the student does not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agentgym.errors import UsageError, nearest
from agentgym.trajectory.records import Trajectory
from baselines.rollouts import Rollouts

SIBLING = "sibling"


def told_of_tasks(source: str, flag: str, rollouts: Rollouts) -> dict[tuple[str, str], str]:
    """Something about every task that is played, by environment and task id.

    Args:
        source: the name of a field of `Task.data`, or a JSON file ``{task id: text}``, in which ``"*"`` stands for all
            other tasks.
        flag: for messages.
        rollouts: knows the tasks.

    Raises:
        UsageError: a task of which nothing is said; a file that is no such table.
    """
    table: dict[str, str] | None = None
    if source.endswith(".json"):
        try:
            table = dict(json.loads(Path(source).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                f"{flag} {source}: expected a JSON object of texts by task id ({error})"
            ) from None
    if not rollouts.pool:
        raise UsageError(f"{flag} {source}: {rollouts.env} lists no tasks to tell apart")
    told = {}
    for (world, id), task in rollouts.pool.items():
        known, wanted = (task.data, source) if table is None else (table, id if id in table else "*")
        if wanted not in known:
            name = source if table is None else id
            raise UsageError(f"{flag} {source}: nothing of task {id!r} of {world}.{nearest(name, known)}")
        told[world, id] = str(known[wanted])
    return told


class Routes:
    """Which teacher each task has.

    Args:
        keys: of the teachers; "" alone teaches everything.
        route: "env" (the key is an environment as --env or --also names it, or its id), or a source for
            `told_of_tasks`, which tells the key.
        rollouts: what is played; every task of it must have a teacher.

    Raises:
        UsageError: a task has none; a teacher has no task.
    """

    def __init__(self, keys: Sequence[str], route: str, rollouts: Rollouts) -> None:
        self._keys = list(keys)
        self._told = None if route == "env" else told_of_tasks(route, "--route", rollouts)
        self._route = route
        taught = {self.key(world, id) for world, id in rollouts.pool}
        idle = [key for key in keys if taught and key not in taught]
        if idle:
            raise UsageError(
                f"--route {route}: expected tasks for every teacher, got none for {', '.join(map(repr, idle))}"
            )

    def of(self, trajectory: Trajectory) -> str:
        """The key of a trajectory's teacher."""
        return self.key(str(trajectory.extra["env"]), trajectory.task_id)

    def key(self, world: str, task_id: str) -> str:
        """The key of a task's teacher."""
        if self._keys == [""]:
            return ""
        if self._told is not None:
            wanted = [self._told[world, task_id]]
        else:
            id = world.split()[0]
            wanted = [world, id, id.rpartition(":")[2]]
        found = next((key for key in wanted if key in self._keys), None)
        if found is None:
            raise UsageError(
                f"--route {self._route}: task {task_id!r} of {world} is for {wanted[0]!r}, and no --teacher is."
                f"{nearest(wanted[0], self._keys)}"
            )
        return found


class Hints:
    """What only the teacher reads: a text for each trajectory.

    Args:
        source: "sibling" (what a rollout of the same group wrote that solved the task), or a source for
            `told_of_tasks`.
        rollouts: what is played.
    """

    def __init__(self, source: str, rollouts: Rollouts) -> None:
        self._told = None if source == SIBLING else told_of_tasks(source, "--hint", rollouts)

    def of(self, trajectories: Sequence[Trajectory]) -> list[str]:
        """For each of a batch's trajectories its text; "" where there is none."""
        if self._told is None:
            return [_demonstration(trajectory, trajectories) for trajectory in trajectories]
        return [self._told[t.extra["env"], t.task_id] for t in trajectories]


def _demonstration(trajectory: Trajectory, others: Sequence[Trajectory]) -> str:
    """The messages of the shortest sibling that solved the task without a hack; never a trajectory's own."""
    siblings = [t for t in others if t is not trajectory and t.extra["group"] == trajectory.extra["group"]]
    solved = [t for t in siblings if t.outcome == "clean_resolved"]  # how to cheat is no solution
    if not solved:
        return ""
    best = min(solved, key=lambda other: other.turns)
    return "A solution:\n" + "\n".join(step.action for step in best.steps if step.kind == "turn")
