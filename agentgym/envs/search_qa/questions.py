"""Questions about a world, each proved to have one answer, or none, and to need a given number of documents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentgym.envs.search_qa.grading import normalise
from agentgym.envs.search_qa.reasoning import (
    Both,
    Compare,
    Count,
    Follow,
    Name,
    Node,
    Program,
    Reverse,
    answer,
    needed,
)
from agentgym.envs.search_qa.vocabulary import LITERALS, Relation, vocabulary
from agentgym.envs.search_qa.world import Thing, World
from agentgym.envs.search_qa.writing import literal
from agentgym.errors import TaskError

UNANSWERABLE = "unanswerable"
UNANSWERABLE_FORMS = (
    UNANSWERABLE, "not answerable", "cannot be answered", "no answer", "noanswer", "unknown", "not known", "not stated",
    "not enough information", "insufficient information",
)  # fmt: skip
_COUNTS = ("zero", "one", "two", "three", "four")
_BY_RELATION = 0.5  # how often a group is not called by its name
_SPARE_YEARS = 20  # around the years of birth of a group
_TRIES = 4000  # drafts for one question; a few dozen are enough, but for small worlds


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its answers.

    Attributes:
        text: what is asked.
        answers: every text that is right; the first is what gold says.
        supporting: titles of the documents it takes; empty where nobody says.
        kind: "lookup", "bridge", "comparison", "intersection", "count", "unanswerable"; "" where nobody says.
    """

    text: str
    answers: tuple[str, ...]
    supporting: tuple[str, ...] = ()
    kind: str = ""


class Draft(NamedTuple):
    """A question before it is proved: its program, its text, and what a literal answer is a value of."""

    program: Program
    text: str
    relation: Relation | None = None


class _Place(NamedTuple):
    """Where a walk from thing to thing has come: a program, a noun phrase, and the thing."""

    node: Node
    phrase: str
    thing: Thing


