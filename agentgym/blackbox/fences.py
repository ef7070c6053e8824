"""How replies to a program are read: by a protocol; where it offers no tools also by the fenced blocks it may run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentgym.protocols import ParseError, Protocol
from agentgym.tasks import FrozenDict
from agentgym.tools import ArgumentChecker, CallRecord, Tool, ToolCall

_FENCE = re.compile(r"(?<![`~])(`{3,}+|~{3,}+)([^`]*+)\Z")  # with what follows it on its line
_SHELL = re.compile(r"|.*bash.*|sh|zsh|dash|ksh|shell.*|console|terminal|cmd", re.IGNORECASE)
_PYTHON = re.compile(r"i?python\d?|py", re.IGNORECASE)


class ProgramProtocol(Protocol):
    """A protocol for programs with tools, which for programs without any also reads fenced blocks.

    A block counts as a call where its label is that of a shell, or it has none, or that of Python. The call is named
    after the fence, such as "```bash", and has one argument, ``command`` or ``code``. Nothing is refused: a program may
    run two blocks, or one that is not closed, so all that it may run is read.

    Args:
        tools: how calls of tools are written.
    """

    def __init__(self, tools: Protocol) -> None:
        self._tools = tools
        self.name = tools.name

    def require(self, tools: Sequence[Tool]) -> None:
        """See `Protocol.require`."""
        self._tools.require(tools)

    def describe(self, tools: Sequence[Tool]) -> str:
        """See `Protocol.describe`."""
        return self._tools.describe(tools)

    def parse(self, action: str, checker: ArgumentChecker) -> list[ToolCall]:
        """The calls of a reply; see `Protocol.parse`."""
        if checker.names:
            return self._tools.parse(action, checker)
        blocks = list(_blocks(action, strict=False))
        known = set(blocks)
        blocks += [block for block in _blocks(action, strict=True) if block not in known]
        calls = [ToolCall(name, FrozenDict({argument: content})) for name, argument, content in blocks]
        try:
            written = self._tools.parse(action, checker)
        except ParseError:
            if not calls:
                raise
            return calls
        return calls + [
            call for call in written if call.arguments not in [block.arguments for block in calls]
        ]

    def render_call(self, call: ToolCall) -> str:
        """A call as it is written: a block for one that was read from a block."""
        if not call.name.startswith(("```", "~~~")):
            return self._tools.render_call(call)
        fence = call.name[: len(call.name) - len(call.name.lstrip(call.name[0]))]
        return "\n".join([call.name, *call.arguments.values(), fence])

    def render_results(self, records: Sequence[CallRecord]) -> str:
        """See `Protocol.render_results`."""
        return self._tools.render_results(records)

    def render_invalid(self, problem: str) -> str:
        """See `Protocol.render_invalid`."""
        return self._tools.render_invalid(problem)


def _blocks(text: str, *, strict: bool) -> Iterator[tuple[str, str, str]]:
    """Name, argument and content of each block that is a call, in linear time.

    Programs disagree on what a block is: some cut them out with a regular expression, which asks for no beginning of a
    line and knows no block around. So a fence with the label of a language begins a block wherever it stands, unless
    in a call.

    Args:
        text: of a reply.
        strict: a block ends at a line that is its fence and nothing else. Otherwise at the next that begins with it,
            blanks and whatever follows aside, and where the text ends. Where a block may end early, both are blocks.
    """
    fence, label, argument, lines = "", "", "", [""]
    for line in text.split("\n"):
        start = line.lstrip(" \t")
        ends = bool(fence) and (line.rstrip() == fence if strict else start.startswith(fence))
        if argument and not ends:
            lines.append(line)
            continue
        if argument:
            yield f"{fence}{label}", argument, "\n".join(lines)
        mark = _FENCE.search(line)
        if ends:
            fence = argument = ""
        elif mark and not fence and start.startswith(mark[1]):
            fence, label, argument, lines = mark[1], mark[2], _argument(mark[2]), []
        if mark and mark[2].strip() and _argument(mark[2]):
            fence, label, argument, lines = mark[1], mark[2], _argument(mark[2]), []
    if argument and not strict:
        yield f"{fence}{label}", argument, "\n".join(lines)


def _argument(label: str) -> str:
    """What the content of a block with this label is: "command", "code", or "" for no call."""
    language = (label.split() or [""])[0]
    return "code" if _PYTHON.fullmatch(language) else "command" if _SHELL.fullmatch(language) else ""
