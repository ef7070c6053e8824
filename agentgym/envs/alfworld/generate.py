"""Making games: rooms of the alfworld package with tasks drawn by seed, each proved to be solvable."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.cache import cache_folder, made_once
from agentgym.envs.alfworld.files import GAME, SPLITS, GameFile, load_games
from agentgym.envs.alfworld.layouts import Package, find_package
from agentgym.envs.alfworld.native import Game
from agentgym.envs.alfworld.planning import Planner
from agentgym.envs.alfworld.problems import problem, sentence
from agentgym.envs.alfworld.recipes import Recipe, read_recipe
from agentgym.envs.alfworld.rooms import LAMP, Room, draw_room
from agentgym.errors import TaskError, UsageError, nearest
from agentgym.tasks import TaskSet

UNSEEN = frozenset((10, 219, 308, 424))  # the rooms of the official games of valid_unseen
MOST_DRAWS = 200  # for one game


@dataclass(frozen=True, slots=True)
class Made:
    """One game.

    Attributes:
        room: what was drawn.
        file: the content of its game file.
        redraws: how many rooms were drawn before, and could not be solved, or too easily.
    """

    room: Room
    file: GameFile
    redraws: int


def make_game(package: Package, recipe: Recipe, index: int) -> Made:
    """One of a recipe's games; it does not depend on the others.

    Raises:
        TaskError: none of many draws is as asked for.
    """
    task_type = recipe.task_types[index % len(recipe.task_types)]
    rooms = _rooms(package, recipe.split, task_type)
    rng = random.Random(f"game {recipe.digest} {index}")
    for redraws in range(MOST_DRAWS):
        room = draw_room(package, recipe, task_type, rooms, rng)
        grammar = package.grammar.replace("UNKNOWN GOAL", sentence(package, room, rng))
        file = GameFile(
            package.domain, grammar, problem(package, room, f"plan_{_trial(recipe, index)}"), True, ()
        )
        game = Game(file)
        plan = Planner(game).plan(game.start)
        if plan is not None and len(plan) >= recipe.min_steps:
            return Made(room, dataclasses.replace(file, walkthrough=plan), redraws)
    raise TaskError(
        f"none of {MOST_DRAWS} draws of {task_type} takes {recipe.min_steps} commands or more; ask for fewer"
    )


def write_games(
    package: Package, recipe: Recipe, out: Path, *, each: Callable[[str], None] = lambda name: None
) -> dict[str, Any]:
    """Write a recipe's games as the official data folder has them; the folder then serves as ``$ALFWORLD_DATA``.

    Args:
        package: where rooms and rules come from.
        recipe: which games.
        out: the folder. Games of other recipes that are there stay.
        each: called with every game's folder when it is written.

    Returns:
        A report: ``games`` (folder below `out`, type, length of the walkthrough and redraws of each), ``redraws``.

    Raises:
        TaskError: see `make_game`.
    """
    rows = []
    for index in range(recipe.count):
        made = make_game(package, recipe, index)
        folder = f"json_2.1.1/{recipe.split}/{_folder(made.room)}/{_trial(recipe, index)}"
        for name, text in _files(made, _trial(recipe, index)).items():
            _write(out / folder / name, text)
        rows.append(
            {
                "game": f"{folder}/{GAME}",
                "task_type": made.room.task_type,
                "steps": len(made.file.walkthrough),
                "redraws": made.redraws,
            }
        )
        each(folder)
    for name, text in (("alfred.pddl", package.domain), ("alfred.twl2", package.grammar)):
        _write(out / "logic" / name, text)
    return {"games": rows, "redraws": sum(made["redraws"] for made in rows)}


def generated_games(options: Mapping[str, Any], task_types: Sequence[str], split: str) -> TaskSet:
    """Games made for an environment, from the cache where they have been made before.

    Args:
        options: fields of `Recipe`, and `package`, a folder, where alfworld is not installed.
        task_types: which types.
        split: as an environment calls it; "all" for `count` games of each.

    Raises:
        UsageError: an option, the split or a type does not exist, or there are no such games.
        MissingDependency: there is nothing to make games of.
    """
    if not isinstance(options, Mapping) or "count" not in options:
        raise UsageError(f"expected generate to be {{'count': N, ..}}, got {options!r:.60}")
    folders = [folder for folder, name in SPLITS.items() if split in (name, "all")]
    if not folders:
        raise UsageError(f"unknown split {split!r}.{nearest(split, [*SPLITS.values(), 'all'])}")
    package = find_package(options.get("package"))
    chosen = {name: value for name, value in options.items() if name != "package"}
    recipes = [read_recipe(chosen, split=folder, task_types=tuple(task_types)) for folder in folders]
    tasks = [task for recipe in recipes for task in load_games(str(_kept(package, recipe)))]
    return TaskSet(tasks, name="generated ALFWorld games")


def _kept(package: Package, recipe: Recipe) -> Path:
    """A recipe's games, in the cache."""

    def fill(folder: Path) -> None:
        write_games(package, recipe, folder)

    name = f"{recipe.digest}-{recipe.count}-{package.digest}"
    return made_once(cache_folder() / "alfworld" / name, fill)


def _rooms(package: Package, split: str, task_type: str) -> Sequence[int]:
    """The numbers of the rooms that games of a type and split are in."""
    numbers = [number for kind in package.goals[task_type].rooms for number in package.rooms[kind]]
    return [number for number in numbers if (number in UNSEEN) == (split == "valid_unseen")]


def _folder(room: Room) -> str:
    return f"{room.task_type}-{room.thing}-None-{room.target}-{room.scene.number}"


def _trial(recipe: Recipe, index: int) -> str:
    return f"trial_T{recipe.digest}_{index:06}"


def _files(made: Made, trial: str) -> dict[str, str]:
    """The files of a game's folder."""
    room, file = made.room, made.file
    lamp = room.target == LAMP
    about = {
        "task_id": trial,
        "task_type": room.task_type,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": room.thing,
            "parent_target": "" if lamp else room.target,
            "toggle_target": room.target if lamp else "",
        },
        "scene": {"floor_plan": f"FloorPlan{room.scene.number}", "scene_num": room.scene.number},
        "turk_annotations": {"anns": []},
    }
    game = {
        "pddl_domain": file.domain,
        "grammar": file.grammar,
        "pddl_problem": file.problem,
        "solvable": file.solvable,
        "walkthrough": list(file.walkthrough),
    }
    return {
        GAME: json.dumps(game),
        "traj_data.json": json.dumps(about, indent=1),
        "initial_state.pddl": file.problem,
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
