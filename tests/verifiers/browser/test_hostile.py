"""Pages that do harm end in time, cost only their scenario, and send nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from agentgym.errors import InfrastructureError
from agentgym.verifiers.web.trace import Trace
from tests.verifiers.browser.hostile import EXFILTRATION, HOSTILE, LOOP_ON_CLICK, USE
from tests.verifiers.browser.tasks import task_of

pytestmark = pytest.mark.slow

Play = Callable[..., Trace]


@pytest.mark.parametrize("name", ["dialogs_on_click", "popups", "memory", "console", "nodes"])
def test_a_hostile_page_costs_only_its_scenario(play: Play, name: str) -> None:
    trace = play(HOSTILE[name], *USE)
    assert not trace.deadline  # 75 s
    assert len(trace.events) == 8
    if name == "nodes":  # there is too much of it from the start
        return
    assert [event.ok for event in trace.events[-2:]] == [True, True]
    if name == "popups":
        assert trace.popups >= 60
    if name in ("dialogs_on_click", "console"):
        assert trace.hung == 1
        assert trace.events[3].skipped


class Sink:
    """Listens for TCP and UDP on one port of the host's loopback."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.tcp.getsockname()[1]}"
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(self.tcp.getsockname())
        self.heard: list[str] = []
        for listen in (self._tcp, self._udp):
            threading.Thread(target=listen, daemon=True).start()

    def _tcp(self) -> None:
        while True:
            connection, _ = self.tcp.accept()
            self.heard.append("tcp")
            connection.close()

    def _udp(self) -> None:
        while self.udp.recv(1 << 16):
            self.heard.append("udp")


@pytest.fixture
def sink() -> Sink:
    return Sink()


def leak(pool: Any, sink: Sink) -> Trace:
    steps = [
        {"op": "assert", "kind": "no_network"},
        {"op": "click", "target": {"css": "#b"}},
        {"op": "wait", "ms": 2000},
    ]
    page = EXFILTRATION.format(address=sink.address)
    trace: Trace = pool.run(task_of(steps), {"index.html": page.encode()})
    return trace


def test_nothing_gets_out(pool: Any, sink: Sink) -> None:
    trace = leak(pool, sink)
    assert sink.heard == []
    assert not trace.events[1].ok
    ways = {address.rpartition("/")[2] for event in trace.events for address in event.blocked}
    assert ways >= set(
        "css prefetch module font bg img frame video object embed ping form2 fetch keepalive beacon events xhr popup "
        "socket transport worker import workersocket download".split()
    )
    assert len(trace.blocked) == 5


def test_nothing_gets_out_without_a_namespace(monkeypatch: pytest.MonkeyPatch, pool: Any, sink: Sink) -> None:
    from agentgym.verifiers.browser import launch, open_pool

    monkeypatch.setattr(launch, "_walls", lambda folder: ())
    with open_pool() as bare:
        leak(bare, sink)
        assert bare.versions["network"] == "switches"
        assert sink.heard == []
        monkeypatch.setattr(launch, "_NO_NETWORK", ())
    with open_pool() as open_browser:  # the sink does listen, and the page does try
        leak(open_browser, sink)
    assert {"tcp", "udp"} <= set(sink.heard)


def test_only_the_judges_own_messages_are_no_errors(play: Play) -> None:
    page = """<button id=a onclick="throw new Error('net::ERR_FAKE')">a</button>
    <button id=b onclick="Promise.reject(new Error('see net::ERR_FAKE'))">b</button>
    <button id=c onclick="throw new Error('Failed to register a ServiceWorker')">c</button>
    <button id=d onclick="console.error('see net::ERR_FAKE')">d</button>"""
    clean = {"op": "assert", "kind": "no_errors"}
    trace = play(page, *([{"op": "click", "target": {"css": f"#{css}"}}, clean] for css in "abcd"))
    assert [event.ok for event in trace.events if event.op == "assert"] == [False, False, False, True]


