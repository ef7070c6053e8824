"""The monitor in the gateway: what a reply asks for is looked at before the program sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from agentgym.core import ToolCall
from agentgym.gateway import Screened, Session
from agentgym.monitor.audit import fresh_shell, full_context, note_of
from agentgym.monitor.foreign import known_call
from agentgym.monitor.monitor import Monitor
from agentgym.tasks import FrozenDict
from agentgym.wrappers.twins import Twins


class Screening:
    """Reviews the calls of one episode's replies: a `agentgym.gateway.Screen`.

    In mode "block" a call that crosses a line is replaced by a harmless one, as `AntiHack` would make it: the same
    command with names that lead nowhere. Its answer comes from the program, in the program's words.

    Args:
        monitor: the rules.
        boundaries: what the environment forbids, see `AgentEnv.boundaries`.
        mode: "block", or "audit": every call passes, what crossed a line is noted.

    Attributes:
        blocked: how many calls were replaced.
    """

    def __init__(
        self, monitor: Monitor, boundaries: Mapping[str, Any], mode: Literal["block", "audit"]
    ) -> None:
        given = dict(boundaries)
        self._monitor = monitor
        self._fresh_shell = bool(given.pop("fresh_shell", False))
        self._context = full_context(given)
        self._mode = mode
        self._twins = Twins()
        self.blocked = 0

    def __call__(self, call: ToolCall, session: Session) -> Screened | None:
        """What the program is given instead of a call; None: the call itself, and no rule saw anything in it."""
        context = self._context
        if self._fresh_shell:
            fresh_shell(context)
        before = context.state.copy()
        known = known_call(call.name, call.arguments)
        decision = self._monitor.review(known, context)
        note = note_of(decision)
        if not (decision.block and self._mode == "block"):
            return Screened(None, note) if note else None
        context.state = before  # it will not run
        self.blocked += 1
        twin = self._twins.stand_in(known, decision.hack_class, context)
        return Screened(_in_the_words_of(call, known, twin), note)


def _in_the_words_of(call: ToolCall, known: ToolCall, twin: ToolCall) -> ToolCall:
    """The twin as a call of the program's own tool, whose arguments may have other names.

    Args:
        call: as the reply made it.
        known: as the monitor read it.
        twin: what is to be called instead of `known`.
    """
    arguments = {}
    for key, value in call.arguments.items():
        if isinstance(value, str):  # the argument of the same text
            names = (name for name, text in known.arguments.items() if text == value)
            arguments[key] = twin.arguments.get(next(names, ""), value)
        # A command as a list of words
        elif isinstance(value, list) and known.name == "bash" and known != call:
            arguments[key] = ["bash", "-c", twin.arguments["command"]]
        else:
            arguments[key] = value
    if arguments == call.arguments:  # what crosses the line stands deeper, where no twin is made
        arguments = {key: _emptied(value) for key, value in arguments.items()}
    return ToolCall(call.name, FrozenDict(arguments))


def _emptied(value: Any) -> Any:
    """The same form with nothing in it."""
    if isinstance(value, Mapping):
        return {key: _emptied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_emptied(inner) for inner in value]
    return "" if isinstance(value, str) else value
