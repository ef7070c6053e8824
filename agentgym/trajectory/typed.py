"""Whether a trajectory has the types that its records declare; cheap enough for every line of a file."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from agentgym.messages import Message, MessageCall
from agentgym.trajectory.records import SCHEMA_VERSION, Call, Event, Sampled, Segment, Step, Trajectory

ARRAYS = ("token_ids", "mask", "logprobs", "rewards")

_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    tuple: "a tuple",
    dict: "an object",
    Mapping: "an object",
    types.NoneType: "null",
}
_NUMBER = (float, int)
# What the numbers and pages of a run read in the parts that may hold any JSON.
_OF_INFO = (("context_tokens", _NUMBER), ("anchor", (str, float, int, types.NoneType)))
_OF_COMPACTION: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("before_tokens", _NUMBER),
    ("after_tokens", _NUMBER),
    ("dropped", (int,)),
    ("dropped_messages", (list,)),
    ("summary", (str,)),
)


def check(trajectory: Trajectory) -> None:
    """Check every field of a trajectory and of its records, and what the package itself keeps in free JSON.

    Raises:
        TypeError: a type is wrong; says what was expected of which field, and what came.
    """
    if trajectory.schema_version != SCHEMA_VERSION:
        raise TypeError(f"expected schema_version {SCHEMA_VERSION}, got {trajectory.schema_version!r}")
    segments, steps = trajectory.segments, trajectory.steps
    _TRAJECTORY.check((trajectory,))
    _STEP.check(steps)
    _CALL.check([call for step in steps for call in step.calls])
    _SEGMENT.check(segments)
    _SAMPLED.check([sampled for segment in segments for sampled in segment.sampled])
    parts = [part for segment in segments for part in (segment.messages, segment.dropped) if part]
    messages = list(chain.from_iterable(parts))
    _MESSAGE.check(messages)
    _MESSAGE_CALL.check([call for message in messages if message.tool_calls for call in message.tool_calls])
    _EVENT.check(trajectory.events)
    for info in [step.info for step in steps if step.info]:
        for name, allowed in _OF_INFO:
            if not isinstance(info.get(name, 0), allowed):
                _refuse(name, "the info of a step", allowed, info[name])
    for event in trajectory.events:
        if event.kind == "compaction":
            _check_compaction(event.data)
    for segment in segments:
        if segment.mask or segment.rewards:
            _check_tokens(segment)
    if trajectory.verdict:
        _check_verdict(trajectory.verdict)


def _check_compaction(data: Mapping[str, Any]) -> None:
    for name, allowed in _OF_COMPACTION:
        if name in data and not isinstance(data[name], allowed):
            _refuse(name, "the data of a compaction", allowed, data[name])
    for row in data.get("dropped_messages", ()):
        texts = (row.get("role", ""), row.get("content", "")) if isinstance(row, Mapping) else (None,)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"expected dropped_messages of a compaction to hold messages, got {row!r:.60}")


def _check_tokens(segment: Segment) -> None:
    """Check what is in the arrays that pages sum up; a sum is the quickest way to see that they hold numbers alone."""
    for name in ("mask", "rewards"):
        values: Sequence[Any] = getattr(segment, name)
        try:
            sum(values)
        except TypeError:
            wrong = next(value for value in values if not isinstance(value, _NUMBER))
            raise TypeError(f"expected {name} of a segment to hold numbers, got {wrong!r:.60}") from None


def _check_verdict(verdict: Mapping[str, Any]) -> None:
    """Check the entries of a verdict that are counted with."""
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
    """The types that a dataclass declares, and the values where it lists them.

    Combinations found good are remembered: a file has few of them, and many records.

    Args:
        cls: the dataclass, of two or more fields.
        noun: what messages call it; by default its name.
    """

    def __init__(self, cls: type, noun: str = "") -> None:
        hints = get_type_hints(cls)
        noun = noun or cls.__name__.lower()
        self._name = f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
        self._allowed = {entry.name: _types(hints[entry.name]) for entry in fields(cls)}
        self._listed = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
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
        for name, values in self._listed.items():
            for value in set(map(attrgetter(name), records)).difference(values):
                raise TypeError(
                    f"expected {name} of {self._name} among {', '.join(values)}, got {value!r:.60}"
                )

    def _look(self, record: Any) -> None:
        for name, allowed in self._allowed.items():
            value = getattr(record, name)
            # In Python true is a number.
            if not isinstance(value, allowed) or (
                isinstance(value, bool) and not {bool, object} & {*allowed}
            ):
                _refuse(name, self._name, allowed, value)


def _refuse(name: str, of: str, allowed: tuple[type, ...], value: Any) -> NoReturn:
    raise TypeError(f"expected {name} of {of} to be {_said(allowed)}, got {value!r:.60}")


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


_TRAJECTORY, _STEP, _CALL = FieldTypes(Trajectory), FieldTypes(Step), FieldTypes(Call)
_SEGMENT, _SAMPLED = FieldTypes(Segment), FieldTypes(Sampled, "sampled reply")
_MESSAGE, _MESSAGE_CALL = FieldTypes(Message), FieldTypes(MessageCall, "call of a message")
_EVENT = FieldTypes(Event)
