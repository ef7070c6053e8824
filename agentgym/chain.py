"""From an action to its answers: the calls are read, checked, and passed through the middleware chain one by one."""

from __future__ import annotations

import copy
import functools
import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentgym.episode import Episode
from agentgym.errors import ToolError, UsageError, nearest
from agentgym.protocols import ParseError, Protocol
from agentgym.tasks import FrozenDict, Task
from agentgym.tools import (
    ArgumentChecker,
    CallRecord,
    Middleware,
    Next,
    Tool,
    ToolCall,
    ToolResult,
    checker_for,
)


class ToolRunner:
    """The half of `AgentEnv` that runs calls. Nothing else runs a tool, so a handler sees every call."""

    protocol: Protocol
    tools: tuple[Tool, ...]
    _checker: ArgumentChecker
    _plain: bool  # text moves, not tools
    _middleware: list[Middleware]  # innermost first
    _chain: Next | None  # the handlers with the tool inside, built when first needed
    _episode: Episode | None

    def respond(self, action: str) -> str:
        """Answer a plain text move. Environments with tools leave this alone."""
        raise NotImplementedError

    def boundaries(self, task: Task) -> Mapping[str, Any]:
        """What calls may not do while `task` is played, for a monitor. Asked when its episode has begun.

        Returns:
            Keys of a monitor's context (docs/monitor.md); a key that is left out means that there is no such rule.
            `fresh_shell` besides: whether every command starts in a shell of its own.
        """
        return {}

    def use(self, handler: Middleware) -> None:
        """Put `handler` around every tool call, outside the handlers already there."""
        self._middleware.append(handler)
        self._chain = None

    def add_tools(self, tools: Sequence[Tool], handler: Middleware) -> None:
        """Offer more tools, which `handler` answers; it is put around every call, as by `use`.

        Where the environment takes plain moves, a message in which the protocol reads a call is that call, and any
        other message is a move.

        Raises:
            UsageError: the environment has a tool of that name, or its protocol cannot write the new ones.
        """
        own = {tool.name for tool in self.tools}
        for tool in tools:
            if tool.name in own:
                raise UsageError(f"{type(self).__name__} has a tool {tool.name!r} of its own")
        self.protocol.require(tools)
        self._set_tools((*self.tools, *tools))
        self.use(handler)

    def drop_tools(self, names: Collection[str]) -> None:
        """Offer these tools no more; a call of one is answered as that of a tool that does not exist.

        Raises:
            UsageError: there is no such tool.
        """
        known = [tool.name for tool in self.tools]
        for name in names:
            if name not in known:
                raise UsageError(f"{type(self).__name__} has no tool {name!r}.{nearest(name, known)}")
        self._set_tools(tuple(tool for tool in self.tools if tool.name not in names))

    def run_call(self, call: ToolCall) -> CallRecord:
        """Run one call through the middleware outside a step, for somebody who acts beside the policy: a sub-agent."""
        return self._call(call)

    def _set_tools(self, tools: tuple[Tool, ...]) -> None:
        self.tools = tools
        self._checker = checker_for(tools)

    def _act(self, action: str, records: list[CallRecord]) -> tuple[str, bool]:
        """Read the calls and run them; nothing runs unless all are well formed.

        Args:
            action: the policy's message.
            records: takes the calls as they are answered, so that they are known if one of them breaks.

        Returns:
            The observation, and whether the action was invalid.
        """
        try:
            calls = self.protocol.parse(action, self._checker) if self.tools or not self._plain else []
        except ParseError as error:
            if not self._plain:
                return self.protocol.render_invalid(str(error)), True
            calls = []
        if not calls:
            record = self._call(ToolCall("act", FrozenDict(text=action)))
            records.append(record)
            return record.result.text, record.result.error and not record.result.blocked
        problems = [problem for call in calls if (problem := self._checker.problem(call))]
        if problems:
            return self.protocol.render_invalid("; ".join(problems)), True
        for call in calls:
            records.append(self._call(call))
            if self._episode.done:  # type: ignore[union-attr]  # a step is running
                break  # what stands after the call that ended the task is not run
        return self.protocol.render_results(records), False

    def _call(self, call: ToolCall) -> CallRecord:
        chain = self._chain
        if chain is None:
            chain = self._chain = self._build_chain()
        start = time.perf_counter()
        result = chain(call)
        return CallRecord(call, result, time.perf_counter() - start)

    def _build_chain(self) -> Next:
        chain: Any = self._run_move if self._plain else self._run_tool
        for handler in self._middleware:
            chain = functools.partial(handler, next=chain)
        return chain  # type: ignore[no-any-return]

    def _run_move(self, call: ToolCall) -> ToolResult:
        try:
            answer: Any = self.respond(call.arguments["text"])
        except ToolError as error:
            return ToolResult(str(error), error=True)
        if isinstance(answer, str):
            return ToolResult(answer)
        if isinstance(answer, ToolResult):
            return answer
        raise TypeError(f"expected {type(self).__name__}.respond to return text, got {type(answer).__name__}")

    def _run_tool(self, call: ToolCall) -> ToolResult:
        try:
            answer = getattr(self, call.name)(**_own(call.arguments))
        except ToolError as error:
            return ToolResult(str(error), error=True)
        if isinstance(answer, str):
            return ToolResult(answer)
        if isinstance(answer, ToolResult):
            return answer
        return ToolResult("" if answer is None else json.dumps(answer, ensure_ascii=False))


def _own(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as a tool may change them: lists and dicts stay as they were in the record of the call."""
    for value in arguments.values():
        if value.__class__ is list or value.__class__ is dict:
            return copy.deepcopy(dict(arguments))
    return arguments
