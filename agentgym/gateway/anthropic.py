"""Anthropic's messages: ``POST /v1/messages``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym.gateway.dialect import read_arguments
from agentgym.gateway.exchange import Asked, Choice, Given, Kind, Refusal
from agentgym.gateway.formats import Fields, Format, event, pieces, read_tool, read_tools, text_of
from agentgym.messages import Message, MessageCall
from agentgym.tools import Tool

# kind -> status, type
_ERRORS: dict[Kind, tuple[int, str]] = {
    "bad_request": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "not_found": (404, "not_found_error"),
    "no_model": (404, "not_found_error"),
    "too_large": (413, "request_too_large"),
    "context": (400, "invalid_request_error"),
    "exhausted": (403, "permission_error"),
    "timeout": (504, "timeout_error"),
    "failed": (503, "api_error"),
}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_CHOICES: dict[str, Choice] = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_UNTOLD = ("thinking", "redacted_thinking")  # of an earlier turn; what was sampled there is known


class Anthropic(Format):
    """Messages."""

    path = "/v1/messages"

    def read(self, body: Mapping[str, Any]) -> Asked:
        """See `Format.read`."""
        fields = Fields(body)
        model = fields.need("model", str)
        fields.need("max_tokens", int)  # the format wants it; how long a reply may be is the policy's
        instructions = text_of(fields.raw("system"), "system")
        conversation = [Message("system", instructions)] if instructions else []
        for index, row in enumerate(fields.need("messages", list)):
            conversation += _messages(row, f"messages[{index}]")
        tools = read_tools([_tool(row, i) for i, row in enumerate(fields.get("tools", list, []))])
        return Asked(
            model,
            tuple(conversation),
            tools,
            _choice(fields.raw("tool_choice"), tools),
            stream=fields.get("stream", bool, False),
            ignored=fields.rest() | {"max_tokens": body["max_tokens"]},
        )

    def body(self, asked: Asked, given: Given) -> dict[str, Any]:
        """See `Format.body`."""
        content: list[dict[str, Any]] = []
        if given.content or not given.calls:
            content.append({"type": "text", "text": given.content})
        content += [_tool_use(call) | {"input": read_arguments(call)} for call in given.calls]
        return self._message(given, content) | {"stop_reason": _STOPS[given.finish], "usage": _usage(given)}

    def events(self, asked: Asked, given: Given) -> Iterator[str]:
        """See `Format.events`."""
        begun = self._message(given, []) | {
            "stop_reason": None,
            "usage": _usage(given) | {"output_tokens": 0},
        }
        yield _event("message_start", message=begun)
        index = 0
        if given.content or not given.calls:
            block: dict[str, Any] = {"type": "text", "text": ""}
            deltas = ({"type": "text_delta", "text": piece} for piece in pieces(given.content))
            yield from _block(index, block, deltas)
            index += 1
        for call in given.calls:
            deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(call.arguments))
            yield from _block(index, _tool_use(call) | {"input": {}}, deltas)
            index += 1
        delta = {"stop_reason": _STOPS[given.finish], "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": given.reply.sampled_tokens})
        yield _event("message_stop")

    def error(self, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        """See `Format.error`."""
        status, kind = _ERRORS[refusal.kind]
        text = f"prompt is too long: {refusal}" if refusal.kind == "context" else str(refusal)
        return status, {"type": "error", "error": {"type": kind, "message": text}}

    @staticmethod
    def _message(given: Given, content: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": f"msg_{given.id}", "type": "message", "role": "assistant", "model": given.model}
        return head | {"content": content, "stop_sequence": None}


def _messages(row: Any, where: str) -> Iterator[Message]:
    """What one message of the format says: the results of calls in it are messages of their own here."""
    fields = Fields(row, where)
    role, content = fields.need("role", str), fields.raw("content")
    if role not in ("user", "assistant", "system"):
        raise Refusal("bad_request", f"expected {where}.role to be user or assistant, got {role!r:.60}")
    if isinstance(content, str):
        yield Message(role, content)
        return
    texts: list[str] = []
    calls: list[MessageCall] = []
    results: list[Message] = []
    for index, entry in enumerate(fields.need("content", list)):
        block = Fields(entry, f"{where}.content[{index}]")
        kind = block.need("type", str)
        if kind == "text":
            texts.append(block.need("text", str))
        elif kind == "tool_use" and role == "assistant":
            arguments = json.dumps(block.get("input", dict, {}), ensure_ascii=False)
            calls.append(MessageCall(block.need("id", str), block.need("name", str), arguments))
        elif kind == "tool_result" and role == "user":
            answer = text_of(block.raw("content"), block.where("content"))
            results.append(Message("tool", answer, tool_call_id=block.need("tool_use_id", str)))
        elif not (kind in _UNTOLD and role == "assistant"):
            raise Refusal(
                "bad_request", f"{block.where('type')}={kind!r:.60}: not supported in a message of {role}"
            )
    yield from results
    if texts or calls or not results:
        yield Message(
            role, "".join(texts) if role == "assistant" else "\n".join(texts), tool_calls=tuple(calls)
        )


def _tool(row: Any, index: int) -> Tool:
    fields = Fields(row, f"tools[{index}]")
    if (kind := fields.get("type", str, "custom")) != "custom":
        raise Refusal(
            "bad_request",
            f"{fields.where('type')}={kind!r:.60}: only tools with an input_schema are supported",
        )
    return read_tool(fields, "input_schema")


def _choice(value: Any, tools: tuple[Tool, ...]) -> Choice:
    """A named tool is a wish for a call; which one is the policy's choice."""
    if value is None:
        return "auto"
    choice = Fields(value, "tool_choice")
    kind = choice.need("type", str)
    if kind not in _CHOICES:
        expected = ", ".join(_CHOICES)
        raise Refusal("bad_request", f"expected tool_choice.type among {expected}, got {kind!r:.60}")
    if kind == "tool" and (name := choice.need("name", str)) not in [tool.name for tool in tools]:
        raise Refusal("bad_request", f"tool_choice names {name!r:.60}, which is not among the tools")
    return _CHOICES[kind]


def _tool_use(call: MessageCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _usage(given: Given) -> dict[str, int]:
    return {"input_tokens": given.reply.prompt_tokens, "output_tokens": given.reply.sampled_tokens}


def _event(kind: str, **data: Any) -> str:
    return event({"type": kind, **data}, kind)


def _block(index: int, block: dict[str, Any], deltas: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield _event("content_block_start", index=index, content_block=block)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)
