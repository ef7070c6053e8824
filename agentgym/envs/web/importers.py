"""Rubrics in words out of other benchmarks' files, for the planner (``agentgym web plan``).

Two shapes are read, one JSON object a line: WebGen-Bench's, an instruction with checks of the form task and expected
result, and FronTalk's, a dialogue whose turns have an instruction and conditions with what passes and what fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym.errors import TaskError, UsageError, nearest
from agentgym.tasks import read_jsonl
from agentgym.verifiers.web.rubric import parse_rubric

# How a check is classed there, and here: a category, and whether steps in a browser can decide it.
_WEBGEN = {
    "Functional Testing": ("functionality", "steps"),
    "Data Display Testing": ("content", "steps"),
    "Design Validation Testing": ("visual", "llm"),
}
_FRONTALK = {"function": ("functionality", "steps"), "design": ("visual", "llm")}


def read_rubrics(path: str | Path, shape: str) -> Iterator[dict[str, Any]]:
    """Each line of a file as a rubric in words (docs/web-judge.md).

    Args:
        path: a JSONL file.
        shape: one of `SHAPES`.

    Raises:
        UsageError: an unknown shape.
        TaskError: the file cannot be read, or a line has another shape; names the line and what is missing.
    """
    if shape not in SHAPES:
        raise UsageError(f"unknown shape of rubrics {shape!r}.{nearest(shape, SHAPES)}")
    for row, where in read_jsonl(path):
        try:
            rubric = SHAPES[shape](row)
            parse_rubric(rubric)
        except KeyError as error:
            raise TaskError(f"{where}: no {shape} file, {error.args[0]} is missing") from None
        except (AttributeError, TypeError):
            raise TaskError(f"{where}: no {shape} file, a field is of another type") from None
        except TaskError as error:
            raise TaskError(f"{where}: {error}") from None
        yield rubric


def from_webgen(row: Mapping[str, Any]) -> dict[str, Any]:
    """The rubric of a line of WebGen-Bench: one item for each check."""
    items = []
    for number, check in enumerate(row["ui_instruct"], 1):
        kind = check["task_category"]
        category, judge = _known(kind["primary_category"], _WEBGEN)
        if "Responsive Behavior" in kind.get("subcategories", ()):
            category = "layout"
        items.append(_item(number, category, judge, check["task"], check["expected_result"]))
    return {"id": row["id"], "prompt": row["instruction"], "rubric": items}


def from_frontalk(row: Mapping[str, Any]) -> dict[str, Any]:
    """The rubric of a dialogue of FronTalk: its turns as one brief, one item for each condition."""
    items: list[dict[str, Any]] = []
    for turn in row["cases"]:
        category, judge = _known(turn["type"], _FRONTALK)
        for each in turn["test_conditions"]:
            expected = f"{each['pass']} It fails if: {each['fail']}"
            items.append(_item(len(items) + 1, category, judge, each["condition"], expected))
    brief = "\n\n".join(f"{number}. {turn['instructions']}" for number, turn in enumerate(row["cases"], 1))
    return {"id": row["id"].removesuffix(".html"), "prompt": brief, "rubric": items}


SHAPES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "webgen": from_webgen,
    "frontalk": from_frontalk,
}


def _known(kind: str, table: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    if kind not in table:
        raise TaskError(f"unknown kind of check {kind!r}.{nearest(kind, table)}")
    return table[kind]


def _item(number: int, category: str, judge: str, text: str, expected: str) -> dict[str, Any]:
    return {"id": f"R{number}", "category": category, "text": text, "expected": expected, "judge": judge}
