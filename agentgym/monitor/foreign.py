"""Calls of other people's agents as calls of the tools that the monitor knows, told by their arguments.

Names differ from agent to agent; what a command, a file with its new text, or an address is called differs less.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from agentgym.monitor.tools import TOOLS
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall

_PATHS = ("path", "file_path", "filepath", "filename", "file", "target_file", "notebook_path")
_COMMANDS = ("command", "cmd", "keystrokes", "commands", "script")
_OLD = ("old_str", "old_string", "old", "search", "old_text")
_NEW = ("new_str", "new_string", "new", "replace", "new_text")
_CONTENTS = ("content", "file_text", "contents", "text", "new_source", *_NEW)
_CODES = ("code", "source")
_SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh")


def known_call(name: str, arguments: Mapping[str, Any]) -> ToolCall:
    """The call as one of a tool the monitor knows; as it is where it is one already, or looks like none."""
    if isinstance(arguments.get("command"), list):  # of a shell by any name, also by one that is known
        return _call("bash", command=_command(arguments))
    if name not in TOOLS:
        path, command = _text(arguments, _PATHS), _command(arguments)
        old, content = _text(arguments, _OLD), _text(arguments, _CONTENTS)
        code, url = _text(arguments, _CODES), _text(arguments, ("url", "uri"))
        if path and old:
            return _call("str_replace", path=path, old_str=old, new_str=_text(arguments, _NEW))
        if path and content:
            return _call("write_file", path=path, content=content)
        if path:
            return _call("read_file", path=path)
        if command:
            return _call("bash", command=command)
        if code:
            return _call("python", code=code)
        if url:
            return _call("http_get", url=url)
    return ToolCall(name, FrozenDict(arguments))


def _text(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The first of the named arguments that is a text with something in it."""
    found = (arguments.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), "")


def _command(arguments: Mapping[str, Any]) -> str:
    """A command given as text or as a list of words, ``["bash", "-lc", TEXT]`` included."""
    words = arguments.get("command")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        inner = (
            words[0] in _SHELLS and len(words) == 3 and words[1].startswith("-") and words[1].endswith("c")
        )
        return str(words[2]) if inner else shlex.join(words)
    return _text(arguments, _COMMANDS)


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(name, FrozenDict(arguments))
