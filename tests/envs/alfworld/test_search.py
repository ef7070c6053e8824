"""Compiled conditions against the plain meaning of logic, tried out object by object."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.alfworld.pddl import And, Atom, Exists, Formula, Not, Or, Variable, negation, read_formula
from agentgym.envs.alfworld.relations import Relation, State
from agentgym.envs.alfworld.search import CompiledCondition

MEMBERS = {"object": ("a", "b", "c", "d"), "cup": ("a", "b"), "box": ("c",), "none": ()}
FREE = (Variable("?x", "object"), Variable("?y", "cup"))


def holds(formula: Formula, state: State, names: Mapping[str, str]) -> bool:
    """The definition."""
    match formula:
        case Atom("=", (left, right)):
            return names.get(left, left) == names.get(right, right)
        case Atom(predicate, terms):
            return tuple(names.get(term, term) for term in terms) in state[predicate].rows
        case Not(part):
            return not holds(part, state, names)
        case And(parts):
            return all(holds(part, state, names) for part in parts)
        case Or(parts):
            return any(holds(part, state, names) for part in parts)
        case Exists(variables, part):
            tries = itertools.product(*(MEMBERS[v.type] for v in variables))
            return any(
                holds(part, state, {**names, **dict(zip((v.name for v in variables), row, strict=True))})
                for row in tries
            )
    raise AssertionError(formula)


terms = st.sampled_from(["?x", "?y", "?z", "a", "c"])
atoms = st.one_of(
    st.builds(lambda t: Atom("p", (t,)), terms),
    st.builds(lambda t, u: Atom("q", (t, u)), terms, terms),
    st.builds(lambda t, u: Atom("=", (t, u)), terms, terms),
    st.just(Atom("flag", ())),
)


def deeper(parts: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    several = st.lists(parts, max_size=3).map(tuple)
    kinds = st.sampled_from(["object", "cup", "box", "none"])
    return st.one_of(
        several.map(And),
        several.map(Or),
        parts.map(negation),
        st.builds(lambda kind, part: Exists((Variable("?z", kind),), part), kinds, parts),
        st.builds(lambda kind, part: Not(Exists((Variable("?z", kind),), part)), kinds, parts),
    )


# ?z is bound by something on the way to every place where it can stand.
formulas = st.recursive(atoms, deeper, max_leaves=8).map(
    lambda part: Exists((Variable("?z", "object"),), part)
)
names = st.sampled_from(MEMBERS["object"])
states = st.builds(
    lambda p, q, flag: State(p=Relation(p), q=Relation(q), flag=Relation([()] if flag else [])),
    st.sets(st.tuples(names)),
    st.sets(st.tuples(names, names)),
    st.booleans(),
)


@given(formulas, states, states)
def test_it_finds_what_the_definition_allows(formula: Formula, start: State, state: State) -> None:
    query = CompiledCondition(FREE, formula, start, MEMBERS)
    expected = {
        row
        for row in itertools.product(MEMBERS["object"], MEMBERS["cup"])
        if holds(formula, state, {"?x": row[0], "?y": row[1]})
    }
    assert set(query.all(state)) == expected
    assert query.holds(state) == bool(expected)


@given(formulas, states)
def test_given_variables_are_not_searched(formula: Formula, state: State) -> None:
    query = CompiledCondition(FREE, formula, state, MEMBERS, given=1)
    for name in MEMBERS["object"]:
        expected = {(name, y) for y in MEMBERS["cup"] if holds(formula, state, {"?x": name, "?y": y})}
        assert set(query.all(state, (name,))) == expected


def test_imply_and_forall() -> None:
    formula = read_formula(["forall", ["?z", "-", "cup"], ["imply", ["p", "?z"], ["q", "?z", "c"]]])
    query = CompiledCondition((), formula, State(), MEMBERS)
    assert query.holds(State())
    assert not query.holds(State(p=Relation([("a",), ("b",)]), q=Relation([("a", "c")])))
    assert query.holds(State(p=Relation([("a",), ("d",)]), q=Relation([("a", "c")])))  # d is no cup


@pytest.mark.parametrize("limit", [1, 2])
def test_a_search_ends_at_its_limit(limit: int) -> None:
    query = CompiledCondition((Variable("?x", "object"),), Atom("p", ("?x",)), State(), MEMBERS)
    assert len(query.all(State(p=Relation([("a",), ("b",), ("c",)])), limit=limit)) == limit
