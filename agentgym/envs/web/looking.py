"""The preview: a policy's actions in, what a page shows out, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym.errors import TaskError, ToolError
from agentgym.verifiers.web.reading import parse_actions
from agentgym.verifiers.web.task import Action

if TYPE_CHECKING:
    from agentgym.verifiers.browser import Preview

_MOST_ACTIONS = 20
_MOST_LINES = 20


def actions_of(given: Sequence[Any]) -> tuple[Action, ...]:
    """Actions out of the objects of a call, read as the steps of a web task.

    Raises:
        ToolError: one is no action, or there are too many.
    """
    if len(given) > _MOST_ACTIONS:
        raise ToolError(f"expected at most {_MOST_ACTIONS} actions, got {len(given)}")
    if any(isinstance(each, Mapping) and each.get("op") == "assert" for each in given):
        raise ToolError("a preview takes actions, no asserts")
    try:
        return parse_actions(list(given))
    except TaskError as error:
        raise ToolError(str(error).replace("steps", "actions", 1)) from None


def describe(shown: Preview) -> str:
    """What there is to see, under headings; what is empty is left out."""
    parts = {
        "Did not work": list(shown.failed),
        "Refused requests": list(shown.blocked),
        "Console": list(dict.fromkeys([*shown.errors, *shown.console])),
    }
    said = [f"{head}:\n" + "\n".join(_few(lines)) for head, lines in parts.items() if lines]
    said.append(f"Accessibility tree:\n{shown.aria or '(empty)'}")
    said.append(f"Text:\n{shown.text.strip() or '(none)'}")
    return "\n\n".join(said)


def _few(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MOST_LINES
    return [f"- {line[:300]}" for line in lines[:_MOST_LINES]] + ([f"- and {more} more"] if more > 0 else [])
