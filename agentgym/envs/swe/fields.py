"""Reading the fields of parsed JSON rows; what is wrong is a `TaskError` that names the field."""

from __future__ import annotations

import ast
import json
import math
import warnings
from collections.abc import Mapping
from typing import Any

from agentgym.errors import TaskError

Row = dict[str, Any]


def present(data: Any) -> Row:
    """The row without absent values: null, and NaN, which tables write for it.

    Raises:
        TaskError: it is no object with texts as keys.
    """
    if not isinstance(data, Mapping):
        raise TaskError(f"expected a JSON object, got {type(data).__name__}")
    return {key: value for key, value in data.items() if value is not None and not _nan(value)}


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def text_of(row: Mapping[str, Any], name: str) -> str:
    """A text field; empty where it is absent."""
    value = row.get(name, "")
    if not isinstance(value, str):
        raise TaskError(f"expected `{name}` to be a text, got {value!r:.80}")
    return value


def number_or_text_of(row: Mapping[str, Any], name: str) -> str:
    """A text field that other people's files may hold as a number, such as ``version: 3.2``."""
    value = row.get(name, "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return text_of(row, name)


def texts_of(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts; empty where it is absent."""
    value = row.get(name, [])
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        raise TaskError(f"expected `{name}` to be a list of texts, got {value!r:.80}")
    return tuple(value)


def ids_of(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of test ids, which the classic files hold inside a text: as JSON, or as Python writes a list."""
    value = row.get(name, [])
    return texts_of({name: _parsed_list(name, value) if isinstance(value, str) else value}, name)


def _parsed_list(name: str, value: str) -> Any:
    if not value.strip():
        return []
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in an id, such as "\\d"
            return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise TaskError(
            f"expected `{name}` to be a list of texts, or it as JSON, got {value!r:.80}"
        ) from None


def object_of(row: Mapping[str, Any], name: str) -> Row:
    """An object, or one as JSON inside a text, with its absent values dropped; empty where it is absent."""
    value = row.get(name, {})
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError):
            raise TaskError(f"expected `{name}` to be an object, or it as JSON, got {value!r:.80}") from None
    if not isinstance(value, Mapping):
        raise TaskError(f"expected `{name}` to be an object, got {value!r:.80}")
    return present(value)
