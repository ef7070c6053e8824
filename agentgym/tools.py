"""Tools: how an environment offers them, how a call is described, checked, answered and recorded."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, overload

from agentgym.tasks import FrozenDict

F = TypeVar("F", bound=Callable[..., Any])

MAX_NESTING = 64  # of the JSON in a call
MAX_DIGITS = 100  # of a number in it
_MARK = "__agentgym_tool__"
_JSON_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}
_PYTHON_TYPES: dict[str, Any] = {  # what isinstance takes
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@dataclass(frozen=True, slots=True)
class Tool:
    """What the policy is told of one tool.

    Attributes:
        name: the name it is called by.
        description: the first paragraph of the method's docstring.
        schema: JSON schema of the arguments, as JSON text (frozen, so infos can be compared and shared).
        method: name of the environment's method behind it.
        read_only: a call changes nothing that others see.
    """

    name: str
    description: str
    schema: str
    method: str
    read_only: bool = False

    def to_openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's ``tools`` argument."""
        function = {"name": self.name, "description": self.description, "parameters": json.loads(self.schema)}
        return {"type": "function", "function": function}


# Calls and results are made at every step: named tuples cost a third of frozen dataclasses.


class ToolCall(NamedTuple):
    """One parsed request inside an action."""

    name: str
    arguments: Mapping[str, Any] = FrozenDict()  # immutable, so one default serves all


class ToolResult(NamedTuple):
    """What a call was answered with.

    Attributes:
        text: what the policy reads.
        error: the call failed, in a way the policy reads about.
        exit_code: of the command behind the call; None where there is none.
        blocked: the call did not run; a monitor answered in its place.
        note: for logs only, for example the monitor's rule and reason. Never shown to the policy.
    """

    text: str
    error: bool = False
    exit_code: int | None = None
    blocked: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call with its answer and the seconds it took. The time takes no part in comparisons."""

    call: ToolCall
    result: ToolResult
    seconds: float = field(default=0.0, compare=False)


class Next(Protocol):
    """The rest of the middleware chain."""

    def __call__(self, call: ToolCall) -> ToolResult: ...


class _Mark(NamedTuple):
    """What `tool` leaves on a method."""

    read_only: bool


class Middleware(Protocol):
    """``handler(call, next)``: answer the call, or pass it on with ``next(call)``, changed or not."""

    def __call__(self, call: ToolCall, next: Next) -> ToolResult: ...


@overload
def tool(method: F) -> F: ...
@overload
def tool(*, read_only: bool) -> Callable[[F], F]: ...
def tool(method: F | None = None, *, read_only: bool = False) -> F | Callable[[F], F]:
    """Mark a method of an `AgentEnv` as a tool: ``@tool``, or ``@tool(read_only=True)`` where a call changes nothing.

    The JSON schema comes from the signature (str, int, float, bool, list, dict, Literal, ``X | None``; defaults make
    a parameter optional), the descriptions from a Google-style docstring. The method returns the text the policy
    reads, a `ToolResult`, or any JSON value; it raises `ToolError` for a failure the policy should read about.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, _Mark(read_only))
        return function

    return mark if method is None else mark(method)


def tools_of(cls: type) -> tuple[Tool, ...]:
    """The tools a class defines or inherits, in order of definition."""
    found: dict[str, Tool] = {}
    for base in reversed(cls.__mro__):
        for name, method in vars(base).items():
            mark: _Mark | None = getattr(getattr(method, "__func__", method), _MARK, None)
            if mark is not None:
                found[name] = _describe(name, method, mark.read_only)
            else:
                found.pop(name, None)  # a subclass that overrides without the mark withdraws the tool
    return tuple(found.values())


