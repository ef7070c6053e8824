"""SearchQA: multi-hop questions answered with a search tool."""

from agentgym.envs.search_qa.env import SearchQAEnv

__all__ = ["SearchQAEnv"]
