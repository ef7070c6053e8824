"""Conditions compiled to nested loops over relations.

A compiled condition is called with a state and a list of registers, and calls what comes after it once for every
way to fill the registers so that the condition holds. One list of registers belongs to one search, so threads share
the compiled form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from agentgym.envs.alfworld.pddl import ROOT, And, Atom, Exists, Formula, Not, Or, Row, Variable
from agentgym.envs.alfworld.relations import State

Registers: TypeAlias = list[Any]
# Returns True to end the whole search.
Search: TypeAlias = Callable[[State, Registers], bool]


@dataclass(frozen=True, slots=True)
class _Test:
    """An atom whose terms are registers; `opposite`: of which no row may be there."""

    predicate: str
    slots: tuple[int, ...]
    opposite: bool = False


@dataclass(frozen=True, slots=True)
class _Typed:
    """A register holds an object of its type."""

    slot: int


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _None:
    """No way to fill the registers of `part` that are its own."""

    part: _Node


_Node: TypeAlias = _Test | _Typed | _All | _Any | _None


class CompiledCondition:
    """A condition with free variables, ready to be searched.

    Args:
        variables: the free variables with their types; they take the first registers, in this order.
        condition: what has to hold.
        start: the state whose sizes decide the order of the loops; any state gives the same answers.
        members: type -> its objects, in order.
        given: how many of them, from the first, the caller fills; the others are searched for.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        condition: Formula,
        start: State,
        members: Mapping[str, tuple[str, ...]],
        *,
        given: int = 0,
    ) -> None:
        self._start = start
        self._members = members
        self._registers: Registers = []
        self._kinds: list[str] = []  # of what may stand in a register
        scope = {variable.name: self._new(variable.type) for variable in variables}
        self._width = len(variables)
        node = self._lower(condition, scope)
        typed = [_Typed(slot) for slot in scope.values()]
        filled = {i for i, value in enumerate(self._registers) if value is not None}
        self._output = self._new(ROOT)
        self._search = self._compile([node, *typed], frozenset(filled | set(range(given))), self._keep)

    def all(self, state: State, values: Row = (), *, limit: float = math.inf) -> list[Row]:
        """Every filling of the variables, possibly repeated.

        Args:
            state: where to search.
            values: of the given variables.
            limit: end the search after so many.
        """
        found: list[Row] = []
        registers = self._registers.copy()
        registers[: len(values)] = values
        registers[self._output] = (found, limit)
        self._search(state, registers)
        return found

    def holds(self, state: State) -> bool:
        """Whether there is a filling."""
        return bool(self.all(state, limit=1))

    def _keep(self, state: State, registers: Registers) -> bool:
        found, limit = registers[self._output]
        found.append(tuple(registers[: self._width]))
        return bool(len(found) >= limit)

    # -- formulas to nodes: names become registers -----------------------------------------------------------------

    def _new(self, kind: str, value: str | None = None) -> int:
        self._registers.append(value)
        self._kinds.append(kind)
        return len(self._registers) - 1

    def _lower(self, formula: Formula, scope: Mapping[str, int]) -> _Node:
        match formula:
            case Atom(predicate, terms):
                slots = tuple(scope[t] if t in scope else self._new(ROOT, t) for t in terms)
                return _Test(predicate, slots)
            case Not(Atom() as atom):
                test = self._lower(atom, scope)
                assert isinstance(test, _Test)
                return _Test(test.predicate, test.slots, opposite=True)
            case Not(part):
                return _None(self._lower(part, scope))
            case And(parts):
                return _All(tuple(self._lower(part, scope) for part in parts))
            case Or(parts):
                return _Any(tuple(self._lower(part, scope) for part in parts))
            case Exists(variables, part):
                own = {variable.name: self._new(variable.type) for variable in variables}
                return _All((*map(_Typed, own.values()), self._lower(part, {**scope, **own})))
        raise AssertionError(f"not a formula: {formula!r}")

    # -- nodes to loops --------------------------------------------------------------------------------------------

    def _compile(self, nodes: list[_Node], filled: frozenset[int], then: Search) -> Search:
        """All of `nodes`, then `then`; the cheapest first."""
        nodes = _flat(nodes)
        if not nodes:
            return then
        node = min(nodes, key=lambda each: self._cost(each, filled))
        rest = [each for each in nodes if each is not node]
        match node:
            case _Any(parts):
                return _either([self._compile([part, *rest], filled, then) for part in parts])
            case _None(part):
                return _unless(self._compile([part], filled, _stop), self._compile(rest, filled, then))
            case _Typed(slot):
                after = self._compile(rest, filled | {slot}, then)
                return (
                    after if slot in filled else _each(self._members.get(self._kinds[slot], ()), slot, after)
                )
            case _Test(predicate, slots, opposite):
                after = self._compile(rest, filled | set(slots), then)
                if predicate == "=":
                    return _compare(slots[0], slots[1], opposite, after)
                if filled.issuperset(slots):
                    return _check(predicate, slots, opposite, after)
                return _scan(predicate, slots, filled, self._filters(slots), after)
        raise AssertionError(f"not a node: {node!r}")

    def _filters(self, slots: tuple[int, ...]) -> dict[int, frozenset[str]]:
        """What may stand in the registers; all objects where a register is missing."""
        kinds = {slot: self._kinds[slot] for slot in slots if self._kinds[slot] != ROOT}
        return {slot: frozenset(self._members.get(kind, ())) for slot, kind in kinds.items()}

    def _cost(self, node: _Node, filled: frozenset[int]) -> float:
        """About how many rows are looked at; infinite for what can only be tested, and is not yet filled."""
        missing = _slots(node) - filled
        match node:
            case _None():
                return _LAST  # its own registers are never filled from outside; all others are by then
            case _ if not missing:
                return 0.0
            case _Typed(slot):
                return 1.0 + len(self._members.get(self._kinds[slot], ()))
            case _Any(parts) | _All(parts):
                costs = [self._cost(part, filled) for part in parts]
                return sum(costs) if isinstance(node, _Any) else min(costs)
            case _Test(predicate, slots, opposite):
                if opposite or predicate == "=":
                    return math.inf
                relation = self._start[predicate]
                known = tuple(i for i, slot in enumerate(slots) if slot in filled)
                return 1.0 + len(relation.rows) / max(1, len(relation.by(known)))


