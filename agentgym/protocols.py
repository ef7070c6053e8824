"""Action text to tool calls and back: one class for each way a policy may write its calls.

Reading is strict. A call that is nearly right is answered with what was expected, not quietly repaired: the policy is
credited for what it wrote. Either all calls of an action are well formed, or none runs. Every reader takes time linear
in the action, whatever the action holds.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import re
from collections.abc import Callable, Collection, Sequence

from agentgym.errors import AgentGymError, MissingDependency, UsageError, nearest
from agentgym.tasks import FrozenDict
from agentgym.tools import ArgumentChecker, CallRecord, Tool, ToolCall, read_json

_NO_ARGUMENTS = FrozenDict()


class ParseError(AgentGymError):
    """An action holds no readable call; the text tells the policy what was expected."""


class Protocol(abc.ABC):
    """Turns an action into calls, and tools and answers into text. Stateless."""

    name: str

    def require(self, tools: Sequence[Tool]) -> None:
        """Refuse tools that this protocol cannot call, with a `UsageError`."""

    def writable(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Those of the tools, and of their arguments, that a call in this protocol can name."""
        return tools

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
        """An action that makes this call: `parse` reads it back equal, where its arguments are of their tool's types.

        The exception is a text that `Xml` reads as None.

        Raises:
            UsageError: the call cannot be written in this protocol.
        """

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """The answers as the policy reads them, in the order of the calls."""
        return "\n".join(record.result.text for record in records)

    def render_invalid(self, problem: str) -> str:
        """The answer to an action without a readable call; `problem` says what was expected."""
        return f"Invalid action: {problem}"


class Hermes(Protocol):
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, any number of them; text around is free.

    Args:
        repair: accept JSON that a lenient reader can mend (needs the package json-repair). Off by default.
    """

    name = "hermes"
    _form = '<tool_call>{"name": TOOL, "arguments": {...}}</tool_call>'

    def __init__(self, *, repair: bool = False) -> None:
        self.repair = repair
        if repair:
            _json_repair()  # a missing package is no fault of the policy: say so now

    def describe(self, tools: Sequence[Tool]) -> str:
        """List the tools as JSON schemas inside ``<tools>``."""
        return _list_tools(tools, self._form)

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """Read every block; an opening tag that never closes is an error."""
        before, *parts = action.split("<tool_call>")
        if not parts:
            raise ParseError(f"no tool call in your message; expected {self._form}")
        calls = []
        for part in parts:
            block, closing, after = part.partition("</tool_call>")
            if not closing or "</tool_call>" in after:
                raise ParseError(f"a <tool_call> is not closed, or closed twice; expected {self._form}")
            calls.append(self._read(block.strip()))
        if "</tool_call>" in before:
            raise ParseError(f"a </tool_call> closes nothing; expected {self._form}")
        return calls

    def _read(self, block: str) -> ToolCall:
        try:
            value = read_json(_json_repair()(block) if self.repair else block)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the tool call is not valid JSON ({error}); expected {self._form}") from None
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ParseError(f"the tool call has no name; expected {self._form}")
        arguments = value.get("arguments", _NO_ARGUMENTS)
        if not isinstance(arguments, dict) or len(value) > 1 + ("arguments" in value):
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
    wants another type they are read as JSON. A text that holds ``</parameter>`` or ``<parameter=`` cannot be written.
    Where a tool takes a text or None, ``null`` is None: there the text "null" cannot be written.
    """

    name = "xml"
    _opening = re.compile(r"<function=([^\s<>]+)>")
    _inside = re.compile(r"\s*(?:<parameter=([^\s<>]+)>\n?|</function>)")
    _form = "<function=TOOL><parameter=NAME>value</parameter></function>"

    def describe(self, tools: Sequence[Tool]) -> str:
        """List the tools as JSON schemas and show the form of a call."""
        return _list_tools(tools, self._form)

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """Read every function block; text between parameters is an error."""
        calls = []
        end = 0
        while (start := action.find("<function=", end)) >= 0:
            if "</function>" in action[end:start]:
                raise ParseError(f"a </function> closes nothing; expected {self._form}")
            opening = self._opening.match(action, start)
            if opening is None:
                raise ParseError(f"a <function=...> has no name; expected {self._form}")
            arguments, end = self._read(opening[1], action, opening.end(), checker)
            calls.append(ToolCall(opening[1], FrozenDict(arguments)))
        if "</function>" in action[end:]:
            raise ParseError(f"a </function> closes nothing; expected {self._form}")
        if not calls:
            raise ParseError(f"no tool call in your message; expected {self._form}")
        return calls

    def _read(
        self, name: str, action: str, position: int, checker: ArgumentChecker
    ) -> tuple[dict[str, object], int]:
        """The arguments of the call whose opening tag ends at `position`, and where the call ends."""
        arguments: dict[str, object] = {}
        while tag := self._inside.match(action, position):
            key = tag[1]
            if key is None:
                return arguments, tag.end()
            end = action.find("</parameter>", tag.end())
            value = action[tag.end() : end]
            if end < 0 or "<parameter=" in value:
                raise ParseError(f"a <parameter=...> of {name} is not closed; expected {self._form}")
            if key in arguments:
                raise ParseError(f"{name} is given the same parameter twice; expected {self._form}")
            arguments[key] = checker.coerce(name, key, value.removesuffix("\n"))
            position = end + len("</parameter>")
        raise ParseError(
            f"unexpected text inside the call of {name}, or it is not closed; expected {self._form}"
        )

    def render_call(self, call: ToolCall) -> str:
        """Texts as they are, other values as JSON."""
        parameters = ""
        for key, value in call.arguments.items():
            if not isinstance(value, str):
                value = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
            elif "</parameter>" in value or "<parameter=" in value:
                raise UsageError(
                    f"protocol 'xml' cannot write the argument {key!r}: it holds a tag of its own"
                )
            parameters += f"<parameter={key}>\n{value}\n</parameter>\n"
        return f"<function={call.name}>\n{parameters}</function>"

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """Each answer inside ``<function_results>``."""
        return "\n".join(
            f"<function_results>\n{record.result.text}\n</function_results>" for record in records
        )


