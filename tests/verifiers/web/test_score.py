"""Predicates, items and the score, by hand."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from agentgym.verifiers.web import predicates
from agentgym.verifiers.web.predicates import holds
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.score import passed_items, score_of


@pytest.mark.parametrize(
    ("value", "predicates", "expected"),
    [
        (True, {}, True),
        (0, {}, False),
        ("", {}, False),
        ([], {}, False),
        ("0", {}, True),
        ({"x": 0}, {}, True),
        (None, {}, False),
        (False, {"equals": False}, True),
        (None, {"equals": None}, False),
        (None, {"not_contains": "x"}, False),
        (1, {"equals": 1.0}, True),
        (1, {"equals": True}, False),
        (True, {"equals": 1}, False),
        ("1", {"equals": 1}, False),
        (["a", "b"], {"equals": ["a", "b"]}, True),
        (["b", "a"], {"equals": ["a", "b"]}, False),
        (["a"], {"equals": ["a", "b"]}, False),
        ("a  b", {"equals": "a b"}, False),
        (["a", "b"], {"contains": "'a', 'b'"}, True),
        (["a\nb"], {"contains": "a\\nb"}, True),
        (True, {"contains": "True"}, True),
        ("Apple", {"contains": "apple"}, False),
        (12, {"contains": 2}, True),
        ("abc", {"not_contains": "d"}, True),
        ("3 left", {"regex": "^3\\b"}, True),
        ("13 left", {"regex": "^3\\b"}, False),
        (4.5, {"min": 4.5}, True),
        ("12", {"min": 3, "max": 12}, True),
        (12, {"min": 3, "max": 11}, False),
        ("b", {"in": ["a", "b"]}, True),
        (1.0, {"in": [1]}, True),
        (True, {"in": [1]}, False),
    ],
)
def test_predicates(value: Any, predicates: dict[str, Any], expected: bool) -> None:
    assert holds(value, predicates) is expected


@pytest.mark.parametrize(
    ("expression", "text"), [(r"(a|aa)+$", "a" * 60 + "!"), (r"\s+$", " " * 50_000 + "x")]
)
def test_an_expression_that_tries_without_end_does_not_hold(
    expression: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicates, "_SEARCH_S", 0.02)
    with pytest.raises(ValueError, match="took more than"):
        holds(text, {"regex": expression})


@pytest.mark.parametrize("expression", [r"\h", r"\p{L}", r"\K", "a\\"])
def test_what_is_no_expression_of_python_s_own_does_not_hold(expression: str) -> None:
    with pytest.raises(re.error, match="bad escape"):
        holds("a word", {"regex": expression})


def test_no_number_where_one_is_needed() -> None:
    with pytest.raises(ValueError):
        holds("many", {"min": 1})


def task(*items: tuple[str, str, float, list[str]], asserts: str) -> Any:
    """Items (id, category, weight, requires), and one scenario with an assert for each letter of `asserts`."""
    return parse_task(
        {
            "id": "t",
            "prompt": "",
            "items": [
                {"id": i, "category": c, "weight": w, "text": "", "requires": r} for i, c, w, r in items
            ],
            "scenarios": [
                {"name": "s", "steps": [{"op": "assert", "item": item, "kind": "title"} for item in asserts]}
            ],
        }
    )


def test_an_item_passes_only_if_all_its_asserts_held_and_what_it_requires_passes() -> None:
    rubric = task(
        ("A", "functionality", 1, []),
        ("B", "visual", 1, ["A"]),
        ("C", "ux", 1, ["B"]),
        ("D", "layout", 1, []),
        asserts="AABC",
    )
    everything = {(0, 0), (0, 1), (0, 2), (0, 3)}
    assert passed_items(rubric, everything) == {"A": True, "B": True, "C": True, "D": False}  # D: no assert
    # One of A's two is missing: A fails, and B and C with it.
    assert passed_items(rubric, everything - {(0, 1)}) == {"A": False, "B": False, "C": False, "D": False}
    assert passed_items(rubric, everything - {(0, 2)}) == {"A": True, "B": False, "C": False, "D": False}


def test_the_score_counts_the_rest_only_as_far_as_the_page_works() -> None:
    rubric = task(
        ("F1", "functionality", 3, []),
        ("F2", "functionality", 1, []),
        ("V", "visual", 2, []),
        asserts="A"[:0],
    ).items
    # F = 1/4, S = 1: (0.25 * 4 + 1 * 2 * 0.5) / 6 = 2 / 6, raw (1 + 2) / 6.
    got = score_of(rubric, {"F1": False, "F2": True, "V": True})
    assert (got.score, got.raw, got.functional, got.other) == (0.333, 0.5, 0.25, 1.0)
    # F = 3/4 >= 0.5: no gate. (3 + 2) / 6.
    got = score_of(rubric, {"F1": True, "F2": False, "V": True})
    assert (got.score, got.raw) == (0.833, 0.833)
    # F = 0: nothing counts. raw 2 / 6.
    got = score_of(rubric, {"F1": False, "F2": False, "V": True})
    assert (got.score, got.raw) == (0.0, 0.333)


def test_a_share_over_no_items_is_one() -> None:
    rubric = task(("V", "visual", 2, []), ("U", "ux", 2, []), asserts="")
    assert score_of(rubric.items, {"V": True, "U": False}).score == 0.5
    rubric = task(("F", "functionality", 2, []), asserts="")
    got = score_of(rubric.items, {"F": True})
    assert (got.score, got.functional, got.other) == (1.0, 1.0, 1.0)


def test_requires_of_many_items_cost_no_time() -> None:
    """By every way through the layers there would be 2 ** 60 of them; one after another, more than Python's stack."""
    layers = [[f"{layer}{side}" for side in "ab"] for layer in range(60)]
    chain = [f"c{n}" for n in range(1200)]
    needs = {name: above for above, layer in pairwise(layers) for name in layer}
    needs |= {name: [above] for above, name in pairwise(chain)}
    names = [name for layer in layers for name in layer] + chain
    many = parse_task(
        {
            "id": "t",
            "prompt": "",
            "items": [{"id": n, "category": "ux", "text": "", "requires": needs.get(n, [])} for n in names],
            "scenarios": [
                {"name": "s", "steps": [{"op": "assert", "item": n, "kind": "title"} for n in names]}
            ],
        }
    )
    held = {(0, n) for n in range(len(names))}
    assert all(passed_items(many, held).values())
    without_roots = held - {(0, names.index("0a")), (0, names.index("c0"))}
    assert [name for name, passed in passed_items(many, without_roots).items() if passed] == ["0b"]
