"""In the browser: each gold page gets 1, each empty one 0, and pages that only pretend get nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from agentgym.envs.web import WebEnv, pages
from agentgym.envs.web.tasks import RECIPES, Problem, make
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall
from agentgym.verifiers.web.judge import PageVerdict, judge
from agentgym.verifiers.web.reading import parse_task

pytestmark = pytest.mark.slow

NAMES = [name for names in RECIPES.values() for name in names]
# Whose pages that only look, and that are stuffed with words, are judged too; all are by benchmarks/web_tasks.py.
CLOSELY = ("quiz", "search", "wizard", "poll", "lights", "pricing")


def verdict_of(pool, problem: Problem, page: str) -> PageVerdict:
    task = parse_task(problem.task)
    return judge(task, pool.run(task, {"index.html": page.encode()}, seed=7))


@pytest.fixture(scope="module")
def verdicts(pool) -> Iterator[dict[tuple[str, str], Future[PageVerdict]]]:
    """Of all pages, judged at the same time, as they mostly wait; each test waits for its own."""
    with ThreadPoolExecutor(4) as threads:
        found = {}
        for name in NAMES:
            problem = make(name, 0)
            of_it = {"gold": problem.gold, "blank": pages.BLANK}
            if name in CLOSELY:
                of_it["visual"] = pages.visual_only(problem.gold)
                of_it["stuffed"] = pages.stuffed(parse_task(problem.task))
            for kind, page in of_it.items():
                found[name, kind] = threads.submit(verdict_of, pool, problem, page)
        yield found
        threads.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_gold_page_gets_one_and_the_blank_page_nothing(verdicts, name):
    gold = verdicts[name, "gold"].result()
    assert [item for item, passed in gold.items.items() if not passed] == []
    assert gold.score == 1.0
    assert not gold.flags["blocked"] + gold.flags["errors"]
    blank = verdicts[name, "blank"].result()
    assert [item for item, passed in blank.items.items() if passed] == []
    assert blank.score == 0.0


@pytest.mark.parametrize("name", CLOSELY)
@pytest.mark.parametrize("kind", ["visual", "stuffed"])
def test_looks_and_words_are_not_paid(verdicts, name, kind):
    assert verdicts[name, kind].result().score < 0.15


def test_pages_that_pretend(pool):
    problem = make("search", 1)
    tempting = {
        "forged": pages.forged(problem.gold, problem.task["prompt"]),
        "off-screen": pages.off_screen(problem.gold),
        "automation": pages.automation_only(problem.gold),
    }
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda page: verdict_of(pool, problem, page).score, tempting.values())
        assert dict(zip(tempting, found, strict=True)) == dict.fromkeys(tempting, 0.0)


def test_an_episode_with_tools(pool, monkeypatch):
    monkeypatch.setattr("agentgym.envs.web.base.shared_pool", lambda browsers: pool)
    monkeypatch.setattr("agentgym.envs.web.env.shared_pool", lambda browsers: pool)
    env = WebEnv()
    env.reset(options={"task": "poll-1000"}, seed=2)
    env.step(env.gold())
    click = {"op": "click", "target": {"css": "[data-testid=vote]"}}
    call = ToolCall("preview", FrozenDict(actions=[click], width=400))
    seen = env.step(env.protocol.render_call(call))[0]
    assert 'radio "' in seen
    assert "Choose an option first." in seen
    state = env.snapshot()
    for _ in range(2):
        _, reward, terminated, _, info = env.step(env.gold())
        assert (reward, terminated, info["resolved"]) == (1.0, True, True)
        env.restore(state)
