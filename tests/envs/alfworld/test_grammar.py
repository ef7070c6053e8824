"""The text grammar: what its templates mean, and what of the original's habits is kept."""

from __future__ import annotations

import json

import pytest

from agentgym.envs.alfworld.grammar import Grammar, Scene
from agentgym.envs.alfworld.grammar_text import read_grammar, read_template
from agentgym.envs.alfworld.relations import Relation, State
from agentgym.errors import TaskError

STATE = State(
    at=Relation([("me", "hall")]),
    stands=Relation([("box_b", "hall"), ("box_a", "hall"), ("box_c", "yard")]),
    near=Relation([("box_a", "box_b"), ("box_b", "box_a"), ("box_a", "box_a")]),
)
KINDS = {"me": "agent", "hall": "place", "yard": "place", "box_a": "box", "box_b": "box", "box_c": "box"}
SCENE = Scene(STATE, {name: name.replace("_", " ") for name in KINDS}, lambda name, kind: KINDS[name] == kind)
HERE = "at(a:agent, p:place) & stands(b:box, p:place)"


def grammar(**rules: object) -> Grammar:
    lists = {"list_empty": "none", "list_separator": ", ", "list_last_separator": ", and "}
    ways = {name: [{"rhs": text}] for name, text in lists.items()} | rules
    return read_grammar(f'grammar :: """{json.dumps(ways)}""";')


def write(template: str, filled: dict[tuple[str, str], str] | None = None, **rules: object) -> str:
    return grammar(**rules).write(read_template(template), SCENE, filled or {})


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (f"[{{b.name | {HERE}}}].", "box a, and box b."),
        (f"{{b.name | {HERE}}}.", "box abox b."),
        ("[{b.name | stands(b:box, p:place)}]", "box a, box b, and box c"),
        ("[{b.id | stands(b:box, b:box)}]", "none"),
        # A fact of an object with itself fits no two placeholders; each gets an object of its own.
        ("[{b.name + '/' + c.name | near(b:box, c:box)}]", "box a/box b, and box b/box a"),
        ("[{b.name | near(b:box, b:box)}]", "box a"),
        ("[{p.name | stands(p:agent, b:place)}]", "none"),
        (f"[{{b.definite + ' ' + b.name | {HERE}}}]", "the box a, and the box b"),
        ("  blanks at the start go, those  inside stay ", "blanks at the start go, those  inside stay "),
        ('a "quoted" word', "a quoted word"),
        ("up to here} and no further", "up to here"),
        ("up to here; too", "up to here"),
        ("", ""),
    ],
)
def test_templates(template: str, text: str) -> None:
    assert write(template) == text


def test_what_is_filled_stays() -> None:
    yard = {("p", "place"): "yard"}
    assert write("[{b.name | stands(b:box, p:place)}]", yard) == "box c"
    # A placeholder is its name and its type: this p is another one, which may not be the yard as well.
    assert write("[{b.name | stands(b:box, p:site)}]", yard) == "none"
    assert write("go to {p}", yard) == "go to yard"


def test_the_first_way_that_fits_counts() -> None:
    ways = [
        {"condition": "near(b:box, p:place)", "rhs": "never"},
        {"condition": "stands(b:box, p:place)", "rhs": "boxes, and #more#"},
        {"rhs": "otherwise"},
    ]
    assert write("#where#", where=ways, more=[{"rhs": "nothing else"}]) == "boxes, and nothing else"
    # The condition only chooses; what it filled is forgotten.
    with pytest.raises(TaskError, match="nothing is known of 'b'"):
        write("#where#", where=[{"condition": "stands(b:box, p:place)", "rhs": "{b.name}"}])


def test_a_rule_inside_a_query_knows_what_was_filled() -> None:
    assert (
        write(f"[{{#one(b)# | {HERE}}}]", **{"one(b)": [{"rhs": "{b.indefinite} {b.name}"}]})
        == "a box a, and a box b"
    )


def test_errors() -> None:
    with pytest.raises(TaskError, match="no rule 'gone'"):
        write("#gone#")
    with pytest.raises(TaskError, match="no way to write"):
        write("#never#", never=[{"condition": "gone(b:box)", "rhs": "x"}])
    with pytest.raises(TaskError, match=r"__import__\('os'\)\" is not supported"):
        write("{__import__('os')}")
    with pytest.raises(TaskError, match="no expression"):
        read_template("{a b}")
    with pytest.raises(TaskError, match="expected fact"):
        read_template("{b | stands}")


def test_the_predicates_of_a_template_are_found_through_rules() -> None:
    rules = grammar(
        where=[{"condition": "near(b:box, c:box)", "rhs": "#where#"}, {"rhs": f"[{{b | {HERE}}}]"}]
    )
    assert rules.predicates(read_template("{a}: #where#")) == {"near", "at", "stands"}
