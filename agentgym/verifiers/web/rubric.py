"""Rubrics in words: a brief and items that say what is wanted, without the steps that decide them.

`agentgym.verifiers.web.plan` makes a task of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agentgym.verifiers.web.reading import Reader, check_ids, load
from agentgym.verifiers.web.task import CATEGORIES, VIEWPORT, Item


@dataclass(frozen=True, slots=True)
class RubricItem:
    """One line of a rubric in words.

    Attributes:
        item: with its text; what is expected of the page, where the file says so, is part of it.
        judge: "steps": to be decided in a browser; "llm": only a language model can.
    """

    item: Item
    judge: Literal["steps", "llm"]


@dataclass(frozen=True, slots=True)
class Rubric:
    """A brief and its rubric; `viewport` is (width, height) in CSS px."""

    id: str
    prompt: str
    items: tuple[RubricItem, ...]
    viewport: tuple[int, int] = VIEWPORT

    def judged_by(self, judge: Literal["steps", "llm"]) -> tuple[Item, ...]:
        """The items that are decided in this way."""
        return tuple(each.item for each in self.items if each.judge == judge)


def load_rubric(path: str | Path) -> Rubric:
    """The rubric of a file.

    Raises:
        TaskError: there is no such file, or it is no rubric; names the file and the place in it.
    """
    return load(path, parse_rubric)


def parse_rubric(data: Any) -> Rubric:
    """The rubric of a parsed JSON object.

    Raises:
        TaskError: it is no rubric; names the place.
    """
    reader = Reader(data, "")
    reader.only(("id", "prompt", "viewport", "rubric"))
    items = tuple(_item(each) for each in reader.objects("rubric"))
    if not items:
        raise reader.error("rubric", "expected at least one item")
    check_ids(reader, [each.item for each in items])
    return Rubric(reader.text("id", filled=True), reader.text("prompt"), items, reader.viewport(VIEWPORT))


def _item(reader: Reader) -> RubricItem:
    reader.only(("id", "category", "weight", "text", "expected", "judge"))
    category: Any = reader.one_of("category", CATEGORIES)
    judge: Any = reader.one_of("judge", ("steps", "llm")) if "judge" in reader.data else "steps"
    text = reader.text("text", filled=True)
    if "expected" in reader.data:
        text = f"{text} Expected: {reader.text('expected')}"
    return RubricItem(Item(reader.text("id", filled=True), category, reader.weight(), text), judge)
