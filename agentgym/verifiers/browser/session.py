"""One scenario's browser context: the page in it, what it is answered, and what it did on the side."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser as Chromium
from playwright.async_api import BrowserContext, CDPSession, Dialog, Page, Route
from playwright.async_api import Error as PlaywrightError

from agentgym.texts import repaired
from agentgym.verifiers.browser.delivery import ADDRESS, ORIGIN, answer, is_missing_part, stays_here
from agentgym.verifiers.browser.reads import Hung, Reader, ReadError

OPEN_S = 30.0  # for a fresh context; only a broken browser takes longer
CLOSE_S = 6.0
MAX_POPUPS = 100  # a page that opens more windows is given up,
MAX_MESSAGES = 20_000  # or that writes more to the console,
MAX_DIALOGS = 500  # or opens more dialogs, in one scenario
_ACCEPTED_DIALOGS = 5
_KEPT = 200  # entries of each list in the log
_TEXT = 200  # characters of an entry
_ADDRESS = 120
# Messages of the console, and a rejection of the browser's, that come of the judge's blocking.
_OUR_MESSAGES = ("net::ERR", "unknown error occurred when fetching the script")
_OUR_REJECTION = "TypeError: Failed to register a ServiceWorker for scope"
_ICONS = f"{ORIGIN}/*favicon.ico"  # Playwright itself aborts these before any route sees them


@dataclass(slots=True)
class Log:
    """What a page did since its scenario began.

    Attributes:
        errors: uncaught exceptions, unhandled rejections and console errors that are the page's own.
        console: everything it wrote to the console, as "type: text".
        blocked: addresses it asked for and did not get.
        outward: those of them that are more than a file of its own that is missing (`is_missing_part`).
        dialogs, popups: how many it opened.
        messages: how many it wrote to the console.
    """

    errors: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    outward: list[str] = field(default_factory=list)
    dialogs: int = 0
    popups: int = 0
    messages: int = 0

    def flood(self) -> str:
        """What there is too much of; empty where there is not."""
        bounds = (("windows", self.popups, MAX_POPUPS), ("messages", self.messages, MAX_MESSAGES))
        for what, number, most in (*bounds, ("dialogs", self.dialogs, MAX_DIALOGS)):
            if number > most:
                return f"the page made more than {most} {what}"
        return ""

    def block(self, address: str, method: str = "", kind: str = "") -> None:
        """Note an address, once; `method` and `kind` where they are known, see `is_missing_part`."""
        _keep(self.blocked, address[:_ADDRESS])
        if not is_missing_part(address, method, kind):
            _keep(self.outward, address[:_ADDRESS])

    def exception(self, text: str) -> None:
        """Note an uncaught error, unless it is the judge's doing."""
        if not text.startswith(_OUR_REJECTION):
            _keep(self.errors, text[:_TEXT], repeated=True)

    def message(self, kind: str, text: str) -> None:
        """Note what was written to the console; as an error too where it is one, and not the judge's doing."""
        self.messages += 1
        _keep(self.console, f"{kind}: {text}"[:_TEXT], repeated=True)
        if kind == "error" and not any(mark in text for mark in _OUR_MESSAGES):
            _keep(self.errors, text[:_TEXT], repeated=True)


def _keep(kept: list[str], text: str, *, repeated: bool = False) -> None:
    text = repaired(text)  # pages may be full of halves of surrogate pairs
    if len(kept) < _KEPT and (repeated or text not in kept):
        kept.append(text)


async def _disguise(devtools: CDPSession, agent: str, plain: bool) -> None:
    """Show the page a browser on a network, and as people have it unless `plain`."""
    # A namespace without a network has nothing that would be online, unless some speed is emulated.
    speed = {"latency": 0, "downloadThroughput": 1e9, "uploadThroughput": 1e9}
    await devtools.send(
        "Network.emulateNetworkConditions", {"offline": False, "connectionType": "ethernet", **speed}
    )
    if plain:
        await devtools.send("Emulation.setAutomationOverride", {"enabled": True})
        return
    version = agent.partition("Chrome/")[2].partition(" ")[0]
    names = ("Chromium", "Google Chrome")
    metadata = {
        "brands": [{"brand": name, "version": version.partition(".")[0]} for name in names],
        "fullVersionList": [{"brand": name, "version": version} for name in names],
        **{"platform": "Linux", "platformVersion": "", "architecture": "x86", "model": "", "mobile": False},
    }
    await devtools.send(
        "Emulation.setUserAgentOverride",
        {"userAgent": agent, "platform": "Linux x86_64", "userAgentMetadata": metadata},
    )


