"""Running a task's scenarios on a page: actions done, asserts read, nothing judged."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import regex
from playwright.async_api import Error as PlaywrightError

from agentgym.errors import InfrastructureError
from agentgym.verifiers.browser.actions import ACTION_S, ActionFailed, describe, matched, perform, picture
from agentgym.verifiers.browser.delivery import ORIGIN
from agentgym.verifiers.browser.launch import first_line
from agentgym.verifiers.browser.process import Browser, BrowserDied, Profile
from agentgym.verifiers.browser.reads import Hung, ReadError
from agentgym.verifiers.browser.session import Log, Session
from agentgym.verifiers.web.predicates import holds
from agentgym.verifiers.web.task import Action, Assert, Scenario, Step, WebTask, tokens_of, with_tokens
from agentgym.verifiers.web.trace import Event, Trace

_POLL_S = 0.1
_ONCE = ("no_errors", "no_network", "dialogs")  # about what was gathered: read once
_MOST = 5  # addresses and errors of a trace
_ERROR = 120


@dataclass(slots=True)
class _Outcome:
    """A scenario's events, and how it ended."""

    events: list[Event]
    log: Log = field(default_factory=Log)
    dead: bool = False
    hung: bool = False


@dataclass(slots=True)
class Runner:
    """One judgement of one page.

    Attributes:
        browser: where.
        files: of the page.
        seed: of the task's words.
        profile: what the page may know of the browser.
        screenshots: keep one after each action.
        deadline: seconds for the page.
    """

    browser: Browser
    files: Mapping[str, bytes]
    seed: int = 1
    profile: Profile = "quiet"
    screenshots: bool = False
    deadline: float = 75.0
    _began: float = 0.0

    async def run(self, task: WebTask) -> Trace:
        """All scenarios, each in a context of its own.

        Raises:
            InfrastructureError: the browser does not start.
        """
        called = time.monotonic()
        await self.browser.ready()
        self._began = time.monotonic()
        words = tokens_of(self.seed)
        outcomes = []
        for number, scenario in enumerate(task.scenarios):
            steps = tuple(with_tokens(step, words) for step in scenario.steps)
            outcomes.append(await self._scenario(number, Scenario(scenario.name, scenario.viewport, steps)))
        logs = [outcome.log for outcome in outcomes]
        blocked = sorted({address for log in logs for address in log.blocked})
        outward = sorted({address for log in logs for address in log.outward})
        errors = dict.fromkeys(error[:_ERROR] for log in logs for error in log.errors)
        return Trace(
            task.id,
            tuple(event for outcome in outcomes for event in outcome.events),
            hung=sum(outcome.hung for outcome in outcomes),
            deadline=self._left() <= 0,
            popups=sum(log.popups for log in logs),
            dialogs=sum(log.dialogs for log in logs),
            blocked=tuple(blocked[:_MOST]),
            outward=tuple(outward[:_MOST]),
            errors=tuple(errors)[:_MOST],
            seconds=time.monotonic() - called,
        )

    async def _scenario(self, number: int, scenario: Scenario) -> _Outcome:
        """One scenario, once more if the browser died in it: was that the page's doing, it happens again.

        Raises:
            InfrastructureError: the browser breaks before it has been given the page.
        """
        for _ in range(2):
            outcome = _Outcome([])
            try:
                if self._left() > 0:
                    await self._attempt(number, scenario, outcome)
                break
            except BrowserDied as died:
                await self.browser.close()
                problem = died
        else:
            if not outcome.events:
                raise InfrastructureError(f"the browser cannot open a page: {problem}")
            outcome.hung = True
        done = len(outcome.events)
        outcome.events += [
            self._skipped(number, n, step) for n, step in enumerate(scenario.steps) if n >= done
        ]
        return outcome

    async def _attempt(self, number: int, scenario: Scenario, outcome: _Outcome) -> None:
        """Do the steps until the page is dead or the time over; what they gave goes into `outcome`."""
        session = await self.browser.open(self.files, scenario.viewport, self.profile)
        outcome.log = session.log
        try:
            for n, step in enumerate(scenario.steps):
                if outcome.dead or self._left() <= 0:
                    return
                outcome.events.append(await self._step(session, outcome, number, n, step))
                if not self.browser.alive():
                    raise BrowserDied
        finally:
            await self.browser.end(session, hung=outcome.hung)

    async def _step(self, session: Session, outcome: _Outcome, number: int, n: int, step: Step) -> Event:
        before = _Marks.of(session.log)
        entry = _Entry()
        try:
            if isinstance(step, Action):
                await self._act(session, step, entry)
            else:
                await self._check(session, step, entry)
        except Hung as hung:
            entry.error = str(hung)
            outcome.dead = outcome.hung = True
        if isinstance(step, Action) and step.op == "goto" and not entry.ok:
            outcome.dead = True
        if flood := session.log.flood():
            entry.error = flood
            outcome.dead = outcome.hung = True
        return Event(
            number,
            n,
            step.op if isinstance(step, Action) else "assert",
            entry.ok,
            t_ms=self._now_ms(),
            target=describe(step.target),
            resolved=entry.resolved,
            got=entry.got,
            error=entry.error,
            url=session.page.url.removeprefix(ORIGIN),
            nodes=entry.nodes,
            screenshot=entry.screenshot,
            **before.since(session.log),
        )

    async def _act(self, session: Session, action: Action, entry: _Entry) -> None:
        """Do an action; what fails is noted.

        Raises:
            Hung: it failed, and the page does not answer any more.
        """
        try:
            async with asyncio.timeout(max(0.0, min(ACTION_S, self._left()))):
                entry.resolved = await matched(session, action)
                entry.screenshot = await perform(session, action)
                entry.ok = True
                if self.screenshots and entry.screenshot is None:
                    entry.screenshot = await picture(session.page)
        except (PlaywrightError, ActionFailed, ReadError) as error:
            entry.error = first_line(error)
        except TimeoutError:
            entry.error = "the time for it ran out"
        if not entry.ok and not await session.answers():
            raise Hung(entry.error)

    async def _check(self, session: Session, step: Assert, entry: _Entry) -> None:
        """Read an assert's value until it holds or its time is over.

        Raises:
            Hung: the page does not answer.
        """
        end = time.monotonic() + step.within_ms / 1000
        while True:
            entry.error = ""
            try:
                await self._read(session, step, entry)
                entry.ok = holds(entry.got, step.predicates)
            except (ReadError, ValueError, TypeError, re.error, regex.error) as error:
                entry.error = first_line(error)
            if entry.ok or step.kind in _ONCE or time.monotonic() >= end or self._left() <= 0:
                return
            await asyncio.sleep(_POLL_S)

    async def _read(self, session: Session, step: Assert, entry: _Entry) -> None:
        if step.kind in _ONCE:
            await session.reader.read("title")  # what the page did before has arrived when this is answered
            log = session.log
            values = {"no_errors": not log.errors, "no_network": not log.blocked, "dialogs": log.dialogs}
            entry.got = values[step.kind]
        else:
            reading = await session.reader.read(step.kind, step.target, step.key)
            entry.got, entry.resolved, entry.nodes = reading.value, reading.matched, reading.nodes

    def _skipped(self, number: int, n: int, step: Step) -> Event:
        op = step.op if isinstance(step, Action) else "assert"
        return Event(number, n, op, ok=False, skipped=True, t_ms=self._now_ms(), target=describe(step.target))

    def _left(self) -> float:
        return self._began + self.deadline - time.monotonic()

    def _now_ms(self) -> int:
        return round((time.monotonic() - self._began) * 1000)


@dataclass(slots=True)
class _Entry:
    """What becomes of one step."""

    ok: bool = False
    error: str = ""
    resolved: int | None = None
    got: Any = None
    nodes: int | None = None
    screenshot: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Marks:
    """How long a log's lists were."""

    console: int
    errors: int
    blocked: int
    dialogs: int

    @classmethod
    def of(cls, log: Log) -> _Marks:
        return cls(len(log.console), len(log.errors), len(log.blocked), log.dialogs)

    def since(self, log: Log) -> dict[str, Any]:
        """What came after."""
        return {
            "console": tuple(log.console[self.console :]),
            "errors": tuple(log.errors[self.errors :]),
            "blocked": tuple(log.blocked[self.blocked :]),
            "dialogs": log.dialogs - self.dialogs,
        }
