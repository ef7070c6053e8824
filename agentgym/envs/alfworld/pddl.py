"""PDDL texts to domains and problems: the part of the language that symbolic household games are written in.

Read are: types, constants, actions with quantified and disjunctive conditions and with conditional effects, the first
state, the goal. Costs are skipped, since nothing here minimises them. Words are folded to lower case, as planners do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agentgym.errors import TaskError

Row: TypeAlias = tuple[str, ...]
Tree: TypeAlias = "str | list[Tree]"

ROOT = "object"  # the type that every other one is a kind of
_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")


@dataclass(frozen=True, slots=True)
class Atom:
    """A predicate of terms; a term that starts with ``?`` is a variable. The predicate ``=`` is equality."""

    predicate: str
    terms: Row


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    part: Formula


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction; true where it has no parts."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction; false where it has no parts."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """For some objects of the variables' types."""

    variables: tuple[Variable, ...]
    part: Formula


Formula: TypeAlias = Atom | Not | And | Or | Exists


@dataclass(frozen=True, slots=True)
class Variable:
    """A typed variable, with its ``?``."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes true, or false where `negated`, for all `variables` for which `condition` holds."""

    atom: Atom
    negated: bool = False
    condition: Formula = And(())
    variables: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """An action schema."""

    name: str
    parameters: tuple[Variable, ...]
    condition: Formula
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """What all games of a kind share.

    Attributes:
        kinds: type -> the types that it is a kind of, itself included.
        objects: constants with their types.
    """

    kinds: Mapping[str, frozenset[str]]
    objects: Mapping[str, str]
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One game: its objects with their types, what is true at the start, and what has to become true."""

    objects: Mapping[str, str]
    facts: frozenset[tuple[str, Row]]
    goal: Formula


def read_domain(text: str) -> Domain:
    """The domain in a PDDL text.

    Raises:
        TaskError: the text is no domain of the subset above.
    """
    kinds: dict[str, frozenset[str]] = {ROOT: frozenset((ROOT,))}
    objects: dict[str, str] = {}
    actions = []
    for section in _sections(text, "domain"):
        match section:
            case [":types", *words]:
                kinds |= _read_kinds(_typed(words))
            case [":constants", *words]:
                objects |= dict(_typed(words))
            case [":action", str(name), *rest]:
                actions.append(_read_action(name, rest))
            case [":derived", *_] | [":durative-action", *_]:
                raise TaskError(f"PDDL: {section[0]} is not supported")
    if not actions:
        raise TaskError("PDDL: expected a domain with at least one :action")
    return Domain(kinds, objects, tuple(actions))


def read_problem(text: str) -> Problem:
    """The problem in a PDDL text.

    Raises:
        TaskError: the text is no problem of the subset above.
    """
    objects: dict[str, str] = {}
    facts: set[tuple[str, Row]] = set()
    goal: Formula | None = None
    for section in _sections(text, "problem"):
        match section:
            case [":objects", *words]:
                objects |= dict(_typed(words))
            case [":init", *trees]:
                facts |= {fact for tree in trees if (fact := _read_fact(tree)) is not None}
            case [":goal", tree]:
                goal = read_formula(tree)
    if goal is None:
        raise TaskError("PDDL: expected a problem with one :goal")
    return Problem(objects, frozenset(facts), goal)


def read_formula(tree: Tree) -> Formula:
    """A condition; `imply` and `forall` come back in terms of the other forms."""
    match tree:
        case []:
            return And(())
        case ["and", *parts]:
            return And(tuple(map(read_formula, parts)))
        case ["or", *parts]:
            return Or(tuple(map(read_formula, parts)))
        case ["not", part]:
            return negation(read_formula(part))
        case ["imply", premise, conclusion]:
            return Or((negation(read_formula(premise)), read_formula(conclusion)))
        case ["exists", list(words), part]:
            return Exists(_variables(words), read_formula(part))
        case ["forall", list(words), part]:
            return Not(Exists(_variables(words), negation(read_formula(part))))
        case [str(predicate), *terms]:
            return Atom(predicate, _words(terms))
    raise TaskError(f"PDDL: expected a condition, got {_show(tree)}")


def negation(formula: Formula) -> Formula:
    """The opposite, with `Not` only before atoms and quantifiers."""
    match formula:
        case Not(part):
            return part
        case And(parts):
            return Or(tuple(map(negation, parts)))
        case Or(parts):
            return And(tuple(map(negation, parts)))
    return Not(formula)


def _sections(text: str, kind: str) -> list[Tree]:
    """The parts of ``(define (KIND name) parts..)``."""
    match _read_tree(text):
        case ["define", [head, _], *sections] if head == kind:
            return sections
    raise TaskError(f"PDDL: expected (define ({kind} NAME) ...), got {text[:60]!r}")


def _read_tree(text: str) -> Tree:
    """The nested lists of one parenthesised expression."""
    outer: list[Tree] = []
    stack = [outer]
    for token in _TOKEN.findall(_COMMENT.sub("", text).lower()):
        if token == "(":
            inner: list[Tree] = []
            stack[-1].append(inner)
            stack.append(inner)
        elif token == ")":
            stack.pop()
            if not stack:
                raise TaskError("PDDL: a ')' closes nothing")
        else:
            stack[-1].append(token)
    if len(stack) != 1 or len(outer) != 1:
        raise TaskError(f"PDDL: expected one expression with as many '(' as ')', got {text[:60]!r}")
    return outer[0]


def _read_fact(tree: Tree) -> tuple[str, Row] | None:
    match tree:
        case ["=" | "not", *_]:
            return None  # `(= (f ..) n)` sets a number, `(not ..)` says what holds anyway
        case [str(predicate), *terms]:
            return predicate, _words(terms)
    raise TaskError(f"PDDL: expected a fact, got {_show(tree)}")


def _read_action(name: str, rest: Sequence[Tree]) -> Action:
    fields = {str(key): value for key, value in zip(rest[::2], rest[1::2], strict=False)}
    unknown = fields.keys() - {":parameters", ":precondition", ":effect"}
    if unknown or len(rest) % 2:
        raise TaskError(f"PDDL: the action {name} has the unknown part {min(unknown, default=str(rest[-1]))}")
    return Action(
        name,
        _variables(fields.get(":parameters", [])),
        read_formula(fields.get(":precondition", [])),
        tuple(_read_effects(fields.get(":effect", []))),
    )


def _read_effects(tree: Tree) -> list[Effect]:
    match tree:
        case [] | ["increase", *_]:
            return []
        case ["and", *parts]:
            return [effect for part in parts for effect in _read_effects(part)]
        case ["when", condition, part]:
            given = read_formula(condition)
            return [
                Effect(e.atom, e.negated, And((given, e.condition)), e.variables) for e in _read_effects(part)
            ]
        case ["forall", list(words), part]:
            variables = _variables(words)
            return [
                Effect(e.atom, e.negated, e.condition, variables + e.variables) for e in _read_effects(part)
            ]
        case ["not", [str(predicate), *terms]]:
            return [Effect(Atom(predicate, _words(terms)), negated=True)]
        case [str(predicate), *terms]:
            return [Effect(Atom(predicate, _words(terms)))]
    raise TaskError(f"PDDL: expected an effect, got {_show(tree)}")


def _read_kinds(pairs: Sequence[tuple[str, str]]) -> dict[str, frozenset[str]]:
    parents = {name: parent for name, parent in pairs if name != ROOT}
    kinds = {}
    for name in parents:
        line = [name]
        while line[-1] in parents and len(line) <= len(parents):
            line.append(parents[line[-1]])
        kinds[name] = frozenset((*line, ROOT))
    return kinds


def _typed(words: Sequence[Tree]) -> list[tuple[str, str]]:
    """``a b - t c`` as pairs of name and type."""
    pairs: list[tuple[str, str]] = []
    waiting: list[str] = []
    names = iter(_words(words))
    for name in names:
        if name == "-":
            kind = next(names, ROOT)
            pairs += [(each, kind) for each in waiting]
            waiting = []
        else:
            waiting.append(name)
    return pairs + [(each, ROOT) for each in waiting]


def _variables(words: Tree) -> tuple[Variable, ...]:
    if not isinstance(words, list):
        raise TaskError(f"PDDL: expected a list of variables, got {words!r}")
    # ALFWorld's domain writes `(?l - location, ?r - receptacle)`. The comma is part of a type that has no objects, for
    # the planner too: that is why a thing can be examined only in the hand.
    return tuple(Variable(name, kind) for name, kind in _typed(words))


def _words(trees: Sequence[Tree]) -> Row:
    for tree in trees:
        if not isinstance(tree, str):
            raise TaskError(f"PDDL: expected a name, got {_show(tree)}")
    return tuple(map(str, trees))


def _show(tree: Tree) -> str:
    text = tree if isinstance(tree, str) else f"({' '.join(map(_show, tree))})"
    return text if len(text) <= 80 else text[:77] + "..."