def test_the_icon_of_a_page(play: Play) -> None:
    page = b"""<p id=p>-</p><script>fetch('/favicon.ico').then(async (r) => {
      p.textContent = r.status + (await r.text()) })</script>"""
    quiet = [{"op": "assert", "kind": kind} for kind in ("no_errors", "no_network")]

    def shows(text: str) -> list[dict[str, Any]]:
        return [{"op": "assert", "kind": "text", "target": {"css": "p"}, "equals": text, "within_ms": 2000}]

    for files, text in (({}, "204"), ({"favicon.ico": b"icon"}, "200icon")):
        trace = play({"index.html": page, **files}, [*shows(text), *quiet])
        assert [event.ok for event in trace.events] == [True] * 4
    foreign = b"<script>fetch('https://page.test/none/favicon.ico').catch(() => 0)</script>"
    assert play({"index.html": foreign}, [{"op": "wait", "ms": 300}]).blocked == (
        "https://page.test/none/favicon.ico",
    )


# By address: what a page asks for of its own origin, where nothing is.
MISSING = {
    "logo.png": "<img src=logo.png>",
    "a.css": "<link rel=stylesheet href=a.css>",
    "b.css": "<style>@import 'b.css'; p { background: url(bg.png) }</style><p>p",
    "bg.png": "",
    "a.js": "<script src=a.js></script>",
    "m.js": "<script type=module src=m.js></script>",
    "f.woff2": "<style>@font-face { font-family: f; src: url(f.woff2) } p { font-family: f }</style>",
    "a.mp4": "<video src=a.mp4 preload=auto></video>",
    "late.png": "<script>setTimeout(() => { new Image().src = 'late.png' }, 50)</script>",
}
TOLD = {
    "i.png?typed": "<img src='i.png?typed'>",
    "fetched.png": "<script>fetch('fetched.png').catch(() => 0)</script>",
    "beacon": "<script>navigator.sendBeacon('beacon', 'typed')</script>",
    "frame.html": "<iframe src=frame.html></iframe>",
    "events": "<script>new EventSource('events')</script>",
}


def test_a_missing_file_of_its_own_is_told_apart(play: Play) -> None:
    for parts, outward in ((MISSING, {}), (MISSING | TOLD, TOLD)):
        page = "<!doctype html>" + "".join(parts.values())
        trace = play(page, [{"op": "wait", "ms": 500}, {"op": "assert", "kind": "no_network"}])
        asked = {address for event in trace.events for address in event.blocked}
        assert asked == {f"https://page.test/{each}" for each in parts}
        assert set(trace.outward) == {f"https://page.test/{each}" for each in outward}
        assert (len(trace.blocked), trace.events[-1].ok) == (5, False)  # as the format has it


def test_many_missing_files_hide_no_other_request(play: Play) -> None:
    page = "".join(f"<img src={n}.png>" for n in range(300)) + "<img src=https://page.zest/x.png>"
    trace = play(page, [{"op": "wait", "ms": 1000}])
    assert "https://page.zest/x.png" not in trace.blocked
    assert trace.outward == ("https://page.zest/x.png",)


def test_a_service_worker_never_starts(play: Play) -> None:
    page = b"<p id=p>-</p><script>navigator.serviceWorker.register('/sw.js').then(() => p.textContent = 'on')</script>"
    look = [
        {"op": "wait", "ms": 300},
        {"op": "assert", "kind": "text", "target": {"css": "p"}, "equals": "-"},
    ]
    quiet = [{"op": "assert", "kind": kind} for kind in ("no_errors", "no_network")]
    trace = play({"index.html": page, "sw.js": b"fetch('https://evil.test/')"}, [*look, *quiet])
    assert [event.ok for event in trace.events] == [True] * 5


def test_the_profiles(play: Play) -> None:
    page = """<p id=p></p><script>const n = navigator; p.textContent = JSON.stringify([
      n.webdriver, /Headless/.test(n.userAgent), n.userAgentData.brands.some((b) => /Headless/.test(b.brand)),
      n.onLine, n.language, Intl.DateTimeFormat().resolvedOptions().timeZone,
      matchMedia('(prefers-reduced-motion: reduce)').matches])</script>"""
    look = [{"op": "assert", "kind": "text", "target": {"css": "p"}}]
    shared = ',true,"en-US","UTC",true]'
    assert play(page, look).events[-1].got == f"[false,false,false{shared}"
    assert play(page, look, profile="plain").events[-1].got == f"[true,true,true{shared}"


