"""The published case: a to-do list, ten pages, their verdicts written from the planted defects."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentgym.verifiers.web.judge import PageVerdict, judge
from agentgym.verifiers.web.reading import load_task

pytestmark = pytest.mark.slow

CASE = Path(__file__).resolve().parents[4] / "shared" / "cases" / "web" / "todo"


@pytest.mark.skipif(not CASE.is_dir(), reason=f"the case is not at {CASE}")
def test_all_pages_get_their_verdicts(pool: Any) -> None:
    """Most of the time goes into waiting for what never comes, so several at a time cost little more."""
    from agentgym.verifiers.browser import open_pool, read_page

    task = load_task(CASE / "task.json")
    expected = json.loads((CASE / "expected.json").read_text())["pages"]
    assert len(expected) == 10
    with open_pool(workers=4) as browsers, ThreadPoolExecutor(4) as threads:

        def verdict(name: str) -> PageVerdict:
            return judge(task, browsers.run(task, read_page(CASE / name)))

        verdicts = dict(zip(expected, threads.map(verdict, expected), strict=True))
    for name, wanted in expected.items():
        got = verdicts[name]
        assert got.items == wanted["items"], name
        assert (got.score, got.raw) == (wanted["score"], wanted["raw"]), name
        assert got.flags["hung"] == wanted["flags"]["hung"], name
        assert got.flags["popups"] == wanted["flags"]["popups"], name
        for host in wanted["flags"]["blocked"]:
            assert any(host in address for address in got.flags["blocked"]), name


@pytest.mark.skipif(not CASE.is_dir(), reason=f"the case is not at {CASE}")
def test_the_page_that_looks_for_automation_finds_it_in_the_plain_profile(pool: Any) -> None:
    from agentgym.verifiers.browser import read_page

    task = load_task(CASE / "task.json")
    assert judge(task, pool.run(task, read_page(CASE / "autodetect.html"), profile="plain")).score == 1.0
