"""What judging a page costs: pages per CPU second and wall second, and whether memory grows with their number.

    python benchmarks/web.py [--pages N] [--workers 1 2] [--json FILE]

The page is a to-do list that passes all its items, in three scenarios, each in a fresh context, and 48 steps. CPU is
that of all processes: this one, Playwright's driver, the browser with its helpers; per page it is a median. Memory is
the proportional set size of the same processes after each page, so what they share counts once. The first page of each
browser, with its start, is shown apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from agentgym.verifiers.browser import BrowserPool, open_pool
from agentgym.verifiers.web.judge import judge
from agentgym.verifiers.web.reading import parse_task

PAGE = """<!doctype html><html lang="en"><title>To-do</title><style>body { font: 16px sans-serif; max-width: 500px }
li { overflow-wrap: anywhere } .done span { text-decoration: line-through }</style><h1>To-do</h1>
<input id="new" aria-label="New"><ul id="list"></ul><p id="count"></p><script>
let all = JSON.parse(localStorage.all || '[]');
const list = document.querySelector('#list'), field = document.querySelector('#new');
const show = () => { localStorage.all = JSON.stringify(all); list.textContent = '';
  all.forEach((entry, n) => { const li = document.createElement('li'); li.className = entry.done ? 'done' : '';
    const box = document.createElement('input'); box.type = 'checkbox'; box.checked = entry.done;
    box.setAttribute('aria-label', entry.text); box.onchange = () => { entry.done = box.checked; show() };
    const text = document.createElement('span'); text.textContent = entry.text;
    const drop = document.createElement('button'); drop.textContent = 'x'; drop.className = 'drop';
    drop.onclick = () => { all.splice(n, 1); show() }; li.append(box, text, drop); list.append(li) });
  document.querySelector('#count').textContent = all.filter((entry) => !entry.done).length + ' left' };
field.onkeydown = (e) => { if (e.key === 'Enter' && field.value.trim()) {
  all.push({text: field.value, done: false}); field.value = ''; show() } }; show()</script></html>"""
CATEGORIES = ("functionality", "content", "visual", "layout", "ux", "technical")


def the_task() -> dict[str, Any]:
    """Three scenarios, 48 steps, six items."""

    def check(item: str, kind: str, css: str | None = None, **more: Any) -> dict[str, Any]:
        target = {} if css is None else {"target": {"css": css}}
        return {"op": "assert", "item": item, "kind": kind, **target, **more}

    def add(token: str) -> list[dict[str, Any]]:
        field = {"css": "#new"}
        return [
            {"op": "fill", "target": field, "value": f"buy {{{{{token}}}}}"},
            {"op": "press", "target": field, "key": "Enter"},
            check("functionality", "count", "li", has_text=f"{{{{{token}}}}}", equals=1)
            | {"target": {"css": "li", "has_text": f"{{{{{token}}}}}"}},
            check("functionality", "value", "#new", equals=""),
        ]

    for_all = [{"op": "goto"}, check("content", "count", "h1", equals=1), check("content", "named", "#new")]
    second = {"css": "input", "within": {"css": "li", "has_text": "{{t2}}"}}
    main = [
        *for_all,
        *(step for token in ("t1", "t2", "t3", "t4") for step in add(token)),
        check("functionality", "text", "#count", equals="4 left"),
        {"op": "click", "target": second},
        check("functionality", "text", "#count", equals="3 left"),
        check("visual", "struck", "li.done"),
        check("visual", "contrast", "li", min=4.5),
        {"op": "reload"},
        check("functionality", "count", "li", equals=4),
        {"op": "click", "target": {"css": ".drop", "nth": 0}},
        check("functionality", "count", "li", equals=3),
        check("technical", "no_errors"),
        check("technical", "no_network"),
    ]
    narrow = [*for_all, *add("t5"), check("layout", "overflow_x", max=1)]
    keys = [
        *for_all,
        *add("t6"),
        {"op": "tab_to", "target": {"css": "li input"}},
        {"op": "press", "key": "Space"},
        check("ux", "checked", "li input", equals=True),
    ]
    for step in (*main, *narrow, *keys):
        step.pop("has_text", None)
    return {
        "id": "bench",
        "prompt": "",
        "items": [{"id": name, "category": name, "text": ""} for name in CATEGORIES],
        "scenarios": [
            {"name": "main", "steps": main},
            {"name": "narrow", "viewport": [360, 740], "steps": narrow},
            {"name": "keys", "steps": keys},
        ],
    }


def usage() -> tuple[float, float]:
    """CPU seconds so far and MiB now, of this process and all below it.

    What a process has used goes to its parent when it ends, so between two looks the sum over the living grows by what
    was used, unless a browser was started anew in between.
    """
    cpu = memory = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            # Its own, user and system, and that of children it has waited for
            cpu += sum(process.cpu_times()[:4])
            memory += process.memory_full_info().pss / 2**20
        except psutil.Error:  # ended meanwhile
            continue
    return cpu, memory


def measure(workers: int, pages: int) -> dict[str, float]:
    """Judge `pages` pages with so many browsers at a time."""
    task, files = parse_task(the_task()), {"index.html": PAGE.encode()}
    memory: list[float] = []
    costs: list[float] = []

    def one(pool: BrowserPool, n: int) -> None:
        verdict = judge(task, pool.run(task, files, seed=n))
        if verdict.score != 1.0:
            raise SystemExit(f"page {n}: expected score 1, got {verdict}")

    with open_pool(workers) as pool, ThreadPoolExecutor(workers) as threads:
        before, _ = usage()
        start = time.monotonic()
        list(threads.map(lambda n: one(pool, n), range(workers)))  # each browser starts
        started = time.monotonic()
        cpu_started = last = usage()[0]
        for first in range(0, pages, workers):
            list(threads.map(lambda n: one(pool, n), range(first, min(first + workers, pages))))
            cpu, now = usage()
            memory.append(now)
            costs.append((cpu - last) / workers)
            last = cpu
        seconds = time.monotonic() - started
    cost = statistics.median(costs)
    tenth = max(1, len(memory) // 10)
    return {
        "workers": workers,
        "pages": pages,
        "first_cpu_s": (cpu_started - before) / workers,
        "first_wall_s": started - start,
        "cpu_s_per_page": cost,
        "pages_per_cpu_s": 1 / cost,
        "pages_per_wall_s": pages / seconds,
        "mib_first_tenth": statistics.median(memory[:tenth]),
        "mib_last_tenth": statistics.median(memory[-tenth:]),
        "mib_most": max(memory),
    }


def main() -> None:
    """Print a table; write JSON where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [measure(workers, args.pages) for workers in args.workers]
    for name in rows[0]:
        print(f"{name:<18}" + "".join(f"{row[name]:>10.4g}" for row in rows), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
