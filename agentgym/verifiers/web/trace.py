"""What a run of a task's scenarios on a page left behind. It holds no score."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_TEXT = 200  # characters of any text in an event
_FILE = 256 << 10  # characters of a whole trace


@dataclass(frozen=True, slots=True)
class Event:
    """One step.

    Attributes:
        scenario, step: its place in the task, from 0.
        op: as in the task; "assert" for asserts.
        ok: the action worked, the assert held.
        skipped: it was not run: the scenario was dead, or the time over.
        t_ms: since the run began.
        target: what it was about, as text.
        resolved: how many elements matched; None where there is no target.
        got: the value an assert read last.
        error: why it failed; "" if it did not, or an assert merely did not hold.
        url: the page's address without its origin.
        console, errors, blocked: what came since the step before.
        dialogs: how many of them.
        nodes: elements in the document; None where it was not asked.
        screenshot: PNG, of a screenshot step or where screenshots were asked for.
    """

    scenario: int
    step: int
    op: str
    ok: bool
    skipped: bool = False
    t_ms: int = 0
    target: str = ""
    resolved: int | None = None
    got: Any = None
    error: str = ""
    url: str = ""
    console: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    dialogs: int = 0
    nodes: int | None = None
    screenshot: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """A run of all scenarios of a task on one page.

    Attributes:
        task: the task's id.
        events: one for each step of each scenario, in order.
        hung: scenarios that went dead because the page stopped answering.
        deadline: the time for the page ran out.
        popups, dialogs: counts over all scenarios.
        blocked: addresses the page asked for and did not get, cut to 120 characters, different ones, sorted.
        outward: likewise those that are more than a missing image, style, script, font, medium or manifest of the
            page's own: what could carry something away.
        errors: uncaught errors of the page and what it wrote with ``console.error``, cut to 120 characters.
        seconds: wall time, a start of the browser included.
    """

    task: str
    events: tuple[Event, ...]
    hung: int = 0
    deadline: bool = False
    popups: int = 0
    dialogs: int = 0
    blocked: tuple[str, ...] = ()
    outward: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    seconds: float = 0.0

    def held(self) -> frozenset[tuple[int, int]]:
        """(scenario, step) of the asserts that were run and held."""
        return frozenset((e.scenario, e.step) for e in self.events if e.op == "assert" and e.ok)

    def rows(self) -> list[dict[str, Any]]:
        """JSON values, one for each event: texts cut, no pictures, past 256 K characters only a count."""
        rows: list[dict[str, Any]] = []
        size = 0
        for number, event in enumerate(self.events):
            row = {
                f.name: _short(getattr(event, f.name))
                for f in dataclasses.fields(event)
                if f.name != "screenshot" and getattr(event, f.name) not in (None, "", ())
            }
            size += len(json.dumps(row))
            if size > _FILE:
                return [*rows, {"left_out": len(self.events) - number}]
            rows.append(row)
        return rows


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _TEXT else value[: _TEXT - 1] + "…"
    if isinstance(value, dict):
        return {_short(key): _short(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [_short(each) for each in list(value)[:50]]
    return value
