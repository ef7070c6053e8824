"""Reading web tasks (`agentgym.verifiers.web.task`).

A file is read as a whole or not at all: an unknown field, op, kind, category or item, a missing field, a cycle of
`requires` or a token that does not exist is an error that says where it stands. Nothing unknown passes silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agentgym.errors import TaskError, nearest
from agentgym.spaces import encodable
from agentgym.verifiers.web.task import (
    ACTIONS,
    ASSERT_WITHIN_MS,
    BARE_KINDS,
    CATEGORIES,
    KEY_KINDS,
    KINDS,
    PREDICATES,
    TARGET_KINDS,
    TOKEN,
    TOKENS,
    VIEWPORT,
    Action,
    Assert,
    Item,
    Scenario,
    Step,
    Target,
    WebTask,
)

T = TypeVar("T")
_MOST = 1e15  # larger whole numbers are not exact in JSON
_MOST_PX = 10_000
_MOST_DEPTH = 64


def load_task(path: str | Path) -> WebTask:
    """The task of a file.

    Raises:
        TaskError: there is no such file, or it is no task; names the file and the place in it.
    """
    return load(path, parse_task)


def load(path: str | Path, parse: Callable[[Any], T]) -> T:
    """What a JSON file holds, by a function that raises `TaskError` with the place in it.

    Raises:
        TaskError: there is no such file, or it is not what it should be; names the file and the place in it.
    """
    try:
        data = json.loads(Path(path).read_bytes(), object_pairs_hook=_object, parse_constant=_no_constant)
    except OSError as error:
        raise TaskError(f"cannot read the task {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one too
        raise TaskError(f"{path}: expected a JSON object: {error}") from None
    try:
        return parse(data)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from None


def parse_actions(data: Any) -> tuple[Action, ...]:
    """The actions of a parsed JSON list; there are no tokens in them.

    Raises:
        TaskError: it is no such list; names the place.
    """
    reader = Reader({"steps": data}, "")
    return tuple(_action(each, each.one_of("op", tuple(ACTIONS))) for each in reader.objects("steps"))


def parse_task(data: Any) -> WebTask:
    """The task of a parsed JSON object.

    Raises:
        TaskError: it is no task; names the place.
    """
    reader = Reader(data, "")
    reader.only(("id", "prompt", "viewport", "items", "scenarios", "candidates", "data", "llm_items"))
    viewport = reader.viewport(VIEWPORT)
    items = tuple(_item(each) for each in reader.objects("items"))
    if not items:
        raise reader.error("items", "expected at least one item")
    llm_items = tuple(_item(each) for each in reader.objects("llm_items")) if "llm_items" in data else ()
    check_ids(reader, (*items, *llm_items))
    known = [item.id for item in items]
    for number, item in enumerate(items):
        for each in item.requires:
            if each not in known:
                raise reader.error(
                    f"items[{number}].requires", f"no item {each!r} here.{nearest(each, known)}"
                )
    _check_cycles(reader, items)
    scenarios = tuple(_scenario(each, viewport, known) for each in reader.objects("scenarios"))
    if not scenarios:
        raise reader.error("scenarios", "expected at least one scenario")
    candidates = reader.list("candidates") if "candidates" in data else []
    return WebTask(
        reader.text("id", filled=True),
        reader.text("prompt"),
        items,
        scenarios,
        viewport,
        llm_items,
        tuple(candidates),
        data.get("data"),
    )


class Reader:
    """A JSON object and where it stands in the file, for errors: every method raises a `TaskError` that names it."""

    def __init__(self, data: Any, place: str) -> None:
        if not isinstance(data, Mapping):
            raise TaskError(f"{place or 'the file'}: expected an object, got {data!r:.60}")
        self.data, self.place = data, place

    def error(self, name: str, text: str) -> TaskError:
        place = ".".join(filter(None, (self.place, name)))
        return TaskError(f"{place}: {text}" if place else text)

    def only(self, known: Sequence[str]) -> None:
        for name in self.data:
            if name not in known:
                raise self.error("", f"unknown field {name!r}.{nearest(name, known)}")

    def _value(self, name: str) -> Any:
        if name not in self.data:
            raise self.error("", f"the field {name!r} is missing")
        return self.data[name]

    def text(self, name: str, *, filled: bool = False) -> str:
        value = self._value(name)
        if not isinstance(value, str) or (filled and not value.strip()):
            raise self.error(name, f"expected a {'filled ' * filled}text, got {value!r:.60}")
        if not encodable(value):
            raise self.error(name, f"expected a text that can be encoded, got {value!r:.60}")
        return value

    def one_of(self, name: str, known: Sequence[str]) -> str:
        value = self._value(name)
        if value not in known:
            raise self.error(name, f"unknown {name} {value!r:.60}.{nearest(value, known)}")
        return str(value)

    def flag(self, name: str) -> bool:
        value = self._value(name)
        if not isinstance(value, bool):
            raise self.error(name, f"expected true or false, got {value!r:.60}")
        return value

    def number(self, name: str, least: float = -_MOST, most: float = _MOST) -> float:
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            floor = f" >= {least:g}" if least > -_MOST else ""
            raise self.error(name, f"expected a number{floor}, got {value!r:.60}")
        if not value <= most:
            raise self.error(name, f"expected a number from {least:g} to {most:g}, got {value!r:.60}")
        return value

    def whole(self, name: str, least: int, most: float = _MOST) -> int:
        value = self.number(name, least, most)
        if value != int(value):
            raise self.error(name, f"expected a whole number, got {value!r:.60}")
        return int(value)

    def weight(self) -> float:
        weight = self.number("weight") if "weight" in self.data else 1.0
        if not weight > 0:
            raise self.error("weight", f"expected a number above 0, got {weight!r}")
        return float(weight)

    def list(self, name: str) -> list[Any]:
        value = self._value(name)
        if not isinstance(value, list):
            raise self.error(name, f"expected a list, got {value!r:.60}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.list(name)
        if not all(isinstance(each, str) for each in value):
            raise self.error(name, f"expected a list of texts, got {value!r:.60}")
        return tuple(value)

    def objects(self, name: str) -> Iterator[Reader]:
        place = f"{self.place}.{name}" if self.place else name
        return (Reader(each, f"{place}[{number}]") for number, each in enumerate(self.list(name)))

    def object(self, name: str) -> Reader:
        return Reader(self._value(name), f"{self.place}.{name}")

    def viewport(self, default: tuple[int, int]) -> tuple[int, int]:
        if "viewport" not in self.data:
            return default
        match self.data["viewport"]:
            case [int(width), int(height)] if all(
                type(px) is int and 0 < px <= _MOST_PX for px in (width, height)
            ):
                return width, height
        got = f"{self.data['viewport']!r:.60}"
        raise self.error("viewport", f"expected [width, height] in px, each from 1 to {_MOST_PX}, got {got}")


def _item(reader: Reader) -> Item:
    reader.only(("id", "category", "weight", "text", "requires"))
    requires = reader.texts("requires") if "requires" in reader.data else ()
    category: Any = reader.one_of("category", CATEGORIES)
    return Item(
        reader.text("id", filled=True),
        category,
        reader.weight(),
        reader.text("text"),
        requires,
    )


def check_ids(reader: Reader, items: Sequence[Item]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise reader.error("items", f"two items have the id {item.id!r}")
        seen.add(item.id)


def _check_cycles(reader: Reader, items: Sequence[Item]) -> None:
    left = {item.id: set(item.requires) for item in items}
    while free := [each for each, needs in left.items() if not needs & left.keys()]:
        for each in free:
            del left[each]
    if left:
        raise reader.error("items", f"the `requires` of {', '.join(map(repr, left))} lead in a circle")


def _scenario(reader: Reader, viewport: tuple[int, int], items: Sequence[str]) -> Scenario:
    reader.only(("name", "viewport", "steps"))
    steps = tuple(_step(each, items) for each in reader.objects("steps"))
    return Scenario(reader.text("name"), reader.viewport(viewport), steps)


def _step(reader: Reader, items: Sequence[str]) -> Step:
    _check_tokens(reader, reader.data)
    op = reader.one_of("op", (*ACTIONS, "assert"))
    return _assert(reader, items) if op == "assert" else _action(reader, op)


def _action(reader: Reader, op: str) -> Action:
    required, optional = ACTIONS[op]
    reader.only(("op", "timeout_ms", *required, *optional))
    read: Mapping[str, Any] = {
        "target": lambda: _target(reader.object("target"), css_only=op == "tab_to"),
        "to": lambda: _target(reader.object("to"), css_only=False),
        "value": lambda: reader.flag("value") if op == "check" else reader.text("value"),
        "key": lambda: reader.text("key", filled=True),
        "timeout_ms": lambda: reader.whole("timeout_ms", 0),
        "max": lambda: reader.whole("max", 1),
        "dx": lambda: reader.number("dx"),
        "dy": lambda: reader.number("dy"),
        "w": lambda: reader.whole("w", 1, _MOST_PX),
        "h": lambda: reader.whole("h", 1, _MOST_PX),
        "ms": lambda: reader.number("ms", 0),
    }
    present = [name for name in ("timeout_ms", *optional) if name in reader.data]
    values = {name: read[name]() for name in (*required, *present)}
    if op == "check":
        values.setdefault("value", True)
    return Action(op, **values)


def _assert(reader: Reader, items: Sequence[str]) -> Assert:
    kind = reader.one_of("kind", KINDS)
    known = ["op", "item", "kind", "within_ms"]
    known += ["target"] if kind in TARGET_KINDS else []
    known += ["key"] if kind in KEY_KINDS else []
    known += [] if kind in BARE_KINDS else PREDICATES
    reader.only(known)
    item = reader.text("item")
    if item not in items:
        raise reader.error("item", f"no item {item!r} here.{nearest(item, items)}")
    predicates = {name: reader.data[name] for name in PREDICATES if name in reader.data}
    _check_predicates(reader, predicates)
    return Assert(
        item,
        kind,
        _target(reader.object("target"), css_only=True) if kind in TARGET_KINDS else None,
        reader.text("key", filled=True) if kind in KEY_KINDS else "",
        reader.whole("within_ms", 0) if "within_ms" in reader.data else ASSERT_WITHIN_MS,
        predicates,
    )


def _check_predicates(reader: Reader, predicates: Mapping[str, Any]) -> None:
    for name, wanted in predicates.items():
        if name == "regex":
            try:
                re.compile(reader.text(name))
            except re.error as error:
                raise reader.error(name, f"no regular expression: {error}") from None
        elif name in ("min", "max"):
            reader.number(name)
        elif name == "in" and not isinstance(wanted, list):
            raise reader.error(name, f"expected a list, got {wanted!r:.60}")


def _target(reader: Reader, *, css_only: bool) -> Target:
    ways = ("css",) if css_only else ("css", "role", "label", "text")
    chosen = [way for way in ways if way in reader.data]
    if len(chosen) != 1:
        got = ", ".join(chosen) or "none"
        raise reader.error("", f"expected one of {', '.join(ways)}, got {got}")
    way = chosen[0]
    reader.only((way, *(("name", "exact") if way == "role" else ()), "within", "has_text", "nth"))
    data = reader.data
    return Target(
        **{way: reader.text(way, filled=True)},
        name=reader.text("name") if "name" in data else None,
        exact=reader.flag("exact") if "exact" in data else False,
        within=_target(reader.object("within"), css_only=css_only) if "within" in data else None,
        has_text=reader.text("has_text") if "has_text" in data else None,
        nth=reader.whole("nth", 0) if "nth" in data else None,
    )


def _check_tokens(reader: Reader, value: Any, depth: int = 0) -> None:
    if depth > _MOST_DEPTH:
        raise reader.error(
            "", f"expected at most {_MOST_DEPTH} levels of lists and objects in a step, got more"
        )
    if isinstance(value, str):
        for name in TOKEN.findall(value):
            if name not in TOKENS:
                raise reader.error(
                    "", f"no token {{{{{name}}}}}; there are {{{{t1}}}} to {{{{t{len(TOKENS)}}}}}"
                )
    elif isinstance(value, Mapping):
        for each in value.values():
            _check_tokens(reader, each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check_tokens(reader, each, depth + 1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