CHILD = """
import sys
from agentgym.verifiers.browser import open_pool
from tests.verifiers.browser.tasks import task_of
with open_pool() as pool:
    pool.preview({"index.html": b"<p>x"})
    print("started", flush=True)
    pool.run(task_of([{"op": "click", "target": {"css": "#b"}}]), {"index.html": sys.argv[1].encode()})
"""


@pytest.fixture
def child(pool: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that uses a page with an endless loop."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, LOOP_ON_CLICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(2)  # into the loop
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_stays_when_the_parent_dies(child: subprocess.Popen[str], how: signal.Signals) -> None:
    family = psutil.Process(child.pid).children(recursive=True)
    assert len(family) >= 5  # the driver, bubblewrap or a shell, the browser and its helpers
    child.send_signal(how)
    child.wait(30)
    assert psutil.wait_procs(family, timeout=20)[1] == []


def test_a_browser_that_is_killed_is_no_fault_of_the_page(pool: Any) -> None:
    steps = [
        {"op": "wait", "ms": 1500},
        {"op": "assert", "kind": "text", "target": {"css": "p"}, "equals": "x"},
    ]

    before = {
        process.pid for process in psutil.Process().children(recursive=True) if "shell" in process.name()
    }
    killer = threading.Timer(
        1.0, lambda: [psutil.Process(pid).kill() for pid in before if psutil.pid_exists(pid)]
    )
    killer.start()
    trace = pool.run(task_of(steps, steps), {"index.html": b"<p>x"})
    killer.join()
    assert before
    assert [event.ok for event in trace.events] == [True] * 6
    assert trace.hung == 0


class Dying:
    """Stands for a browser that is gone at the second read of every page, or cannot even open one."""

    def __init__(self, opens: bool) -> None:
        from agentgym.verifiers.browser.session import Log

        self.opens = opens
        self.reads = 0
        self.log = Log()
        self.page = SimpleNamespace(url="https://page.test/")
        self.reader = self

    async def ready(self) -> None: ...

    async def close(self) -> None: ...

    async def end(self, session: Any, *, hung: bool) -> None: ...

    def alive(self) -> bool:
        return self.reads < 2

    async def open(self, *page: Any) -> Any:
        from agentgym.verifiers.browser.process import BrowserDied

        self.reads = 0
        if not self.opens:
            raise BrowserDied("no context")
        return self

    async def read(self, *kind: Any) -> Any:
        from agentgym.verifiers.browser.reads import Hung, Reading

        self.reads += 1
        if not self.alive():
            raise Hung("the page is gone")
        return Reading("title", None, 1)


def run_dying(*, opens: bool) -> Trace:
    pytest.importorskip("playwright", reason="playwright is not installed")
    from agentgym.verifiers.browser.runner import Runner

    task = task_of([{"op": "assert", "kind": "title", "within_ms": 0}] * 3)
    scripted = replace(task, scenarios=tuple(replace(s, steps=s.steps[1:]) for s in task.scenarios))
    return asyncio.run(Runner(Dying(opens), {}).run(scripted))  # type: ignore[arg-type]


def test_a_page_that_ends_the_browser_each_time_keeps_what_it_had_earned() -> None:
    trace = run_dying(opens=True)
    assert [event.ok for event in trace.events] == [True, False, False]
    assert [event.skipped for event in trace.events] == [False, False, True]
    assert trace.hung == 1


def test_a_browser_that_opens_no_page_is_no_verdict() -> None:
    with pytest.raises(InfrastructureError, match="no context"):
        run_dying(opens=False)


def test_a_browser_that_does_not_start_is_no_verdict(monkeypatch: pytest.MonkeyPatch, pool: Any) -> None:
    from agentgym.verifiers.browser import launch, open_pool

    monkeypatch.setattr(launch, "find_browser", lambda playwright: "/bin/false")
    with open_pool() as broken, pytest.raises(InfrastructureError, match="does not start"):
        broken.run(task_of([]), {"index.html": b"<p>x"})
