"""What each of the multi-agent tasks must do: PettingZoo's own tests, membership, info, snapshots, refusals."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pettingzoo
import pytest
from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils import parallel_to_aec

from agentgym.core import INFO_KEYS, Task
from agentgym.errors import UsageError
from agentgym.registration import find

# PettingZoo expects arrays and boxes, and says so.
pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:(?s).*not a NumPy array"),
    pytest.mark.filterwarnings("ignore:(?s).*probably should be"),
]
REVIEW = "agentgym/Review-v0"
IDS = [
    "agentgym/HiddenNumber-v0",
    "agentgym/ResearchTeam-v0",
    pytest.param(REVIEW, marks=pytest.mark.slow),
]


@pytest.fixture(params=IDS)
def env_id(request) -> str:
    if reason := find(request.param).missing():
        pytest.skip(reason)
    return request.param


def make(env_id: str, **keywords: Any) -> Any:
    return pettingzoo.make("parallel", env_id, **keywords)


def test_pettingzoo_says_it_is_one(env_id):
    cycles = 3 if env_id == REVIEW else 30
    parallel_api_test(make(env_id), num_cycles=cycles)
    parallel_seed_test(lambda: make(env_id), num_cycles=cycles)


def test_agents_can_also_move_in_turn(env_id):
    cycles = 3 if env_id == REVIEW else 30
    api_test(parallel_to_aec(make(env_id)), num_cycles=cycles)
    seed_test(lambda: parallel_to_aec(make(env_id)), num_cycles=cycles)
    max_cycles_test(
        SimpleNamespace(
            parallel_env=lambda max_cycles: make(env_id, max_cycles=max_cycles),
            env=lambda max_cycles: parallel_to_aec(make(env_id, max_cycles=max_cycles)),
        )
    )


def test_observations_are_in_their_spaces_and_info_keys_are_known(env_id):
    env = make(env_id, max_cycles=4)
    observations, infos = env.reset(seed=3)
    while True:
        for agent in env.possible_agents:
            assert observations[agent] in env.observation_space(agent)
            assert infos[agent].keys() <= INFO_KEYS.keys()
        if not env.agents:
            break
        actions = dict.fromkeys(env.agents, "nonsense {")
        observations, rewards, terminated, truncated, infos = env.step(actions)
    assert set(rewards.values()) == {0.0}
    assert all(truncated.values())
    assert not any(terminated.values())
    env.close()


def test_a_snapshot_brings_everything_back(env_id):
    env = make(env_id, render_mode="ansi")
    env.reset(seed=5)
    env.step({agent: env.gold(agent) for agent in env.agents})
    saved = env.snapshot()

    def rest() -> list[Any]:
        said = [env.render()]
        while env.agents:
            said.append(env.step({agent: env.gold(agent) for agent in env.agents}))
        return [*said, env.render()]

    first = rest()
    env.restore(saved)
    assert rest() == first
    env.close()


def test_the_snippets_of_the_page_run():
    page = (Path(__file__).parents[3] / "docs" / "team-tasks.md").read_text(encoding="utf-8")
    episode, solution, seats = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(episode, scope)
    assert scope["infos"]["lead_0"]["verdict"].score == scope["rewards"]["lead_0"]
    exec(solution, scope)
    said = re.findall(r"^(game\..*?)  # (Fraction\(\d+, \d+\)|\(.*?\))", solution, re.MULTILINE)
    assert len(said) == 4
    for code, value in said:
        assert eval(code, scope) == eval(value, {"Fraction": Fraction}), code
    before = set(gymnasium.registry)
    try:
        exec(seats, scope)
        assert gymnasium.make("Lead-v0").reset(seed=0)[0].startswith("A number from 1 to 3 is hidden.")
    finally:
        for added in set(gymnasium.registry) - before:
            del gymnasium.registry[added]


class TestTheBase:
    """On the cheapest of them."""

    @pytest.fixture
    def env(self):
        return make("agentgym/HiddenNumber-v0")

    def test_an_episode_must_run(self, env):
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step({})
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.task  # noqa: B018

    def test_actions_are_of_living_agents_and_texts(self, env):
        env.reset(seed=0)
        with pytest.raises(UsageError, match=r"expected actions of lead_0, scout_0, .*; got one of 'nobody'"):
            env.step({"nobody": ""})
        with pytest.raises(
            UsageError, match="expected a text that can be encoded as action of 'lead_0', got None"
        ):
            env.step({})
        with pytest.raises(UsageError, match="action of 'scout_1', got 3"):
            env.step({"lead_0": "", "scout_0": "", "scout_1": 3, "scout_2": ""})

    def test_unknown_agents_are_refused_with_the_nearest(self, env):
        with pytest.raises(UsageError, match=r"there is no agent 'scout'.* Did you mean 'scout_"):
            env.observation_space("scout")

    @pytest.mark.parametrize(
        ("keywords", "said"),
        [
            ({"max_cycles": 0}, "expected max_cycles to be a whole number >= 1, got 0"),
            ({"render_mode": "human"}, "expected render_mode among"),
            ({"split": "tain"}, "no split 'tain'. Did you mean 'train'"),
            ({"tasks": []}, "HiddenNumberEnv has no tasks; give some"),
            ({"numbers": 1}, "expected numbers to be a whole number >= 2, got 1"),
            ({"accuracies": (0.5, 1.5)}, "expected an accuracy between 0 and 1, got 1.5"),
            ({"accuracies": ()}, "expected accuracies of at least one scout"),
            ({"accuracies": ("high",)}, "expected an accuracy to be a number, got 'high'"),
            ({"cost": 0.5}, r"expected cost \* scouts <= 1, got 0.5 \* 3"),
            ({"numbers": 30}, r"so that the game can be enumerated; got 29791"),
        ],
    )
    def test_keywords_that_make_no_sense(self, keywords, said):
        with pytest.raises(UsageError, match=said):
            make("agentgym/HiddenNumber-v0", **keywords)

    @pytest.mark.parametrize(
        ("env_id", "keyword", "near"),
        [
            ("agentgym/HiddenNumber-v0", "accuracy", "accuracies"),
            ("agentgym/Review-v0", "submission", "submissions"),
        ],
    )
    def test_keywords_that_there_are_not(self, env_id, keyword, near):
        with pytest.raises(TypeError, match=f"takes no keyword '{keyword}'.* Did you mean '{near}'"):
            make(env_id, **{keyword: 1})

    def test_tasks_are_chosen_by_id_index_or_as_they_are(self, env):
        env.reset(options={"task": "hidden-number-test"})
        env.reset(options={"task": 0})
        env.reset(options={"task": Task("mine", data={"number": 3, "sightings": [1, 2, 3]})})
        assert (env.number, env.sightings) == (3, (1, 2, 3))
        with pytest.raises(UsageError, match=r"expected data={'number': n, 'sightings'"):
            env.reset(options={"task": Task("mine", data={"number": 4, "sightings": [1, 2, 3]})})
        with pytest.raises(UsageError, match="no task 'mine'"):
            env.reset(options={"task": "mine"})
