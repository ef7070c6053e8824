"""What a worker's reports were worth: the verdict, less the verdict of the same episode in which they are withheld."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from agentgym.delegation import LEAD
from agentgym.envs.team.env import TeamEnv
from agentgym.errors import InfrastructureError
from agentgym.parallel import Infos, Observations

Act: TypeAlias = Callable[[Observations, Infos], Mapping[str, str]]
"""Everybody's policies: from observations and infos to actions. It is deep-copied where an episode branches."""


class _Branch(NamedTuple):
    """An episode before one of its rounds."""

    team: dict[str, Any]
    act: Act
    observations: Observations
    infos: Infos


def contributions(
    env: TeamEnv, act: Act, *, seed: int | None = None, options: dict[str, Any] | None = None
) -> dict[str, float]:
    """Play an episode, and for each worker that reported play on from there without its reports.

    Where a report is withheld, who gave the task reads "(no report)", and what the worker changed is not taken over.
    Everybody acts on as `act` says: a different report may make a different game of the rest.

    Cost: a snapshot of the team before each round in which a worker is busy that has not reported yet, and for each
    worker that did the rest of an episode, verdict included.

    Args:
        env: the team. It is left at the end of the last episode played.
        act: who plays. The numbers are exact where it always does the same in the same place; where it samples from
            generators of its own, those are copied with it, and the branches share their random numbers.
        seed: of the episode.
        options: of `reset`.

    Returns:
        By worker that reported: the score minus the score without its reports, from -1 to 1.

    Raises:
        InfrastructureError: an episode or a branch broke; then nothing can be said.
    """
    observations, infos = env.reset(seed=seed, options=options)
    branches: dict[str, _Branch] = {}
    while env.agents:
        busy = any(job.worker not in branches for job in env.crew.running)
        here = _Branch(env.snapshot(), copy.deepcopy(act), observations, infos) if busy else None
        observations, _, _, _, infos = env.step(act(observations, infos))
        for worker in env.crew.helped.keys() - branches.keys():
            assert here is not None, "who reports was busy"
            branches[worker] = here
    score = _score(infos)
    return {worker: score - _without(env, worker, branches[worker]) for worker in sorted(branches)}


def _without(env: TeamEnv, worker: str, branch: _Branch) -> float:
    """The score of a branch in which the worker's reports are withheld."""
    env.restore(branch.team)
    env.crew.withheld = frozenset({worker})
    act, observations, infos = branch.act, branch.observations, branch.infos
    try:
        while env.agents:
            observations, _, _, _, infos = env.step(act(observations, infos))
    finally:
        env.crew.withheld = frozenset()
    return _score(infos)


def _score(infos: Infos) -> float:
    info = infos[LEAD]
    if "infrastructure_error" in info:
        raise InfrastructureError(info["infrastructure_error"])
    return float(info["verdict"].score)
