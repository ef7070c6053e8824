"""The README's Python snippets run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentgym.check import check
from agentgym.core import INFO_KEYS, ToolCall

SNIPPETS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL
)


def test_the_first_snippet_ends_with_a_reward(capsys: pytest.CaptureFixture[str]) -> None:
    exec(SNIPPETS[0], {})
    out = capsys.readouterr().out
    assert out.startswith("You are a courier.")
    assert re.search(r"^[01]\.\d+ Verdict\(", out.splitlines()[-1])


def test_the_environment_of_your_own_can_be_played_and_audited() -> None:
    scope: dict[str, Any] = {"__name__": "readme"}
    exec(SNIPPETS[1].replace("gymnasium.register(", "print("), scope)  # the registry would outlive this test
    env = scope["ThreeNumbers"]()
    env.reset(seed=0, options={"task": "reach-13"})
    for number, total in ((5, 5), (9, 10), (3, 13)):
        step = env.step(env.protocol.render_call(ToolCall("add", {"number": number})))
        assert step[0] == f"<tool_response>\nThe total is {total}.\n</tool_response>"
    assert step[1:3] == (1.0, True)
    only = ["start", "info", "same_seed", "instances", "snapshot", "floor", "turn_limit"]
    assert check(scope["ThreeNumbers"], only=only).ok


def test_the_contract_page_lists_the_info_keys() -> None:
    page = (Path(__file__).parents[1] / "docs" / "contract.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(INFO_KEYS)
