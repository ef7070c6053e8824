"""Chat messages as frozen values, and their OpenAI form.

A conversation is a tuple of `Message`. Messages are never dicts here: a history handed out by an environment must not
change later, and copying one must cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class MessageCall:
    """A structured tool call inside an assistant message, as chat endpoints return it.

    Our environments read calls from the text; this exists to carry what a black-box agent's endpoint saw.
    """

    id: str
    name: str
    arguments: str  # JSON text, exactly as the model wrote it


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: the text; "" for an assistant message that holds only structured calls.
        name: the speaker where a role has several, for example an agent's name; "" if unused.
        tool_calls: structured calls of an assistant message.
        tool_call_id: which call a "tool" message answers; "" if unused.
    """

    role: str
    content: str
    name: str = ""
    tool_calls: tuple[MessageCall, ...] = ()
    tool_call_id: str = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> Message:
        return self  # immutable all the way down


Conversation: TypeAlias = tuple[Message, ...]


def system(content: str) -> Message:
    """A system message."""
    return Message("system", content)


def user(content: str) -> Message:
    """A user message: the task, or what the environment answered."""
    return Message("user", content)


def assistant(content: str) -> Message:
    """An assistant message: what the policy wrote."""
    return Message("assistant", content)


def to_openai(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as a new list of dicts in the form of OpenAI's chat completions."""
    rows = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.name:
            row["name"] = message.name
        if message.tool_calls:
            row["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in message.tool_calls
            ]
        if message.tool_call_id:
            row["tool_call_id"] = message.tool_call_id
        rows.append(row)
    return rows


def from_openai(rows: Iterable[Mapping[str, Any]]) -> Conversation:
    """Read messages in OpenAI's form; text parts of a content list are joined.

    Raises:
        ValueError: an unknown role, content that is not text, or a broken call; says which message.
    """
    return tuple(_read(row, index) for index, row in enumerate(rows))


def _read(row: Mapping[str, Any], index: int) -> Message:
    role = row.get("role")
    if role == "developer":  # OpenAI's newer name of the same thing
        role = "system"
    if role not in ROLES:
        raise ValueError(f"message {index}: expected a role among {', '.join(ROLES)}, got {role!r}")
    content = row.get("content")
    if isinstance(content, list):
        parts = cast("list[Mapping[str, Any]]", content)
        for part in parts:
            if not isinstance(part, Mapping) or part.get("type") not in ("text", "input_text", "output_text"):
                got = part.get("type") if isinstance(part, Mapping) else part
                raise ValueError(f"message {index}: only text parts are supported, got {got!r}")
        content = "".join(str(part.get("text", "")) for part in parts)
    if content is None:
        content = ""
    if not isinstance(content, str):
        raise ValueError(f"message {index}: expected text content, got {type(content).__name__}")
    calls = tuple(_read_call(call, index) for call in row.get("tool_calls") or ())
    return Message(role, content, row.get("name") or "", calls, row.get("tool_call_id") or "")


def _read_call(call: Mapping[str, Any], index: int) -> MessageCall:
    try:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if isinstance(name, str) and isinstance(arguments, str):
            return MessageCall(call.get("id") or "", name, arguments)
    except (KeyError, TypeError):
        pass
    raise ValueError(
        f"message {index}: expected a call of a function with a name and JSON text, got {call!r}"
    )
