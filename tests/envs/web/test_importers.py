"""Lines of WebGen-Bench's and FronTalk's shape become rubrics that the planner takes."""

from __future__ import annotations

import json

import pytest

from agentgym.envs.web.importers import from_frontalk, from_webgen, read_rubrics
from agentgym.errors import TaskError, UsageError

# In the shape of WebGen-Bench's data/test.jsonl; the words are ours.
WEBGEN = {
    "id": "000042",
    "instruction": "Build a shop for kites.",
    "Category": {"primary_category": "E-commerce", "subcategories": []},
    "application_type": "Shop",
    "ui_instruct": [
        {
            "task": "Search for a kite.",
            "expected_result": "It is listed.",
            "task_category": {"primary_category": "Functional Testing", "subcategories": ["Searching"]},
        },
        {
            "task": "Look at the front page.",
            "expected_result": "It shows three kites.",
            "task_category": {"primary_category": "Data Display Testing", "subcategories": []},
        },
        {
            "task": "Narrow the window.",
            "expected_result": "Kites stack.",
            "task_category": {
                "primary_category": "Design Validation Testing",
                "subcategories": ["Responsive Behavior"],
            },
        },
    ],
}
# In the shape of FronTalk's data.jsonl.
FRONTALK = {
    "id": "abc.html",
    "summary": {"purpose": "A club's page."},
    "cases": [
        {
            "instructions": "Build a page for a chess club.",
            "type": "function",
            "test_conditions": [{"condition": "A form joins.", "pass": "Joined.", "fail": "No form."}],
        },
        {
            "instructions": "Make the buttons round.",
            "type": "design",
            "test_conditions": [{"condition": "Buttons are round.", "pass": "Round.", "fail": "Square."}],
        },
    ],
}


def test_webgen():
    rubric = from_webgen(WEBGEN)
    assert (rubric["id"], rubric["prompt"]) == ("000042", "Build a shop for kites.")
    assert rubric["rubric"][0] == {
        "id": "R1",
        "category": "functionality",
        "text": "Search for a kite.",
        "expected": "It is listed.",
        "judge": "steps",
    }
    assert [(each["category"], each["judge"]) for each in rubric["rubric"][1:]] == [
        ("content", "steps"),
        ("layout", "llm"),
    ]


def test_frontalk():
    rubric = from_frontalk(FRONTALK)
    assert rubric["id"] == "abc"
    assert rubric["prompt"] == "1. Build a page for a chess club.\n\n2. Make the buttons round."
    first, second = rubric["rubric"]
    assert (first["category"], first["judge"]) == ("functionality", "steps")
    assert first["expected"] == "Joined. It fails if: No form."
    assert (second["id"], second["category"], second["judge"]) == ("R2", "visual", "llm")


@pytest.mark.parametrize(("shape", "row"), [("webgen", WEBGEN), ("frontalk", FRONTALK)])
def test_files(tmp_path, shape, row):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"id": "second"}) + "\n", encoding="utf-8")
    assert [rubric["id"] for rubric in read_rubrics(path, shape)] == [row["id"].split(".")[0], "second"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "x"}, "ui_instruct is missing"),
        (WEBGEN | {"ui_instruct": []}, "at least one item"),
        (WEBGEN | {"ui_instruct": [3]}, "another type"),
        (
            WEBGEN
            | {"ui_instruct": [WEBGEN["ui_instruct"][0] | {"task_category": {"primary_category": "Odd"}}]},
            "unknown kind of check 'Odd'",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, row, said):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(TaskError, match=f"line 1: .*{said}"):
        list(read_rubrics(path, "webgen"))


def test_an_unknown_shape(tmp_path):
    with pytest.raises(UsageError, match="webgen"):
        list(read_rubrics(tmp_path / "rows.jsonl", "webgem"))
