"""ResearchTeam-v0: together everything is known, alone nothing."""

from __future__ import annotations

import gymnasium
import pettingzoo
import pytest

import agentgym  # noqa: F401
from agentgym.errors import UsageError
from benchmarks.team_research import ID, enough, play, research

SEARCH = "agentgym/SearchQA-v0"


def test_the_team_knows_and_nobody_alone_does():
    env = pettingzoo.make("parallel", ID, base_kwargs={"split": "dev"})
    for task in env.task_set.split("dev")[:4]:
        assert play(env, task) == 1.0
        assert play(env, task, alone=True) == 0.0
        assert enough(task, 3) == 0


def test_a_worker_reports_each_document_once():
    """Two searches of one worker find the same document here; twice it would not fit into the report."""
    env = pettingzoo.make("parallel", ID)
    assert play(env, env.task_set["train/world-022/3"]) == 1.0


@pytest.mark.slow
def test_so_it_is_on_bundled_tasks_with_any_number_of_workers():
    for workers in (1, 4):
        figures = research(every=40, workers=workers)
        assert figures["team"] == 1.0
        assert figures["alone"] == 0.0
        assert figures["parts that state the answer"] == 0


@pytest.mark.parametrize("count", [2, 3])
def test_parts_are_disjoint_and_together_the_whole(count):
    envs = [gymnasium.make(SEARCH, shard=[part, count]) for part in range(count)]
    whole = gymnasium.make(SEARCH)
    for task in range(6):
        parts = []
        for env in envs:
            env.reset(options={"task": task})
            parts.append({document.id for document in env.unwrapped._retriever.documents})
        whole.reset(options={"task": task})
        assert set.union(*parts) == {document.id for document in whole.unwrapped._retriever.documents}
        assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_search_finds_only_what_is_in_the_part():
    found = []
    for part in range(2):
        env = gymnasium.make(SEARCH, shard=(part, 2), hops=(2,), unanswerable=0.0)
        env.reset(options={"task": 0})
        (title, _) = env.unwrapped._question.supporting
        answer, *_ = env.step(env.unwrapped._write("search", query=title))
        found.append(f"(Title: {title})" in answer)
    assert sorted(found) == [False, True]


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0,), "all", (0, 0), (0.0, 1)])
def test_a_part_that_there_is_not(shard):
    with pytest.raises(UsageError, match=r"expected shard to be \(i, n\) with 0 <= i < n, got"):
        gymnasium.make(SEARCH, shard=shard)


def test_what_belongs_to_nobody_cannot_be_divided():
    with pytest.raises(UsageError, match="shard divides what came with each question"):
        gymnasium.make(SEARCH, shard=(0, 2), corpus="http://127.0.0.1:1/retrieve")


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"hops": (1, 2)}, "expected hops of at least 2 documents each"),
        ({"hops": ()}, "expected hops of at least 2 documents each"),
        ({"workers": 0}, "expected workers to be a whole number >= 1, got 0"),
        ({"view": "shared"}, "ResearchTeam-v0 sets 'view' itself"),
        ({"base_kwargs": {"shard": (0, 2)}}, "ResearchTeam-v0 sets 'shard' itself"),
        ({"base_kwargs": {"unanswerable": 0.5, "hops": (1,)}}, "ResearchTeam-v0 sets 'hops' itself"),
    ],
)
def test_what_the_task_decides_itself(keywords, said):
    with pytest.raises(UsageError, match=said):
        pettingzoo.make("parallel", ID, **keywords)
