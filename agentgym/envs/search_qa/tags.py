"""The tag form of this field: ``<search>query</search>``, ``<answer>text</answer>``, results in ``<information>``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentgym.errors import UsageError
from agentgym.protocols import ParseError, Protocol
from agentgym.tasks import FrozenDict
from agentgym.tools import ArgumentChecker, CallRecord, Tool, ToolCall


class Tags(Protocol):
    """``<TOOL>text</TOOL>``, one a message, read as Search-R1 reads it (Jin et al. 2025, arXiv 2503.09516).

    The message is cut behind the first closing tag of ``search``, else of the tool that comes next, and so on; the
    first block that is then complete is the call. So what a model writes on after its call is not read, and a message
    with no block is invalid. Let generation stop at the closing tags.

    Args:
        tools: name of each tool -> name of its one argument, in the order in which closing tags cut.
    """

    name = "search-r1"

    def __init__(self, tools: dict[str, str]) -> None:
        self._arguments = tools

    @classmethod
    def of(cls, tools: Sequence[Tool]) -> Tags:
        """The form for tools with one text argument each.

        Raises:
            UsageError: a tool has other arguments.
        """
        arguments = {}
        for tool in tools:
            properties = json.loads(tool.schema)["properties"]
            if [entry["type"] for entry in properties.values()] != ["string"]:
                raise UsageError(
                    f"protocol 'search-r1' writes tools with one text argument each, not {tool.name}"
                )
            (arguments[tool.name],) = properties
        return cls(arguments)

    def describe(self, tools: Sequence[Tool]) -> str:
        """Say what each tag does."""
        listed = "\n".join(
            f"<{tool.name}>{self._arguments[tool.name]}</{tool.name}>: {tool.description}" for tool in tools
        )
        return (
            "Think inside <think> and </think> whenever you have learnt something new. Then end your message with one "
            f"of these:\n{listed}\nWhat is found comes back between <information> and </information>."
        )

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """The first complete block."""
        for name in self._arguments:
            before, closing, _ = action.partition(f"</{name}>")
            if closing:
                action = before + closing
                break
        blocks = []
        for name, argument in self._arguments.items():
            before, opening, rest = action.partition(f"<{name}>")
            content, closing, _ = rest.partition(f"</{name}>")
            if opening and closing:  # where the first opening has no end after it, no later one has
                blocks.append((len(before), ToolCall(name, FrozenDict({argument: content.strip()}))))
        if not blocks:
            listed = " or ".join(f"<{name}>{argument}</{name}>" for name, argument in self._arguments.items())
            raise ParseError(f"no call in your message; expected {listed}")
        return [min(blocks)[1]]  # no two stand at the same place

    def render_call(self, call: ToolCall) -> str:
        """One block; text that holds a closing tag cannot be written."""
        argument = self._arguments.get(call.name)
        text = call.arguments.get(argument or "")
        if set(call.arguments) != {argument} or not isinstance(text, str):
            raise UsageError(f"protocol 'search-r1' can only write tools with one text, got {call!r:.80}")
        if text != text.strip() or any(f"</{name}>" in text for name in self._arguments):
            raise UsageError(
                f"protocol 'search-r1' cannot write blanks around a text or a tag in it, got {text!r:.80}"
            )
        return f"<{call.name}>{text}</{call.name}>"

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """What was found, with Search-R1's line breaks, so that texts put end to end are its texts."""
        return "".join(
            f"\n\n<information>{record.result.text.strip()}</information>\n\n" for record in records
        )
