"""What a household game asks for, read off its goal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from agentgym.envs.alfworld.pddl import And, Atom, Exists, Formula

# What can be asked of a thing -> the action that brings it about, and the kind of furniture that it takes.
WORK = {
    "isclean": ("cleanobject", "sinkbasintype"),
    "ishot": ("heatobject", "microwavetype"),
    "iscool": ("coolobject", "fridgetype"),
}


@dataclass(frozen=True, slots=True)
class Errand:
    """What is to be done with which things. Kinds are written as in the games' facts: ``mugtype``.

    Attributes:
        thing: the kind of thing that it is about.
        count: how many of them, all in one place.
        work: what has to be true of them, a key of `WORK`; empty if nothing.
        place: the kind of furniture that they belong in; empty where one of them has to be held under a lamp.
        lamp: the kind of that lamp, which has to be on; empty where they belong in a place.
    """

    thing: str
    count: int
    work: str
    place: str
    lamp: str


def read_errand(goal: Formula) -> Errand | None:
    """The errand that a goal describes; None where it has not the form of ALFWorld's six task types."""
    said: defaultdict[str, set[str]] = defaultdict(set)  # variable -> what is asked of it
    kinds: dict[str, str] = {}
    for atom in _atoms(goal):
        match atom:
            case Atom("objecttype" | "receptacletype", (name, kind)):
                kinds[name] = kind
            case Atom("holds", (_, name)) | Atom(_, (name, *_)):
                said[name].add(atom.predicate)
    lamps = {kinds[name] for name in kinds if "istoggled" in said[name]}
    things = [
        name for name in kinds if said[name] & {"holds", "inreceptacle"} and "istoggled" not in said[name]
    ]
    places = {kind for name, kind in kinds.items() if name not in things} - lamps
    works = {tuple(sorted(said[name] & WORK.keys())) for name in things}
    if len({kinds[name] for name in things}) != 1 or len(works) != 1 or len(lamps | places) != 1:
        return None
    work = works.pop()
    if len(work) > 1:
        return None
    return Errand(kinds[things[0]], len(things), "".join(work), "".join(places), "".join(lamps))


def _atoms(formula: Formula) -> Iterator[Atom]:
    """What a goal asks for in any case."""
    match formula:
        case Atom():
            yield formula
        case And(parts):
            for part in parts:
                yield from _atoms(part)
        case Exists(_, part):
            yield from _atoms(part)
