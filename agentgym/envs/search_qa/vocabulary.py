"""The kinds of things in invented worlds, what can be said of them, and the words for it: invented.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

LITERALS = ("date", "year", "number", "word")  # what a relation may lead to, beside a kind of thing
PEOPLE = "people"  # a list of persons


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that can be said of a thing. Templates hold {s} and {o} in prose, {x}, {a} and {b} in questions.

    Attributes:
        to: a kind, one of `LITERALS`, or `PEOPLE`.
        label: its name in a register.
        prose: sentences that state it.
        phrase: a noun phrase for the object, "" where questions don't go this way.
        reverse: a noun phrase for the subject by its object, "" where questions don't go this way.
        ask: questions for the object.
        less: a question whether a's value is less than b's.
        which: a question which of the two has the smaller date or year, or the larger number.
        years: a question for the years between two values.
        several, one: of a list, noun phrases for all of it and for one of it.
        count: a question how many of a list have an earlier date than the year o.
        low, high: bounds of a number or year.
        after: a relation to a person in whose grown-up years a year has to fall.
        units: words that may follow the number in an answer.
    """

    to: str
    label: str
    prose: tuple[str, ...]
    phrase: str = ""
    reverse: str = ""
    ask: tuple[str, ...] = ()
    less: str = ""
    which: str = ""
    years: str = ""
    several: str = ""
    one: str = ""
    count: str = ""
    low: int = 0
    high: int = 0
    after: str = ""
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing: how many of a hundred are of it, what they are called, how documents open."""

    share: int
    names: tuple[str, ...]
    has_alias: bool
    short: str
    intros: tuple[str, ...]
    relations: Mapping[str, Relation]


class Style(NamedTuple):
    """How a document opens and closes."""

    opening: list[str]
    closing: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All of invented.json."""

    syllables: list[str]
    endings: list[str]
    first_names: list[str]
    adjectives: list[str]
    things: list[str]
    words: Mapping[str, list[str]]
    fillers: list[str]
    styles: Mapping[str, Style]
    also_known: list[str]
    kinds: Mapping[str, Kind]


@functools.cache
def vocabulary() -> Vocabulary:
    """The words, read once."""
    data = json.loads(Path(__file__).with_name("invented.json").read_text(encoding="utf-8"))
    data["styles"] = {name: Style(**row) for name, row in data["styles"].items()}
    data["kinds"] = {name: _kind(row) for name, row in data["kinds"].items()}
    return Vocabulary(**data)


def _kind(row: dict[str, Any]) -> Kind:
    relations = {name: Relation(**_tuples(each)) for name, each in row.pop("relations").items()}
    return Kind(**_tuples(row), relations=relations)


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
