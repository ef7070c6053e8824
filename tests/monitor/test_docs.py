"""The snippets of docs/monitor.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agentgym.core import ToolCall
from agentgym.monitor import RULES, Context, Monitor

PAGE = (Path(__file__).parents[2] / "docs" / "monitor.md").read_text(encoding="utf-8")


def test_snippets():
    scope: dict[str, Any] = {}
    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(first, scope)
    decision = scope["decision"]
    assert (decision.block, decision.rule) == (True, "protected_path")
    assert decision.reason == "cat reads /eval/test_patch.diff"

    exec(second, scope)
    rule = scope["moved_clock"]
    alone, beside = Monitor(rules=(rule,)), Monitor(rules=(*RULES, rule))
    moved, timed = (
        ToolCall("bash", {"command": c}) for c in ("faketime -f '+0 x0.01' ./bench", "time ./bench")
    )
    assert alone.review(moved, Context(workspace="/repo")).rule == "moved_clock"
    assert beside.review(moved, Context(workspace="/repo")).block
    assert not beside.review(timed, Context(workspace="/repo")).block
