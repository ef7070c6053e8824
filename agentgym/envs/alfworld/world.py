"""The rules of one game: which actions are possible in a state, what they change, whether the goal is reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from agentgym.envs.alfworld.pddl import Action, And, Atom, Domain, Exists, Formula, Not, Or, Problem, Row
from agentgym.envs.alfworld.relations import Relation, State
from agentgym.envs.alfworld.search import CompiledCondition
from agentgym.errors import TaskError

Literal: TypeAlias = tuple[bool, str, Row]  # whether it is negated, predicate, objects


class Move(NamedTuple):
    """An action with objects for its parameters."""

    action: str
    objects: Row


class World:
    """A domain and a problem, compiled.

    Args:
        domain: the rules.
        problem: objects, start and goal.

    Attributes:
        types: object -> its type.
        kinds: type -> the types that it is a kind of, itself included.
        start: the first state. Besides what is true, a state holds under ``not_X`` what an action has made false:
            ALFWorld's texts ask for it.
        parameters: of each action, their names without ``?`` and their types.
        changing: the predicates that actions change.
        reads: of each action, those of them that its condition asks for.
    """

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self.types = {**domain.objects, **problem.objects}
        unknown = {name for _, row in problem.facts for name in row} - self.types.keys()
        if unknown:
            raise TaskError(f"PDDL: a fact names {min(unknown)!r}, which is among no objects")
        self.kinds = domain.kinds
        self.start = _first_state(problem)
        members = self._members()
        self._goal = CompiledCondition((), problem.goal, self.start, members)
        self._rules = {action.name: _Rule(action, self.start, members) for action in domain.actions}
        self.parameters = {
            action.name: tuple((v.name.removeprefix("?"), v.type) for v in action.parameters)
            for action in domain.actions
        }
        changed = {effect.atom.predicate for action in domain.actions for effect in action.effects}
        self.changing = frozenset(changed | {f"not_{predicate}" for predicate in changed})
        self.reads = {
            action.name: tuple(sorted(self.changing & set(_predicates(action.condition))))
            for action in domain.actions
        }

    def moves(self, action: str, state: State) -> Iterator[Move]:
        """What the condition of an action allows now; a move may come twice."""
        for objects in self._rules[action].condition.all(state):
            yield Move(action, objects)

    def does_something(self, move: Move) -> bool:
        """Whether an effect says more than the condition does.

        Planners drop what does not, as going where one stands.
        """
        return self._rules[move.action].does_something(move.objects)

    def apply(self, state: State, move: Move) -> State:
        """The state after a move that is possible in `state`."""
        added: defaultdict[str, list[Row]] = defaultdict(list)
        removed: defaultdict[str, list[Row]] = defaultdict(list)
        for negated, predicate, objects in self._rules[move.action].changes(state, move.objects):
            opposite = f"not_{predicate}"
            gone, come = (predicate, opposite) if negated else (opposite, predicate)
            removed[gone].append(objects)
            added[come].append(objects)
        after = State(state)
        for name in added.keys() | removed.keys():
            after[name] = state[name].changed(removed[name], added[name])
        return after

    def won(self, state: State) -> bool:
        """Whether the goal is reached."""
        return self._goal.holds(state)

    def is_kind(self, name: str, kind: str) -> bool:
        """Whether an object is of a type or of a kind of it."""
        return kind in self.kinds.get(self.types[name], ())

    def _members(self) -> dict[str, tuple[str, ...]]:
        members: defaultdict[str, list[str]] = defaultdict(list)
        for name in sorted(self.types):
            for kind in self.kinds.get(self.types[name], ()):
                members[kind].append(name)
        return {kind: tuple(names) for kind, names in members.items()}


def _first_state(problem: Problem) -> State:
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for predicate, objects in problem.facts:
        rows[predicate].append(objects)
    return State({name: Relation(each) for name, each in rows.items()})


class _Rule:
    """One action, compiled."""

    def __init__(self, action: Action, start: State, members: Mapping[str, tuple[str, ...]]) -> None:
        self.condition = CompiledCondition(action.parameters, action.condition, start, members)
        self._names = tuple(variable.name for variable in action.parameters)
        self._needs = tuple(_literals(action.condition))
        self._plain = tuple(e for e in action.effects if e.condition == And(()) and not e.variables)
        self._conditional = tuple(
            (
                effect,
                CompiledCondition(
                    action.parameters + effect.variables,
                    effect.condition,
                    start,
                    members,
                    given=len(self._names),
                ),
            )
            for effect in action.effects
            if effect not in self._plain
        )

    def does_something(self, objects: Row) -> bool:
        """Whether an effect says more than the condition does."""
        if self._conditional:
            return True
        return not self._always(objects) <= self._ground(self._needs, objects)

    def changes(self, state: State, objects: Row) -> set[Literal]:
        """What becomes true and what false; what is to become both becomes true."""
        changes = self._always(objects)
        for effect, query in self._conditional:
            for row in query.all(state, objects):
                names = self._names + tuple(variable.name for variable in effect.variables)
                changes.add(_ground(effect.negated, effect.atom, dict(zip(names, row, strict=True))))
        return _consistent(changes)

    def _always(self, objects: Row) -> set[Literal]:
        return _consistent(self._ground(((e.negated, e.atom) for e in self._plain), objects))

    def _ground(self, literals: Iterable[tuple[bool, Atom]], objects: Row) -> set[Literal]:
        binding = dict(zip(self._names, objects, strict=True))
        return {_ground(negated, atom, binding) for negated, atom in literals}


def _ground(negated: bool, atom: Atom, binding: Mapping[str, str]) -> Literal:
    return negated, atom.predicate, tuple([binding.get(term, term) for term in atom.terms])


def _consistent(changes: set[Literal]) -> set[Literal]:
    return {
        (negated, name, row)
        for negated, name, row in changes
        if not (negated and (False, name, row) in changes)
    }


def _literals(formula: Formula) -> Iterator[tuple[bool, Atom]]:
    """What a condition asks for in every case."""
    match formula:
        case Atom():
            yield False, formula
        case Not(Atom() as atom):
            yield True, atom
        case And(parts):
            for part in parts:
                yield from _literals(part)


def _predicates(formula: Formula) -> Iterator[str]:
    match formula:
        case Atom(predicate):
            yield predicate
        case Not(part) | Exists(_, part):
            yield from _predicates(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _predicates(part)
