"""The first snippet of each environment's page runs as it stands, offline."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NEEDS = {"web": ("chromium-headless-shell", "chromium")}


@pytest.mark.parametrize(
    "page",
    [
        "alfworld",
        "webshop",
        "search-qa",
        *(pytest.param(page, marks=pytest.mark.slow) for page in ("textworld", "swe", "web")),
    ],
)
def test_the_first_snippet_makes_and_plays_the_environment(page: str) -> None:
    if page in NEEDS and not any(map(shutil.which, NEEDS[page])):
        pytest.skip(f"needs one of {NEEDS[page]}")
    scope: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)[0], scope)
    assert scope["env"].unwrapped.spec.id.startswith("agentgym/")
    assert scope["reward"] == 0.0
    scope["env"].close()
