"""Invented houses, so that ALFWorld's tasks can be played where its data is not: deterministic, made in milliseconds.

A layout fixes the furniture of a room; a number fixes the task and where its things are.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from agentgym.envs.alfworld.files import SPLITS, TASK_TYPES, GameFile
from agentgym.envs.alfworld.house_things import LAMP, LAMP_PLACES, OPENABLE, ROOMS, THINGS
from agentgym.envs.alfworld.names import number_names
from agentgym.errors import TaskError
from agentgym.tasks import Task, TaskSet

# Task type -> what is done with the thing, and where it can be done.
_WORK = {
    "pick_clean_then_place_in_recep": ("clean", "sinkbasin"),
    "pick_heat_then_place_in_recep": ("heat", "microwave"),
    "pick_cool_then_place_in_recep": ("cool", "fridge"),
}
_ROOMS = {
    "look_at_obj_in_light": ("bedroom", "livingroom"),
    "pick_clean_then_place_in_recep": ("kitchen", "bathroom"),
    "pick_heat_then_place_in_recep": ("kitchen",),
    "pick_cool_then_place_in_recep": ("kitchen",),
}
_SENTENCES = {
    "pick_and_place_simple": ("put a {thing} in {place}", "put some {thing} on {place}"),
    "look_at_obj_in_light": ("look at {thing} under the desklamp", "examine the {thing} with the desklamp"),
    "pick_clean_then_place_in_recep": (
        "put a clean {thing} in {place}",
        "clean some {thing} and put it in {place}",
    ),
    "pick_heat_then_place_in_recep": (
        "put a hot {thing} in {place}",
        "heat some {thing} and put it in {place}",
    ),
    "pick_cool_then_place_in_recep": (
        "put a cool {thing} in {place}",
        "cool some {thing} and put it in {place}",
    ),
    "pick_two_obj_and_place": ("put two {thing} in {place}", "find two {thing} and put them in {place}"),
}
_STATES = {"clean": "isClean", "heat": "isHot", "cool": "isCool"}
_ABILITIES = {
    "clean": "cleanable",
    "heat": "heatable",
    "cool": "coolable",
    "slice": "sliceable",
    "cut": "sharp",
}


@dataclass(frozen=True, slots=True)
class House:
    """One invented game.

    Attributes:
        layout: which furniture; games of one layout and task type share it.
        number: which task, and where the things are.
        task_type: one of the six.
    """

    layout: int
    number: int
    task_type: str

    def game(self) -> GameFile:
        """The texts of the game, with a way to win it.

        Raises:
            TaskError: there is no such task type.
        """
        if self.task_type not in TASK_TYPES:
            raise TaskError(f"expected a task type among {', '.join(TASK_TYPES)}, got {self.task_type!r}")
        room = _Room(self)
        grammar = _rules("house.twl2").replace("UNKNOWN GOAL", room.sentence())
        return GameFile(_rules("house.pddl"), grammar, room.problem(), True, room.plan())


@functools.cache
def houses() -> TaskSet:
    """The packaged tasks: the training layouts again for in-distribution evaluation, others for out-of-distribution."""
    sizes = {"train": (range(20), 0), "valid_seen": (range(5), 1000), "valid_unseen": (range(100, 105), 2000)}
    return TaskSet(
        [
            Task(
                f"house/{folder}/{task_type}-{layout:03}",
                split=SPLITS[folder],
                data={
                    "house": {"layout": layout, "number": start + layout, "task_type": task_type},
                    "task_type": task_type,
                },
            )
            for folder, (layouts, start) in sizes.items()
            for task_type in TASK_TYPES
            for layout in layouts
        ],
        name="invented houses",
    )


class _Room:
    """A room with its furniture, its things and its task."""

    def __init__(self, house: House) -> None:
        self._task_type = house.task_type
        layout = random.Random(f"layout {house.layout} {house.task_type}")
        furniture = ROOMS[layout.choice(_ROOMS.get(house.task_type, tuple(ROOMS)))]
        self._furniture = {
            _id(kind, number): kind
            for kind, (least, most) in furniture.items()
            for number in range(layout.randint(least, most))
        }
        rng = random.Random(f"house {house.layout} {house.number} {house.task_type}")
        self._use, self._work_place = _WORK.get(house.task_type, ("", ""))
        self._thing, self._place = rng.choice(self._pairs())
        self._words = rng.choice(_SENTENCES[house.task_type])
        self._kinds: dict[str, str] = {}  # thing -> its kind
        self._where: dict[str, str] = {}  # thing -> where it is at the start
        self._put_things(rng)
        self._names = number_names([*self._furniture, *self._where])

    def sentence(self) -> str:
        """What is to be done."""
        return self._words.format(thing=self._thing, place=self._place)

    def plan(self) -> tuple[str, ...]:
        """Commands that win: fetch, work on it, bring it."""
        walk = _Walk(self._names, self._furniture)
        count = 2 if self._task_type == "pick_two_obj_and_place" else 1
        for thing in [name for name, kind in self._kinds.items() if kind == self._thing][:count]:
            source, name = self._where[thing], self._names[thing]
            walk.go(source, reach_in=True)
            walk.commands.append(f"take {name} from {self._names[source]}")
            if self._task_type == "look_at_obj_in_light":
                lamp = self._first(self._kinds, LAMP)
                walk.go(self._where[lamp], reach_in=False)
                walk.commands.append(f"use {self._names[lamp]}")
                break
            if self._use:
                tool = self._first(self._furniture, self._work_place)
                walk.go(tool, reach_in=False)
                walk.commands.append(f"{self._use} {name} with {self._names[tool]}")
            goal = self._first(self._furniture, self._place)
            walk.go(goal, reach_in=True)
            walk.commands.append(f"move {name} to {self._names[goal]}")
        return tuple(walk.commands)

    def problem(self) -> str:
        """The game in PDDL."""
        facts = [f"(receptacleType {name} {kind}Type)" for name, kind in self._furniture.items()]
        facts += [f"(receptacleAtLocation {name} {_at(name)})" for name in self._furniture]
        facts += [f"(openable {name})" for name, kind in self._furniture.items() if kind in OPENABLE]
        facts.append("(atLocation agent1 loc_bar_start)")
        kinds = sorted(set(self._kinds.values()))
        for kind in kinds:
            facts += [f"(canContain {place}Type {kind}Type)" for place in sorted(_places(kind))]
        for name, kind in self._kinds.items():
            facts += [f"(objectType {name} {kind}Type)", f"(inReceptacle {name} {self._where[name]})"]
            facts.append(f"({'toggleable' if kind == LAMP else 'pickupable'} {name})")
            facts += [f"({_ABILITIES[use]} {name})" for use in sorted(_uses(kind))]
        objects = {
            "agent": ["agent1"],
            "location": ["loc_bar_start", *map(_at, self._furniture)],
            "receptacle": list(self._furniture),
            "object": list(self._kinds),
            "otype": [f"{kind}Type" for kind in kinds],
            "rtype": [f"{kind}Type" for kind in sorted({*self._furniture.values(), *_ALL_PLACES})],
        }
        typed = "\n    ".join(f"{' '.join(names)} - {kind}" for kind, names in objects.items())
        return (
            f"(define (problem room) (:domain house)\n  (:objects\n    {typed})\n"
            f"  (:init\n    {' '.join(facts)})\n  (:goal {self._goal()}))\n"
        )

    def _goal(self) -> str:
        if self._task_type == "look_at_obj_in_light":
            return (
                f"(exists (?a - agent ?l - location ?r - receptacle ?lamp - object ?o - object) (and (holds ?a ?o)"
                f" (objectType ?o {self._thing}Type) (objectType ?lamp {LAMP}Type) (isToggled ?lamp)"
                " (inReceptacle ?lamp ?r) (receptacleAtLocation ?r ?l) (atLocation ?a ?l)))"
            )
        names = ("?o", "?other") if self._task_type == "pick_two_obj_and_place" else ("?o",)
        parts = [f"(receptacleType ?r {self._place}Type)"]
        for name in names:
            parts += [f"(objectType {name} {self._thing}Type)", f"(inReceptacle {name} ?r)"]
            parts += [f"({_STATES[self._use]} {name})"] if self._use else []
        parts += ["(not (= ?o ?other))"] if len(names) == 2 else []
        return f"(exists (?r - receptacle {' '.join(names)} - object) (and {' '.join(parts)}))"

    def _pairs(self) -> list[tuple[str, str]]:
        """Every kind of thing and furniture that the task can be about; the thing must also fit elsewhere."""
        here = sorted(set(self._furniture.values()))
        return [
            (kind, place)
            for kind, thing in THINGS.items()
            if not self._use or self._use in thing.uses
            for place in here
            if place in thing.places
            and place != self._work_place
            and len(thing.places.intersection(here)) > 1
        ]

    def _put_things(self, rng: random.Random) -> None:
        """The task's things away from where they belong, a lamp, and things that are in nobody's way."""
        here = sorted(self._furniture)
        counts = {kind: rng.randint(0, 2) for kind in THINGS}
        counts[self._thing] = rng.randint(2 if self._task_type == "pick_two_obj_and_place" else 1, 3)
        counts[LAMP] = int(self._task_type == "look_at_obj_in_light")
        for kind, count in counts.items():
            places = [name for name in here if self._furniture[name] in _places(kind)]
            if kind == self._thing and self._task_type != "look_at_obj_in_light":
                places = [name for name in places if self._furniture[name] != self._place]
            for number in range(count if places else 0):
                name = _id(kind, number)
                self._kinds[name], self._where[name] = kind, rng.choice(places)

    @staticmethod
    def _first(kinds: Mapping[str, str], wanted: str) -> str:
        return next(name for name, kind in kinds.items() if kind == wanted)


class _Walk:
    """The commands that lead from one piece of furniture to the next."""

    def __init__(self, names: Mapping[str, str], furniture: Mapping[str, str]) -> None:
        self.commands: list[str] = []
        self._names, self._furniture = names, furniture
        self._here = ""
        self._opened: set[str] = set()

    def go(self, place: str, *, reach_in: bool) -> None:
        """Go there, and open it if something is to be taken out or put in."""
        if place != self._here:
            self.commands.append(f"go to {self._names[place]}")
            self._here = place
        if reach_in and self._furniture[place] in OPENABLE and place not in self._opened:
            self.commands.append(f"open {self._names[place]}")
            self._opened.add(place)


_ALL_PLACES = frozenset(LAMP_PLACES).union(*(thing.places for thing in THINGS.values()))


def _places(kind: str) -> frozenset[str]:
    return frozenset(LAMP_PLACES) if kind == LAMP else THINGS[kind].places


def _uses(kind: str) -> frozenset[str]:
    return frozenset() if kind == LAMP else THINGS[kind].uses


def _id(kind: str, number: int) -> str:
    # Engines call what has "basin" in its id so: the kind must not say it, too.
    return f"sink_bar_{number:02}_bar_basin" if kind == "sinkbasin" else f"{kind}_bar_{number:02}"


def _at(furniture: str) -> str:
    return f"loc_bar_{furniture}"


@functools.cache
def _rules(name: str) -> str:
    return (resources.files(__package__) / "rules" / f"{name}.txt").read_text(encoding="utf-8")
