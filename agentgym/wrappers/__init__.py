"""Wrappers: what stands between an environment and the policy, each one concern."""

from agentgym.wrappers.chat import ChatContext
from agentgym.wrappers.compaction import ContextCompaction
from agentgym.wrappers.record import RecordTrajectory

__all__ = ["ChatContext", "ContextCompaction", "RecordTrajectory"]
