"""A drawn room as the texts of a game."""

from __future__ import annotations

import random
from collections.abc import Iterator

from agentgym.envs.alfworld.layouts import Package, kind_of
from agentgym.envs.alfworld.rooms import LAMP, Room, is_closed

# How the package's games write what PDDL names may not hold; "#" stands for the dash before a type.
_ESCAPES = str.maketrans({"|": "_bar_", "+": "_plus_", "-": "_minus_", ".": "_dot_", "#": "-"})
_ABILITIES = ("Cleanable", "Heatable", "Coolable", "Sliceable")


def sentence(package: Package, room: Room, rng: random.Random) -> str:
    """What is to be done, in one of the package's ways to say it."""
    words = {"obj": room.thing.lower(), "recep": room.target.lower(), "toggle": room.target.lower()}
    return rng.choice(package.goals[room.task_type].sentences).format(**words)


def problem(package: Package, room: Room, name: str) -> str:
    """The game in PDDL, in the form of the official ones."""
    goal = package.goals[room.task_type].pddl.format(obj=room.thing, recep=room.target, toggle=room.target)
    lines = [f"(define (problem {name})", "(:domain alfred)", "(:objects"]
    lines += [f"    {each}" for each in _objects(room)]
    lines += [")", "(:init"]
    lines += [f"    ({each})" for each in _facts(package, room)]
    # The goal closes the bracket of the problem, too.
    return "\n" + "\n".join([*lines, ")", goal.strip("\n"), ""]).translate(_ESCAPES)


def _objects(room: Room) -> Iterator[str]:
    yield "agent1 # agent"
    yield from (f"{kind}Type # otype" for kind in _kinds_of_things(room))
    yield from (f"{kind}Type # rtype" for kind in _kinds_of_furniture(room))
    yield from (f"{name} # object" for name in sorted(room.things))
    yield from (f"{name} # receptacle" for name in sorted(room.furniture))
    yield from (f"{place} # location" for place in sorted({room.start, *room.furniture.values()}))


def _facts(package: Package, room: Room) -> Iterator[str]:
    yield f"atLocation agent1 {room.start}"
    for name, place in sorted(room.furniture.items()):
        yield f"receptacleType {name} {kind_of(name)}Type"
        yield f"receptacleAtLocation {name} {place}"
        if is_closed(package, room.scene, name):
            yield f"openable {name}"
    things = _kinds_of_things(room)
    for place in _kinds_of_furniture(room):
        yield from (f"canContain {place}Type {kind}Type" for kind in things if kind in package.takes[place])
    for name, home in sorted(room.things.items()):
        kind = kind_of(name)
        yield f"objectType {name} {kind}Type"
        yield f"inReceptacle {name} {home}"
        yield f"objectAtLocation {name} {room.furniture[home]}"
        yield f"{'toggleable' if kind == LAMP else 'pickupable'} {name}"
        yield from (f"{each.lower()} {name}" for each in _ABILITIES if kind in package.abilities[each])
        if kind in package.holders:
            yield f"isReceptacleObject {name}"
        if kind == room.thing and kind_of(home) == "Fridge":
            yield f"isCool {name}"


def _kinds_of_things(room: Room) -> list[str]:
    return sorted({kind_of(name) for name in room.things})


def _kinds_of_furniture(room: Room) -> list[str]:
    return sorted({kind_of(name) for name in room.furniture})
