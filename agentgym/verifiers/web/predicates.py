"""Whether a value that was read from a page is what an assert asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import regex

_SEARCH_S = 0.5


def holds(value: Any, predicates: Mapping[str, Any]) -> bool:
    """Whether all predicates hold of a value; without any, whether it is truthy.

    None never holds, whatever the predicate.

    Args:
        value: a JSON value.
        predicates: by name; see `agentgym.verifiers.web.task.PREDICATES`.

    Raises:
        ValueError, TypeError: `min` or `max` of what is no number, or `regex` tries without end on this text. The
            assert does not hold.
        re.error, regex.error: the word that stands for a token makes `regex` no expression. The same.
    """
    if value is None:
        return False
    if not predicates:
        return bool(value)
    return all(_CHECKS[name](value, wanted) for name, wanted in predicates.items())


def equal(value: Any, wanted: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, true equals neither."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(equal, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(equal(value[key], wanted[key]) for key in value)
    return bool(value == wanted)


def _found(value: Any, expression: str) -> bool:
    # What an expression is, Python's own `re` says: `regex` has escapes of its own. But `re` can't be interrupted: on a
    # text that a page has made for it, it would hold all browsers.
    re.compile(expression)
    try:
        return regex.search(expression, str(value), timeout=_SEARCH_S) is not None
    except TimeoutError:
        raise ValueError(
            f"looking for the regular expression {expression!r:.80} took more than {_SEARCH_S} s"
        ) from None


_CHECKS: Mapping[str, Callable[[Any, Any], bool]] = {
    "equals": equal,
    "contains": lambda value, wanted: str(wanted) in str(value),
    "not_contains": lambda value, wanted: str(wanted) not in str(value),
    "regex": _found,
    "min": lambda value, wanted: float(value) >= wanted,
    "max": lambda value, wanted: float(value) <= wanted,
    "in": lambda value, wanted: any(equal(value, each) for each in wanted),
}
