"""The snippets of docs/credit.md print what the page says."""

import re
from pathlib import Path

import pytest

from tests.trajectory.examples import full

PAGE = (Path(__file__).parents[2] / "docs" / "credit.md").read_text(encoding="utf-8")


def test_snippets(capsys):
    scope = {}
    for code, output in re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", PAGE, re.DOTALL):
        exec(code, scope)
        assert capsys.readouterr().out == output
    lead, worker = scope["advantages_of"](full(), lambda segment: [0.5] * len(segment.token_ids))
    assert lead.advantages[0][7] == pytest.approx(0.5)  # paid 1, with V = .5
    assert worker.returns[0][-1] == 1.0