class Session:
    """A page in a fresh context: empty storage, cookies and cache.

    Attributes:
        page: Playwright's handle on it, for actions.
        reader: the way to read it.
        log: what it did.
    """

    def __init__(self, context: BrowserContext, files: Mapping[str, bytes]) -> None:
        self._context = context
        self._files = files
        self._tasks: set[asyncio.Task[None]] = set()
        self.log = Log()
        self.page: Page
        self.reader: Reader
        self._devtools: CDPSession

    @classmethod
    async def open(
        cls,
        browser: Chromium,
        files: Mapping[str, bytes],
        viewport: tuple[int, int],
        *,
        agent: str,
        plain: bool,
    ) -> Session:
        """A session with nothing loaded yet.

        Args:
            browser: where.
            files: of the page, see `agentgym.verifiers.browser.delivery`.
            viewport: (width, height) in CSS px.
            agent: the user agent it shows.
            plain: show the page that the browser is automated.
        """
        # Not service_workers="block", which is a script in the page's world: `_serve` refuses theirs.
        context = await browser.new_context(
            viewport={"width": viewport[0], "height": viewport[1]},
            user_agent=agent,
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
            accept_downloads=False,
        )
        session = cls(context, files)
        await context.route("**/*", session._serve)
        session.page = await context.new_page()
        context.on("page", session._on_popup)
        context.on("dialog", session._on_dialog)
        session.page.on("pageerror", session._on_exception)
        session.page.on("console", lambda message: session.log.message(message.type, message.text))
        session.page.on("websocket", lambda socket: session.log.block(socket.url))
        devtools = await context.new_cdp_session(session.page)
        devtools.on("Network.requestWillBeSent", session._on_request)
        for name in ("Network.webSocketCreated", "Network.webTransportCreated"):
            devtools.on(name, lambda event: session.log.block(event["url"]))
        devtools.on("Fetch.requestPaused", session._on_icon)
        await devtools.send("Fetch.enable", {"patterns": [{"urlPattern": _ICONS}]})
        await devtools.send("Network.enable")
        await _disguise(devtools, agent, plain)
        session._devtools = devtools
        session.reader = Reader(devtools)
        return session

    async def can_travel(self, by: int) -> bool:
        """Whether the history has an entry of the page so many steps from here."""
        history = await self._devtools.send("Page.getNavigationHistory")
        addresses: list[str] = [entry["url"] for entry in history["entries"]]
        there = int(history["currentIndex"]) + by
        return 0 <= there < len(addresses) and addresses[there].startswith(ADDRESS)

    async def answers(self) -> bool:
        """Whether the page still answers a read."""
        try:
            await self.reader.read("title")
        except Hung:
            return False
        except ReadError:
            pass
        return True

    async def close(self) -> bool:
        """Throw the context away; False where the browser did not manage in time."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._context.close()
        except (TimeoutError, PlaywrightError):
            return False
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return True

    async def _serve(self, route: Route) -> None:
        request = route.request
        found = answer(self._files, request.url)
        with suppress(PlaywrightError):  # the page has gone on meanwhile
            if request.service_worker is not None:
                await route.abort()
            elif found is None:
                self.log.block(request.url, request.method, request.resource_type)
                await route.abort()
            else:
                await route.fulfill(
                    status=found.status, body=found.body, headers={"content-type": found.content_type}
                )

    def _on_request(self, event: dict[str, Any]) -> None:
        # Also what the browser itself stops before it comes to a route, such as plain http on a secure page.
        request = event["request"]
        if not stays_here(self._files, request["url"]):
            self.log.block(request["url"], request["method"], event.get("type", ""))

    def _on_exception(self, error: PlaywrightError) -> None:
        self.log.exception(f"{error.name}: {error.message}" if error.name else error.message)

    def _on_icon(self, event: dict[str, Any]) -> None:
        found = answer(self._files, event["request"]["url"])
        asked = {"requestId": event["requestId"]}
        if found is None:
            self._spawn(lambda: self._devtools.send("Fetch.continueRequest", asked))
            return
        reply = {
            "responseCode": found.status,
            "responseHeaders": [{"name": "content-type", "value": found.content_type}],
            "body": base64.b64encode(found.body).decode(),
        }
        self._spawn(lambda: self._devtools.send("Fetch.fulfillRequest", asked | reply))

    def _on_popup(self, popup: Page) -> None:
        self.log.popups += 1
        self._spawn(popup.close)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.log.dialogs += 1
        accepted = self.log.dialogs <= _ACCEPTED_DIALOGS
        self._spawn((lambda: dialog.accept("")) if accepted else dialog.dismiss)

    def _spawn(self, work: Callable[[], Any]) -> None:
        async def quietly() -> None:
            with suppress(PlaywrightError):  # the window or dialog is gone already
                await work()

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
