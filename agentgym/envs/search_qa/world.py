"""Invented worlds: things with names, aliases and facts, all from a seed.

Whatever is true of a thing and was written down stands in the one document about it. What was never written down is
in no document at all: questions for it have no answer.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from agentgym.envs.search_qa.vocabulary import LITERALS, PEOPLE, Relation, vocabulary
from agentgym.errors import UsageError, whole_number

VERSION = 1  # raise it whenever other worlds come of the same options

SPLITS = ("train", "dev", "test")
MOST_HOPS = 4
_FEWEST_DOCUMENTS, _MOST_DOCUMENTS = 40, 20_000  # the largest world takes 20 s
_UNWRITTEN = 0.08  # share of facts that no document states
_BY_ALIAS = 0.5  # how often a thing with an alias is called by it
_EARLIEST, _DAYS = date(1700, 1, 1), 180 * 365  # of birth
_WORK_AGES = (22, 60)
_GROUP_SIZES = (2, 3, 3, 4)


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """What makes worlds larger and questions harder.

    Attributes:
        hops: how many documents a question may need, each from 1 to 4.
        documents: how many a world has.
        distractors: share of documents about a thing whose name is nearly that of another.
        aliases: share of things with a second name that other documents and questions may use.
        unanswerable: share of questions to which no document has the answer.
        seed: other worlds.
    """

    hops: tuple[int, ...] = (1, 2, 3, 4)
    documents: int = 120
    distractors: float = 0.25
    aliases: float = 0.3
    unanswerable: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.hops, int) or not self.hops:
            raise UsageError(f"expected hops as a list such as [2, 3], got {self.hops!r}")
        for hops in self.hops:
            if whole_number("hops", hops, least=1) > MOST_HOPS:
                raise UsageError(f"expected hops from 1 to {MOST_HOPS}, got {hops}")
        object.__setattr__(self, "hops", tuple(self.hops))
        if whole_number("documents", self.documents, least=_FEWEST_DOCUMENTS) > _MOST_DOCUMENTS:
            raise UsageError(f"expected documents <= {_MOST_DOCUMENTS}, got {self.documents}")
        whole_number("world_seed", self.seed, least=0)
        for name, most in (("distractors", 0.5), ("aliases", 1.0), ("unanswerable", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise UsageError(f"expected {name} to be a share from 0 to {most}, got {value!r}")
            object.__setattr__(self, name, abs(float(value)))  # 1, 1.0 and -0.0: equal options, equal worlds


@dataclass(slots=True)
class Thing:
    """One thing of a world.

    Attributes:
        kind: key of the vocabulary's kinds.
        name: unique in the world; the title of its document.
        alias: second name, "" if it has none.
        facts: relation -> values as its document has them: names or aliases of other things, or literals.
    """

    kind: str
    name: str
    alias: str = ""
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict)


class World:
    """Things by name, and who is meant by an alias.

    Args:
        things: in an order that tells nothing.
    """

    def __init__(self, things: list[Thing]) -> None:
        self.things: Mapping[str, Thing] = {thing.name: thing for thing in things}
        self.aliases: Mapping[str, str] = {thing.alias: thing.name for thing in things if thing.alias}
        self.by_kind: dict[str, list[Thing]] = {}
        for thing in things:
            self.by_kind.setdefault(thing.kind, []).append(thing)

    def thing(self, mention: str) -> Thing:
        """The thing of a name or alias."""
        return self.things[self.aliases.get(mention, mention)]


def make_world(options: WorldOptions, split: str, rng: random.Random) -> World:
    """A world. No name of it is in a world of another split."""
    things = list(_named(options, split, rng))
    rng.shuffle(things)
    world = World(things)
    born = {thing.name: _EARLIEST + timedelta(rng.randrange(_DAYS)) for thing in world.by_kind["person"]}
    for thing in things:
        _fill(thing, world.by_kind, born, rng)
    return world


# -- names ---------------------------------------------------------------------------------------------------------


def _named(options: WorldOptions, split: str, rng: random.Random) -> Iterator[Thing]:
    """Things without facts: of each kind its share, then some whose names are nearly those of others."""
    names = _Names(split, rng)
    kinds = vocabulary().kinds
    twins = round(options.documents * options.distractors)
    originals = options.documents - twins
    total = sum(kind.share for kind in kinds.values())
    wanted = [name for name, kind in kinds.items() for _ in range(round(originals * kind.share / total))]
    wanted = (wanted + ["person"] * originals)[:originals]  # what rounding left over
    made = []
    for kind in wanted:
        pattern = rng.choice(kinds[kind].names)
        stem = names.stem()
        words = {"first": rng.choice(vocabulary().first_names), **names.adjective_and_thing()}
        made.append((kind, pattern, stem, words))
    made += rng.choices(made, k=twins)  # the same but for the end of a word
    for kind, pattern, stem, words in made:
        alias = kinds[kind].has_alias and rng.random() < options.aliases
        name = pattern.format(core=names.word(stem), **words)
        yield Thing(kind, name, names.alias() if alias else "")


class _Names:
    """Names that are new in their world and belong to one split."""

    def __init__(self, split: str, rng: random.Random) -> None:
        self._split = split
        self._rng = rng
        self._taken: set[str] = set()

    def stem(self) -> str:
        """How an invented word begins."""
        syllables = vocabulary().syllables
        return "".join(self._rng.choice(syllables) for _ in range(self._rng.choice((1, 2, 2)))).capitalize()

    def word(self, stem: str) -> str:
        """A new word with this beginning."""
        tries = 0
        while True:
            endings = 1 + tries // 40  # more where no word with one is left
            name = stem + "".join(self._rng.choice(vocabulary().endings) for _ in range(endings))
            if self._take(name):
                return name
            tries += 1

    def alias(self) -> str:
        """A second name."""
        tries = 0
        while True:
            more = [self._rng.choice(vocabulary().adjectives) for _ in range(tries // 40)]
            words = self.adjective_and_thing()
            name = " ".join(["the", *more, words["adjective"], words["thing"]])
            if self._take(name):
                return name
            tries += 1

    def adjective_and_thing(self) -> dict[str, str]:
        """Words that patterns of names may hold."""
        return {
            "adjective": self._rng.choice(vocabulary().adjectives),
            "thing": self._rng.choice(vocabulary().things),
        }

    def _take(self, name: str) -> bool:
        if name in self._taken or _split_of(name) != self._split:
            return False
        self._taken.add(name)
        return True


def _split_of(name: str) -> str:
    part = hashlib.sha256(name.encode()).digest()[0] % 4
    return {2: "dev", 3: "test"}.get(part, "train")


# -- facts ---------------------------------------------------------------------------------------------------------


def _fill(
    thing: Thing, by_kind: Mapping[str, list[Thing]], born: Mapping[str, date], rng: random.Random
) -> None:
    """Give a thing its facts, some of them unwritten."""
    people: dict[str, str] = {}  # relation -> name of the person it leads to
    for name, relation in vocabulary().kinds[thing.kind].relations.items():
        if relation.to == PEOPLE:
            group = rng.sample(by_kind["person"], rng.choice(_GROUP_SIZES))
            thing.facts[name] = tuple(person.name for person in group)
            continue
        if relation.to in LITERALS:
            value = _literal(thing, name, relation, people, born, rng)
        else:
            other = rng.choice([each for each in by_kind[relation.to] if each is not thing])
            people[name] = other.name
            value = other.alias if other.alias and rng.random() < _BY_ALIAS else other.name
        if rng.random() >= _UNWRITTEN:
            thing.facts[name] = (value,)


def _literal(
    thing: Thing,
    name: str,
    relation: Relation,
    people: Mapping[str, str],
    born: Mapping[str, date],
    rng: random.Random,
) -> str:
    if relation.to == "date":
        return born[thing.name].isoformat()
    if relation.to == "word":
        return rng.choice(vocabulary().words[name])
    if relation.after:
        return str(born[people[relation.after]].year + rng.randint(*_WORK_AGES))
    return str(rng.randint(relation.low, relation.high))
