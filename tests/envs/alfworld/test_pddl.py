"""Reading PDDL."""

from __future__ import annotations

import pytest

from agentgym.envs.alfworld.pddl import (
    And,
    Atom,
    Effect,
    Exists,
    Not,
    Or,
    Variable,
    read_domain,
    read_formula,
    read_problem,
)
from agentgym.envs.alfworld.relations import State
from agentgym.envs.alfworld.world import Move, World
from agentgym.errors import TaskError

P, Q = Atom("p", ("?x",)), Atom("q", ("?x", "a"))


def domain(action: str, types: str = "cup mug - dish dish box") -> str:
    return f"(define (domain d) (:types {types}) (:constants c1 - cup) (:action go {action}))"


def test_types_are_of_a_kind_with_their_ancestors() -> None:
    kinds = read_domain(domain(":parameters () :effect (done)")).kinds
    assert kinds["cup"] == {"cup", "dish", "object"}
    assert kinds["box"] == {"box", "object"}
    assert kinds["object"] == {"object"}


@pytest.mark.parametrize(
    ("tree", "formula"),
    [
        ([], And(())),
        (["and", ["p", "?x"], ["q", "?x", "a"]], And((P, Q))),
        (["not", ["not", ["p", "?x"]]], P),
        (["not", ["or", ["p", "?x"], ["not", ["q", "?x", "a"]]]], And((Not(P), Q))),
        (["imply", ["p", "?x"], ["q", "?x", "a"]], Or((Not(P), Q))),
        (["exists", ["?x", "-", "cup"], ["p", "?x"]], Exists((Variable("?x", "cup"),), P)),
        (["forall", ["?x"], ["p", "?x"]], Not(Exists((Variable("?x", "object"),), Not(P)))),
    ],
)
def test_formulas(tree: list, formula: object) -> None:
    assert read_formula(tree) == formula


def test_a_comma_belongs_to_the_type() -> None:
    """As planners read it: no object is of this type, so nothing is found."""
    condition = "(exists (?y - cup, ?z - box) (p ?y))"
    action = read_domain(domain(f":parameters (?x - box) :precondition {condition} :effect (done)")).actions[
        0
    ]
    assert action.condition == Exists((Variable("?y", "cup,"), Variable("?z", "box")), Atom("p", ("?y",)))


def test_effects() -> None:
    text = "(and (P ?x) (not (Q ?x A)) (increase (total-cost) 1) (forall (?y - cup) (when (p ?y) (q ?y a))))"
    effects = read_domain(domain(f":parameters (?x) :effect {text}")).actions[0].effects
    assert effects[:2] == (Effect(P), Effect(Q, negated=True))
    assert effects[2] == Effect(
        Atom("q", ("?y", "a")),
        condition=And((Atom("p", ("?y",)), And(()))),
        variables=(Variable("?y", "cup"),),
    )


def test_an_object_of_a_kind_takes_part() -> None:
    rules = ":parameters (?x - dish) :precondition (not (p ?x)) :effect (p ?x)"
    objects, goal = "(:objects m1 - mug b1 - box)", "(:goal (forall (?d - dish) (p ?d)))"
    problem = f"(define (problem x) (:domain d) {objects} (:init) {goal})"
    world = World(read_domain(domain(rules)), read_problem(problem))
    assert sorted(world.moves("go", world.start)) == [Move("go", ("c1",)), Move("go", ("m1",))]
    state: State = world.start
    for name in ("c1", "m1"):
        assert not world.won(state)
        state = world.apply(state, Move("go", (name,)))
    assert world.won(state)
    assert list(world.moves("go", state)) == []


def test_what_is_deleted_and_added_stays_and_what_was_true_changes_nothing() -> None:
    rules = ":parameters (?x ?y - cup) :precondition (p ?x) :effect (and (not (p ?x)) (p ?y))"
    problem = "(define (problem x) (:domain d) (:objects c2 - cup) (:init (p c1)) (:goal (p c2)))"
    world = World(read_domain(domain(rules)), read_problem(problem))
    stay, go = Move("go", ("c1", "c1")), Move("go", ("c1", "c2"))
    assert sorted(world.moves("go", world.start)) == [stay, go]
    assert not world.does_something(stay)
    assert world.does_something(go)
    assert world.apply(world.start, stay)["p"].rows == {("c1",)}
    after = world.apply(world.start, go)
    assert after["p"].rows == {("c2",)}
    assert after["not_p"].rows == {("c1",)}  # texts may ask for what was made false


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(define (problem x))", r"expected \(define \(domain NAME\)"),
        ("(define (domain d)))", "closes nothing"),
        (domain(":precondition (and (p (q)))"), r"expected a name, got \(q\)"),
        (domain(":effects (p)"), "unknown part :effects"),
        (domain(":parameters () (p)"), "unknown part"),
        (domain(":effect ((p))"), r"expected an effect, got \(\(p\)\)"),
        (domain(":parameters ?x"), "a list of variables, got '\\?x'"),
        ("(define (domain d) (:derived (p) (q)))", ":derived is not supported"),
    ],
)
def test_what_is_wrong_is_told(text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_domain(text)


@pytest.mark.parametrize("init", ["()", "p", "(p (q))"])
def test_a_fact_is_a_predicate_with_names(init: str) -> None:
    with pytest.raises(TaskError, match=r"expected a (fact|name), got"):
        read_problem(f"(define (problem x) (:init {init}) (:goal (p)))")
