"""OpenAI's chat completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from agentgym.gateway.exchange import Asked, Choice, Given, Kind, Refusal
from agentgym.gateway.formats import Fields, Format, event, pieces, read_tool, read_tools, text_of
from agentgym.messages import Message, MessageCall
from agentgym.tools import Tool
from agentgym.trajectory.records import Reply

# kind -> status, type, code
_ERRORS: dict[Kind, tuple[int, str, str | None]] = {
    "bad_request": (400, "invalid_request_error", None),
    "unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "not_found": (404, "invalid_request_error", "not_found"),
    "no_model": (404, "invalid_request_error", "model_not_found"),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "exhausted": (403, "insufficient_quota", "insufficient_quota"),
    "timeout": (504, "server_error", "timeout"),
    "failed": (503, "server_error", "policy_failed"),
}


def openai_error(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """A refusal in the words of OpenAI's formats."""
    status, kind, code = _ERRORS[refusal.kind]
    return status, {"error": {"message": str(refusal), "type": kind, "param": None, "code": code}}


def read_choice(value: Any, tools: tuple[Tool, ...]) -> Choice:
    """``tool_choice`` of OpenAI's formats. Named tools are a wish; which one is called is the policy's choice."""
    if value is None:
        return "auto"
    if value in ("auto", "none", "required"):
        return cast(Choice, value)
    choice = Fields(value, "tool_choice")
    kind = choice.need("type", str)
    if kind == "function":
        _expect_function(choice, tools)
        return "required"
    if kind != "allowed_tools":
        raise Refusal(
            "bad_request", f"expected tool_choice.type among function, allowed_tools, got {kind!r:.60}"
        )
    allowed = _inner(choice, "allowed_tools")
    for index, row in enumerate(allowed.need("tools", list)):
        entry = Fields(row, allowed.where(f"tools[{index}]"))
        if (kind := entry.need("type", str)) != "function":
            raise Refusal("bad_request", f"{entry.where('type')}={kind!r:.60}: only functions are supported")
        _expect_function(entry, tools)
    mode = allowed.need("mode", str)
    if mode not in ("auto", "required"):
        raise Refusal(
            "bad_request", f"expected {allowed.where('mode')} among auto, required, got {mode!r:.60}"
        )
    return cast(Choice, mode)


def _inner(fields: Fields, name: str) -> Fields:
    """The object in a field, as chat completions have it; else the fields themselves, as Responses have it."""
    inner = fields.raw(name)
    return fields if inner is None else Fields(inner, fields.where(name))


def _expect_function(fields: Fields, tools: tuple[Tool, ...]) -> None:
    """Refuse the name of a function that is none of the tools."""
    if (name := _inner(fields, "function").need("name", str)) not in [tool.name for tool in tools]:
        raise Refusal("bad_request", f"tool_choice names {name!r:.60}, which is not among the tools")


class Chat(Format):
    """Chat completions."""

    path = "/v1/chat/completions"

    def read(self, body: Mapping[str, Any]) -> Asked:
        """See `Format.read`."""
        fields = Fields(body)
        model = fields.need("model", str)
        conversation = tuple(_message(row, i) for i, row in enumerate(fields.need("messages", list)))
        tools = read_tools([_tool(row, i) for i, row in enumerate(fields.get("tools", list, []))])
        choice = read_choice(fields.raw("tool_choice"), tools)
        fields.refuse("n", 1, why="one reply at a time is supported")
        fields.refuse("functions", [], why="expected tools instead")
        fields.refuse(
            "response_format", {"type": "text"}, why="only text is supported; describe the form in the prompt"
        )
        fields.refuse("modalities", ["text"], why="only text is supported")
        fields.refuse("audio", why="only text is supported")
        options = Fields(fields.raw("stream_options") or {}, "stream_options")
        return Asked(
            model,
            conversation,
            tools,
            choice,
            stream=fields.get("stream", bool, False),
            usage_event=options.get("include_usage", bool, False),
            token_ids=fields.get("return_token_ids", bool, False),
            ignored=fields.rest(),
        )

    def body(self, asked: Asked, given: Given) -> dict[str, Any]:
        """See `Format.body`."""
        message: dict[str, Any] = {"role": "assistant", "content": given.content, "refusal": None}
        if given.calls:
            message["content"] = given.content or None
            message["tool_calls"] = [_call(call) for call in given.calls]
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": given.finish,
        }
        body = self._head(given, "chat.completion") | {"choices": [choice], "usage": _usage(given.reply)}
        if asked.token_ids and given.reply.prompt_ids is not None:
            choice |= {"token_ids": given.reply.sampled_ids, "logprobs": _logprobs(given.reply)}
            body["prompt_token_ids"] = given.reply.prompt_ids
        return body

    def events(self, asked: Asked, given: Given) -> Iterator[str]:
        """See `Format.events`."""
        head = self._head(given, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return event(head | {"choices": [choice]} | ({"usage": None} if asked.usage_event else {}))

        yield chunk({"role": "assistant", "content": None if given.calls and not given.content else ""})
        for piece in pieces(given.content):
            yield chunk({"content": piece})
        for index, call in enumerate(given.calls):
            begun = _call(call)
            begun["function"]["arguments"] = ""
            yield chunk({"tool_calls": [{"index": index, **begun}]})
            for piece in pieces(call.arguments):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, given.finish)
        if asked.usage_event:
            yield event(head | {"choices": [], "usage": _usage(given.reply)})
        yield "data: [DONE]\n\n"

    def error(self, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        """See `Format.error`."""
        return openai_error(refusal)

    @staticmethod
    def _head(given: Given, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{given.id}", "object": kind, "created": given.created, "model": given.model}


def _message(row: Any, index: int) -> Message:
    where = f"messages[{index}]"
    fields = Fields(row, where)
    role = fields.need("role", str)
    content = text_of(fields.raw("content"), f"{where}.content")
    if role in ("system", "developer"):
        return Message("system", content)
    if role == "user":
        return Message("user", content)
    if role == "tool":
        return Message("tool", content, tool_call_id=fields.need("tool_call_id", str))
    if role != "assistant":
        expected = "system, developer, user, assistant or tool"
        raise Refusal("bad_request", f"expected {where}.role to be {expected}, got {role!r:.60}")
    calls = []
    for i, call in enumerate(fields.get("tool_calls", list, [])):
        outer = Fields(call, f"{where}.tool_calls[{i}]")
        inner = Fields(outer.raw("function"), outer.where("function"))
        calls.append(
            MessageCall(outer.need("id", str), inner.need("name", str), inner.need("arguments", str))
        )
    return Message("assistant", content, tool_calls=tuple(calls))


def _tool(row: Any, index: int) -> Tool:
    fields = Fields(row, f"tools[{index}]")
    if (kind := fields.need("type", str)) != "function":
        raise Refusal("bad_request", f"{fields.where('type')}={kind!r:.60}: only functions are supported")
    return read_tool(Fields(fields.raw("function"), fields.where("function")), "parameters")


def _call(call: MessageCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(reply: Reply) -> dict[str, int]:
    prompt, sampled = reply.prompt_tokens, reply.sampled_tokens
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _logprobs(reply: Reply) -> dict[str, Any] | None:
    if reply.logprobs is None:
        return None
    return {
        "content": [
            {"token": "", "logprob": value, "bytes": None, "top_logprobs": []} for value in reply.logprobs
        ]
    }
