"""Writing a trajectory that may hold what no file can: a NaN of an environment's, an object in info."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from agentgym.errors import UsageError
from agentgym.trajectory.records import Trajectory
from agentgym.trajectory.store import TrajectoryStore


def append_or_mark(store: TrajectoryStore, trajectory: Trajectory) -> Trajectory:
    """Write a trajectory. One that cannot be written is an episode that broke; what can be kept of it is.

    Returns:
        The trajectory as it was written.
    """
    try:
        store.append(trajectory)
        return trajectory
    except UsageError as error:
        problem = str(error)
    # Foreign values come in where the record holds JSON of any form.
    trajectory.verdict = _writable(trajectory.verdict)
    trajectory.extra = _writable(trajectory.extra)
    for step in trajectory.steps:
        step.info = _writable(step.info)
        for call in step.calls:
            call.arguments = _writable(call.arguments)
    for event in trajectory.events:
        event.data = _writable(event.data)
    trajectory.infrastructure_error = problem
    trajectory.reward = trajectory.resolved = None
    trajectory.terminated = trajectory.truncated = False
    with contextlib.suppress(UsageError):
        store.append(trajectory)
        return trajectory
    # It is somewhere else, as in the log-probs of a policy: say only that the episode was there.
    bare = Trajectory(
        trajectory.id,
        trajectory.env_id,
        trajectory.task_id if isinstance(trajectory.task_id, str) else "",
        trajectory.seed if isinstance(trajectory.seed, int) else None,
        trajectory.policy,
        reward=None,
        infrastructure_error=problem,
        started=trajectory.started,
        seconds=trajectory.seconds,
        extra=trajectory.extra if isinstance(trajectory.extra, dict) else {},
    )
    store.append(bare)
    return bare


def _writable(value: Any) -> Any:
    """The value without the parts that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {k: _writable(v) for k, v in value.items() if isinstance(k, str) and _can_be_written(v)}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value if _can_be_written(item)]
    return value


def _can_be_written(value: Any) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return True  # in part
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
