"""TextWorld: generated text adventures, played by the games themselves in an interpreter."""

from __future__ import annotations

from agentgym.envs.textworld.env import TextWorldEnv

__all__ = ["TextWorldEnv"]
