"""Games made of a small package of four rooms; of alfworld's own where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from agentgym.cli import main
from agentgym.envs.alfworld import AlfworldEnv
from agentgym.envs.alfworld.files import GAME, TASK_TYPES, load_games, read_game_file, read_json
from agentgym.envs.alfworld.generate import generated_games, make_game, write_games
from agentgym.envs.alfworld.layouts import Package, find_package, kind_of
from agentgym.envs.alfworld.native import NativeEngine
from agentgym.envs.alfworld.planning import Planner
from agentgym.envs.alfworld.recipes import Recipe
from agentgym.envs.alfworld.relations import State
from agentgym.errors import MissingDependency, TaskError, UsageError
from tests.envs.alfworld.small_package import ROOMS, write_package

ORIGINAL = pytest.mark.skipif(
    importlib.util.find_spec("alfworld") is None, reason="alfworld is not installed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def package(folder: Path) -> Package:
    return Package(folder)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def facts(problem: str, predicate: str) -> list[tuple[str, ...]]:
    """What a predicate holds for, with kinds for names: `cup` for `Cup_bar_..`."""
    initial = problem.partition("(:goal")[0]
    rows = re.findall(rf"\({predicate} ([^()]*)\)", initial)
    return [tuple(name.partition("_bar_")[0] for name in row.split()) for row in rows]


def test_the_folder_is_as_the_official_one(package: Package, tmp_path: Path) -> None:
    report = write_games(package, Recipe(12, seed=4), tmp_path)
    assert [row["task_type"] for row in report["games"]] == [*TASK_TYPES, *TASK_TYPES]
    for row in report["games"]:
        path = tmp_path / row["game"]
        assert {each.name for each in path.parent.iterdir()} == {GAME, "traj_data.json", "initial_state.pddl"}
        file, about = read_game_file(path), read_json(path.with_name("traj_data.json"))
        params = about["pddl_params"]
        place = params["parent_target"] or params["toggle_target"]
        room = about["scene"]["scene_num"]
        expected = (
            f"json_2.1.1/train/{row['task_type']}-{params['object_target']}-None-{place}-{room}/trial_T"
        )
        assert row["game"].startswith(expected)
        assert path.with_name("initial_state.pddl").read_text() == file.problem
        assert (file.solvable, len(file.walkthrough)) == (True, row["steps"])
        assert "UNKNOWN GOAL" not in file.grammar
    assert (tmp_path / "logic" / "alfred.pddl").read_text() == package.domain
    assert len(load_games(str(tmp_path))) == 12


@pytest.mark.parametrize("split", ["train", "valid_unseen"])
def test_every_walkthrough_wins_and_nothing_less(package: Package, tmp_path: Path, split: str) -> None:
    write_games(package, Recipe(12, split=split), tmp_path)
    for task in load_games(str(tmp_path)):
        engine = NativeEngine(task.data["game"])
        reply = engine.reset()
        for command in read_game_file(task.data["game"]).walkthrough:
            assert not reply.won
            assert command in reply.admissible
            reply = engine.step(command)
        assert reply.won


def test_rooms_of_valid_unseen_are_in_no_other_split(package: Package) -> None:
    rooms = {
        split: {make_game(package, Recipe(6, split=split), index).room.scene.number for index in range(6)}
        for split in ("train", "valid_seen", "valid_unseen")
    }
    assert rooms == {"train": {9, 307}, "valid_seen": {9, 307}, "valid_unseen": {10, 308}}


def test_splits_that_share_rooms_have_other_games(package: Package) -> None:
    train, seen = (make_game(package, Recipe(1, split=split), 0) for split in ("train", "valid_seen"))
    assert train.file.problem != seen.file.problem
    assert train.room.furniture == seen.room.furniture or train.room.scene != seen.room.scene


def test_a_longer_run_begins_with_a_shorter_one(package: Package, tmp_path: Path) -> None:
    write_games(package, Recipe(4, seed=7), tmp_path / "short")
    write_games(package, Recipe(8, seed=7), tmp_path / "long")
    short, long = contents(tmp_path / "short"), contents(tmp_path / "long")
    assert short.items() < long.items()


def test_another_seed_makes_other_games(package: Package) -> None:
    problems = {make_game(package, Recipe(1, seed=seed), 0).file.problem for seed in range(5)}
    assert len(problems) == 5


@pytest.mark.slow
def test_files_do_not_depend_on_the_hash_seed(folder: Path, tmp_path: Path) -> None:
    for seed in "12":
        words = f"alfworld generate --out {tmp_path / seed} --count 6 --package {folder}".split()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-m", "agentgym", *words], check=True, env=environment, capture_output=True
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2") != {}


def test_the_package_is_only_read(folder: Path, package: Package, tmp_path: Path) -> None:
    before = contents(folder)
    write_games(package, Recipe(6), tmp_path)
    assert contents(folder) == before


def test_wanted_things_are_not_where_they_belong(package: Package) -> None:
    for index in range(24):
        room = make_game(package, Recipe(24, seed=1), index).room
        starts = {kind_of(home) for name, home in room.things.items() if kind_of(name) == room.thing}
        assert room.target not in starts
        if room.task_type == "pick_cool_then_place_in_recep":
            assert "Fridge" not in {room.target, *starts}


def test_facts_follow_the_tables(package: Package) -> None:
    """What can be done with what, read off the small package by hand."""
    abilities = {
        "pickupable": {"Apple", "Mug", "Fork"},
        "cleanable": {"Apple", "Mug", "Fork"},
        "heatable": {"Apple", "Mug"},
        "coolable": {"Apple", "Mug"},
        "sliceable": {"Apple"},
        "isReceptacleObject": {"Mug"},
    }
    seen: dict[str, set[str]] = {name: set() for name in abilities}
    for index in range(12):
        problem = make_game(
            package, Recipe(12, task_types=("pick_heat_then_place_in_recep",)), index
        ).file.problem
        for name in abilities:
            seen[name] |= {kind for (kind,) in facts(problem, name)}
        furniture = Counter(kind for kind, _ in facts(problem, "receptacleType"))
        # "Sink|..|SinkBasin" is the basin of a sink; the layout has no burners, so four are put somewhere.
        assert furniture == Counter(Fridge=1, Microwave=1, Sink=1, CounterTop=1, Drawer=1, StoveBurner=4)
        assert sorted(facts(problem, "openable")) == [("Drawer",), ("Fridge",), ("Microwave",)]
        assert ("MugType", "ForkType") not in facts(problem, "canContain")  # nothing is inside a mug
        assert (
            "(receptacleAtLocation Fridge_bar__plus_01_dot_00_bar__plus_00_dot_00_bar__plus_02_dot_00"
            in problem
        )
        assert "loc_bar_4_bar_4_bar_0_bar_0)" in problem  # 1 m, 1 m, ahead, level, in steps of 0.25 m
    assert seen == abilities


def test_copies_and_distractors(package: Package) -> None:
    recipe = Recipe(12, task_types=("pick_and_place_simple", "look_at_obj_in_light"), copies=1, distractors=1)
    for index in range(12):
        room = make_game(package, recipe, index).room
        kinds = Counter(map(kind_of, room.things))
        lamps = kinds.pop("DeskLamp", 0)
        assert lamps == (room.scene.number == 307)
        assert kinds.pop(room.thing) == 1
        assert kinds.total() <= 1


def test_hidden_things_start_in_closed_furniture(package: Package) -> None:
    recipe = Recipe(12, task_types=("pick_and_place_simple",), hidden=True)
    openable = {"Fridge", "Microwave", "Drawer"}  # the cabinet has no place in the layout: it can't be opened
    found = 0
    for index in range(12):
        room = make_game(package, recipe, index).room
        takers = {kind for kind in openable if room.thing in package.takes[kind]} - {room.target}
        here = takers & {kind_of(name) for name in room.furniture}
        starts = {kind_of(home) for name, home in room.things.items() if kind_of(name) == room.thing}
        assert starts <= (here or starts)
        found += bool(here)
    assert found


def test_games_that_are_too_easy_are_drawn_again(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe(2, task_types=("pick_and_place_simple",), min_steps=6)
    report = write_games(package, recipe, tmp_path)
    assert min(row["steps"] for row in report["games"]) >= 6  # two pieces of furniture have to be opened
    assert report["redraws"] == sum(row["redraws"] for row in report["games"]) > 0
    monkeypatch.setattr("agentgym.envs.alfworld.generate.MOST_DRAWS", 5)
    impossible = Recipe(1, task_types=("look_at_obj_in_light",), min_steps=9)
    with pytest.raises(TaskError, match="none of 5 draws of look_at_obj_in_light takes 9 commands"):
        make_game(package, impossible, 0)


def test_draws_without_a_solution_are_drawn_again(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_game(package, Recipe(1), 0).file.problem
    answers = iter([None, None])

    def plan(self: Planner, state: State) -> tuple[str, ...] | None:
        return next(answers, ("look",))

    monkeypatch.setattr(Planner, "plan", plan)
    made = make_game(package, Recipe(1), 0)
    assert (made.redraws, made.file.walkthrough) == (2, ("look",))
    assert made.file.problem != first


def test_the_environment_makes_its_games_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"count": 6, "seed": 2, "package": str(folder)}
    env = gymnasium.make("agentgym/ALFWorld-v0", generate=options)
    _, info = env.reset(seed=0)
    ids = [task.id for task in env.unwrapped.task_pool]  # type: ignore[attr-defined]
    assert len(ids) == 6
    assert info["task_id"] in ids
    monkeypatch.setattr("agentgym.envs.alfworld.generate.write_games", None)
    again = AlfworldEnv(generate=options)
    assert [task.id for task in again.task_pool] == ids


def test_the_environment_makes_the_games_of_its_split_and_types(folder: Path) -> None:
    options = {"count": 2, "package": folder}
    env = AlfworldEnv(generate=options, split="eval_out_of_distribution", task_types=["look_at_obj_in_light"])
    assert {(task.split, task.data["task_type"]) for task in env.task_set} == {
        ("eval_out_of_distribution", "look_at_obj_in_light")
    }
    assert Counter(task.split for task in AlfworldEnv(generate=options, split="all").task_set) == Counter(
        train=2, eval_in_distribution=2, eval_out_of_distribution=2
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (5, r"generate to be \{'count': N, ..\}, got 5"),
        ({"seed": 1}, "'count': N"),
        ({"count": 0}, "count to be a whole number >= 1, got 0"),
        ({"count": 1, "copys": 2}, "'copys' of generate. Did you mean 'copies'"),
        ({"count": 1, "copies": 10**6}, "copies <= 100, got 1000000"),
        ({"count": 1, "hidden": "yes"}, "hidden to be True or False, got 'yes'"),
        ({"count": 1, "distractors": -1}, "distractors to be a whole number >= 0"),
        ({"count": 1, "split": "train"}, "unknown option 'split'"),
    ],
)
def test_wrong_options(folder: Path, options: Any, message: str) -> None:
    if isinstance(options, dict):
        options["package"] = folder
    with pytest.raises(UsageError, match=message):
        generated_games(options, TASK_TYPES, "train")


def test_wrong_split_and_two_sources(folder: Path) -> None:
    with pytest.raises(UsageError, match="unknown split 'test'"):
        generated_games({"count": 1, "package": folder}, TASK_TYPES, "test")
    with pytest.raises(UsageError, match="one of data="):
        AlfworldEnv(data=folder, generate={"count": 1})


def test_a_folder_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"has no data/alfred\.pddl"):
        find_package(tmp_path)
    write_package(tmp_path)
    (tmp_path / "gen" / "constants.py").write_text("SCENE_TYPE = {}\n")
    with pytest.raises(TaskError, match=r"tables of alfworld 0\.4 .*VAL_RECEPTACLE_OBJECTS"):
        Package(tmp_path)


@pytest.mark.parametrize("folder", [5, "a\0b"])
def test_a_package_that_is_no_path(folder: Any) -> None:
    with pytest.raises(UsageError, match="expected package to be a folder, got"):
        generated_games({"count": 1, "package": folder}, TASK_TYPES, "train")


def test_a_room_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    package = Package(write_package(tmp_path))
    with pytest.raises(TaskError, match="layout of room 11"):
        package.scene(11)
    for number in ROOMS:
        assert package.scene(number).kinds


def test_without_alfworld_one_line_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'agentgym-suite\[alfworld\]'"):
        find_package()


def test_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["alfworld", "generate", "--out", str(tmp_path), "--count", "2", "--package", str(folder)]
    assert main([*words, "--type", "look_at_obj_in_light", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["task_type"] for row in report["games"]] == ["look_at_obj_in_light"] * 2
    assert main(words) == 0
    assert "2 games are in" in capsys.readouterr().out
    assert main([*words, "--type", "cook"]) == 2
    assert "unknown task type 'cook'" in capsys.readouterr().err


@ORIGINAL
def test_rooms_of_alfworld_itself(tmp_path: Path) -> None:
    package = find_package()
    assert {kind: len(numbers) for kind, numbers in package.rooms.items()} == dict.fromkeys(
        ("Kitchen", "LivingRoom", "Bedroom", "Bathroom"), 30
    )
    report = write_games(package, Recipe(12), tmp_path)
    assert all(3 <= row["steps"] <= 11 for row in report["games"])
    assert report["redraws"] == 0


_PLAY = """
import json, sys
from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv
root, split = sys.argv[1:]
env = AlfredTWEnv({
    "dataset": {"data_path": root, "eval_ood_data_path": root, "num_train_games": -1, "num_eval_games": -1},
    "env": {"task_types": [1, 2, 3, 4, 5, 6], "goal_desc_human_anns_prob": 0, "domain_randomization": False,
            "expert_type": "handcoded"},
    "general": {"training_method": "dqn"}, "rl": {"training": {"max_nb_steps_per_episode": 50}},
}, split)
games = env.init_env(batch_size=1)
for _ in range(env.num_games):
    _, infos = games.reset()
    with open(infos["extra.gamefile"][0]) as file:
        plan = json.load(file)["walkthrough"]
    for command in plan:
        assert command in infos["admissible_commands"][0], command
        _, _, dones, infos = games.step([command])
    print("RESULT", infos["won"][0], dones[0])
"""


@ORIGINAL
@pytest.mark.slow
def test_alfworlds_own_environment_plays_them(tmp_path: Path) -> None:
    write_games(find_package(), Recipe(3, split="valid_unseen"), tmp_path)
    words = [str(tmp_path / "json_2.1.1" / "valid_unseen"), "eval_out_of_distribution"]
    environment = {**os.environ, "ALFWORLD_DATA": str(tmp_path), "HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", _PLAY, *words], env=environment, capture_output=True, text=True, timeout=300
    )
    assert re.findall("RESULT (.*)", done.stdout) == ["True True"] * 3, done.stderr
