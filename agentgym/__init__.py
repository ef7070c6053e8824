"""Gymnasium environments, wrappers, verifiers and trajectories for reinforcement learning of language-model agents.

Importing this package registers its environments: ``gymnasium.make("agentgym/Relay-v0")``.
"""

from agentgym.core import (
    AgentEnv,
    AgentWrapper,
    CallRecord,
    Episode,
    Task,
    TaskSet,
    Tool,
    ToolCall,
    ToolResult,
    Verdict,
    tool,
)
from agentgym.errors import AgentGymError, InfrastructureError, ToolError, UsageError
from agentgym.messages import Message
from agentgym.registration import register_envs
from agentgym.spaces import Conversation, UnicodeText
from agentgym.version import __version__

__all__ = [
    "AgentEnv",
    "AgentGymError",
    "AgentWrapper",
    "CallRecord",
    "Conversation",
    "Episode",
    "InfrastructureError",
    "Message",
    "Task",
    "TaskSet",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "UnicodeText",
    "UsageError",
    "Verdict",
    "__version__",
    "register_envs",
    "tool",
]

register_envs()
