"""What of an agent's tool calls crosses a line: rules that parse, a reviewer, and a judge.

The names below are imported when they are first asked for, so that importing the package needs no parser.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentgym.monitor.context import Context
    from agentgym.monitor.judge import LLMJudge, Reviewer, Rollout
    from agentgym.monitor.monitor import Decision, Monitor
    from agentgym.monitor.rules import CLASSES, RULES, Rule

__all__ = ["CLASSES", "RULES", "Context", "Decision", "LLMJudge", "Monitor", "Reviewer", "Rollout", "Rule"]

_PLACES = {
    "CLASSES": "rules",
    "RULES": "rules",
    "Context": "context",
    "Decision": "monitor",
    "LLMJudge": "judge",
    "Monitor": "monitor",
    "Reviewer": "judge",
    "Rollout": "judge",
    "Rule": "rules",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
