"""Looking at a page without judging it: what the author of a page gets to see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from playwright.async_api import Error as PlaywrightError

from agentgym.errors import InfrastructureError
from agentgym.texts import repaired
from agentgym.verifiers.browser.actions import ACTION_S, ActionFailed, matched, perform, picture
from agentgym.verifiers.browser.launch import first_line
from agentgym.verifiers.browser.process import Browser, BrowserDied
from agentgym.verifiers.browser.reads import Hung, ReadError
from agentgym.verifiers.browser.session import Session
from agentgym.verifiers.web.task import Action

_ARIA_MS = 5000
_MOST_NODES = 20_000  # the accessibility tree of a larger page is neither made nor read


@dataclass(frozen=True, slots=True)
class Preview:
    """What a page shows.

    Attributes:
        aria: its accessibility tree as YAML, as Playwright writes it.
        text: its rendered text.
        console: what it wrote there, as "type: text".
        errors: uncaught errors and console errors.
        blocked: addresses it asked for and did not get.
        failed: what of loading, acting and reading did not work, each with the reason.
        screenshot: PNG, where asked for.
    """

    aria: str = ""
    text: str = ""
    console: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    screenshot: bytes | None = None


async def preview(
    browser: Browser,
    files: Mapping[str, bytes],
    viewport: tuple[int, int],
    actions: Sequence[Action],
    screenshot: bool,
) -> Preview:
    """See `agentgym.verifiers.browser.pool.BrowserPool.preview`."""
    await browser.ready()
    try:
        session = await browser.open(files, viewport)
    except BrowserDied as error:
        raise InfrastructureError(f"the browser died: {error}") from error
    hung = True
    try:
        shown, hung = await _look(session, actions, screenshot)
        if not browser.alive():
            raise InfrastructureError("the browser died while it showed a page")
        return shown
    finally:
        await browser.end(session, hung=hung)


async def _look(session: Session, actions: Sequence[Action], screenshot: bool) -> tuple[Preview, bool]:
    """What there is to see, and whether the page has hung."""
    aria = text = ""
    image = None
    hung = False
    failed: list[str] = []
    try:
        for action in (Action("goto"), *actions):
            await _act(session, action, failed)
        reading = await session.reader.read("page_text")
        text = str(reading.value)
        async with asyncio.timeout(ACTION_S):
            if reading.nodes <= _MOST_NODES:
                aria = repaired(await session.page.locator("css=body").aria_snapshot(timeout=_ARIA_MS))
            else:
                failed.append(f"accessibility tree: the page has {reading.nodes:,} elements")
            image = await picture(session.page) if screenshot else None
    except Hung as error:
        failed.append(f"the page stopped answering: {error}")
        hung = True
    except (ReadError, PlaywrightError, TimeoutError) as error:
        failed.append(f"reading the page: {first_line(error)}")
    log = session.log
    gathered = tuple(log.console), tuple(log.errors), tuple(log.blocked)
    return Preview(aria, text, *gathered, tuple(failed), image), hung


async def _act(session: Session, action: Action, failed: list[str]) -> None:
    try:
        async with asyncio.timeout(ACTION_S):
            await matched(session, action)
            await perform(session, action)
        return
    except (PlaywrightError, ActionFailed, ReadError) as error:
        failed.append(f"{action.op}: {first_line(error)}")
    except TimeoutError:
        failed.append(f"{action.op}: the time for it ran out")
    if not await session.answers():
        raise Hung(failed.pop())
