"""The gold policy: the walkthrough for who follows it, a plan for who does not."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path

import pytest

from agentgym.envs.alfworld import AlfworldEnv
from agentgym.envs.alfworld.files import TASK_TYPES
from agentgym.envs.alfworld.gold import Guide
from agentgym.envs.alfworld.houses import House
from agentgym.envs.alfworld.sources import read_game
from agentgym.errors import TaskError
from tests.envs.alfworld.tiny_game import write_game

HEAT = "house/train/pick_heat_then_place_in_recep-000"


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)


def win(env: AlfworldEnv) -> list[str]:
    """Follow gold to the end, which has to be a win; the commands it took."""
    commands = []
    while len(commands) < 20:
        commands.append(env.gold())
        assert commands[-1] in env.admissible_actions()
        _, reward, terminated, _, _ = env.step(commands[-1])
        if terminated:
            assert reward == 1.0
            return commands
    raise AssertionError("gold does not get there")


def test_the_walkthrough_is_followed() -> None:
    env = AlfworldEnv()
    env.reset(options={"task": HEAT})
    for command in read_game(House(0, 0, "pick_heat_then_place_in_recep")).walkthrough:
        assert env.gold() == command
        env.step(command)


@pytest.mark.parametrize("phrasing", ["move", "put"])
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_it_wins_after_any_other_moves(task_type: str, phrasing: str) -> None:
    env = AlfworldEnv(max_turns=100, phrasing=phrasing)
    for seed in range(3):
        rng = random.Random(seed)
        env.reset(options={"task": f"house/train/{task_type}-00{seed}"})
        for turn in range(40):
            env.step(rng.choice(env.admissible_actions()) if turn % 5 else "dance")
            if turn == 20:
                env.gold()  # asked for in the middle, and not followed
        assert len(win(env)) <= 14


def test_a_thing_that_is_in_the_hand_and_not_wanted_is_put_down() -> None:
    env = AlfworldEnv()
    env.reset(options={"task": HEAT})
    plan = read_game(House(0, 0, "pick_heat_then_place_in_recep")).walkthrough
    wanted = next(command for command in plan if command.startswith("take")).split()[1]
    taken = ""
    for place in [command for command in env.admissible_actions() if command.startswith("go to")]:
        env.step(place)
        takes = [command for command in env.admissible_actions() if command.startswith("take")]
        if taken := next((command for command in takes if command.split()[1] != wanted), ""):
            break
    env.step(taken)
    handled = [command for command in win(env) if command.startswith(("take", "move"))]
    assert handled[0].startswith("move " + " ".join(taken.split()[1:3]))
    assert handled[1].split()[:2] == ["take", wanted]


def test_senses_and_wrong_commands_do_not_change_the_plan() -> None:
    env = AlfworldEnv()
    env.reset(options={"task": HEAT})
    plan = read_game(House(0, 0, "pick_heat_then_place_in_recep")).walkthrough
    for command in plan[:-1]:
        env.step(command)
        env.step("inventory")
        env.step("open sesame")
        env.step("look")
    assert env.gold() == plan[-1]


def test_it_goes_on_after_a_restore() -> None:
    env = AlfworldEnv()
    env.reset(options={"task": HEAT})
    first = env.gold()
    saved = env.snapshot()
    env.step(first)
    second = env.gold()
    env.step("go to garbagecan 1")
    env.gold()
    env.restore(saved)
    assert env.gold() == first
    env.step(first)
    assert env.gold() == second
    twin: AlfworldEnv = pickle.loads(pickle.dumps(env))
    assert twin.gold() == second
    win(twin)


def test_a_guide_is_a_value() -> None:
    source = House(0, 0, "pick_heat_then_place_in_recep")
    plan = read_game(source).walkthrough
    guide = Guide.at_start(source)
    later = guide.after(plan[:2])
    assert guide.plan == plan
    assert later.plan == plan[2:]
    assert later.after([]).plan == plan  # another episode: what it has seen is not a part of this one
    for twin in (copy.deepcopy(later), pickle.loads(pickle.dumps(later))):
        assert twin.after(plan[:3]).plan == plan[3:]


def test_a_game_of_another_form_is_played_by_its_walkthrough_only(tmp_path: Path) -> None:
    write_game(tmp_path / "train" / "room" / "trial")
    env = AlfworldEnv(data=tmp_path)
    env.reset(seed=0)
    assert env.gold() == "unlid box 2"
    env.step("walk to south 1")
    with pytest.raises(TaskError, match="six task types"):
        env.gold()
