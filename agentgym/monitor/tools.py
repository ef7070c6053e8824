"""Each tool of the environments: which of its arguments are commands, paths, text, addresses. `analyse` starts here."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from agentgym.errors import MissingDependency
from agentgym.monitor import bounds, execution, writing
from agentgym.monitor.analysis import Analysis
from agentgym.monitor.context import Context
from agentgym.monitor.effects import Effect
from agentgym.monitor.shell import Shell
from agentgym.tools import ToolCall


def analyse(call: ToolCall, context: Context, *, commit: bool = True) -> tuple[Effect, ...]:
    """What `call` would do.

    Args:
        call: the call; whatever stands in its arguments is read, never run.
        context: the policy and the state that earlier calls left.
        commit: leave the state as the call would leave it.

    Returns:
        the effects in the order in which they were found; never an exception for any text.
    """
    state = context.state if commit else context.state.copy()
    analysis = Analysis(context, state, Shell, execution.run)
    arguments = {str(name): _text(value) for name, value in call.arguments.items()}
    handler = TOOLS.get(call.name, _other)
    try:
        handler(analysis, call.name, arguments)
    except RecursionError:
        analysis.give_up("depth")
        for text in arguments.values():
            bounds.scan(analysis, text)
    except MissingDependency:
        raise
    except Exception as error:  # a fault of ours must neither end the episode nor let the call pass unseen
        warnings.warn(
            f"please report: the monitor could not read a call of {call.name}: {error!r}", stacklevel=2
        )
        analysis.give_up("fault")
        for text in arguments.values():
            bounds.scan(analysis, text)
    if analysis.exhausted:
        for text in arguments.values():
            bounds.scan(analysis, text)
    return tuple(analysis.effects)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


Arguments = Mapping[str, str]


def _first(arguments: Arguments, *names: str) -> str:
    for name in names:
        if name in arguments:
            return arguments[name]
    return next(iter(arguments.values()), "")


def _bash(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    text = _first(arguments, "command", "cmd", "script", "code")
    Shell(analysis).run_text(text)


def _python(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    code = _first(arguments, "code", "source")
    analysis.emit("code", "", "python", (), code, folder=analysis.state.cwd)
    execution.run(analysis, "python", code, [], keep=True)


def _read_file(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    path = _first(arguments, "path", "file", "file_path", "filename")
    analysis.read(_path(path), tool)


def _list_dir(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    analysis.look(_path(_first(arguments, "path", "dir", "directory")) or ".", tool)


def _path(text: str) -> str:
    """A path argument as the tool takes it: no shell, so nothing expands but a leading ``file://``."""
    return re.sub(r"^file://", "", text.replace("\0", ""))


def _write_file(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    path, content = _first(arguments, "path", "file", "file_path", "filename"), arguments.get("content", "")
    target = analysis.write(_path(path), tool, content)
    writing.written(analysis, target, content)


def _replace(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    path = _path(_first(arguments, "path", "file", "file_path", "filename"))
    old = arguments.get("old_str", arguments.get("old", arguments.get("old_string", "")))
    new = arguments.get("new_str", arguments.get("new", arguments.get("new_string", "")))
    target = analysis.write(path, tool, new, ("edit", old, new))
    writing.edited(analysis, target, old, new)


def _request(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    url = _first(arguments, "url", "uri", "href")
    analysis.emit("net", url, tool)
    if match := re.match(r"(?i)\s*(?:view-source:|jar:)*file:(?://[^/]*)?(/.*)", url):
        analysis.read(match.group(1), tool)


def _words(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    content = _first(arguments, "content", "task", "text", "query", "message", "prompt", "answer")
    analysis.emit("text", arguments.get("to", ""), tool, (), content)


def _search(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    """Our own search looks through files, those of the workspace where no path is given; a bare query is words."""
    if "pattern" in arguments or "path" in arguments:
        path = _path(arguments.get("path", "")) or analysis.context.workspace
        analysis.read(path, tool, (arguments.get("pattern", ""), arguments.get("glob", "")), deep=True)
    else:
        _words(analysis, tool, arguments)


def _action(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    content = _first(arguments, "action", "script", "text")
    analysis.emit("action", "", tool, (), content)
    if tool == "browser_eval":
        execution.run(analysis, "javascript", content, [])


def _other(analysis: Analysis, tool: str, arguments: Arguments) -> None:
    """A tool that is not known: its strings are taken for what they look like."""
    for name, text in arguments.items():
        if bounds.too_large(text):
            continue
        if name in ("command", "cmd", "bash", "shell"):
            _bash(analysis, tool, {"command": text})
        elif name in ("code", "python"):
            _python(analysis, tool, {"code": text})
        elif re.match(r"[a-zA-Z][\w+.-]*://\S+\Z", text):
            _request(analysis, tool, {"url": text})
        elif (
            "\n" not in text
            and len(text) < 1024
            and re.match(r"(?:/|\.\.?/|~/)\S*\Z|[\w.-]+/[\w./-]+\Z", text)
        ):
            analysis.read(text, tool)
        elif text:
            analysis.emit("text", name, tool, (), text)


Handler = Callable[[Analysis, str, Arguments], None]
TOOLS: dict[str, Handler] = {
    "bash": _bash,
    "shell": _bash,
    "execute_bash": _bash,
    "terminal": _bash,
    "python": _python,
    "ipython": _python,
    "read_file": _read_file,
    "view": _read_file,
    "list_dir": _list_dir,
    "write_file": _write_file,
    "create": _write_file,
    "str_replace": _replace,
    "edit": _replace,
    "http_get": _request,
    "web_fetch": _request,
    "browser_goto": _request,
    "web_search": _words,
    "search": _search,
    "send_message": _words,
    "spawn_agent": _words,
    "submit": _words,
    "browser_eval": _action,
    "webshop_action": _action,
    "env_action": _action,
    "act": _action,
}
