"""The environment: tasks, phrasing, ends, gold. What every environment must do is tested in tests/test_all_envs.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from agentgym.envs.alfworld import AlfworldEnv
from agentgym.envs.alfworld.files import TASK_TYPES, load_games
from agentgym.envs.alfworld.houses import House, houses
from agentgym.envs.alfworld.native import Game
from agentgym.errors import TaskError, UsageError
from tests.envs.alfworld.tiny_game import write_game

HOUSE = "house/train/pick_heat_then_place_in_recep-000"


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a playable game in two splits, and one game of every kind that is left out."""
    root = tmp_path / "json_2.1.1"
    write_game(root / "train" / "place-Cup-None-Box-1" / "trial_1")
    write_game(root / "valid_unseen" / "place-Cup-None-Box-10" / "trial_1")
    write_game(root / "valid_train" / "place-Cup-None-Box-1" / "trial_1")
    write_game(root / "train" / "place_with_movable_recep-Cup-Pan-Box-1" / "trial_1")
    write_game(root / "train" / "place-CupSliced-None-Box-1" / "trial_1")
    write_game(root / "train" / "unsolved" / "trial_1", solvable=False)
    write_game(root / "train" / "alone" / "trial_1").with_name("traj_data.json").unlink()
    return tmp_path


def solve(env: AlfworldEnv, **options: Any) -> list[tuple[str, str]]:
    """Actions and observations of gold, which has to win."""
    env.reset(seed=0, options=options)
    seen, terminated = [], False
    while not terminated:
        action = env.gold()
        assert action in env.admissible_actions()
        obs, reward, terminated, truncated, info = env.step(action)
        assert not truncated
        seen.append((action, obs))
    assert (reward, info["resolved"]) == (1.0, True)
    return seen


def test_the_official_folder(data: Path) -> None:
    tasks = load_games(str(data))
    assert [(task.id, task.split) for task in tasks] == [
        ("train/place-Cup-None-Box-1/trial_1", "train"),
        ("valid_unseen/place-Cup-None-Box-10/trial_1", "eval_out_of_distribution"),
    ]
    assert load_games(str(data / "json_2.1.1"))[0] == tasks[0]


def test_games_that_come_and_go_are_seen(data: Path) -> None:
    trial = data / "json_2.1.1" / "train" / "place-Cup-None-Box-1" / "trial_1"
    tasks = load_games(str(data))
    assert load_games(str(data)) is tasks  # nothing has changed
    shutil.copytree(trial, trial.with_name("trial_2"))
    trials = [Path(task.id).name for task in load_games(str(data)).split("train")]
    assert trials == ["trial_1", "trial_2"]
    (trial / "traj_data.json").unlink()
    trials = [Path(task.id).name for task in load_games(str(data)).split("train")]
    assert trials == ["trial_2"]
    shutil.copytree(data / "json_2.1.1" / "train", data / "json_2.1.1" / "valid_seen")
    assert len(load_games(str(data)).split("eval_in_distribution")) == 1


