"""Team-v0: an orchestrator and its workers over any environment of this package."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils import parallel_to_aec  # type: ignore[import-untyped, unused-ignore]

from agentgym.envs.team.env import TeamEnv

__all__ = ["TeamEnv", "env", "parallel_env"]


def parallel_env(**kwargs: Any) -> TeamEnv:
    """The environment, under the name that PettingZoo's own modules give it; keywords of `TeamEnv`."""
    return TeamEnv(**kwargs)


def env(**kwargs: Any) -> Any:
    """The same where agents move one after the other, by PettingZoo's conversion."""
    return parallel_to_aec(parallel_env(**kwargs))
