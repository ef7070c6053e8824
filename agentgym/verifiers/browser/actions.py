"""Doing to a page what a person would do, with the browser's own input events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from playwright.async_api import Locator, Page

from agentgym.verifiers.browser.delivery import ADDRESS
from agentgym.verifiers.browser.reads import READ_S
from agentgym.verifiers.browser.session import Session
from agentgym.verifiers.web.task import Action, Target

ACTION_S = 12.0  # no action takes longer
LOAD_MS = 8000
_SETTLE_S = 0.15  # after a load, for scripts that run behind it
_RESIZED_S = 0.12
_MISSING_S = 0.4  # a css target that matches nothing for so long fails at once
_LOOK_S = 0.1
_MAX_WAIT_MS = 2000
_SCREENSHOT_MS = 4000
_LEAST_MS = 250  # what the driver needs to find a target ready that is; its own 0 means for ever


class ActionFailed(Exception):
    """The action could not be done; says why."""


async def perform(session: Session, action: Action) -> bytes | None:
    """Do one action.

    Returns:
        A PNG where it is a screenshot.

    Raises:
        ActionFailed, playwright.async_api.Error, ReadError, Hung: it could not be done.
    """
    if action.op == "screenshot":
        return await picture(session.page)
    await _ACTIONS[action.op](session, action)
    return None


async def picture(page: Page) -> bytes:
    """The viewport as PNG."""
    # caret="hide", the default, would put a style sheet into the page.
    return await page.screenshot(timeout=_SCREENSHOT_MS, caret="initial")


async def matched(session: Session, action: Action) -> int | None:
    """How many elements match, after the grace for missing ones; None where the action has no css target.

    Raises:
        ActionFailed: nothing matches the target, or where a drag is to end.
        TimeoutError: the page does not answer.
    """
    count = None
    async with asyncio.timeout(READ_S):
        for target in (action.to, action.target):
            if target is not None and target.css is not None:
                count = await _count(locate(session.page, target), target)
    return count


async def _count(locator: Locator, target: Target) -> int:
    loop = asyncio.get_running_loop()
    end = loop.time() + _MISSING_S
    while not (count := await locator.count()):
        if loop.time() >= end:
            raise ActionFailed(f"nothing matches {describe(target)}")
        await asyncio.sleep(_LOOK_S)
    return count


def locate(page: Page, target: Target) -> Locator:
    """All elements of a target, as the driver finds them."""
    root: Page | Locator = page
    if target.within is not None:
        root = locate(page, target.within)
    if target.css is not None:
        # Selectors hold in the whole document: `within` says only where a match must lie.
        found = page.locator(f"css={target.css}")
        if target.within is not None:
            found = found.and_(root.locator("css=*"))
    elif target.role is not None:
        role: str = target.role
        found = root.get_by_role(role, name=target.name, exact=target.exact)  # type: ignore[arg-type]
    elif target.label is not None:
        found = root.get_by_label(target.label, exact=target.exact)
    else:
        found = root.get_by_text(target.text or "", exact=target.exact)
    if target.has_text is not None:
        found = found.filter(has_text=target.has_text)
    return found if target.nth is None else found.nth(target.nth)


def describe(target: Target | None) -> str:
    """A target in a few words, for traces."""
    if target is None:
        return ""
    way = next(name for name in ("css", "role", "label", "text") if getattr(target, name) is not None)
    text = target.css if way == "css" else f"{way}={getattr(target, way)}"
    if target.name is not None:
        text = f"{text} named {target.name!r}"
    if target.has_text is not None:
        text = f"{text} with {target.has_text!r}"
    if target.nth is not None:
        text = f"{text} no. {target.nth}"
    return f"{text} in ({describe(target.within)})" if target.within is not None else str(text)


def _first(session: Session, target: Target | None) -> Locator:
    assert target is not None  # the reader of tasks saw to it
    return locate(session.page, target).first


def _patience(action: Action) -> int:
    """Milliseconds the driver may wait until the target can be acted on."""
    return min(max(action.timeout_ms, _LEAST_MS), round(ACTION_S * 1000))


async def _goto(session: Session, action: Action) -> None:
    await session.page.goto(ADDRESS, wait_until="domcontentloaded", timeout=LOAD_MS)
    await asyncio.sleep(_SETTLE_S)


async def _reload(session: Session, action: Action) -> None:
    await session.page.reload(wait_until="domcontentloaded", timeout=LOAD_MS)
    await asyncio.sleep(_SETTLE_S)


async def _travel(session: Session, action: Action) -> None:
    back = action.op == "back"
    if not await session.can_travel(-1 if back else 1):
        raise ActionFailed(f"there is nothing to go {action.op} to")
    go = session.page.go_back if back else session.page.go_forward
    await go(wait_until="domcontentloaded", timeout=LOAD_MS)
    await asyncio.sleep(_SETTLE_S)


async def _click(session: Session, action: Action) -> None:
    await _first(session, action.target).click(timeout=_patience(action))


async def _dblclick(session: Session, action: Action) -> None:
    await _first(session, action.target).dblclick(timeout=_patience(action))


async def _hover(session: Session, action: Action) -> None:
    await _first(session, action.target).hover(timeout=_patience(action))


async def _fill(session: Session, action: Action) -> None:
    await _first(session, action.target).fill(str(action.value), timeout=_patience(action))


async def _type(session: Session, action: Action) -> None:
    await _click(session, action)
    await session.page.keyboard.type(str(action.value))


async def _press(session: Session, action: Action) -> None:
    if action.target is None:
        await session.page.keyboard.press(action.key)
    else:
        await _first(session, action.target).press(action.key, timeout=_patience(action))


async def _focus(session: Session, action: Action) -> None:
    await _first(session, action.target).focus(timeout=_patience(action))


async def _tab_to(session: Session, action: Action) -> None:
    for _ in range(action.max):
        await session.page.keyboard.press("Tab")
        if (await session.reader.read("focused_any", action.target, loose=True)).value:
            return
    raise ActionFailed(f"{action.max} presses of Tab did not reach {describe(action.target)}")


async def _select(session: Session, action: Action) -> None:
    await _first(session, action.target).select_option(str(action.value), timeout=_patience(action))


async def _check(session: Session, action: Action) -> None:
    await _first(session, action.target).set_checked(bool(action.value), timeout=_patience(action))


async def _drag(session: Session, action: Action) -> None:
    # Not Locator.drag_to, which waits until the target receives events at its centre: an element that follows the
    # pointer covers it.
    start, end = _first(session, action.target), _first(session, action.to)
    mouse = session.page.mouse
    await end.scroll_into_view_if_needed(timeout=_patience(action))
    await start.hover(timeout=_patience(action))
    x, y = await _centre(start, action)
    await mouse.down()
    try:
        await mouse.move(x + 4, y + 4, steps=2)  # what makes a press a drag
        await end.scroll_into_view_if_needed(timeout=_patience(action))
        x, y = await _centre(end, action)
        await mouse.move(x, y, steps=8)
        await mouse.move(x, y)  # HTML5 wants one more dragover on the element, after dragenter
    finally:
        await mouse.up()


async def _centre(locator: Locator, action: Action) -> tuple[float, float]:
    box = await locator.bounding_box(timeout=_patience(action))
    if box is None:
        raise ActionFailed("what is dragged, or where it is to end, has no place on the page")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def _scroll(session: Session, action: Action) -> None:
    await session.page.mouse.wheel(action.dx, action.dy)


async def _resize(session: Session, action: Action) -> None:
    await session.page.set_viewport_size({"width": action.w, "height": action.h})
    await asyncio.sleep(_RESIZED_S)


async def _wait(session: Session, action: Action) -> None:
    await asyncio.sleep(min(action.ms, _MAX_WAIT_MS) / 1000)


_ACTIONS: Mapping[str, Callable[[Session, Action], Awaitable[None]]] = {
    "goto": _goto,
    "reload": _reload,
    "back": _travel,
    "forward": _travel,
    "click": _click,
    "dblclick": _dblclick,
    "hover": _hover,
    "fill": _fill,
    "type": _type,
    "press": _press,
    "focus": _focus,
    "tab_to": _tab_to,
    "select": _select,
    "check": _check,
    "drag": _drag,
    "scroll": _scroll,
    "resize": _resize,
    "wait": _wait,
}
