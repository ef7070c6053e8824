"""The web task format, version 1: a brief, a rubric, and the scripts that decide each rubric item in a real browser.

`agentgym.verifiers.web.reading` reads files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

Category: TypeAlias = Literal["functionality", "content", "visual", "layout", "ux", "technical"]
CATEGORIES = ("functionality", "content", "visual", "layout", "ux", "technical")
TOKENS = tuple(f"t{n}" for n in range(1, 9))
VIEWPORT = (1280, 800)
ACTION_TIMEOUT_MS = 2000
ASSERT_WITHIN_MS = 500

# What an action takes beside `op` and `timeout_ms`: required fields, then optional ones.
ACTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "goto": ((), ()),
    "reload": ((), ()),
    "back": ((), ()),
    "forward": ((), ()),
    "click": (("target",), ()),
    "dblclick": (("target",), ()),
    "hover": (("target",), ()),
    "fill": (("target", "value"), ()),
    "type": (("target", "value"), ()),
    "press": (("key",), ("target",)),
    "focus": (("target",), ()),
    "tab_to": (("target",), ("max",)),
    "select": (("target", "value"), ()),
    "check": (("target",), ("value",)),
    "drag": (("target", "to"), ()),
    "scroll": ((), ("dx", "dy")),
    "resize": (("w", "h"), ()),
    "wait": (("ms",), ()),
    "screenshot": ((), ()),
}
# About the page, so without a target
PAGE_KINDS = (
    "page_text",
    "hash",
    "overflow_x",
    "no_errors",
    "no_network",
    "dialogs",
    "storage_len",
    "title",
    "lang",
)
BARE_KINDS = ("no_errors", "no_network")  # without predicates too
KEY_KINDS = ("attr", "attr_any", "attr_bool", "style", "differs")
TARGET_KINDS = (
    "visible hidden count count_all text texts text_or_none value checked attr attr_any attr_bool style focused "
    "focused_any focused_within focused_within_or_chrome named named_box label_visible contrast struck font_px "
    "min_size rect inside_x side_by_side stacked differs"
).split()
KINDS = (*TARGET_KINDS, *PAGE_KINDS)
PREDICATES = ("equals", "contains", "not_contains", "regex", "min", "max", "in")
TOKEN = re.compile(r"\{\{([^{}]+)\}\}")


@dataclass(frozen=True, slots=True)
class Target:
    """Which elements a step is about; exactly one of `css`, `role`, `label` and `text` is set.

    Attributes:
        css: a selector.
        role, name, exact: an ARIA role and the accessible name (a part of it unless `exact`).
        label: text of a form field's label.
        text: text of the element.
        within: only elements inside one of these.
        has_text: only elements with this text.
        nth: only this one of what is left, from 0.
    """

    css: str | None = None
    role: str | None = None
    name: str | None = None
    exact: bool = False
    label: str | None = None
    text: str | None = None
    within: Target | None = None
    has_text: str | None = None
    nth: int | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """Something a person would do. Fields that the op does not take are at their defaults.

    Attributes:
        op: one of `ACTIONS`.
        target, to: what it is done to; `to` is where a drag ends.
        value: text to fill, type or select; the state of a check.
        key: as Playwright names it.
        timeout_ms: how long to wait until the target can be acted on.
        max: most presses of Tab.
        dx, dy: of the wheel, px.
        w, h: of the viewport, px.
        ms: how long to wait.
    """

    op: str
    target: Target | None = None
    to: Target | None = None
    value: str | bool = ""
    key: str = ""
    timeout_ms: int = ACTION_TIMEOUT_MS
    max: int = 15
    dx: float = 0
    dy: float = 600
    w: int = 0
    h: int = 0
    ms: float = 0


@dataclass(frozen=True, slots=True)
class Assert:
    """A value read from the page, and what must hold of it.

    Attributes:
        item: the rubric item it decides.
        kind: which value, one of `KINDS`.
        target: of what; None for kinds about the page.
        key: an attribute, a style property, or the second selector of `differs`.
        within_ms: how long it may take to come true.
        predicates: by name, see `agentgym.verifiers.web.predicates`.
    """

    item: str
    kind: str
    target: Target | None = None
    key: str = ""
    within_ms: int = ASSERT_WITHIN_MS
    predicates: Mapping[str, Any] = field(default_factory=dict)


Step: TypeAlias = Action | Assert


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps in one fresh browser context; `viewport` is (width, height) in CSS px."""

    name: str
    viewport: tuple[int, int]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the rubric.

    Attributes:
        id: unique in the task.
        category: only "functionality" is special, see `agentgym.verifiers.web.score`.
        weight: above 0.
        text: for people.
        requires: ids of items without which this one cannot pass.
    """

    id: str
    category: Category
    weight: float
    text: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WebTask:
    """A brief and what decides how well a page meets it.

    Attributes:
        id, prompt: the name, and the only part a policy sees.
        viewport: of scenarios that name none, (width, height) in CSS px.
        items, scenarios: the rubric and the scripts.
        llm_items: items only a language model can judge; they take no part unless one is asked.
        candidates, data: for authors; the judge looks at neither.
    """

    id: str
    prompt: str
    items: tuple[Item, ...]
    scenarios: tuple[Scenario, ...]
    viewport: tuple[int, int] = VIEWPORT
    llm_items: tuple[Item, ...] = ()
    candidates: tuple[Any, ...] = ()
    data: Any = None


def tokens_of(seed: int) -> dict[str, str]:
    """The words that stand for ``{{t1}}`` to ``{{t8}}``: seven lower-case letters each, all different.

    Args:
        seed: equal seeds give equal words, in every process.
    """
    rng = np.random.default_rng([seed, 0x7E8])
    words: list[str] = []
    while len(words) < len(TOKENS):
        word = "".join(chr(ord("a") + int(n)) for n in rng.integers(26, size=7))
        if word not in words:
            words.append(word)
    return dict(zip(TOKENS, words, strict=True))


def with_tokens(value: Any, tokens: Mapping[str, str]) -> Any:
    """A step, or anything inside one, with its tokens replaced in every string."""
    if isinstance(value, str):
        return TOKEN.sub(lambda match: tokens[match[1]], value) if "{{" in value else value
    if isinstance(value, list | tuple):
        return type(value)(with_tokens(each, tokens) for each in value)
    if isinstance(value, Mapping):
        return {key: with_tokens(each, tokens) for key, each in value.items()}
    if isinstance(value, Action | Assert | Target):
        fields = {name: with_tokens(getattr(value, name), tokens) for name in value.__dataclass_fields__}
        return type(value)(**fields)
    return value