def test_a_relative_folder_is_another_elsewhere(
    data: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    assert len(AlfworldEnv(data="json_2.1.1").task_set) == 2
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(data / "json_2.1.1" / "train", other / "json_2.1.1" / "train")
    monkeypatch.chdir(other)
    assert len(AlfworldEnv(data="json_2.1.1").task_set) == 1


def test_the_folder_comes_from_the_environment_variable(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    env = gymnasium.make("agentgym/ALFWorld-v0", split="eval_out_of_distribution")
    obs, info = env.reset(seed=0)
    assert obs.startswith("Welcome.")
    assert info["task_id"] == "valid_unseen/place-Cup-None-Box-10/trial_1"
    assert info["admissible_actions"] == ("unlid box 2", "walk to south 1")


def test_a_folder_without_games_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none", "a\0b"):
        with pytest.raises(TaskError, match=r"expected solvable games train\|valid_seen\|valid_unseen"):
            AlfworldEnv(data=folder)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"engine": "c++"}, "engine among native, alfworld, got 'c\\+\\+'"),
        ({"phrasing": "place"}, "phrasing among move, put"),
        ({"goal": "short"}, "goal among template, human"),
        ({"task_types": "look_at_obj_in_light"}, "task_types to be a list"),
        ({"task_types": ["look"]}, "got \\['look'\\]"),
        ({"task_types": []}, "task_types to be a list"),
        ({"task_types": 5}, "task_types to be a list"),
        ({"task_types": [[1]]}, "task_types to be a list"),
        ({"data": ""}, "data to be a folder, got ''"),
        ({"split": "test"}, "no split 'test'"),
        ({"data": "x", "tasks": []}, "one of data="),
    ],
)
def test_wrong_keywords(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AlfworldEnv(**keywords)


def test_task_types() -> None:
    env = AlfworldEnv(task_types=["look_at_obj_in_light"], split="all")
    assert len(env.task_pool) == 30
    assert {task.data["task_type"] for task in env.task_pool} == {"look_at_obj_in_light"}


def test_an_inadmissible_command_costs_a_turn() -> None:
    env = AlfworldEnv(max_turns=2)
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step("dance")
    assert (obs, reward, terminated, truncated, info["invalid_action"]) == (
        "Nothing happens.",
        0.0,
        False,
        False,
        True,
    )
    *_, terminated, truncated, info = env.step(" look ")
    assert (terminated, truncated, "invalid_action" in info) == (False, True, False)


def test_phrasing_put() -> None:
    plain = solve(AlfworldEnv(), task=HOUSE)
    put = solve(AlfworldEnv(phrasing="put"), task=HOUSE)
    assert put[:-1] == plain[:-1]
    thing, place = plain[-1][0].removeprefix("move ").split(" to ")
    assert plain[-1] == (f"move {thing} to {place}", f"You move the {thing} to the {place}.")
    assert put[-1] == (f"put {thing} in/on {place}", f"You put the {thing} in/on the {place}.")
    env = AlfworldEnv(phrasing="put")
    env.reset(options={"task": HOUSE})
    for action, _ in put[:-1]:
        env.step(action)
    assert env.step(plain[-1][0])[0] == "Nothing happens."
    assert f"put {thing} in/on {place}" in env.admissible_actions()


def test_human_goals(tmp_path: Path) -> None:
    grammar_goal = {
        "turk_annotations": {"anns": [{"task_desc": 'Warm; the "egg".'}]},
        "task_type": "pick_and_place_simple",
    }
    folder = write_game(tmp_path / "train" / "room" / "trial").parent
    (folder / "traj_data.json").write_text(json.dumps(grammar_goal), encoding="utf-8")
    obs, _ = AlfworldEnv(data=tmp_path, goal="human").reset(seed=0)
    assert obs.endswith('Your task is to: Warm; the "egg".')
    house, _ = AlfworldEnv(goal="human").reset(options={"task": HOUSE})  # nobody has described it
    assert house == AlfworldEnv().reset(options={"task": HOUSE})[0]


def test_the_anchor_says_what_is_here() -> None:
    env = AlfworldEnv()
    _, info = env.reset(options={"task": HOUSE})
    assert info["anchor"] == ""  # in the middle of the room
    *_, info = env.step("go to fridge 1")
    assert info["anchor"] == "The fridge 1 is closed."
    there = info["anchor"]
    env.step("go to microwave 1")
    *_, info = env.step("go to fridge 1")
    assert info["anchor"] == there


def test_houses_are_the_same_wherever_they_are_made() -> None:
    assert len(houses()) == 180
    assert houses().splits == ("train", "eval_in_distribution", "eval_out_of_distribution")
    house = House(3, 3, "pick_two_obj_and_place")
    assert house.game() == House(3, 3, "pick_two_obj_and_place").game()
    assert house.game().problem != House(3, 4, "pick_two_obj_and_place").game().problem
    with pytest.raises(TaskError, match="a task type among"):
        House(0, 0, "juggle").game()


def test_layouts_are_shared_between_training_and_evaluation() -> None:
    def furniture(layout: int, number: int, task_type: str) -> str:
        return Game(House(layout, number, task_type).game()).intro.split("Your task")[0]

    for task_type in TASK_TYPES:
        assert furniture(1, 1, task_type) == furniture(1, 1001, task_type)
    assert len({furniture(layout, 0, "pick_heat_then_place_in_recep") for layout in range(10)}) > 5


@pytest.mark.slow
def test_gold_wins_every_packaged_task_and_nothing_is_won_at_the_start() -> None:
    env = AlfworldEnv(split="all")
    for task in env.task_set:
        assert solve(env, task=task.id)
        env.reset(options={"task": task.id})
        *_, terminated, _, _ = env.step("look")
        assert not terminated