_LAST = 1e9


def _flat(nodes: Sequence[_Node]) -> list[_Node]:
    """The parts of conjunctions in their place."""
    flat: list[_Node] = []
    for node in nodes:
        flat += _flat(node.parts) if isinstance(node, _All) else [node]
    return flat


def _slots(node: _Node) -> frozenset[int]:
    match node:
        case _Test(_, slots):
            return frozenset(slots)
        case _Typed(slot):
            return frozenset((slot,))
        case _None(part):
            return _slots(part)
    return frozenset().union(*map(_slots, node.parts))


def _stop(state: State, registers: Registers) -> bool:
    return True


def _either(branches: Sequence[Search]) -> Search:
    def run(state: State, registers: Registers) -> bool:
        return any(branch(state, registers) for branch in branches)

    return run


def _unless(inner: Search, then: Search) -> Search:
    def run(state: State, registers: Registers) -> bool:
        return not inner(state, registers) and then(state, registers)

    return run


def _compare(left: int, right: int, opposite: bool, then: Search) -> Search:
    def run(state: State, registers: Registers) -> bool:
        return (registers[left] == registers[right]) is not opposite and then(state, registers)

    return run


def _check(predicate: str, slots: tuple[int, ...], opposite: bool, then: Search) -> Search:
    """Go on if the row is there, or where `opposite` if it is not."""

    def run(state: State, registers: Registers) -> bool:
        row = tuple([registers[slot] for slot in slots])
        return (row in state[predicate].rows) is not opposite and then(state, registers)

    return run


def _each(names: Sequence[str], slot: int, then: Search) -> Search:
    """Go on with every object of a type."""

    def run(state: State, registers: Registers) -> bool:
        for name in names:
            registers[slot] = name
            if then(state, registers):
                return True
        return False

    return run


def _scan(
    predicate: str,
    slots: tuple[int, ...],
    filled: frozenset[int],
    filters: Mapping[int, frozenset[str]],
    then: Search,
) -> Search:
    """Go on with every row that agrees with the registers that are filled, and with the types of the others."""
    known = tuple(i for i, slot in enumerate(slots) if slot in filled)
    fresh = {slot: i for i, slot in enumerate(slots) if slot not in filled}
    repeats = [(i, fresh[slot]) for i, slot in enumerate(slots) if slot in fresh and fresh[slot] != i]
    typed = [(i, filters[slot]) for slot, i in fresh.items() if slot in filters]
    loads = tuple(fresh.items())
    key = itemgetter(*(slots[i] for i in known)) if known else lambda registers: ()

    def run(state: State, registers: Registers) -> bool:
        rows = state[predicate].by(known).get(key(registers), ())
        if repeats:
            rows = tuple(row for row in rows if all(row[i] == row[j] for i, j in repeats))
        for row in rows:
            for i, names in typed:
                if row[i] not in names:
                    break
            else:
                for slot, i in loads:
                    registers[slot] = row[i]
                if then(state, registers):
                    return True
        return False

    return run