def _describe(name: str, method: Callable[..., Any], read_only: bool) -> Tool:
    if not inspect.isfunction(method) or inspect.iscoroutinefunction(method):
        raise TypeError(f"tool {name!r}: expected a plain method, got {method}")
    summary, parameter_docs = _read_docstring(method)
    hints = typing.get_type_hints(method)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"tool {name!r}: expected plain parameters, got {parameter}")
        if parameter.name not in hints:
            raise TypeError(f"tool {name!r}: parameter {parameter.name!r} has no type annotation")
        where = f"tool {name!r}, parameter {parameter.name!r}"
        entry = _schema_of(hints[parameter.name], where)
        if parameter.name in parameter_docs:
            entry["description"] = parameter_docs[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            if mismatch := _mismatch(parameter.default, entry):
                raise TypeError(f"{where}: the default {mismatch}")
            entry["default"] = parameter.default
        properties[parameter.name] = entry
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(name, summary, json.dumps(schema), name, read_only)


def _schema_of(hint: Any, where: str) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        inner = _schema_of(next(a for a in arguments if a is not type(None)), where)
        nullable = {"type": [inner["type"], "null"]}
        return inner | nullable | ({"enum": [*inner["enum"], None]} if "enum" in inner else {})
    if origin is Literal:
        if not all(isinstance(a, str) for a in arguments):
            raise TypeError(f"{where}: expected a Literal of texts, got {hint}")
        return {"type": "string", "enum": list(arguments)}
    if origin is list and arguments:
        return {"type": "array", "items": _schema_of(arguments[0], where)}
    plain = _JSON_TYPES.get(origin or hint)
    if plain is None:
        raise TypeError(
            f"{where}: expected str, int, float, bool, list, dict, Literal or X | None; got {hint}"
        )
    return {"type": plain}


def _read_docstring(method: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    text = inspect.getdoc(method) or ""
    head, _, rest = text.partition("\nArgs:\n")
    documented: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if line and not line.startswith(" "):
            break  # the next section
        entry = re.match(r" {2,4}(\w+)(?: \([^)]*\))?: (.*)", line)
        if entry:
            name = entry[1]
            documented[name] = entry[2].strip()
        elif name and line.strip():
            documented[name] += " " + line.strip()
    return " ".join(head.split("\n\n")[0].split()), documented


class ArgumentChecker:
    """Checks the arguments of calls against the schemas of an environment's tools. Never changes once made.

    Attributes:
        names: of the tools, in order.
    """

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self.names = [tool.name for tool in tools]
        self._schemas: dict[str, tuple[dict[str, Any], frozenset[str]]] = {}
        for tool in tools:
            schema = json.loads(tool.schema)
            self._schemas[tool.name] = (schema["properties"], frozenset(schema["required"]))

    def problem(self, call: ToolCall) -> str | None:
        """What is wrong with the call, in words the policy can act on; None if nothing is."""
        if call.name not in self._schemas:
            return f"there is no tool {call.name!r}; the tools are {', '.join(self.names)}"
        properties, required = self._schemas[call.name]
        for name, value in call.arguments.items():
            if name not in properties:
                return f"{call.name} has no argument {name!r}; it takes {', '.join(properties) or 'no arguments'}"
            mismatch = _mismatch(value, properties[name])
            if mismatch:
                return f"{call.name}: argument {name!r} {mismatch}"
        if len(call.arguments) < len(properties) and not required <= call.arguments.keys():
            missing = [name for name in properties if name in required - call.arguments.keys()]
            return f"{call.name} needs the argument {', '.join(map(repr, missing))}"
        return None

    def coerce(self, name: str, argument: str, text: str) -> Any:
        """The value of an argument that a protocol carries as bare text; the text itself where it does not fit.

        Where a tool takes a text or None, ``null`` is None.
        """
        schema = self._schemas[name][0].get(argument, {}) if name in self._schemas else {}
        kind = schema.get("type", "string")
        if kind == "string" or (kind == ["string", "null"] and text != "null"):
            return text
        try:
            return read_json(text.strip())
        except ValueError:
            return text


checker_for = functools.cache(ArgumentChecker)  # environments of one class share it: `make` is then cheap


def _mismatch(value: Any, schema: Mapping[str, Any]) -> str | None:
    kind = schema["type"]
    if isinstance(kind, list):
        if value is None:
            return None
        kind = kind[0]
    if not isinstance(value, _PYTHON_TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return f"must be of type {kind}, got {_short(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(filter(None, schema['enum']))}, got {_short(value)}"
    if kind == "array" and "items" in schema:
        for item in value:
            mismatch = _mismatch(item, schema["items"])
            if mismatch:
                return f"has an item that {mismatch}"
    return None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _moderate(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


# Called at every step: half the price of json.loads.
_decode = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_moderate).raw_decode


def read_json(text: str) -> Any:
    """The value of a stripped JSON text that a policy wrote; what later code would choke on is refused here.

    Raises:
        ValueError: no JSON, text after it, NaN or an infinity, a lone surrogate, or nesting beyond `MAX_NESTING`.
    """
    try:
        value, end = _decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if end != len(text):
        raise ValueError("there is text after it")
    if text.count("[") + text.count("{") > MAX_NESTING and _depth(value) > MAX_NESTING:
        raise ValueError("it is nested too deeply")
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair") from None
    return value


def _depth(value: Any) -> int:
    depth = 0
    level = [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        children = (child for item in level for child in (item.values() if isinstance(item, dict) else item))
        level = [child for child in children if isinstance(child, dict | list)]
    return depth


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
