"""What the alfworld package ships that games can be made of: rooms, tables of what fits where, goals, texts.

The package is read and never imported: importing it makes folders in the user's home. None of its files is written.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from agentgym.errors import MissingDependency, TaskError, UsageError

# x and z in metres, where one faces and how far one looks down in degrees
Pose: TypeAlias = tuple[float, float, float, float]

_TABLES = "gen/constants.py"
_GOALS = "gen/goal_library.py"
_DOMAIN, _GRAMMAR = "data/alfred.pddl", "data/alfred.twl2"
_LAYOUTS = "gen/layouts"


@dataclass(frozen=True, slots=True)
class Scene:
    """A room.

    Attributes:
        number: as the package numbers its floor plans.
        kinds: what there is in it, sorted.
        furniture: pieces of furniture, by id, with where one stands to use each.
        floor: where one can stand, x and z in metres.
    """

    number: int
    kinds: tuple[str, ...]
    furniture: Mapping[str, Pose]
    floor: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a type of task asks for.

    Attributes:
        rooms: the kinds of room that it can be done in, sorted.
        pddl: the goal, with ``{obj}``, ``{recep}`` and ``{toggle}`` to fill in.
        sentences: ways to say it, with the same to fill in.
    """

    rooms: tuple[str, ...]
    pddl: str
    sentences: tuple[str, ...]


class Package:
    """The files of an alfworld package.

    Args:
        folder: the package: the folder that holds ``gen`` and ``data``.

    Attributes:
        domain: the rules of all games, in PDDL.
        grammar: their phrases, with ``UNKNOWN GOAL`` for the goal.
        takes: kind of furniture -> the kinds of thing that can be put there.
        abilities: "Cleanable", "Heatable", .. -> the kinds of thing that are.
        openable: the kinds of furniture that can be opened.
        holders: the kinds of thing that others can be put into.
        rooms: kind of room -> the numbers of its scenes.
        goals: task type -> its goal.

    Raises:
        TaskError: something is missing there, or is not as in alfworld 0.4.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.domain, self.grammar = self._text(_DOMAIN), self._text(_GRAMMAR)
        tables, library = self._run(_TABLES), self._run(_GOALS)
        try:
            self.takes = {kind: frozenset(each) for kind, each in tables["VAL_RECEPTACLE_OBJECTS"].items()}
            self.abilities = {name: frozenset(each) for name, each in tables["VAL_ACTION_OBJECTS"].items()}
            self.holders = frozenset(tables["MOVABLE_RECEPTACLES"])
            self.openable = frozenset(tables["OPENABLE_CLASS_LIST"])
            self.rooms = {kind: tuple(numbers) for kind, numbers in tables["SCENE_TYPE"].items()}
            self.goals = {
                name: Goal(tuple(sorted(rooms)), goal["pddl"], tuple(goal["templates"]))
                for name, rooms in tables["GOALS_VALID"].items()
                if (goal := library["gdict"].get(name))
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise TaskError(f"expected the tables of alfworld 0.4 in {folder}, {error!r} came") from None

    @functools.cached_property
    def digest(self) -> str:
        """Changes when one of the files does that all games depend on."""
        files = [self.folder / name for name in (_DOMAIN, _GRAMMAR, _TABLES, _GOALS)]
        return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]

    def scene(self, number: int) -> Scene:
        """A room of the package.

        Raises:
            TaskError: it has no such room, or its files are not as expected.
        """
        plan = self.folder / _LAYOUTS / f"FloorPlan{number}"
        try:
            kinds = json.loads(Path(f"{plan}-objects.json").read_text(encoding="utf-8"))
            poses = json.loads(Path(f"{plan}-openable.json").read_text(encoding="utf-8"))
            spots = np.load(f"{plan}-layout.npy", allow_pickle=False)
            furniture = {str(name): _pose(pose) for name, pose in sorted(poses.items())}
            floor = tuple((float(x), float(z)) for x, z in spots.tolist())
            return Scene(number, tuple(sorted(map(str, kinds))), furniture, floor)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise TaskError(f"cannot read the layout of room {number} at {plan}-*: {error}") from None

    def _text(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except OSError:
            raise TaskError(f"expected the alfworld package in {self.folder}, which has no {name}") from None

    def _run(self, name: str) -> dict[str, Any]:
        """The names that a module of tables defines. It is run by itself: the package around it is not imported."""
        self._text(name)  # says so where it is missing
        return runpy.run_path(str(self.folder / name))


def _pose(values: Any) -> Pose:
    x, z, turn, tilt = map(float, values)
    return x, z, turn, tilt


def kind_of(furniture: str) -> str:
    """The kind of a piece of furniture by its id: ``Desk|x|y|z``, or ``Sink|x|y|z|SinkBasin``."""
    return furniture.split("|")[4 if furniture.count("|") == 4 else 0]


def find_package(folder: str | Path | None = None) -> Package:
    """The alfworld package.

    Args:
        folder: where it is, for example in an unpacked wheel; by default the one that is installed.

    Raises:
        MissingDependency: none is given and none is installed.
        TaskError: see `Package`.
    """
    if folder is None:
        spec = importlib.util.find_spec("alfworld")
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependency(
                "making games needs the files of alfworld: pip install 'agentgym-suite[alfworld]',"
                " or give the folder of an unpacked one"
            )
        folder = spec.submodule_search_locations[0]
    if not isinstance(folder, str | Path) or "\0" in str(folder):
        raise UsageError(f"expected package to be a folder, got {folder!r:.60}")
    return _open(Path(folder).resolve())


_open = functools.lru_cache(4)(Package)
