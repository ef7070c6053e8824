"""Equality with the original: recorded episodes, goals and prices."""

from __future__ import annotations

import copy
import json
import random

import pytest

from agentgym.envs.webshop.nouns import choose, nouns_by_rule, nouns_by_spacy
from agentgym.envs.webshop.original import Player, Server
from agentgym.envs.webshop.replay import Replay
from agentgym.errors import TaskError, UsageError
from tests.envs.webshop.conftest import SHARED

pytestmark = pytest.mark.usefixtures("global_rngs_untouched")


@pytest.mark.slow
def test_every_recorded_episode(recorded, traces):
    report = Replay(recorded, nouns_by_rule).run(traces)
    assert [trace for trace in report["traces"] if not trace["equal"] or not trace["equal_given_hits"]] == []
    assert report["n"] == report["equal"] == report["equal_given_hits"] == len(traces)
    assert report["search"] == {"top1": 1.0, "top10_overlap": 1.0}


@pytest.mark.slow
def test_every_recorded_episode_with_the_originals_tagger(recorded, traces):
    if choose("auto")[0] != "spacy":
        pytest.skip("the extra spacy is not installed, or only without its model")
    report = Replay(recorded, nouns_by_spacy).run(traces)
    assert report["equal"] == len(traces)


def _change(trace, where, value):
    changed = copy.deepcopy(trace)
    target = changed
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("where", "value", "step", "field"),
    [
        (("steps", 0, "obs"), "another page", 0, "obs"),
        (("steps", 0, "available", "clickables"), ["next >", "back to search"], 0, "available"),
        (("steps", -1, "reward"), 0.99, 4, "reward"),
        (("steps", -1, "done"), False, 4, "done"),
        (("steps", 1, "url"), "http://127.0.0.1:3000/", 1, "url"),
        (("final", "reward_info", "title_score"), 0.5, 5, "final"),
        (("reset", "obs"), "", -1, "obs"),
        (("goal", "price_upper"), 5.0, -1, "goal"),
        (("steps", 0, "hits", 3, 1), 0.0, 0, "hits"),
    ],
)
def test_differences_are_told(recorded, traces, where, value, step, field):
    trace = next(trace for trace in traces if trace["id"] == 2)
    if field == "final":
        field = "reward_info"
    report = Replay(recorded, nouns_by_rule).run([_change(trace, where, value)])
    assert report["equal"] == 0
    assert report["equal_given_hits"] == (1 if field == "hits" else 0)
    assert report["traces"][0]["first_difference"]["step"] == step
    assert report["traces"][0]["first_difference"]["field"] == field


def test_html_is_compared_by_elements_and_texts(recorded, traces):
    trace = next(trace for trace in traces if trace["observation_mode"] == "html")
    moved = trace["steps"][0]["obs"].replace('href="', 'href="/elsewhere')
    replay = Replay(recorded, nouns_by_rule)
    assert replay.run([_change(trace, ("steps", 0, "obs"), moved)])["equal"] == 1
    for old, new in (("<h3>", "<h2>"), ("Page 1", "Page 2")):
        changed = trace["steps"][0]["obs"].replace(old, new)
        assert changed != trace["steps"][0]["obs"]
        assert replay.run([_change(trace, ("steps", 0, "obs"), changed)])["equal"] == 0


def test_what_is_no_trace(recorded):
    with pytest.raises(TaskError, match="trace 7: expected a recorded episode"):
        Replay(recorded, nouns_by_rule).run([{"id": 7}])


def test_goals_and_prices(recorded):
    path = SHARED / "cases" / "webshop_goals.json"
    expected = json.loads(path.read_text(encoding="utf-8"))
    human = Server(recorded, nouns_by_rule, human_goals=True)
    assert [goal.to_json() for goal in human.goals] == expected["human_goals"]
    assert human.shop._prices == expected["product_prices"]
    synthetic = Server(recorded, nouns_by_rule)
    assert len(synthetic.goals) == expected["synthetic_count"]
    first = [goal.to_json() for goal in synthetic.goals[:100]]
    wanted = expected["synthetic_goals_first_100"]
    for ours, theirs in zip(first, wanted, strict=True):
        assert ours | {"weight": 0} == theirs | {"weight": 0}
        assert ours["weight"] == pytest.approx(theirs["weight"], abs=1e-12)


def test_the_first_goal_is_never_drawn(small):
    # The original's table of sums begins with 0, so a draw lands one goal too far; the last has two shares.
    server = Server(small, nouns_by_rule, human_goals=True)
    assert len(server.goals) == 2
    drawn = {server._draw(random.Random(seed)) for seed in range(50)}
    assert drawn == {1}


def test_sessions_keep_their_goal_and_go_on_after_a_purchase(small):
    player = Player(Server(small, nouns_by_rule, human_goals=True), "text")
    player.reset(0)
    goal = player.session.goal
    player.step("search[rug]")
    player.step("click[b000000001]")
    assert player.step("click[buy now]").done
    assert "Your score" in player.observation
    assert not player.step("search[rug]").done  # works on every page, also after the end
    player.reset("0")  # a name seen before
    assert player.session.goal is goal
    with pytest.raises(UsageError, match="one of 2 goals, got 2"):
        player.reset(2)
