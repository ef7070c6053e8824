"""The calls by which agents work together, as they are offered beside an environment's own tools."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from agentgym.tools import Tool

_WORKER = {"type": "string", "description": "its name."}


def _tool(name: str, description: str, **properties: dict[str, Any]) -> Tool:
    required = [key for key, entry in properties.items() if "default" not in entry]
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return Tool(name, description, json.dumps(schema), name)


def calls_of_a_boss(roles: Collection[str]) -> tuple[Tool, ...]:
    """What somebody may call who gives tasks to workers."""
    return (
        _tool(
            "delegate",
            "Give a task to a worker, who sees nothing but what you write here. It works beside you and reports.",
            task={"type": "string", "description": "all it needs to know."},
            role={"type": "string", "enum": list(roles), "description": "what kind of worker."},
        ),
        _tool(
            "wait",
            "Do nothing until a worker reports.",
            worker=_WORKER | {"type": ["string", "null"], "default": None},
        ),
        _tool(
            "message",
            "Tell a worker something more.",
            worker=_WORKER,
            text={"type": "string", "description": "the message."},
        ),
        _tool("cancel", "Stop a worker; it will not report.", worker=_WORKER),
    )


REPORT = _tool(
    "report",
    "Tell who gave you the task what came of it. This ends your task.",
    text={"type": "string", "description": "the result; what is too long is cut."},
)

NAMES = frozenset((*(tool.name for tool in calls_of_a_boss(("x",))), REPORT.name))
