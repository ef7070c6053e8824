"""Browsers for the slow tests of this folder, and a stand-in for the quick ones."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agentgym.errors import InfrastructureError
from agentgym.verifiers.web.task import Assert, WebTask
from agentgym.verifiers.web.trace import Event, Trace


def needs_browser() -> None:
    """Skip, in one line, where there is no browser."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("needs playwright")
    if not any(map(shutil.which, ("chromium-headless-shell", "chromium"))):
        pytest.skip("needs chromium-headless-shell")


@pytest.fixture(scope="session")
def pool() -> Iterator[Any]:
    """Four browsers: judging a page that does nothing is mostly waiting."""
    needs_browser()
    from agentgym.verifiers.browser import open_pool

    with open_pool(workers=4) as opened:
        yield opened


@dataclasses.dataclass
class StandIn:
    """A pool that judges nothing: every assert holds, or none.

    Attributes:
        holds: whether asserts hold.
        blocked, outward: what the page is said to have asked the network for, see `Trace`.
        deadline: whether the time is said to have run out.
        dead: raise as if the browser had died.
        seen: (task, files, seed) of each page that was to be judged.
    """

    holds: bool = True
    blocked: tuple[str, ...] = ()
    outward: tuple[str, ...] = ()
    deadline: bool = False
    dead: bool = False
    seen: list[tuple[str, dict[str, bytes], int]] = dataclasses.field(default_factory=list)

    def run(self, task: WebTask, files: Mapping[str, bytes], *, seed: int) -> Trace:
        if self.dead:
            raise InfrastructureError("the browser died")
        self.seen.append((task.id, dict(files), seed))
        events = [
            Event(s, n, "assert", ok=self.holds)
            for s, scenario in enumerate(task.scenarios)
            for n, step in enumerate(scenario.steps)
            if isinstance(step, Assert)
        ]
        return Trace(
            task.id, tuple(events), blocked=self.blocked, outward=self.outward, deadline=self.deadline
        )


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The pool of every environment made in this test."""
    pool = StandIn()
    monkeypatch.setattr("agentgym.envs.web.base.shared_pool", lambda browsers: pool)
    return pool
