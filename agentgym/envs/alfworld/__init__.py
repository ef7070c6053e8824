"""ALFWorld: household tasks in text, played by an engine of our own."""

from __future__ import annotations

from agentgym.envs.alfworld.env import AlfworldEnv

__all__ = ["AlfworldEnv"]
