"""OpenAI's Responses: ``POST /v1/responses``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym.gateway.chat import openai_error, read_choice
from agentgym.gateway.exchange import Asked, Given, Refusal
from agentgym.gateway.formats import Fields, Format, event, pieces, read_tool, read_tools, text_of
from agentgym.messages import Message, MessageCall
from agentgym.tools import Tool

_PREFIX = "resp_"


class Responses(Format):
    """Responses."""

    path = "/v1/responses"

    def read(self, body: Mapping[str, Any]) -> Asked:
        """See `Format.read`."""
        fields = Fields(body)
        model = fields.need("model", str)
        instructions = fields.get("instructions", str, "")
        conversation = [Message("system", instructions)] if instructions else []
        given = fields.raw("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else fields.need("input", list)
        for index, item in enumerate(items):
            _add_item(conversation, item, f"input[{index}]")
        tools = read_tools([_tool(row, i) for i, row in enumerate(fields.get("tools", list, []))])
        choice = read_choice(fields.raw("tool_choice"), tools)
        text = Fields(fields.raw("text") or {}, "text")
        text.refuse("format", {"type": "text"}, why="only text is supported; describe the form in the prompt")
        fields.refuse("background", False, why="responses are answered while the program waits")
        fields.refuse("conversation", why="expected previous_response_id, or the whole input")
        fields.refuse("prompt", why="no stored prompts here")
        return Asked(
            model,
            tuple(conversation),
            tools,
            choice,
            stream=fields.get("stream", bool, False),
            previous=fields.get("previous_response_id", str, "").removeprefix(_PREFIX),
            ignored=fields.rest(),
        )

    def body(self, asked: Asked, given: Given) -> dict[str, Any]:
        """See `Format.body`."""
        return self._response(asked, given, [item for item, _ in _output(given)])

    def events(self, asked: Asked, given: Given) -> Iterator[str]:
        """See `Format.events`."""
        numbers = itertools.count()

        def told(kind: str, **data: Any) -> str:
            return event({"type": kind, **data, "sequence_number": next(numbers)}, kind)

        begun = self._response(asked, given, []) | {"status": "in_progress", "usage": None}
        yield told("response.created", response=begun)
        yield told("response.in_progress", response=begun)
        done = []
        for index, (item, begins) in enumerate(_output(given)):
            place = {"item_id": item["id"], "output_index": index}
            yield told("response.output_item.added", output_index=index, item=begins)
            if item["type"] == "message":
                part, text = item["content"][0], item["content"][0]["text"]
                place["content_index"] = 0
                yield told("response.content_part.added", **place, part=part | {"text": ""})
                for piece in pieces(text):
                    yield told("response.output_text.delta", **place, delta=piece, logprobs=[])
                yield told("response.output_text.done", **place, text=text, logprobs=[])
                yield told("response.content_part.done", **place, part=part)
            else:
                arguments, kind = item["arguments"], "response.function_call_arguments"
                for piece in pieces(arguments):
                    yield told(f"{kind}.delta", **place, delta=piece)
                yield told(f"{kind}.done", **place, name=item["name"], arguments=arguments)
            yield told("response.output_item.done", output_index=index, item=item)
            done.append(item)
        ended = self._response(asked, given, done)
        yield told(f"response.{ended['status']}", response=ended)

    def error(self, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        """See `Format.error`."""
        return openai_error(refusal)

    @staticmethod
    def _response(asked: Asked, given: Given, output: list[dict[str, Any]]) -> dict[str, Any]:
        prompt, sampled = given.reply.prompt_tokens, given.reply.sampled_tokens
        cut = given.finish == "length"
        return {
            "id": f"{_PREFIX}{given.id}",
            "object": "response",
            "created_at": given.created,
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": None,
            "metadata": {},
            "model": given.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": f"{_PREFIX}{asked.previous}" if asked.previous else None,
            "temperature": given.reply.temperature,
            "tool_choice": asked.choice,
            "tools": [],
            "top_p": None,
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": sampled,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + sampled,
            },
        }


def _add_item(conversation: list[Message], item: Any, where: str) -> None:
    """Take an item of the input in. What one reply holds, its text and calls, comes in several."""
    fields = Fields(item, where)
    kind = fields.get("type", str, "message")
    if kind == "reasoning":  # of an earlier turn; what was sampled there is known
        return
    if kind == "function_call_output":
        output = text_of(fields.raw("output"), f"{where}.output")
        conversation.append(Message("tool", output, tool_call_id=fields.need("call_id", str)))
        return
    if kind == "function_call":
        call = MessageCall(
            fields.need("call_id", str), fields.need("name", str), fields.need("arguments", str)
        )
        message = Message("assistant", "", tool_calls=(call,))
    elif kind == "message":
        role = fields.need("role", str)
        role = "system" if role == "developer" else role
        if role not in ("system", "user", "assistant"):
            raise Refusal(
                "bad_request",
                f"expected {where}.role to be user, assistant, system or developer, got {role!r:.60}",
            )
        message = Message(role, text_of(fields.raw("content"), f"{where}.content"))
    else:
        raise Refusal(
            "bad_request",
            f"{where}.type={kind!r:.60}: only messages, function calls and their outputs are supported",
        )
    last = conversation[-1] if conversation else None
    if message.tool_calls and last is not None and last.role == "assistant":
        conversation[-1] = Message("assistant", last.content, tool_calls=last.tool_calls + message.tool_calls)
    else:
        conversation.append(message)


def _tool(row: Any, index: int) -> Tool:
    fields = Fields(row, f"tools[{index}]")
    if (kind := fields.need("type", str)) != "function":
        raise Refusal("bad_request", f"{fields.where('type')}={kind!r:.60}: only functions are supported")
    return read_tool(fields, "parameters")


def _output(given: Given) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The items of a response: as they end, and as they begin in a stream."""
    if given.content or not given.calls:
        part = {"type": "output_text", "text": given.content, "annotations": [], "logprobs": []}
        item: dict[str, Any] = {"type": "message", "id": f"msg_{given.id}", "role": "assistant"}
        status = "incomplete" if given.finish == "length" else "completed"
        yield item | {"content": [part], "status": status}, item | {"content": [], "status": "in_progress"}
    for index, call in enumerate(given.calls):
        item = {
            "type": "function_call",
            "id": f"fc_{given.id}_{index}",
            "call_id": call.id,
            "name": call.name,
        }
        yield (
            item | {"arguments": call.arguments, "status": "completed"},
            item | {"arguments": "", "status": "in_progress"},
        )
