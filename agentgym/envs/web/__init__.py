"""Web-v0: build a page from a brief; a real browser uses it and decides.

The tasks that come with it are drawn by `agentgym.envs.web.tasks`; judging is `agentgym.verifiers.web`.
"""

from agentgym.envs.web.env import PageEnv, WebEnv, make

__all__ = ["PageEnv", "WebEnv", "make"]
