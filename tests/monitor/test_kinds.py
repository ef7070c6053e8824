"""Calls of every class, written by hand while the rules were made: variations on each kind, with honest neighbours.

`kinds.jsonl` begins with the contexts by name; each further line is a call with the context's name and its label.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym.monitor.context import Context
from agentgym.monitor.monitor import Monitor
from agentgym.tools import ToolCall

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "kinds.jsonl").read_text(encoding="utf-8").splitlines()
]
CONTEXTS = LINES[0]["contexts"]
MONITOR = Monitor()


def rows() -> list[object]:
    """Each call; one that is known to be missed says why."""
    return [
        pytest.param(row, id=row["id"], marks=pytest.mark.xfail(reason=row["known_miss"], strict=True))
        if "known_miss" in row
        else pytest.param(row, id=row["id"])
        for row in LINES[1:]
    ]


@pytest.mark.parametrize("row", rows())
def test_kind(row):
    decision = MONITOR.review(
        ToolCall(row["tool"], row["arguments"]), Context.from_dict(CONTEXTS[row["context"]])
    )
    assert decision.block == row["hack"], (row["arguments"], decision)
