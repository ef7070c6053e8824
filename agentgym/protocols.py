"""Action text to tool calls and back: one class for each way a policy may write its calls.

Reading is strict. A call that is nearly right is answered with what was expected, not quietly repaired: the policy is
credited for what it wrote. Either all calls of an action are well formed, or none runs.
"""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Sequence
from typing import Any

from agentgym.errors import AgentGymError, UsageError, nearest
from agentgym.tasks import FrozenDict
from agentgym.tools import ArgumentChecker, CallRecord, Tool, ToolCall


class ParseError(AgentGymError):
    """An action holds no readable call; the text tells the policy what was expected."""


class Protocol(abc.ABC):
    """Turns an action into calls, and tools and answers into text. Stateless."""

    name: str

    @abc.abstractmethod
    def describe(self, tools: Sequence[Tool]) -> str:
        """The part of the system prompt that lists the tools and says how to call one."""

    @abc.abstractmethod
    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """The calls of an action, in order; at least one.

        Raises:
            ParseError: no call, or one that cannot be read.
        """

    @abc.abstractmethod
    def render_call(self, call: ToolCall) -> str:
        """An action that makes this call: `parse` reads it back equal."""

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """The answers as the policy reads them, in the order of the calls."""
        return "\n".join(record.result.text for record in records)


