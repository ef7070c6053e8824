"""Browsers from threads, inside event loops and after the end; previews."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from agentgym.errors import UsageError
from agentgym.verifiers.web.task import Action, Target
from agentgym.verifiers.web.trace import Trace
from tests.verifiers.browser.hostile import LOOP_ON_CLICK
from tests.verifiers.browser.tasks import task_of

pytestmark = pytest.mark.slow

PAGE = {"index.html": b"<title>t</title><p>x</p>"}
LOOK = [{"op": "assert", "kind": "text", "target": {"css": "p"}, "equals": "x"}]


def test_from_threads_and_inside_a_running_loop(pool: Any) -> None:
    def ok(_: int = 0) -> bool:
        trace: Trace = pool.run(task_of(LOOK), PAGE)
        return all(event.ok for event in trace.events)

    async def inside() -> bool:
        return ok()

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(ok, range(3))) == [True] * 3
    assert asyncio.run(inside())


def test_a_browser_is_renewed_and_nothing_stays_after_close(pool: Any) -> None:
    from agentgym.verifiers.browser import open_pool

    mine = psutil.Process()
    others = set(mine.children(recursive=True))

    def family() -> set[psutil.Process]:
        return set(mine.children(recursive=True)) - others

    with open_pool(restart_every=2) as small:
        assert small.versions == {}
        generations = []
        for _ in range(3):
            small.run(task_of(LOOK), PAGE)
            generations.append(family())
        assert set(small.versions) == {"browser", "playwright", "network"}
        assert generations[0] & generations[1]
        assert not generations[1] & generations[2]
    assert psutil.wait_procs(family(), timeout=10)[1] == []
    small.close()
    with pytest.raises(UsageError, match="closed"):
        small.run(task_of(LOOK), PAGE)


def test_a_forked_child_is_told_to_open_its_own(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(UsageError, match="each process"):
        pool.run(task_of(LOOK), PAGE)


def test_the_deadline_skips_what_is_left(play: Callable[..., Trace]) -> None:
    trace = play("<p>x</p>", [*[{"op": "wait", "ms": 2000}] * 3, *LOOK], LOOK, deadline=3)
    assert trace.deadline
    assert [event.skipped for event in trace.events] == [False, False, False, True, True, True, True]
    assert not trace.events[-1].ok
    assert trace.hung == 0


def test_pages_of_several_files(play: Callable[..., Trace]) -> None:
    page = b"""<link rel=stylesheet href="css/a.css?v=1"><script type=module src="./a.mjs"></script><p>-</p>
    <a href="about.html">about</a>"""
    files = {
        "index.html": page,
        "css/a.css": b"p { color: rgb(1, 2, 3) }",
        "a.mjs": b"import {text} from './b.mjs'; document.querySelector('p').textContent = text",
        "b.mjs": "export const text = 'grün'".encode(),
        "about.html": b"<p>about</p><a href=/index.html>home</a>",
    }
    p = {"css": "p"}
    trace = play(
        files,
        [
            {"op": "assert", "kind": "text", "target": p, "equals": "grün"},
            {"op": "assert", "kind": "style", "key": "color", "target": p, "equals": "rgb(1, 2, 3)"},
            {"op": "click", "target": {"css": "a"}},
            {"op": "assert", "kind": "text", "target": p, "equals": "about"},
            {"op": "click", "target": {"css": "a"}},
            {"op": "assert", "kind": "text", "target": p, "equals": "grün"},
            {"op": "assert", "kind": "no_errors"},
            {"op": "assert", "kind": "no_network"},
        ],
    )
    assert [event.ok for event in trace.events] == [True] * 9
    assert trace.events[4].url == "/about.html"


def test_preview(pool: Any) -> None:
    page = b"""<h1>Title</h1><button onclick="document.querySelector('p').textContent = 'pressed'">Go</button><p></p>
    <script>console.log('hello'); console.error('bad');
    fetch('https://evil.test/x').catch(() => 0); nothing()</script>"""
    seen = pool.preview({"index.html": page})
    assert '- heading "Title" [level=1]' in seen.aria
    assert '- button "Go"' in seen.aria
    assert seen.text.split() == ["Title", "Go"]
    assert "log: hello" in seen.console
    assert seen.errors == ("bad", "ReferenceError: nothing is not defined")
    assert seen.blocked == ("https://evil.test/x",)
    assert (seen.failed, seen.screenshot) == ((), None)
    press, miss = (Action("click", Target(css=css)) for css in ("button", "#none"))
    after = pool.preview({"index.html": page}, actions=[press, miss], screenshot=True, viewport=(400, 300))
    assert "pressed" in after.text
    assert after.failed == ("click: nothing matches #none",)
    assert after.screenshot.startswith(b"\x89PNG")


def test_preview_of_a_page_that_hangs(pool: Any) -> None:
    seen = pool.preview({"index.html": LOOP_ON_CLICK.encode()}, actions=[Action("click", Target(css="#b"))])
    assert len(seen.failed) == 1
    assert "stopped answering" in seen.failed[0]
    assert pool.preview(PAGE).text == "x"
