"""A room drawn for a task: its furniture, where one begins, what is wanted, and which things are where."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgym.envs.alfworld.layouts import Package, Pose, Scene, kind_of
from agentgym.envs.alfworld.recipes import Recipe
from agentgym.errors import TaskError

LAMP = "DeskLamp"
_LAMP_PLACES = frozenset(("Desk", "Dresser", "SideTable", "Shelf"))  # the package's tables have no lamps
# What is worked on where, and which things can be.
_WORK = {
    "pick_clean_then_place_in_recep": ("SinkBasin", "Cleanable"),
    "pick_heat_then_place_in_recep": ("Microwave", "Heatable"),
    "pick_cool_then_place_in_recep": ("Fridge", "Coolable"),
}
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}  # their ids begin with what they are part of
_HOW_MANY = {"StoveBurner": 4}  # of what rooms list and layouts do not place; of other kinds there is one
_STEP = 0.25  # metres between places to stand
_DOWN = 30.0  # degrees that one looks down at what layouts do not place


@dataclass(frozen=True, slots=True)
class Room:
    """A room with a task.

    Attributes:
        scene: which room of the package.
        task_type: one of the six.
        thing: the kind that is wanted.
        target: the kind of furniture that it belongs in, or the lamp.
        furniture: by id, where one stands at it.
        things: by id, the furniture that each is in.
        start: where one begins.
    """

    scene: Scene
    task_type: str
    thing: str
    target: str
    furniture: Mapping[str, str]
    things: Mapping[str, str]
    start: str


def draw_room(
    package: Package, recipe: Recipe, task_type: str, numbers: Sequence[int], rng: random.Random
) -> Room:
    """Draw one of the rooms that the task can be done in, and what is in it.

    Args:
        package: where rooms come from.
        recipe: how hard it is to be.
        task_type: one of the six.
        numbers: the rooms to choose from.
        rng: all that is random.

    Raises:
        TaskError: the task can be done in none of the rooms.
    """
    for number in rng.sample(numbers, len(numbers)):
        drawing = _Drawing(package, package.scene(number), recipe, task_type)
        if drawing.pairs:
            return drawing.room(rng)
    raise TaskError(f"none of the rooms {', '.join(map(str, numbers))} has what {task_type} needs")


class _Drawing:
    """What can be drawn for a task in one room."""

    def __init__(self, package: Package, scene: Scene, recipe: Recipe, task_type: str) -> None:
        self._package, self._scene = package, scene
        self._recipe, self._task_type = recipe, task_type
        self._furniture = _furnish(package, scene)
        self._here = {kind_of(name) for name in self._furniture}
        self._tool, self._ability = _WORK.get(task_type, ("", ""))
        takers = {kind: self._takers(kind) for kind in scene.kinds}
        self._homes = {kind: homes for kind, homes in takers.items() if homes}
        self.pairs = [
            (thing, target)
            for thing in self._homes
            for target in self._targets(thing)
            if self._starts(thing, target)
        ]

    def room(self, rng: random.Random) -> Room:
        """Draw what is wanted, and where it and all other things are."""
        thing, target = rng.choice(self.pairs)
        least = 2 if self._task_type == "pick_two_obj_and_place" else 1
        most = self._recipe.copies
        wanted = [thing] * rng.randint(least, max(least, most))
        others = [
            kind for kind in self._homes if kind not in (thing, LAMP) for _ in range(rng.randint(0, most))
        ]
        if (limit := self._recipe.distractors) is not None:
            others = sorted(rng.sample(others, min(limit, len(others))))
        lamps = [LAMP] if LAMP in self._homes else []
        things: dict[str, str] = {}
        for kind in [*wanted, *others, *lamps]:
            homes = self._starts(thing, target) if kind == thing else self._homes[kind]
            home = rng.choice(self._pieces(homes, hidden=kind == thing and self._recipe.hidden))
            things[_id_beside(home, kind, things, rng)] = home
        places = {name: location(pose) for name, pose in self._furniture.items()}
        free = [at for at in _floor_places(self._scene) if at not in places.values()]
        return Room(self._scene, self._task_type, thing, target, places, things, rng.choice(free))

    def _takers(self, kind: str) -> frozenset[str]:
        """The kinds of furniture here that take a kind of thing."""
        if kind == LAMP:
            return _LAMP_PLACES & self._here
        return frozenset(place for place in self._here if kind in self._package.takes.get(place, ()))

    def _targets(self, thing: str) -> list[str]:
        """What a thing can be brought to: never where it is worked on."""
        if self._ability and thing not in self._package.abilities[self._ability]:
            return []
        if self._task_type == "look_at_obj_in_light":
            return [LAMP] if LAMP in self._homes and thing != LAMP else []
        return [] if thing == LAMP else sorted(self._homes[thing] - {self._tool})

    def _starts(self, thing: str, target: str) -> frozenset[str]:
        """Where a wanted thing can be at the start: not where it belongs, nor in the fridge if it is to be cooled."""
        return self._homes[thing] - {target} - ({self._tool} if self._tool == "Fridge" else set())

    def _pieces(self, kinds: frozenset[str], *, hidden: bool) -> list[str]:
        pieces = [name for name in self._furniture if kind_of(name) in kinds]
        closed = [name for name in pieces if is_closed(self._package, self._scene, name)] if hidden else []
        return closed or pieces


def is_closed(package: Package, scene: Scene, furniture: str) -> bool:
    """Whether a piece of furniture is closed at the start and can be opened: what the layout knows how to open."""
    return furniture in scene.furniture and kind_of(furniture) in package.openable


def location(pose: Pose) -> str:
    """The name of a place to stand at."""
    x, z, turn, tilt = pose
    return f"loc|{round(x / _STEP)}|{round(z / _STEP)}|{round(turn / 90) % 4}|{round(tilt)}"


def _furnish(package: Package, scene: Scene) -> dict[str, Pose]:
    """A room's furniture, the same in all its games; what its layout has no place for is put somewhere."""
    furniture = dict(scene.furniture)
    placed = {kind_of(name) for name in furniture}
    rng = random.Random(f"furniture of room {scene.number}")
    for kind in scene.kinds:
        if kind in placed or kind not in package.takes or kind in package.holders:
            continue
        for _ in range(_HOW_MANY.get(kind, 1)):
            x, z = rng.choice(scene.floor)
            turn = rng.randrange(4)
            ahead = (
                x + 0.6 * math.sin(turn * math.pi / 2),
                rng.uniform(0.5, 1.1),
                z + 0.6 * math.cos(turn * math.pi / 2),
            )
            name = _id(_BASINS.get(kind, kind), ahead) + (f"|{kind}" if kind in _BASINS else "")
            furniture[name] = (x, z, 90.0 * turn, _DOWN)
    return furniture


def _floor_places(scene: Scene) -> list[str]:
    return [location((x, z, 90.0 * turn, _DOWN)) for x, z in scene.floor for turn in range(4)]


def _id_beside(furniture: str, kind: str, taken: Mapping[str, str], rng: random.Random) -> str:
    """An id for a thing in a piece of furniture that no other thing has: ids say where things are."""
    x, y, z = map(float, furniture.split("|")[1:4])
    while True:
        name = _id(kind, (x + rng.uniform(-0.4, 0.4), y + rng.uniform(0, 0.3), z + rng.uniform(-0.4, 0.4)))
        if name not in taken:
            return name


def _id(kind: str, at: tuple[float, float, float]) -> str:
    return "|".join((kind, *(f"{each:+06.2f}" for each in at)))
