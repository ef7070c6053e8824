"""What the tests of the readers share: a context, and a short form of effects."""

from __future__ import annotations

from agentgym.monitor.context import Context
from agentgym.monitor.effects import Effect
from agentgym.monitor.tools import analyse
from agentgym.tools import ToolCall

QUIET = ("run", "code")


def make_context(**changes: object) -> Context:
    settings: dict[str, object] = {
        "workspace": "/repo",
        "protected_paths": ("/eval", "/repo/.hidden"),
        "readonly_paths": ("/repo/tests",),
        "allowed_hosts": ("localhost",),
        "network": "none",
        "package": "lib",
        "upstream": ("github.com/own/lib",),
        "git_policy": "head",
    }
    return Context(**{**settings, **changes})  # type: ignore[arg-type]


def effects(command: str, context: Context | None = None, tool: str = "bash") -> tuple[Effect, ...]:
    """All effects of one call."""
    key = {"python": "code"}.get(tool, "command")
    return analyse(ToolCall(tool, {key: command}), context or make_context())


def told(command: str, context: Context | None = None, tool: str = "bash") -> list[str]:
    """The effects as words: "read /eval/x", "list / deep", "write /a ?" (uncertain); runs and program text left out."""
    return [short(effect) for effect in effects(command, context, tool) if effect.kind not in QUIET]


def short(effect: Effect) -> str:
    """One effect as words."""
    marks = [" deep"] * effect.deep + [" later"] * effect.background + [" ?"] * (not effect.certain)
    return f"{effect.kind} {effect.target}{''.join(marks)}"
