"""The text grammar of a game (``.twl2``): templates with queries, evaluated as TextWorld does.

A document holds rules (as JSON) and, for each action, the template of its command and of its answer.
In a template stand ``#rule#``, ``{expression}``, ``{expression | query}`` and ``[{expression | query}]``; the last is a
list in words. A query is a conjunction of facts; placeholders that the action or an outer query has filled are kept.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from agentgym.envs.alfworld.pddl import Row
from agentgym.envs.alfworld.relations import State
from agentgym.errors import TaskError

Place: TypeAlias = tuple[str, str]  # a placeholder: its name and its type
Filled: TypeAlias = Mapping[Place, str]
IsKind: TypeAlias = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Scene:
    """What templates are evaluated in.

    Attributes:
        state: what is true.
        names: object -> how it is called.
        is_kind: whether an object is of a type.
    """

    state: State
    names: Mapping[str, str]
    is_kind: IsKind


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunction of facts: predicate and placeholders."""

    facts: tuple[tuple[str, tuple[Place, ...]], ...]

    def fillings(self, scene: Scene, filled: Filled) -> Iterator[dict[Place, str]]:
        """Every way to fill the placeholders, in the order of the facts; two never get the same object."""
        yield from self._from(0, scene, dict(filled))

    def _from(self, depth: int, scene: Scene, filled: dict[Place, str]) -> Iterator[dict[Place, str]]:
        if depth == len(self.facts):
            yield filled
            return
        predicate, places = self.facts[depth]
        known = tuple(i for i, place in enumerate(places) if place in filled)
        values = tuple(filled[places[i]] for i in known)
        groups = scene.state[predicate].by(known)
        for row in groups.get(values[0] if len(values) == 1 else values, ()):
            more = dict(filled)
            if _fill(more, places, row, scene.is_kind):
                yield from self._from(depth + 1, scene, more)


def _fill(filled: dict[Place, str], places: tuple[Place, ...], row: Row, is_kind: IsKind) -> bool:
    """Put a row into the placeholders; False if that is not possible."""
    if len(row) != len(places):
        return False
    for place, name in zip(places, row, strict=True):
        if place in filled:
            if filled[place] != name:
                return False
        elif name in filled.values() or not is_kind(name, place[1]):
            return False
        else:
            filled[place] = name
    return True


@dataclass(frozen=True, slots=True)
class Text:
    """Words as they stand."""

    words: str


@dataclass(frozen=True, slots=True)
class Call:
    """The text of a rule."""

    rule: str


@dataclass(frozen=True, slots=True)
class Value:
    """An expression over the placeholders' names."""

    tree: ast.expr


@dataclass(frozen=True, slots=True)
class Each:
    """A part for every answer of a query, one after the other, or as a list in words."""

    part: Call | Value
    query: Query | None
    as_list: bool


Part: TypeAlias = Text | Call | Value | Each
Template: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to write a rule, if its condition has an answer."""

    template: Template
    condition: Query | None


@dataclass(frozen=True, slots=True)
class Phrases:
    """How one action is written: its command and its answer."""

    command: Template
    answer: Template


@dataclass(frozen=True, slots=True)
class Grammar:
    """A whole document.

    Attributes:
        rules: name -> the ways to write it, of which the first that fits counts.
        actions: action, in lower case -> its phrases.
    """

    rules: Mapping[str, tuple[Choice, ...]] = field(repr=False)
    actions: Mapping[str, Phrases] = field(repr=False)

    def write(self, template: Template, scene: Scene, filled: Filled) -> str:
        """The text of a template.

        Raises:
            TaskError: a rule is unknown, or none of its ways fits.
        """
        return "".join([self._part(part, scene, filled) for part in template])

    def predicates(self, template: Template) -> frozenset[str]:
        """Every predicate that the text of a template may depend on, directly or by a rule."""
        found: set[str] = set()
        self._collect(template, found, set())
        return frozenset(found)

    def _part(self, part: Part, scene: Scene, filled: Filled) -> str:
        match part:
            case Text(words):
                return words
            case Call(rule):
                return self.write(self._choose(rule, scene, filled), scene, filled)
            case Value(tree):
                return _evaluate(tree, filled, scene.names)
            case Each(inner, query, as_list):
                answers = [filled] if query is None else query.fillings(scene, filled)
                texts = [self._part(inner, scene, answer) for answer in answers]
                return self._in_words(texts, scene, filled) if as_list else "".join(texts)

    def _in_words(self, texts: list[str], scene: Scene, filled: Filled) -> str:
        def word(rule: str) -> str:
            return self._part(Call(rule), scene, filled)

        if not texts:
            return word("list_empty")
        if len(texts) == 1:
            return texts[0]
        return word("list_separator").join(texts[:-1]) + word("list_last_separator") + texts[-1]

    def _choose(self, rule: str, scene: Scene, filled: Filled) -> Template:
        if rule not in self.rules:
            raise TaskError(f"the game's grammar has no rule {rule!r}")
        for choice in self.rules[rule]:
            if choice.condition is None or any(True for _ in choice.condition.fillings(scene, filled)):
                return choice.template
        raise TaskError(f"no way to write the grammar's rule {rule!r} fits")

    def _collect(self, template: Template, found: set[str], seen: set[str]) -> None:
        for part in template:
            if isinstance(part, Each):
                found.update(_asked(part.query))
                part = part.part
            if isinstance(part, Call) and part.rule not in seen:
                seen.add(part.rule)
                for choice in self.rules.get(part.rule, ()):
                    found.update(_asked(choice.condition))
                    self._collect(choice.template, found, seen)


def _asked(query: Query | None) -> set[str]:
    return set() if query is None else {predicate for predicate, _ in query.facts}


def _evaluate(tree: ast.expr, filled: Filled, names: Mapping[str, str]) -> str:
    """An expression: a placeholder, its `name`, `id`, `definite` or `indefinite`, texts, ``+`` and ``or``."""
    match tree:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return names[_object(name, filled)]
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            match attribute:
                case "name":
                    return names[_object(name, filled)]
                case "id":
                    return _object(name, filled)
                case "definite" | "indefinite":
                    return "the" if attribute == "definite" else "a"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluate(left, filled, names) + _evaluate(right, filled, names)
        case ast.BoolOp(op=ast.Or(), values=values):
            texts = [_evaluate(value, filled, names) for value in values]
            return next(filter(None, texts), "")
    raise TaskError(f"the grammar's expression {ast.unparse(tree)!r} is not supported")


def _object(name: str, filled: Filled) -> str:
    """What was filled last under that name, whatever its type."""
    values = [value for (placeholder, _), value in filled.items() if placeholder == name]
    if not values:
        raise TaskError(f"nothing is known of {name!r} where the game's grammar asks for it")
    return values[-1]
