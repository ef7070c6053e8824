"""Wrappers: what stands between an environment and the policy, each one concern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentgym.wrappers.actions import IndexAction, TextFeatures
from agentgym.wrappers.agents import wrap_agents
from agentgym.wrappers.chat import ChatContext
from agentgym.wrappers.compaction import ContextCompaction
from agentgym.wrappers.delegation import Delegation
from agentgym.wrappers.prompts import PublishedPrompts
from agentgym.wrappers.record import RecordTrajectory
from agentgym.wrappers.verifier_reward import VerifierReward

if TYPE_CHECKING:
    from agentgym.wrappers.anti_hack import AntiHack

__all__ = [
    "AntiHack",
    "ChatContext",
    "ContextCompaction",
    "Delegation",
    "IndexAction",
    "PublishedPrompts",
    "RecordTrajectory",
    "TextFeatures",
    "VerifierReward",
    "wrap_agents",
]


def __getattr__(name: str) -> Any:
    """`AntiHack` when it is asked for: it brings all the rules of the monitor along."""
    if name != "AntiHack":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentgym.wrappers.anti_hack import AntiHack

    return AntiHack
