"""Tasks for tests: steps without the rest."""

from __future__ import annotations

from typing import Any

from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.task import WebTask


def task_of(*scenarios: list[dict[str, Any]]) -> WebTask:
    """A task of one item that all asserts are for."""
    named = [
        {
            "name": str(n),
            "steps": [
                {"item": "A", **step} if step["op"] == "assert" else step for step in [{"op": "goto"}, *steps]
            ],
        }
        for n, steps in enumerate(scenarios)
    ]
    item = {"id": "A", "category": "functionality", "text": "all of it"}
    return parse_task({"id": "test", "prompt": "", "items": [item], "scenarios": named})
