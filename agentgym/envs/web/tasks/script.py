"""Writing a web task: the rubric and the scripts that decide it, as objects of the format (docs/web-judge.md).

A recipe is a module with a function ``make(seed) -> Draft`` and a gold page of the same name beside it. Where a target
is wanted, a text is the name of a `data-testid`; `at` narrows it down.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Target: TypeAlias = str | Mapping[str, Any]
NARROW = (360, 740)

# The end of every prompt: what all rubrics ask for.
GROUND_RULES = (
    "The page is one file, index.html, in English (lang=en) with a title and a heading. It loads nothing from the"
    " network, writes no errors to the console, has text of a contrast of at least 4.5, and fits a screen 360 px wide"
    " without scrolling sideways. Every field has a label, and everything works with the keyboard alone. What a part"
    " 'shows' is its text; it is no field unless it is called one, and what shows a number shows no other number. What"
    " 'looks different' differs in its own background, text colour, font weight or left border."
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A task before it is put together.

    Attributes:
        prompt: the brief, without `GROUND_RULES`.
        items, scenarios: of the format.
        data: what the gold page is given as `DATA`.
    """

    prompt: str
    items: Sequence[Mapping[str, Any]]
    scenarios: Sequence[Script]
    data: Mapping[str, Any]


def generator(recipe: str, seed: int) -> random.Random:
    """The random generator of a recipe's task; each recipe draws differently from equal seeds."""
    return random.Random(f"{recipe} {seed}")


def item(id: str, category: str, weight: float, text: str, *requires: str) -> dict[str, Any]:
    """A rubric item."""
    needs = {"requires": list(requires)} if requires else {}
    return {"id": id, "category": category, "weight": weight, "text": text, **needs}


def css(selector: str, **more: Any) -> dict[str, Any]:
    """A target by selector; `more` is `within`, `has_text`, `nth`."""
    if "within" in more:
        more["within"] = target_of(more["within"])
    return {"css": selector, **more}


def at(name: str, **more: Any) -> dict[str, Any]:
    """A target by `data-testid`."""
    return css(f"[data-testid={name}]", **more)


def target_of(target: Target) -> dict[str, Any]:
    """The format's object for a target."""
    return at(target) if isinstance(target, str) else dict(target)


def shows(number: object) -> dict[str, str]:
    """The predicate that a text holds this number and no other: a list of all numbers is no answer."""
    return {"regex": rf"^\D*{re.escape(str(number))}\D*$"}


def mentions(number: object) -> dict[str, str]:
    """The predicate that a text holds this number among others, not only as part of a longer one."""
    return {"regex": rf"(?<![\d.]){re.escape(str(number))}(?!\d|\.\d)"}


def rounded(numerator: int, denominator: int) -> list[int]:
    """The whole numbers a fraction may be rounded to: two where it lies in the middle."""
    low, rest = divmod(numerator, denominator)
    return [low + up for up in (0, 1) if (rest * 2 <= denominator, rest * 2 >= denominator)[up]]


def money(cents: int) -> str:
    """An amount with two decimals."""
    return f"{cents // 100}.{cents % 100:02}"


class Script:
    """A scenario that is being written: each method adds a step.

    Args:
        name: of the scenario.
        viewport: (width, height) in CSS px; None for the usual 1280 x 800.

    The first step, loading the page, is there already.
    """

    def __init__(self, name: str, viewport: tuple[int, int] | None = None) -> None:
        self.name = name
        self.viewport = viewport
        self.steps: list[dict[str, Any]] = [{"op": "goto"}]

    def to_json(self) -> dict[str, Any]:
        """The scenario of the format."""
        size = {} if self.viewport is None else {"viewport": list(self.viewport)}
        return {"name": self.name, **size, "steps": self.steps}

    def act(self, op: str, target: Target | None = None, **fields: Any) -> None:
        """Any action of the format."""
        aim = {} if target is None else {"target": target_of(target)}
        self.steps.append({"op": op, **aim, **fields})

    def expect(self, item: str, kind: str, target: Target | None = None, **fields: Any) -> None:
        """An assert; `fields` are `key`, `within_ms` and predicates."""
        aim = {} if target is None else {"target": target_of(target)}
        self.steps.append({"op": "assert", "item": item, "kind": kind, **aim, **fields})

    def click(self, target: Target) -> None:
        """Click it."""
        self.act("click", target)

    def fill(self, target: Target, value: object) -> None:
        """Replace a field's content, then leave the field by Tab, so that `change` comes too."""
        self.act("fill", target, value=str(value))
        self.press("Tab")

    def enter(self, target: Target, value: object) -> None:
        """Replace a field's content and press Enter in it."""
        self.act("fill", target, value=str(value))
        self.act("press", target, key="Enter")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        for key in keys:
            self.act("press", key=key)

    def clean(self, item: str) -> None:
        """Up to here there was no error and no request."""
        self.expect(item, "no_errors")
        self.expect(item, "no_network")

    def fits(self, item: str) -> None:
        """Nothing scrolls sideways."""
        self.expect(item, "overflow_x", max=1)

    def readable(self, item: str, *targets: Target) -> None:
        """Each is there, with a contrast of at least 4.5."""
        for target in targets:
            self.expect(item, "contrast", target, min=4.5)
