"""`BrowserPool`: browsers for any thread, behind plain functions."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from agentgym.errors import UsageError, whole_number
from agentgym.verifiers.browser.preview import Preview, preview
from agentgym.verifiers.browser.process import Browser, Profile
from agentgym.verifiers.browser.runner import Runner
from agentgym.verifiers.web.task import VIEWPORT, Action, WebTask
from agentgym.verifiers.web.trace import Trace

T = TypeVar("T")


class BrowserPool:
    """Some browsers, each used by one page at a time. Its methods may be called from any thread, and inside a running
    event loop (which they block).

    Browsers start when they are first needed. Close the pool, or use it in a ``with`` statement; browsers of a process
    that is killed end with it.

    Args:
        workers: how many browsers.
        restart_every: pages after which a browser is started anew.
    """

    def __init__(self, workers: int = 1, restart_every: int = 50) -> None:
        whole_number("workers", workers, least=1)
        whole_number("restart_every", restart_every, least=1)
        self._owner = os.getpid()
        self._browsers = [Browser(restart_every) for _ in range(workers)]
        self._idle: asyncio.LifoQueue[Browser] = asyncio.LifoQueue()
        for browser in self._browsers:
            self._idle.put_nowait(browser)
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="agentgym-browser")
        self._thread.start()

    def __enter__(self) -> BrowserPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def versions(self) -> dict[str, str]:
        """Of the browser and Playwright, and what keeps pages from the network; empty until a browser has started."""
        return next((browser.versions for browser in self._browsers if browser.versions), {})

    def run(
        self,
        task: WebTask,
        files: Mapping[str, bytes],
        *,
        seed: int = 1,
        profile: Profile = "quiet",
        screenshots: bool = False,
        deadline: float = 75.0,
    ) -> Trace:
        """Run a task's scenarios on a page.

        Args:
            task: the scripts.
            files: of the page: content by path, with "index.html"; see `agentgym.verifiers.browser.delivery`.
            seed: of the words that stand for the task's tokens.
            profile: "quiet" hides from the page that the browser is automated, "plain" does not.
            screenshots: keep a picture after each action.
            deadline: seconds for all scenarios, without the browser's start.

        Raises:
            MissingDependency: there is no browser.
            InfrastructureError: the browser does not start or work.
        """
        return self._with_browser(
            lambda browser: Runner(browser, files, seed, profile, screenshots, deadline).run(task)
        )

    def preview(
        self,
        files: Mapping[str, bytes],
        *,
        viewport: tuple[int, int] = VIEWPORT,
        actions: Sequence[Action] = (),
        screenshot: bool = False,
    ) -> Preview:
        """Load a page, do some actions, and say what a person would find.

        Args:
            files: of the page, as in `run`.
            viewport: (width, height) in CSS px.
            actions: what to do after loading.
            screenshot: take a picture too.

        Raises:
            MissingDependency: there is no browser.
            InfrastructureError: the browser does not start or work.
        """
        return self._with_browser(lambda browser: preview(browser, files, viewport, actions, screenshot))

    def close(self) -> None:
        """End all browsers. Calling it again does nothing."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*(browser.close() for browser in self._browsers))

    def _with_browser(self, work: Callable[[Browser], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise UsageError("this browser pool is closed")
        if os.getpid() != self._owner:
            raise UsageError(
                "this browser pool belongs to the process that opened it: open one in each process"
            )

        async def borrow() -> T:
            task = asyncio.ensure_future(lent())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            return await task

        async def lent() -> T:
            browser = await self._idle.get()
            try:
                return await work(browser)
            finally:
                self._idle.put_nowait(browser)

        return self._call(borrow())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C, for example
            raise


def open_pool(workers: int = 1, restart_every: int = 50) -> BrowserPool:
    """A pool of browsers, see `BrowserPool`."""
    return BrowserPool(workers, restart_every)
