"""Documents about the things of a world, in several styles."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import date

from agentgym.envs.search_qa.documents import Document
from agentgym.envs.search_qa.vocabulary import PEOPLE, vocabulary
from agentgym.envs.search_qa.world import Thing, World

_BY_NAME = 0.5  # how often a sentence names what it is about, after the first
_FILLER = 0.4  # chance of a sentence that says nothing, after each


def write_documents(world: World, rng: random.Random) -> list[Document]:
    """One document for each thing, stating its alias and its facts and nothing else."""
    return [Document(thing.name, _text(thing, rng)) for thing in world.things.values()]


def _text(thing: Thing, rng: random.Random) -> str:
    words = vocabulary()
    style_name = rng.choice(list(words.styles))
    style = words.styles[style_name]
    opening = rng.choice(style.opening).format(intro=_intro(thing, rng))
    if style_name == "register":
        return "\n".join([opening, *_entries(thing, rng)])
    return " ".join([opening, *_sentences(thing, rng)]) + style.closing


def _intro(thing: Thing, rng: random.Random) -> str:
    words = vocabulary()
    name = thing.name
    if thing.alias:
        name = rng.choice(words.also_known).format(name=name, alias=thing.alias)
    return rng.choice(words.kinds[thing.kind].intros).format(name=name)


def _sentences(thing: Thing, rng: random.Random) -> Iterator[str]:
    kind = vocabulary().kinds[thing.kind]
    for name, values in _shuffled(thing, rng):
        relation = kind.relations[name]
        subject = thing.name if rng.random() < _BY_NAME else kind.short
        form = rng.choice(("long", "american"))
        value = _and(values) if relation.to == PEOPLE else literal(values[0], relation.to, form)
        sentence = rng.choice(relation.prose).format(s=subject, o=value)
        yield sentence[0].upper() + sentence[1:]
        if rng.random() < _FILLER:
            yield rng.choice(vocabulary().fillers)


def _entries(thing: Thing, rng: random.Random) -> Iterator[str]:
    relations = vocabulary().kinds[thing.kind].relations
    for name, values in _shuffled(thing, rng):
        shown = ", ".join(literal(value, relations[name].to, "iso") for value in values)
        yield f"{relations[name].label}: {shown}"


def _shuffled(thing: Thing, rng: random.Random) -> list[tuple[str, tuple[str, ...]]]:
    facts = list(thing.facts.items())
    rng.shuffle(facts)
    return facts


def literal(value: str, to: str, form: str) -> str:
    """A value as a text has it: dates as "long", "american" or "iso", numbers with commas where not "iso"."""
    if to == "number":
        return value if form == "iso" else f"{int(value):,}"
    if to != "date" or form == "iso":
        return value
    day = date.fromisoformat(value)
    month = _MONTHS[day.month - 1]
    return f"{day.day} {month} {day.year}" if form == "long" else f"{month} {day.day}, {day.year}"


_MONTHS = (  # not `strftime`, which follows the locale
    "January February March April May June July August September October November December".split()
)


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]])
