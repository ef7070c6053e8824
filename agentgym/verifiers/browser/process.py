"""A browser that is kept alive, renewed now and then, and always ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib.metadata import version
from typing import Literal, TypeAlias

from playwright.async_api import Browser as Chromium
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Playwright, async_playwright

from agentgym.errors import InfrastructureError
from agentgym.sandbox import scratch_folder
from agentgym.verifiers.browser.actions import perform
from agentgym.verifiers.browser.delivery import INDEX
from agentgym.verifiers.browser.launch import Running, first_line, launch
from agentgym.verifiers.browser.reads import Hung, ReadError
from agentgym.verifiers.browser.session import OPEN_S, Session
from agentgym.verifiers.web.task import Action

Profile: TypeAlias = Literal["quiet", "plain"]
_CLOSE_S = 8.0
_PROBE = b"<!doctype html><title>probe</title><p>ready"
_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) {} Safari/537.36"


class BrowserDied(Exception):
    """The browser, not only a page in it, is gone."""


class Browser:
    """A browser and the driver that speaks with it, both started when needed. All methods belong to one event loop.

    Attributes:
        versions: of the browser and of Playwright, and what keeps the browser from the network ("namespace" or
            "switches"), as last started; empty before the first start.

    Args:
        restart_every: pages after which both are started anew, against what they gather.
    """

    def __init__(self, restart_every: int = 50) -> None:
        self.versions: dict[str, str] = {}
        self._restart_every = restart_every
        self._pages = 0
        self._driver: Playwright | None = None
        self._running: Running | None = None
        self._folder = ExitStack()

    async def ready(self) -> None:
        """Be fit for another page: started, alive, not used for too many.

        Raises:
            MissingDependency: there is no browser.
            InfrastructureError: it does not start, or does not work with this version of Playwright.
        """
        if self._pages >= self._restart_every:
            await self.close()
        await self._ensure()
        self._pages += 1

    async def open(
        self, files: Mapping[str, bytes], viewport: tuple[int, int], profile: Profile = "quiet"
    ) -> Session:
        """A session in a fresh context, of a new browser where the one before was ended.

        Raises:
            BrowserDied: the browser broke.
            MissingDependency, InfrastructureError: as `ready`.
        """
        await self._ensure()
        return await self._open(files, viewport, profile)

    async def end(self, session: Session, *, hung: bool = False) -> None:
        """Throw a session away, with the whole browser where its page has hung: a page that floods us with events
        would keep a polite end waiting behind them.
        """
        if hung:
            await self._kill()
        elif not await session.close():
            await self.close()

    def alive(self) -> bool:
        """Whether the browser still runs."""
        return self._running is not None and self._running.browser.is_connected()

    async def close(self) -> None:
        """End the browser and the driver: in good order, or else by force. Nothing of them stays."""
        if self._running is not None:
            with suppress(PlaywrightError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._running.browser.close()
        await self._kill()

    async def _kill(self) -> None:
        running, self._running = self._running, None
        driver, self._driver = self._driver, None
        self._pages = 0
        if running is not None:
            running.kill()
        if driver is not None:
            with suppress(PlaywrightError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await driver.stop()
        self._folder.close()

    async def _ensure(self) -> None:
        if self._running is not None and not self.alive():
            await self._kill()
        if self._running is None:
            await self._start()

    async def _start(self) -> None:
        try:
            self._driver = await _driver()
            folder = self._folder.enter_context(scratch_folder("browser"))
            self._running = await launch(self._driver, folder)
            self.versions = {
                "browser": self._running.browser.version,
                "playwright": version("playwright"),
                "network": self._running.network,
            }
            await self._probe()
        except BaseException:
            await self._kill()
            raise

    async def _open(self, files: Mapping[str, bytes], viewport: tuple[int, int], profile: Profile) -> Session:
        assert self._running is not None
        chromium = self._running.browser
        try:
            async with asyncio.timeout(OPEN_S):
                return await Session.open(
                    chromium, files, viewport, agent=_agent(chromium, profile), plain=profile == "plain"
                )
        except (PlaywrightError, TimeoutError) as error:
            raise BrowserDied(first_line(error)) from error

    async def _probe(self) -> None:
        """See that this browser and this Playwright work together."""
        try:
            session = await self._open({INDEX: _PROBE}, (800, 600), "quiet")
            await perform(session, Action("goto"))
            text = (await session.reader.read("page_text")).value
            await session.close()
        except (PlaywrightError, BrowserDied, Hung, ReadError) as error:
            raise InfrastructureError(
                f"{self._who()} cannot show a page: {first_line(error) or 'it does not answer'}"
            ) from error
        if text != "ready":
            raise InfrastructureError(f"{self._who()} cannot be read: expected 'ready', got {text!r:.60}")

    def _who(self) -> str:
        return f"the browser {self.versions['browser']} under playwright {self.versions['playwright']}"


async def _driver() -> Playwright:
    try:
        return await async_playwright().start()
    except (PlaywrightError, OSError) as error:
        raise InfrastructureError(f"the driver of Playwright does not start: {first_line(error)}") from error


def _agent(chromium: Chromium, profile: Profile) -> str:
    # As desktop Chrome shows it: the real major version, zeros behind it.
    name = "Chrome" if profile == "quiet" else "HeadlessChrome"
    return _AGENT.format(f"{name}/{chromium.version.partition('.')[0]}.0.0.0")