class BashBlock(Protocol):
    """Exactly one fenced ```bash block: the call ``bash(command=...)``. For environments that have that tool.

    Other fenced blocks may stand around it. A fence that is left over is an error: the command may have been cut short
    by a fence meant for its inside.
    """

    name = "bash"
    _form = "one block that starts with a line ```bash and ends with a line ```"

    def require(self, tools: Sequence[Tool]) -> None:
        """There must be a tool named bash."""
        if "bash" not in (tool.name for tool in tools):
            raise UsageError(
                f"protocol 'bash' needs a tool named bash; this environment has {[t.name for t in tools]}"
            )

    def writable(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The tool named bash, with its command alone."""
        return [_with_arguments(tool, ("command",)) for tool in tools if tool.name == "bash"]

    def describe(self, tools: Sequence[Tool]) -> str:
        """Say how to write the block."""
        return (
            f"Each message must hold {self._form}. It is run in a shell and you are sent its output. For example:\n\n"
            "```bash\nls\n```"
        )

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """Read the one block."""
        blocks: list[str] = []
        opened, lines = "", [""]
        for line in action.split("\n"):
            fence = line.rstrip()
            if opened and fence != "```":
                lines.append(line)
            elif opened:
                if opened == "```bash":
                    blocks.append("\n".join(lines))
                opened = ""
            elif fence.startswith("```") and "`" not in fence[3:]:
                opened, lines = fence, []
        if opened:
            raise ParseError(f"a block that starts with {opened} is not closed; expected {self._form}")
        if len(blocks) != 1:
            raise ParseError(f"found {len(blocks)} bash blocks; expected {self._form}")
        return [ToolCall("bash", FrozenDict(command=blocks[0]))]

    def render_call(self, call: ToolCall) -> str:
        """Only calls of bash can be written in this protocol."""
        if call.name != "bash" or set(call.arguments) != {"command"}:
            raise UsageError(f"protocol 'bash' can only write bash(command=...), got {call.name}")
        command = call.arguments["command"]
        if not isinstance(command, str):
            raise UsageError(f"protocol 'bash' can only write a text, got {command!r:.80}")
        if any(line.rstrip() == "```" for line in command.split("\n")):
            raise UsageError("protocol 'bash' cannot write a command with a line that is only ```")
        return f"```bash\n{command}\n```"


class ReAct(Protocol):
    """``Action: NAME`` and ``Action Input: {json}``, once, after any thought (Yao et al. 2022, arXiv 2210.03629)."""

    name = "react"
    _line = re.compile(r"^Action:", re.MULTILINE)
    _call = re.compile(r"Action:[ \t]*(\S+)[ \t]*\n+Action Input:(.*)", re.DOTALL)
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
        lines = [line.start() for line in self._line.finditer(action)]
        found = self._call.match(action, lines[0]) if len(lines) == 1 else None
        if found is None:
            raise ParseError(f"found {len(lines)} lines 'Action:' in your message; expected {self._form}")
        try:
            arguments = read_json(found[2].strip())
        except ValueError as error:
            raise ParseError(f"the action input is not valid JSON ({error}); expected {self._form}") from None
        if not isinstance(arguments, dict):
            raise ParseError(f"the action input is no JSON object; expected {self._form}")
        return [ToolCall(found[1], FrozenDict(arguments))]

    def render_call(self, call: ToolCall) -> str:
        """The two lines."""
        return f"Action: {call.name}\nAction Input: {json.dumps(dict(call.arguments), ensure_ascii=False)}"

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """Each answer after ``Observation:``."""
        return "\n".join(f"Observation: {record.result.text}" for record in records)


PROTOCOLS: dict[str, type[Protocol]] = {cls.name: cls for cls in (Hermes, Xml, BashBlock, ReAct)}


def _list_tools(tools: Sequence[Tool], form: str) -> str:
    listed = "\n".join(json.dumps(tool.to_openai()["function"], ensure_ascii=False) for tool in tools)
    return (
        f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
        f"To call one, write {form}. Each message must hold at least one call."
    )


def _with_arguments(tool: Tool, names: Collection[str]) -> Tool:
    """The tool without its other arguments."""
    schema = json.loads(tool.schema)
    schema["properties"] = {name: entry for name, entry in schema["properties"].items() if name in names}
    return dataclasses.replace(tool, schema=json.dumps(schema))


def make_protocol(protocol: str | Protocol) -> Protocol:
    """A protocol by name, or the one given."""
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        raise UsageError(f"unknown protocol {protocol!r}.{nearest(protocol, PROTOCOLS)}")
    return PROTOCOLS[protocol]()


def _json_repair() -> Callable[[str], str]:
    try:
        from json_repair import repair_json
    except ImportError:
        raise MissingDependency("repairing tool calls needs json-repair: pip install json-repair") from None
    return repair_json  # type: ignore[no-any-return, unused-ignore]
