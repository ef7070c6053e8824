"""What the three formats share: routes, reading a request strictly, errors, server-sent events."""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from agentgym.errors import nearest
from agentgym.gateway.exchange import Asked, Given, Refusal
from agentgym.tools import Tool, read_json

T = TypeVar("T")

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_LONGEST = 1000  # characters of a field that is noted
_NAMES = {str: "text", bool: "true or false", int: "a whole number", list: "a list", dict: "an object"}


class Format(abc.ABC):
    """One way to ask for a reply and to be given it.

    Attributes:
        path: of its route.
    """

    path: ClassVar[str]

    @abc.abstractmethod
    def read(self, body: Mapping[str, Any]) -> Asked:
        """The request that a body holds.

        Raises:
            Refusal: it is not in the format, or asks for what no policy here can do.
        """

    @abc.abstractmethod
    def body(self, asked: Asked, given: Given) -> dict[str, Any]:
        """The answer as one object."""

    @abc.abstractmethod
    def events(self, asked: Asked, given: Given) -> Iterator[str]:
        """The answer as server-sent events, each as it is written. The reply is whole before the first is sent."""

    @abc.abstractmethod
    def error(self, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        """Status and body of a refusal."""


def event(data: Mapping[str, Any], name: str = "") -> str:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def pieces(text: str) -> Iterator[str]:
    """A text in parts that make it up: words with the blanks before them."""
    return (match.group() for match in re.finditer(r"\s*\S+|\s+\Z", text))


def read_body(data: bytes) -> dict[str, Any]:
    """The JSON object of a request.

    Raises:
        Refusal: it is none.
    """
    try:
        body = read_json(data.decode("utf-8").strip())
    except ValueError as error:  # UnicodeDecodeError is one
        raise Refusal("bad_request", f"expected a body of JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refusal("bad_request", f"expected the body to be a JSON object, got {_short(body)}")
    return body


class Fields:
    """The fields of an object in a request, each read once, with its type.

    Args:
        value: the object.
        where: names it in errors, such as ``messages[2]``; "" for the body.
    """

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, dict):
            raise Refusal(
                "bad_request", f"expected {where or 'the body'} to be an object, got {_short(value)}"
            )
        self._value, self._where = value, where
        self._read: set[str] = set()

    def where(self, name: str) -> str:
        """A field, as errors call it."""
        return f"{self._where}.{name}" if self._where else name

    def get(self, name: str, kind: type[T], default: T) -> T:
        """A field that may be missing or null."""
        self._read.add(name)
        value = self._value.get(name)
        return default if value is None else self._checked(name, value, kind)

    def need(self, name: str, kind: type[T]) -> T:
        """A field that must be there."""
        self._read.add(name)
        if self._value.get(name) is None:
            raise Refusal("bad_request", f"expected {self.where(name)}, {_NAMES[kind]}; it is missing")
        return self._checked(name, self._value[name], kind)

    def number(self, name: str) -> float | None:
        """A number; None where it is missing or null."""
        self._read.add(name)
        value = self._value.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise Refusal("bad_request", f"expected {self.where(name)} to be a number, got {_short(value)}")
        return value

    def raw(self, name: str) -> Any:
        """A field of any type; None where it is missing."""
        self._read.add(name)
        return self._value.get(name)

    def refuse(self, name: str, *harmless: Any, why: str) -> None:
        """Refuse a field that asks for what no policy here can do, unless its value changes nothing."""
        value = self.raw(name)
        if value is not None and value not in harmless:
            raise Refusal("bad_request", f"{self.where(name)}={_short(value)}: {why}")

    def rest(self) -> dict[str, Any]:
        """The fields that nobody read, which are not applied."""
        rest = {
            name: value for name, value in self._value.items() if name not in self._read and value is not None
        }
        return {
            name: value if len(text := json.dumps(value)) <= _LONGEST else text[:_LONGEST]
            for name, value in rest.items()
        }

    def refuse_others(self) -> None:
        """Refuse an object with fields that nobody read."""
        for name in self._value.keys() - self._read:
            raise Refusal(
                "bad_request", f"unknown field {self.where(name)!r:.80}.{nearest(name, self._read)}"
            )

    def _checked(self, name: str, value: Any, kind: type[T]) -> T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Refusal(
                "bad_request", f"expected {self.where(name)} to be {_NAMES[kind]}, got {_short(value)}"
            )
        return value


def text_of(value: Any, where: str, kinds: tuple[str, ...] = ("text", "input_text", "output_text")) -> str:
    """Content as text: a text, or a list of text parts.

    Raises:
        Refusal: anything else, such as a picture.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise Refusal(
            "bad_request", f"expected {where} to be text or a list of text parts, got {_short(value)}"
        )
    texts = []
    for index, entry in enumerate(value):
        part = Fields(entry, f"{where}[{index}]")
        kind = part.need("type", str)
        if kind == "refusal":  # what an assistant said instead of an answer
            texts.append(part.need("refusal", str))
        elif kind in kinds:
            texts.append(part.need("text", str))
        else:
            raise Refusal("bad_request", f"{part.where('type')}={kind!r:.60}: only text is supported")
    return "".join(texts)


def read_tool(fields: Fields, schema_field: str) -> Tool:
    """A tool out of the object that names and describes it."""
    name = fields.need("name", str)
    if not _TOOL_NAME.fullmatch(name):
        raise Refusal(
            "bad_request", f"expected {fields.where('name')} of letters, digits, _, - and ., got {name!r:.60}"
        )
    given = fields.get(schema_field, dict, {})
    schema = {"type": "object", **given}
    properties = Fields(schema, fields.where(schema_field)).get("properties", dict, {})
    schema["properties"] = {key: _property(value) for key, value in properties.items()}
    required = schema.get("required")
    schema["required"] = (
        [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    )
    return Tool(name, fields.get("description", str, ""), json.dumps(schema, ensure_ascii=False), name)


def read_tools(tools: list[Tool]) -> tuple[Tool, ...]:
    """The tools of a request.

    Raises:
        Refusal: two have one name.
    """
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal("bad_request", f"the tool {twice!r} is listed twice")
    return tuple(tools)


def _property(value: Any) -> dict[str, Any]:
    """The schema of one argument; what has no simple type is read as text by protocols that carry text."""
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=True):.60}"
