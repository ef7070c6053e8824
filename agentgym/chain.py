"""From an action to its answers: the calls are read, checked, and passed through the middleware chain one by one."""

from __future__ import annotations

import copy
import functools
import json
import time
from collections.abc import Mapping
from typing import Any

from agentgym.episode import Episode
from agentgym.errors import ToolError
from agentgym.protocols import ParseError, Protocol
from agentgym.tasks import FrozenDict, Task
from agentgym.tools import ArgumentChecker, CallRecord, Middleware, Next, ToolCall, ToolResult


class ToolRunner:
    """The half of `AgentEnv` that runs calls. Nothing else runs a tool, so a handler sees every call."""

    protocol: Protocol
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

    def _act(self, action: str, records: list[CallRecord]) -> tuple[str, bool]:
        """Read the calls and run them; nothing runs unless all are well formed.

        Args:
            action: the policy's message.
            records: takes the calls as they are answered, so that they are known if one of them breaks.

        Returns:
            The observation, and whether the action was invalid.
        """
        if self._plain:
            record = self._call(ToolCall("act", FrozenDict(text=action)))
            records.append(record)
            return record.result.text, record.result.error and not record.result.blocked
        try:
            calls = self.protocol.parse(action, self._checker)
        except ParseError as error:
            return self.protocol.render_invalid(str(error)), True
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
