"""A server for agent programs in front of any policy: every call is recorded, and becomes token-exact segments."""

from agentgym.gateway.exchange import Limits, Refusal
from agentgym.gateway.server import Gateway
from agentgym.gateway.session import Screen, Screened, Session

__all__ = ["Gateway", "Limits", "Refusal", "Screen", "Screened", "Session"]
