"""One browser for all of these tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentgym.verifiers.web.trace import Event, Trace
from tests.verifiers.browser.tasks import task_of


@pytest.fixture(scope="session")
def pool() -> Iterator[Any]:
    """Skips where there is no browser."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    from agentgym.verifiers.browser import launch, open_pool

    if not any(map(shutil.which, launch.NAMES)):
        pytest.skip("no browser: apt-get install chromium-headless-shell")
    with open_pool() as pool:
        yield pool


RunSteps = Callable[..., list[Event]]


@pytest.fixture
def play(pool: Any) -> Callable[..., Trace]:
    """Run steps after a goto on a page: HTML, or files by path."""

    def run(page: str | dict[str, bytes], *scenarios: list[dict[str, Any]], **settings: Any) -> Trace:
        files = {"index.html": page.encode()} if isinstance(page, str) else page
        trace: Trace = pool.run(task_of(*scenarios), files, **settings)
        json.dumps(trace.rows(), allow_nan=False)
        return trace

    return run


@pytest.fixture
def steps(play: Callable[..., Trace]) -> RunSteps:
    """The events of one scenario, without that of its goto."""
    return lambda page, steps, **settings: list(play(page, steps, **settings).events[1:])
