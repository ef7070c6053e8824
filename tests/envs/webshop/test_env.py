"""WebShop-v0 as a user has it."""

from __future__ import annotations

import pickle

import pytest

from agentgym.envs.webshop import WebShopEnv
from agentgym.envs.webshop.tasks import stable_tasks
from agentgym.errors import TaskError, UsageError
from agentgym.tasks import Task

pytestmark = pytest.mark.usefixtures("global_rngs_untouched")


def play(env, task=None):
    """The gold policy's episode: its last step."""
    env.reset(seed=0, options={"task": task} if task is not None else None)
    while True:
        step = env.step(env.gold())
        if step[2] or step[3]:
            return step


@pytest.mark.slow
def test_gold_on_every_bundled_task():
    env = WebShopEnv()
    assert len(env.task_set) > 500
    lost = [task.id for task in env.task_set if play(env, task)[1] != 1.0]
    assert lost == []


def test_gold_on_the_recorded_shop(recorded):
    env = WebShopEnv(data=recorded_folder())
    for number in range(0, len(env.task_pool), 40):
        assert play(env, number)[1] == 1.0


def recorded_folder():
    from tests.envs.webshop.conftest import SHARED

    return SHARED / "data" / "webshop"


def test_tasks_by_hash(files):
    env = WebShopEnv(data=files)
    # Of three instructions one names no attribute, one wants what there is not.
    assert [task.data["goal"]["goal_options"] for task in env.task_set] == [("green",)]
    before = env.task_set[0]
    assert before.prompt.startswith("i want a soft rug in green, and price lower than ")
    again = stable_tasks(env.shop.catalogue, "human")[0]
    assert (again.id, again.data) == (before.id, before.data)


def test_task_sets_are_read_when_asked():
    tasks = WebShopEnv(num_products=50).task_set
    assert set(tasks.splits) <= {"train", "dev", "test"}
    train = tasks.split("train")
    assert train[0].split == "train"
    assert train[0] in tasks
    assert train[0].id in train
    assert len(tasks[:5]) == 5
    assert [task.id for task in tasks][:5] == [task.id for task in tasks[:5]]
    assert pickle.loads(pickle.dumps(train))[1] == train[1]
    with pytest.raises(TaskError, match="no task 'shop-x'"):
        tasks["shop-x"]
    with pytest.raises(TaskError, match="there is no index 1000"):
        tasks[1000]
    with pytest.raises(TaskError, match="no split 'valid'"):
        tasks.split("valid")


def test_synthetic_goals(files):
    env = WebShopEnv(data=files, goals="synthetic")
    assert len(env.task_set) == 1
    assert env.task_set[0].prompt.startswith("Find me a rug with color: ")
    assert play(env)[1] == 1.0


def test_verdict(files):
    env = WebShopEnv(data=files)
    env.reset(seed=0)
    env.step("search[rug]")
    env.step("click[b000000001]")
    *_, info = env.step("click[buy now]")  # without the colour
    verdict = info["verdict"]
    assert verdict.score == pytest.approx(2 / 3)
    assert not verdict.passed
    assert verdict.components == {"bought": 1.0, "type": 1.0, "attributes": 1.0, "price": 1.0, "options": 0.0}
    assert verdict.evidence["nouns"] == "rule"


def test_no_purchase_is_worth_nothing(files):
    env = WebShopEnv(data=files, max_turns=1)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("search[rug]")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["verdict"].components == {"bought": 0.0}


def test_invalid_actions_say_what_was_expected(files):
    env = WebShopEnv(data=files)
    env.reset(seed=0)
    observation, *_, info = env.step("click[search]")
    assert info["invalid_action"] is True
    assert observation == "That is not possible here. Expected search[words]."
    env.step("  search[rug]\n")
    observation, *_, info = env.step("search[rug]")
    assert info["invalid_action"] is True
    assert "one of back to search, b000000001, b000000002" in observation


def test_compat(files):
    env = WebShopEnv(data=files, compat=True, observation_mode="text_rich", num_prev_actions=1)
    observation, info = env.reset(seed=0, options={"task": "1"})
    assert observation.startswith("WebShop\nInstruction: \n")
    same, *_, info = env.step("dance")
    assert info["invalid_action"] is True
    assert same.endswith(observation)  # the same page, after the action
    for action in ("search[rug]", "click[b000000001]", "click[buy now]"):
        observation, reward, terminated, *_ = env.step(action)
    assert terminated
    assert f"\n{reward}\n" in observation  # the original's last page tells the score


def test_quirks_one_by_one(files):
    env = WebShopEnv(data=files, quirks={"search_anywhere": True})
    env.reset(seed=0)
    env.step("search[rug]")
    assert "invalid_action" not in env.step("search[tray]")[4]
    with pytest.raises(UsageError, match=r"no quirk 'search_anywere'.*'search_anywhere'"):
        WebShopEnv(data=files, quirks={"search_anywere": True})


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"observation_mode": "image"}, "expected an observation mode"),
        ({"goals": "all"}, "expected goals to be"),
        ({"goals": "all", "compat": True}, "expected goals to be"),
        ({"limit_goals": 5}, "belongs to compat"),
        ({"num_prev_obs": -1}, "expected num_prev_obs"),
        ({"num_products": 0}, "expected num_products"),
        ({"data": "/nowhere"}, "expected items_shuffle.json"),
        ({"compat": "no"}, "expected compat to be True or False, got 'no'"),
        ({"show_attrs": 1}, "expected show_attrs to be True or False, got 1"),
        ({"quirks": {"drawn_prices": "no"}}, "expected the quirk drawn_prices to be True or False, got 'no'"),
        ({"quirks": "drawn_prices"}, "expected quirks to be {'NAME': True or False, ..}, got 'drawn_prices'"),
        ({"limit_goals": "x", "compat": True}, "expected limit_goals to be a whole number >= -1, got 'x'"),
    ],
)
def test_bad_keywords(keywords, message):
    with pytest.raises(UsageError, match=message):
        WebShopEnv(**({"num_products": 20} | keywords))


def test_a_task_without_a_goal():
    env = WebShopEnv(num_products=20)
    with pytest.raises(TaskError, match="expected a WebShop task"):
        env.reset(options={"task": Task("x")})


def test_a_task_about_a_product_that_is_not_there(files):
    goal = {**WebShopEnv(data=files).task_set[0].data["goal"], "asin": "B0NOWHERE0"}
    env = WebShopEnv(data=files, tasks=[Task("x", data={"goal": goal})])
    with pytest.raises(
        TaskError, match="task 'x' is about the product 'B0NOWHERE0', which is not among the 3 of"
    ):
        env.reset(seed=0)


def test_nothing_of_the_goal_is_in_addresses():
    env = WebShopEnv(num_products=50)
    env.reset(seed=0)
    goal = env.screen.session.goal
    assert goal.asin not in env.anchor()
    play(env)
    assert "1.0" not in env.anchor()
