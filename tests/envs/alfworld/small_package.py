"""A folder in the form of the alfworld package, with four invented rooms and the rules of our own houses."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

_TABLES = """
from collections import OrderedDict
import os
GOALS_VALID = {
    "pick_and_place_simple": {"Kitchen", "Bedroom"}, "pick_two_obj_and_place": {"Bedroom", "Kitchen"},
    "look_at_obj_in_light": {"Bedroom"}, "pick_clean_then_place_in_recep": {"Kitchen"},
    "pick_heat_then_place_in_recep": {"Kitchen"}, "pick_cool_then_place_in_recep": {"Kitchen"},
    "a_type_of_its_own": {"Kitchen"},
}
SCENE_TYPE = {"Kitchen": range(9, 11), "Bedroom": [307, 308]}
VAL_RECEPTACLE_OBJECTS = {
    "Fridge": {"Apple", "Mug", "AppleSliced"}, "Microwave": {"Apple", "Mug"}, "SinkBasin": {"Apple", "Mug"},
    "CounterTop": {"Apple", "Mug", "Fork", "Pen"}, "Drawer": {"Fork", "Pen"}, "Cabinet": {"Mug"},
    "Desk": {"Pen", "Mug"}, "Bed": {"Pen"}, "Mug": {"Pen", "Fork"}, "StoveBurner": {"Mug"},
}
MOVABLE_RECEPTACLES = ["Mug"]
VAL_ACTION_OBJECTS = {
    "Heatable": {"Apple", "Mug"}, "Coolable": {"Apple", "Mug"}, "Cleanable": {"Apple", "Mug", "Fork"},
    "Sliceable": {"Apple"}, "Toggleable": {"DeskLamp"},
}
OPENABLE_CLASS_LIST = ["Fridge", "Microwave", "Drawer", "Cabinet"]
"""

_THING = "(exists (?r # receptacle ?o # object) (and (inReceptacle ?o ?r) (objectType ?o {obj}Type)"
_PLACE = "(receptacleType ?r {recep}Type)"
_PDDL = {
    "pick_and_place_simple": f"(:goal {_THING} {_PLACE})))",
    "pick_clean_then_place_in_recep": f"(:goal {_THING} {_PLACE} (isClean ?o))))",
    "pick_heat_then_place_in_recep": f"(:goal {_THING} {_PLACE} (isHot ?o))))",
    "pick_cool_then_place_in_recep": f"(:goal {_THING} {_PLACE} (isCool ?o))))",
    "pick_two_obj_and_place": f"(:goal {_THING} {_PLACE} (exists (?p # object) (and (not (= ?o ?p))"
    " (objectType ?p {obj}Type) (inReceptacle ?p ?r))))))",
    "look_at_obj_in_light": "(:goal (exists (?a # agent ?o # object ?lamp # object ?r # receptacle ?l # location)"
    " (and (holds ?a ?o) (objectType ?o {obj}Type) (objectType ?lamp {toggle}Type) (isToggled ?lamp)"
    " (inReceptacle ?lamp ?r) (receptacleAtLocation ?r ?l) (atLocation ?a ?l))))",
}
_KITCHEN = (
    {
        "Fridge|+01.00|+00.00|+02.00": [1.0, 1.0, 0, 0],
        "Microwave|+00.00|+01.00|+02.00": [0.0, 1.0, 0, 0],
        "Sink|-01.00|+00.90|+02.00|SinkBasin": [-1.0, 1.0, 0, 30],
        "CounterTop|00.00|+00.90|+02.00": [0.0, 1.0, 0, 30],
        "Drawer|-01.00|+00.50|-01.50": [-1.0, -1.0, 180, 30],
    },
    [
        "CounterTop",
        "Fridge",
        "Microwave",
        "Sink",
        "SinkBasin",
        "Drawer",
        "StoveBurner",
        "Apple",
        "Mug",
        "Fork",
        "Chair",
    ],
)
_BEDROOM = (
    {
        "Bed|+01.00|+00.00|+02.00": [1.0, 1.0, 0, 30],
        "Desk|-01.00|+00.80|+02.00": [-1.0, 1.0, 0, 30],
        "Drawer|-01.00|+00.50|+02.00": [-1.0, 1.0, 0, 30],
    },
    ["Bed", "Desk", "Drawer", "DeskLamp", "Pen", "Mug", "Cabinet", "Window"],
)
ROOMS = {9: _KITCHEN, 10: _KITCHEN, 307: _BEDROOM, 308: _BEDROOM}  # 10 and 308 are of the unseen ones


def write_package(folder: Path) -> Path:
    """The package's folder."""
    rules = resources.files("agentgym.envs.alfworld") / "rules"
    goals = {
        name: {
            "pddl": f"\n{pddl}\n)\n",
            "templates": [f"do {name}: {{obj}} {{recep}}", "{obj} with {toggle}!"],
        }
        for name, pddl in _PDDL.items()
    }
    texts: dict[str, Any] = {
        "data/alfred.pddl": (rules / "house.pddl.txt").read_text(),
        "data/alfred.twl2": (rules / "house.twl2.txt").read_text(),
        "gen/constants.py": _TABLES,
        "gen/goal_library.py": f"gdict = {goals!r}\n",
        "__init__.py": "raise AssertionError('the package is never imported')\n",
    }
    for number, (poses, kinds) in ROOMS.items():
        texts[f"gen/layouts/FloorPlan{number}-openable.json"] = json.dumps(poses)
        texts[f"gen/layouts/FloorPlan{number}-objects.json"] = json.dumps(kinds)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for number in ROOMS:
        floor = np.array([[x / 4, z / 4] for x in range(-4, 5) for z in range(-4, 5)])
        np.save(folder / f"gen/layouts/FloorPlan{number}-layout.npy", floor)
    return folder
