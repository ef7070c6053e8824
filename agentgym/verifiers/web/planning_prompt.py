"""What a model is told that plans the steps for a rubric: the task format in short."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agentgym.messages import Message
from agentgym.verifiers.web.rubric import Rubric
from agentgym.verifiers.web.task import ACTIONS, BARE_KINDS, KEY_KINDS, PAGE_KINDS

# What an assert's kind reads, for every kind there is.
MEANINGS: Mapping[str, str] = {
    "visible": "true if the first seen match can be clicked at its centre",
    "hidden": "true if no match is seen",
    "count": "number of seen matches",
    "count_all": "number of matches, seen or not",
    "text": "rendered text of the first seen match",
    "texts": "list of the texts of all seen matches",
    "text_or_none": "as text, but an empty text if none is seen",
    "value": "value of a form field",
    "checked": "whether a box, radio or pressed button is on",
    "attr": "the attribute `key`",
    "attr_any": "the attribute `key` of the first match, seen or not",
    "attr_bool": "whether the attribute `key` is there",
    "style": "the computed style `key`",
    "focused": "whether the focus is on the first match or in it",
    "focused_any": "whether the focus is on a match, seen or not",
    "focused_within": "as focused, but never where the body has the focus",
    "focused_within_or_chrome": "as focused, or the focus has left the page; for focus traps",
    "named": "whether every seen match has an accessible name",
    "named_box": "whether a dialog or region has a name",
    "label_visible": "whether a field's label is seen",
    "contrast": "smallest contrast ratio over all seen matches",
    "struck": "whether text of the match is struck through",
    "font_px": "font size, px",
    "min_size": "smallest width or height over all seen matches, px",
    "rect": "x, y, w, h of the first match, px",
    "inside_x": "whether the match lies inside the screen's width",
    "side_by_side": "whether at least two matches stand beside each other",
    "stacked": "whether at least two matches stand below each other",
    "differs": "whether the match looks different from the first match of the selector `key`",
    "page_text": "rendered text of the page",
    "hash": "the fragment of the address",
    "overflow_x": "px by which the page is too wide; 0 or less fits",
    "no_errors": "true if there was no error yet",
    "no_network": "true if no request was tried yet",
    "dialogs": "number of alert, confirm, prompt and beforeunload dialogs",
    "storage_len": "number of keys in localStorage",
    "title": "the document's title",
    "lang": "the document's language",
}
_GOALS: Mapping[str, str] = {
    "press": "a key as Enter, Space, Shift+Tab, ArrowLeft, a; without target where the focus is",
    "fill": "replaces a field's content",
    "type": "clicks and types character by character",
    "tab_to": "presses Tab until the target has the focus",
    "reload": "storage stays",
    "wait": "at most 2000",
}
_RULES = """\
You plan how a program decides each item of a rubric by using a web page in a browser. The same plan will judge many \
pages that you never see: rely only on what the brief promises (its data-testid names first), never on looks or \
wording that it leaves open. Answer with {"scenarios": [{"name": ..., "viewport": [w, h] (optional), "steps": [...]}], \
"requires": {item: [items it cannot pass without]}}.

Rules:
- Each scenario starts in a fresh browser and its first step is {"op": "goto"}. Put items that do not depend on each \
other into different scenarios, so that one failure does not spoil the next check.
- An item passes if at least one assert names it and every assert that names it holds.
- Check before and after: an assert that would hold without the action proves nothing. An empty page must pass no \
item: where an item is about something absent (no overflow, no errors), let it require one that shows the page works.
- Type random words: {{t1}} to {{t8}} are replaced by words of seven letters that a page cannot know.
- Targets: {"css": ..., "within": target, "has_text": text, "nth": number from 0}; actions also take {"role", "name"}, \
{"label"} or {"text"} in place of css; asserts and tab_to take css only.
- Assert: {"op": "assert", "item": id, "kind": kind, "target": target, "key": ..., predicates}. Predicates, all of \
which must hold: equals, contains, not_contains, regex, min, max, in. Without one the value must be true, not 0, not \
empty. A value that cannot be read (no such element) never holds. Values are polled for within_ms (500).
"""


def prompt_of(rubric: Rubric) -> tuple[Message, Message]:
    """The messages that ask for a plan."""
    actions = [
        f"- {op}: {', '.join([*required, *(f'{name} (optional)' for name in optional)]) or 'nothing else'}"
        + (f"; {_GOALS[op]}" if op in _GOALS else "")
        for op, (required, optional) in ACTIONS.items()
    ]
    kinds = [f"- {kind}{_notes(kind)}: {meaning}" for kind, meaning in MEANINGS.items()]
    asked = {
        "brief": rubric.prompt,
        "viewport": rubric.viewport,
        "items": [
            {"id": item.id, "category": item.category, "text": item.text}
            for item in rubric.judged_by("steps")
        ],
    }
    return (
        Message(
            "system",
            "\n".join(
                [_RULES, "Actions, each with what it takes:", *actions, "", "Kinds of asserts:", *kinds]
            ),
        ),
        Message("user", json.dumps(asked, ensure_ascii=False, indent=1)),
    )


def _notes(kind: str) -> str:
    notes = [
        *(["no target"] if kind in PAGE_KINDS else []),
        *(["needs key"] if kind in KEY_KINDS else []),
        *(["no predicate"] if kind in BARE_KINDS else []),
    ]
    return f" ({', '.join(notes)})" if notes else ""