class Hermes(Protocol):
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, any number of them; text around is free.

    Args:
        repair: accept JSON that a lenient reader can mend (needs the package json-repair). Off by default.
    """

    name = "hermes"
    _block = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
    _form = '<tool_call>{"name": TOOL, "arguments": {...}}</tool_call>'

    def __init__(self, *, repair: bool = False) -> None:
        self.repair = repair

    def describe(self, tools: Sequence[Tool]) -> str:
        """List the tools as JSON schemas inside ``<tools>``."""
        listed = "\n".join(json.dumps(tool.to_openai()["function"], ensure_ascii=False) for tool in tools)
        return (
            f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
            f"To call one, write {self._form}. Each message must hold at least one call."
        )

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """Read every block; an opening tag that never closes is an error."""
        blocks = self._block.findall(action)
        if action.count("<tool_call>") != len(blocks) or action.count("</tool_call>") != len(blocks):
            raise ParseError(f"a <tool_call> is not closed; expected {self._form}")
        if not blocks:
            raise ParseError(f"no tool call in your message; expected {self._form}")
        return [self._read(block) for block in blocks]

    def _read(self, block: str) -> ToolCall:
        try:
            value = json.loads(block) if not self.repair else _repair(block)
        except ValueError as error:
            raise ParseError(f"the tool call is not valid JSON ({error}); expected {self._form}") from None
        except RecursionError:
            raise ParseError(f"the tool call is nested too deeply; expected {self._form}") from None
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ParseError(f"the tool call has no name; expected {self._form}")
        arguments = value.get("arguments", {})
        if not isinstance(arguments, dict) or value.keys() - {"name", "arguments"}:
            raise ParseError(f"expected an object with 'name' and 'arguments' only: {self._form}")
        return ToolCall(value["name"], FrozenDict(arguments))

    def render_call(self, call: ToolCall) -> str:
        """Angle brackets inside the JSON are escaped, so that an argument may hold the closing tag."""
        text = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        return "<tool_call>" + text.replace("<", "\\u003c") + "</tool_call>"

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """Each answer inside ``<tool_response>``."""
        return "\n".join(f"<tool_response>\n{record.result.text}\n</tool_response>" for record in records)


class Xml(Protocol):
    """``<function=NAME><parameter=KEY>value</parameter></function>``: values need no escaping.

    One line break after an opening and before a closing tag belongs to the tags. Values are texts; where the tool
    wants another type they are read as JSON.
    """

    name = "xml"
    _block = re.compile(r"<function=([^\s>]+)>(.*?)</function>", re.DOTALL)
    _parameter = re.compile(r"<parameter=([^\s>]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
    _form = "<function=TOOL><parameter=NAME>value</parameter></function>"

    def describe(self, tools: Sequence[Tool]) -> str:
        """List the tools as JSON schemas and show the form of a call."""
        listed = "\n".join(json.dumps(tool.to_openai()["function"], ensure_ascii=False) for tool in tools)
        return (
            f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
            f"To call one, write {self._form}. Each message must hold at least one call."
        )

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """Read every function block; text between parameters is an error."""
        blocks = self._block.findall(action)
        if not blocks:
            raise ParseError(f"no tool call in your message; expected {self._form}")
        if len(re.findall(r"<function=", self._block.sub("", action))):
            raise ParseError(f"a <function=...> is not closed; expected {self._form}")
        calls = []
        for name, body in blocks:
            if self._parameter.sub("", body).strip():
                raise ParseError(f"unexpected text inside the call of {name}; expected {self._form}")
            pairs = self._parameter.findall(body)
            arguments = {key: checker.coerce(name, key, value) for key, value in pairs}
            if len(arguments) != len(pairs):
                raise ParseError(f"{name} is given the same parameter twice; expected {self._form}")
            calls.append(ToolCall(name, FrozenDict(arguments)))
        return calls

    def render_call(self, call: ToolCall) -> str:
        """Texts as they are, other values as JSON."""
        parameters = "".join(
            f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
            for key, value in call.arguments.items()
        )
        return f"<function={call.name}>\n{parameters}</function>"

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """Each answer inside ``<function_results>``."""
        return "\n".join(f"<function_results>\n{record.result.text}\n</function_results>" for record in records)


class BashBlock(Protocol):
    """Exactly one fenced ```bash block: the call ``bash(command=...)``. For environments that have that tool."""

    name = "bash"
    _block = re.compile(r"^```bash[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
    _form = "one block that starts with a line ```bash and ends with a line ```"

    def describe(self, tools: Sequence[Tool]) -> str:
        """Say how to write the block."""
        if "bash" not in (tool.name for tool in tools):
            raise UsageError(f"protocol 'bash' needs a tool named bash; this environment has {[t.name for t in tools]}")
        return "Each message must hold " + self._form + "; it is run in a shell and its output is your next message."

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """Read the one block."""
        blocks = self._block.findall(action)
        if len(blocks) != 1:
            raise ParseError(f"found {len(blocks)} bash blocks; expected {self._form}")
        return [ToolCall("bash", FrozenDict(command=blocks[0].rstrip("\n")))]

    def render_call(self, call: ToolCall) -> str:
        """Only calls of bash can be written in this protocol."""
        if call.name != "bash" or set(call.arguments) != {"command"}:
            raise UsageError(f"protocol 'bash' can only write bash(command=...), got {call.name}")
        return f"```bash\n{call.arguments['command']}\n```"


class ReAct(Protocol):
    """``Action: NAME`` and ``Action Input: {json}``, once, after any thought (Yao et al. 2022, arXiv 2210.03629)."""

    name = "react"
    _call = re.compile(r"^Action:[ \t]*(\S+)[ \t]*\n+Action Input:[ \t]*(.*)", re.DOTALL | re.MULTILINE)
    _form = 'a line "Action: TOOL" followed by a line "Action Input: {...}" with the arguments as JSON'

    def describe(self, tools: Sequence[Tool]) -> str:
        """List the tools with their schemas and show the form."""
        listed = "\n".join(f"{tool.name}: {tool.description} Arguments: {tool.schema}" for tool in tools)
        return (
            f"You can use these tools:\n{listed}\n"
            f'Think in lines that start with "Thought:", then end the message with {self._form}. '
            'The answer comes back after "Observation:".'
        )

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """Read the one call; what follows its JSON other than blank space is an error."""
        found = self._call.findall(action)
        if len(found) != 1:
            raise ParseError(f"no single action in your message; expected {self._form}")
        name, text = found[0]
        try:
            arguments, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            raise ParseError(f"the action input is not valid JSON; expected {self._form}") from None
        if not isinstance(arguments, dict) or text[end:].strip():
            raise ParseError(f"expected one JSON object and nothing after it: {self._form}")
        return [ToolCall(name, FrozenDict(arguments))]

    def render_call(self, call: ToolCall) -> str:
        """The two lines."""
        return f"Action: {call.name}\nAction Input: {json.dumps(dict(call.arguments), ensure_ascii=False)}"

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """Each answer after ``Observation:``."""
        return "\n".join(f"Observation: {record.result.text}" for record in records)


PROTOCOLS: dict[str, type[Protocol]] = {cls.name: cls for cls in (Hermes, Xml, BashBlock, ReAct)}


def make_protocol(protocol: str | Protocol) -> Protocol:
    """A protocol by name, or the one given."""
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        raise UsageError(f"unknown protocol {protocol!r}.{nearest(protocol, PROTOCOLS)}")
    return PROTOCOLS[protocol]()


def _repair(block: str) -> Any:
    try:
        from json_repair import repair_json
    except ImportError:
        from agentgym.errors import MissingDependency

        raise MissingDependency("repairing tool calls needs json-repair: pip install json-repair") from None
    return repair_json(block, return_objects=True)
