"""Reading a page through an isolated world, which the page can neither reach nor notice.

The world shares the page's DOM and has its own copy of every native. `reads.js` is evaluated in it once per document.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
from dataclasses import dataclass
from importlib import resources
from typing import Any

from playwright.async_api import CDPSession
from playwright.async_api import Error as PlaywrightError

from agentgym.verifiers.web.task import Target

READ_S = 6.0  # a page that takes longer for one read is hung
_SCRIPT_MS = 3000
_RETRY_S = 0.05


class Hung(Exception):
    """The page does not answer."""


class ReadError(Exception):
    """There is no such value, for example since the selector is none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value of the page.

    Attributes:
        value: JSON.
        matched: elements of the target, seen or not; None without a target.
        nodes: elements of the document.
    """

    value: Any
    matched: int | None
    nodes: int


class Reader:
    """Reads one page over a DevTools session of its own."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self._world: int | None = None

    async def read(
        self, kind: str, target: Target | None = None, key: str = "", *, loose: bool = False
    ) -> Reading:
        """The value that an assert of this kind is about.

        Args:
            kind: one of `agentgym.verifiers.web.task.KINDS` that are read from the document.
            target: its elements, by `css` only.
            key: see `Assert`.
            loose: `has_text` as in actions: without regard to case and white space, hidden text too.

        Raises:
            Hung: no answer within `READ_S`.
            ReadError: reading failed.
        """
        wanted = {"kind": kind, "target": target and _plain(target), "key": key, "loose": loose}
        return Reading(**await self._evaluate(f"read({json.dumps(wanted)})"))

    async def _evaluate(self, expression: str) -> Any:
        try:
            async with asyncio.timeout(READ_S):
                while True:
                    try:
                        fresh = self._world is None
                        world = self._world = self._world or await self._enter()
                        return await self._run((_library() if fresh else "") + expression, world)
                    except PlaywrightError as error:
                        _raise_if_hopeless(error.message)
                        self._world = None  # it went with its document: the page has another one now
                        await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            raise Hung(f"no answer within {READ_S:g} s") from None

    async def _enter(self) -> int:
        tree = await self._session.send("Page.getFrameTree")
        world = await self._session.send(
            "Page.createIsolatedWorld",
            {"frameId": tree["frameTree"]["frame"]["id"], "worldName": secrets.token_hex(8)},
        )
        return int(world["executionContextId"])

    async def _run(self, expression: str, world: int) -> Any:
        reply = await self._session.send(
            "Runtime.evaluate",
            {"expression": expression, "contextId": world, "returnByValue": True, "timeout": _SCRIPT_MS},
        )
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details.get("text", "")
            raise ReadError(text.partition("\n")[0])
        return reply["result"].get("value")


def _raise_if_hopeless(problem: str) -> None:
    """Raise `Hung` unless the page has merely gone on to another document."""
    if "terminated" in problem:
        raise Hung(f"reading took the page more than {_SCRIPT_MS / 1000:g} s")
    if "crashed" in problem or ("closed" in problem and "navigated" not in problem):
        raise Hung("the page is gone")


def _plain(target: Target) -> dict[str, Any]:
    return {
        "css": target.css,
        "within": target.within and _plain(target.within),
        "has_text": target.has_text,
        "nth": target.nth,
    }


@functools.cache
def _library() -> str:
    return (resources.files(__package__) / "reads.js").read_text(encoding="utf-8")
