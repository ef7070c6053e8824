"""How replies to a program are read: by a protocol; where it offers no tools also by the fenced blocks it may run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentgym.protocols import ParseError, Protocol
from agentgym.tasks import FrozenDict
from agentgym.tools import ArgumentChecker, CallRecord, Tool, ToolCall

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
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
        calls = []
        for fence, label, content in _blocks(action):
            language = (label.split() or [""])[0]
            key = "code" if _PYTHON.fullmatch(language) else "command" if _SHELL.fullmatch(language) else ""
            if key:
                calls.append(ToolCall(f"{fence}{label}", FrozenDict({key: content})))
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


def _blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Fence, label and content of each block, in linear time.

    A block ends at the next line that begins with its fence, whatever follows there: a program that cuts blocks out
    with a regular expression asks no more.
    """
    fence, label, lines = "", "", [""]
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence and mark and mark[1].startswith(fence):
            yield fence, label, "\n".join(lines)
            fence = ""
        elif fence:
            lines.append(line)
        elif mark and (mark[1][0] == "~" or "`" not in mark[2]):
            fence, label, lines = mark[1], mark[2], []
    if fence:
        yield fence, label, "\n".join(lines)
