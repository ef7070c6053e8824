"""Whether what was read from a file has the types that its record declares; cheap enough for every line of a file."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
    Mapping: "an object",
    types.NoneType: "null",
}


def check_verdict(verdict: Mapping[str, Any]) -> None:
    """Check the entries of a verdict that are counted with.

    Raises:
        TypeError: as for `FieldTypes.check`.
    """
    _number("verdict.score", verdict.get("score", 0.0))
    for name in ("components", "held_out", "evidence"):
        part = verdict.get(name, {})
        if not isinstance(part, Mapping):
            raise TypeError(f"expected verdict.{name} to be an object, got {part!r:.60}")
        if name != "evidence":
            for key, value in part.items():
                _number(f"verdict.{name}.{key}", value)


def _number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected {what} to be a number, got {value!r:.60}")


class FieldTypes:
    """The types that a dataclass declares.

    Combinations found good are remembered: a file has few of them, and many records.

    Args:
        cls: the dataclass.
        names: two or more of its fields; those left out are not checked. None given: all.
    """

    def __init__(self, cls: type, *names: str) -> None:
        hints = get_type_hints(cls)
        name = cls.__name__.lower()
        self._name = f"an {name}" if name[0] in "aeiou" else f"a {name}"
        self._allowed = {name: _types(hints[name]) for name in names or [entry.name for entry in fields(cls)]}
        self._values = attrgetter(*self._allowed)
        self._good: set[tuple[type, ...]] = set()

    def check(self, records: Collection[Any]) -> None:
        """Check instances of the dataclass; of lists and objects not what is in them.

        Raises:
            TypeError: a type is wrong; says what was expected of which field, and what came.
        """
        if not records:
            return
        found = {tuple(map(type, values)) for values in map(self._values, records)}
        if not found <= self._good:
            for record in records:
                self._look(record)
            self._good |= found

    def _look(self, record: Any) -> None:
        for name, allowed in self._allowed.items():
            value = getattr(record, name)
            # In Python true is a number.
            if not isinstance(value, allowed) or (
                isinstance(value, bool) and not {bool, object} & {*allowed}
            ):
                raise TypeError(f"expected {name} of {self._name} to be {_said(allowed)}, got {value!r:.60}")


def _types(hint: Any) -> tuple[type, ...]:
    """What a value of this type may be an instance of; a whole number will do where any number does."""
    if hint is Any:
        return (object,)
    if hint is float:
        return (float, int)
    origin = get_origin(hint)
    if origin is Literal:
        return tuple({type(value) for value in get_args(hint)})
    if origin in (Union, types.UnionType):
        return tuple(one for part in get_args(hint) for one in _types(part))
    return (origin or hint,)


def _said(allowed: tuple[type, ...]) -> str:
    wanted = [one for one in allowed if not (one is int and float in allowed)]
    return " or ".join(_WORDS.get(one, one.__name__) for one in wanted)
