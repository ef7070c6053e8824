"""The README's Python snippets run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentgym.core import INFO_KEYS

SNIPPETS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL
)


def test_the_first_snippet_ends_with_a_reward(capsys: pytest.CaptureFixture[str]) -> None:
    exec(SNIPPETS[0], {})
    out = capsys.readouterr().out
    assert out.startswith("You are a courier.")
    assert re.search(r"^[01]\.\d+ Verdict\(", out.splitlines()[-1])


def test_the_environment_of_your_own_can_be_played() -> None:
    scope: dict[str, Any] = {"__name__": "readme"}
    exec(SNIPPETS[1], scope)
    env = scope["Countdown"]()
    env.reset(seed=0)
    call = '<tool_call>{"name": "add", "arguments": {"number": 5}}</tool_call>'
    assert env.step(call)[0] == "<tool_response>\nThe total is 5.\n</tool_response>"
    assert env.step(call)[1:3] == (1.0, True)


def test_the_contract_page_lists_the_info_keys() -> None:
    page = (Path(__file__).parents[1] / "docs" / "contract.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(INFO_KEYS)
