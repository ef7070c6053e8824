"""Questions as programs over what documents state, and which documents they need.

A program is evaluated on the documents that may be read. Names mean things only as far as documents say so: an alias
is understood where the document that gives it can be read. So the documents a question needs are found by taking each
away, with nothing assumed about how the question was made.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentgym.envs.search_qa.world import World


@dataclass(frozen=True, slots=True)
class Name:
    """A thing by a name that stands in the question."""

    mention: str


@dataclass(frozen=True, slots=True)
class Follow:
    """What a relation leads to."""

    relation: str
    of: Node


@dataclass(frozen=True, slots=True)
class Reverse:
    """The things of a kind whose relation leads here."""

    kind: str
    relation: str
    of: Node


Node: TypeAlias = Name | Follow | Reverse


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values of one relation.

    Attributes:
        how: "less" asks yes or no, "years" for the difference, "earlier" or "more" for one of the two things.
    """

    relation: str
    first: Node
    second: Node
    how: Literal["less", "years", "earlier", "more"]


@dataclass(frozen=True, slots=True)
class Both:
    """Who is in both of two lists."""

    first: Follow
    second: Follow


@dataclass(frozen=True, slots=True)
class Count:
    """How many of a list have a date before a year."""

    of: Follow
    relation: str
    year: int


Program: TypeAlias = Node | Compare | Both | Count


class Reader:
    """Evaluates programs on some of a world's documents.

    Args:
        world: what the documents state.
        readable: titles of the documents that may be read.

    Attributes:
        read: titles of the documents that took part, in order.
    """

    def __init__(self, world: World, readable: Collection[str]) -> None:
        self._world = world
        self._readable = readable
        self.read: dict[str, None] = {}

    def answers(self, program: Program) -> frozenset[str]:
        """Everything that answers the program; empty where something is missing."""
        match program:
            case Name(mention):
                return frozenset({mention})
            case Follow(relation, of):
                return frozenset(
                    value for each in sorted(self.answers(of)) for value in self._values(each, relation)
                )
            case Reverse(kind, relation, of):
                return frozenset(
                    name for each in sorted(self.answers(of)) for name in self._subjects(kind, relation, each)
                )
            case Compare():
                return self._compared(program)
            case Both(first, second):
                others = {self._resolved(each) for each in sorted(self.answers(second))}
                return frozenset(
                    each for each in sorted(self.answers(first)) if self._resolved(each) in others
                )
            case Count():
                return self._counted(program)

    def _compared(self, program: Compare) -> frozenset[str]:
        sides = []
        for node in (program.first, program.second):
            things = self.answers(node)
            values = [value for each in things for value in self._values(each, program.relation)]
            if len(things) != 1 or len(values) != 1:
                return frozenset()
            sides.append((values[0], *things))
        (a, first), (b, second) = sides
        if a == b:
            return frozenset()
        if program.how == "years":
            return frozenset({str(abs(int(a) - int(b)))})
        less = _parts(a) < _parts(b)
        if program.how == "less":
            return frozenset({"yes" if less else "no"})
        return frozenset({first if less == (program.how == "earlier") else second})

    def _counted(self, program: Count) -> frozenset[str]:
        members = self.answers(program.of)
        values = [self._values(each, program.relation) for each in sorted(members)]
        if not members or not all(values):
            return frozenset()
        return frozenset({str(sum(_parts(value)[0] < program.year for (value,) in values))})

    # -- what documents state ------------------------------------------------------------------------------------------

    def _resolved(self, mention: str) -> str:
        name = self._world.aliases.get(mention)
        return name if name is not None and self._may_read(name) else mention

    def _values(self, mention: str, relation: str) -> tuple[str, ...]:
        name = self._resolved(mention)
        thing = self._world.things.get(name)
        return thing.facts.get(relation, ()) if thing is not None and self._may_read(name) else ()

    def _subjects(self, kind: str, relation: str, mention: str) -> list[str]:
        wanted = self._resolved(mention)
        found = []
        for thing in self._world.by_kind.get(kind, ()):
            if thing.name in self._readable:
                (value,) = thing.facts.get(relation) or ("",)
                if value and self._resolved(value) == wanted:
                    self._may_read(thing.name)
                    found.append(thing.name)
        return found

    def _may_read(self, name: str) -> bool:
        if name not in self._readable:
            return False
        self.read[name] = None
        return True


def _parts(value: str) -> tuple[int, ...]:
    """A number or an ISO date as something that can be ordered."""
    return tuple(map(int, value.split("-")))


def answer(world: World, program: Program) -> str | None:
    """The one answer, as a document or the arithmetic gives it; None where there is none or more than one."""
    found = Reader(world, world.things).answers(program)
    return next(iter(found)) if len(found) == 1 else None


def needed(world: World, program: Program) -> tuple[str, ...]:
    """The titles of the documents without any of which the answer is another or none, in the order of reading.

    Empty where these alone do not give the answer: then there is more than one way to it.
    """
    reader = Reader(world, world.things)
    answers = reader.answers(program)
    everything = frozenset(world.things)
    titles = tuple(
        title for title in reader.read if Reader(world, everything - {title}).answers(program) != answers
    )
    return titles if Reader(world, frozenset(titles)).answers(program) == answers else ()