class Asker:
    """Drafts questions about a world and keeps those that hold.

    Args:
        world: what is asked about.
        rng: draws everything.
    """

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._things = list(world.things.values())
        self._asked: set[tuple[str, frozenset[str]]] = set()  # kinds with the documents they needed
        self._groups = [thing for thing in self._things if "members" in thing.facts]
        self._leading_to: dict[str, list[tuple[str, Thing]]] = {}  # name -> relation and subject
        for thing in self._things:
            for name, values in thing.facts.items():
                for value in values if _relation(thing, name).to not in LITERALS else ():
                    self._leading_to.setdefault(world.thing(value).name, []).append((name, thing))

    def question(self, hops: int, *, answerable: bool = True) -> tuple[Question, Program]:
        """A question that needs so many documents, and the program that it asks to carry out.

        No two of one kind need the same documents.

        Raises:
            TaskError: the world has none; it is too small.
        """
        makers = self._makers(hops) if answerable else [("unanswerable", self._missing)]
        kind, draw = self._rng.choice(makers)
        for tries in range(_TRIES):
            if tries % 200 == 199:  # this kind is rare here
                kind, draw = self._rng.choice(makers)
            draft = draw()
            question = None if draft is None else self._proved(draft, kind, hops)
            if draft is None or question is None:
                continue
            key = kind, frozenset(question.supporting)
            if key not in self._asked:
                self._asked.add(key)
                return question, draft.program
        raise TaskError(f"found no further question over {hops} documents; give worlds more documents")

    def _makers(self, hops: int) -> list[tuple[str, Callable[[], Draft | None]]]:
        if hops == 1:
            return [("lookup", self._bridge)]
        makers = [
            ("bridge", self._bridge),
            ("comparison", self._comparison),
            ("intersection", self._intersection),
        ]
        return makers if hops == 2 else [*makers, ("count", self._count)]

    def _proved(self, draft: Draft, kind: str, hops: int) -> Question | None:
        """The question, if it needs `hops` documents, has one answer (or none), and does not hold it."""
        if kind == "unanswerable":
            assert isinstance(draft.program, Follow)
            return self._without_answer(draft.program, draft.text, hops)
        found = answer(self._world, draft.program)
        if found is None:
            return None
        answers = self._answers(found, draft.program, draft.relation)
        if any(_holds(draft.text, each) for each in answers):
            return None
        supporting = needed(self._world, draft.program)
        return Question(draft.text, answers, supporting, kind) if len(supporting) == hops else None

    def _without_answer(self, program: Follow, text: str, hops: int) -> Question | None:
        """The question, if everything but its last fact is known; that one was never written down."""
        mention = answer(self._world, program.of)
        if mention is None:
            return None
        last = self._world.thing(mention)
        before = () if isinstance(program.of, Name) else needed(self._world, program.of)
        supporting = tuple(dict.fromkeys([*before, last.name]))
        if program.relation in last.facts or len(supporting) != hops:
            return None
        return Question(text, UNANSWERABLE_FORMS, supporting, "unanswerable")

    def _answers(self, found: str, program: Program, relation: Relation | None) -> tuple[str, ...]:
        if relation is not None and relation.to == "date":
            return tuple(literal(found, "date", form) for form in ("long", "american", "iso"))
        if relation is not None and relation.to == "number":
            return (found, *(f"{found} {unit}" for unit in relation.units))
        if isinstance(program, Count):
            return found, _COUNTS[int(found)]
        thing = self._world.things.get(self._world.aliases.get(found, found))
        return tuple(filter(None, (thing.name, thing.alias))) if thing is not None else (found,)

    # -- drafts --------------------------------------------------------------------------------------------------------

    def _bridge(self) -> Draft | None:
        """What a chain of relations leads to."""
        place = self._walk(self._rng.randint(0, 4))
        relations = [name for name in place.thing.facts if _relation(place.thing, name).ask]
        return self._ask(place, relations)

    def _missing(self) -> Draft | None:
        """The same, but the last fact is not written down."""
        place = self._walk(self._rng.randint(0, 3))
        kind = vocabulary().kinds[place.thing.kind]
        unwritten = [
            name for name, each in kind.relations.items() if each.ask and name not in place.thing.facts
        ]
        return self._ask(place, unwritten)

    def _ask(self, place: _Place, relations: Sequence[str]) -> Draft | None:
        if not relations:
            return None
        name = self._rng.choice(relations)
        relation = _relation(place.thing, name)
        return Draft(
            Follow(name, place.node), self._rng.choice(relation.ask).format(x=place.phrase), relation
        )

    def _comparison(self) -> Draft | None:
        """Which of two is earlier or has more, whether, or by how many years. Which: only where neither is named."""
        first, second = self._walk(self._rng.randint(0, 2)), self._walk(self._rng.randint(0, 2))
        if first.thing is second.thing or first.thing.kind != second.thing.kind:
            return None
        shared = [name for name in first.thing.facts if name in second.thing.facts]
        comparable = [name for name in shared if _relation(first.thing, name).less]
        if not comparable:
            return None
        name = self._rng.choice(comparable)
        relation = _relation(first.thing, name)
        forms = [("less", relation.less), ("years", relation.years)]
        if not isinstance(first.node, Name) and not isinstance(second.node, Name):
            forms = [("more" if relation.to == "number" else "earlier", relation.which)]
        how, template = self._rng.choice([form for form in forms if form[1]])
        program = Compare(name, first.node, second.node, how)  # type: ignore[arg-type]  # one of the four
        return Draft(program, template.format(a=first.phrase, b=second.phrase))

    def _intersection(self) -> Draft | None:
        """Who is in both of two lists."""
        groups = [thing for name, thing in self._leading_to.get(self._a_member(), []) if name == "members"]
        if len(groups) < 2:
            return None
        first, second = (self._group(group) for group in self._rng.sample(groups, 2))
        one, other = (_relation(each.thing, "members").one.format(x=each.phrase) for each in (first, second))
        program = Both(Follow("members", first.node), Follow("members", second.node))
        return Draft(program, f"Who was {one} and also {other}?")

    def _count(self) -> Draft | None:
        """How many of a group were born before a year that divides them in some way, each as likely."""
        place = self._group(self._rng.choice(self._groups))
        members = [self._world.things[name] for name in place.thing.facts["members"]]
        if any("born_on" not in member.facts for member in members):
            return None
        years = sorted(int(member.facts["born_on"][0][:4]) for member in members)
        bounds = [years[0] - _SPARE_YEARS, *years, years[-1] + _SPARE_YEARS]
        before = self._rng.randint(0, len(years))
        year = self._rng.randint(bounds[before] + 1, max(bounds[before + 1], bounds[before] + 1))
        people = _relation(place.thing, "members").several.format(x=place.phrase)
        text = _relation(members[0], "born_on").count.format(x=people, o=year)
        return Draft(Count(Follow("members", place.node), "born_on", year), text)

    # -- walking -------------------------------------------------------------------------------------------------------

    def _walk(self, steps: int) -> _Place:
        """From a named thing along so many relations, or fewer; no thing comes twice."""
        place = self._named(self._rng.choice(self._things))
        seen = {place.thing.name}
        for _ in range(steps):
            moves = [move for move in self._moves(place) if move.thing.name not in seen]
            if not moves:
                break
            place = self._rng.choice(moves)
            seen.add(place.thing.name)
        return place

    def _group(self, group: Thing) -> _Place:
        """A group by its name, or by what it alone is related to, as the expedition that a company paid for."""
        towards = [name for name in group.facts if _relation(group, name).reverse]
        if towards and self._rng.random() < _BY_RELATION:
            name = self._rng.choice(towards)
            start = self._named(self._world.thing(group.facts[name][0]))
            for move in self._moves(start):
                if move.thing is group:
                    return move
        return self._named(group)

    def _a_member(self) -> str:
        return self._rng.choice(self._rng.choice(self._groups).facts["members"])

    def _named(self, thing: Thing) -> _Place:
        mention = self._rng.choice((thing.name, thing.alias)) if thing.alias else thing.name
        return _Place(Name(mention), mention, thing)

    def _moves(self, place: _Place) -> Iterator[_Place]:
        """One relation on: to what the thing's own facts name, or to the one thing that names it."""
        for name, values in place.thing.facts.items():
            relation = _relation(place.thing, name)
            if relation.phrase:
                phrase = relation.phrase.format(x=place.phrase)
                yield _Place(Follow(name, place.node), phrase, self._world.thing(values[0]))
        leading = self._leading_to.get(place.thing.name, [])
        for name, thing in leading:
            relation = _relation(thing, name)
            alone = sum(1 for other, each in leading if other == name and each.kind == thing.kind) == 1
            if relation.reverse and alone:
                yield _Place(
                    Reverse(thing.kind, name, place.node), relation.reverse.format(x=place.phrase), thing
                )


def _relation(thing: Thing, name: str) -> Relation:
    return vocabulary().kinds[thing.kind].relations[name]


def _holds(text: str, right: str) -> bool:
    """Whether the words of an answer stand in the question, in their order."""
    return f" {normalise(right)} " in f" {normalise(text)} "
