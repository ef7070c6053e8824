"""Methods of the objects a Python program holds: paths, open files, connections, the environment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentgym.monitor import paths
from agentgym.monitor.code import calls, given, rows
from agentgym.monitor.code.files import (
    Arguments,
    Keywords,
    copied,
    emit_delete,
    emit_look,
    emit_read,
    emit_write,
    joined,
    open_file,
    walk,
    write_to,
)
from agentgym.monitor.code.values import (
    UNKNOWN,
    Environment,
    Handle,
    PathValue,
    Unknown,
    Value,
    items,
    text_of,
)
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader

_READING = frozenset("read readline readlines read_text read_bytes readall".split())
_PATH_LISTS = frozenset("exists is_file is_dir stat lstat iterdir is_symlink owner samefile".split())


def method(reader: Reader, owner: Value, name: str, arguments: Arguments, keywords: Keywords) -> Value | None:
    """A method of a path, an open file or an unknown object; None where it is a method of a constant."""
    if isinstance(owner, PathValue):
        return _path_method(reader, owner, name, arguments, keywords)
    if isinstance(owner, Handle):
        return _handle_method(reader, owner, name, arguments, keywords)
    if isinstance(owner, Environment):
        if name == "setdefault" and len(arguments) > 1:
            rows.set_environment(reader, text_of(arguments[0]), text_of(arguments[1]))
        if name in ("get", "pop", "setdefault", "__getitem__"):
            return rows.environment_call(reader, arguments, keywords)
        if name == "update" and arguments and isinstance(arguments[0], dict):
            keywords = {**arguments[0], **keywords}
        for key, text in keywords.items() if name == "update" else ():
            rows.set_environment(reader, text_of(key), text_of(text))
        return UNKNOWN
    if isinstance(owner, Unknown):
        given.follow(reader, name, arguments, keywords)
        if name == "environ":  # of a process that psutil found
            reader.analysis.read(f"/proc/{HOLE}/environ", "python")
        if name in ("read_text", "read_bytes") and not (reader.analysis.is_supposed or reader.calls):
            reader.analysis.read(HOLE, "python")
        return UNKNOWN
    return None


def _path_method(
    reader: Reader, owner: PathValue, name: str, arguments: Arguments, keywords: Keywords
) -> Value:
    path = owner.text
    first = text_of(arguments[0]) if arguments else HOLE
    if name in ("read_text", "read_bytes"):
        emit_read(reader, path)
        return reader.analysis.content_of(path) or HOLE
    if name in ("write_text", "write_bytes"):
        emit_write(reader, path, None if first == HOLE else first)
    elif name == "open":
        return open_file(reader, [path, *arguments], keywords)
    elif name in ("joinpath", "with_name", "relative_to", "with_suffix"):
        if name == "joinpath":
            return PathValue(text_of(joined([path, *arguments])))
        return PathValue(f"{paths.parent(path)}/{first}" if name == "with_name" else HOLE)
    elif name in ("resolve", "absolute", "expanduser", "as_posix", "__str__"):
        if name == "as_posix":
            return path
        return PathValue(
            re.sub(r"^~(?=/|$)", lambda _: reader.analysis.state.variables.get("HOME", HOLE), path)
        )
    elif name in ("glob", "rglob"):
        emit_look(reader, path, deep=name == "rglob" or "**" in first)
        found = reader.analysis.glob(f"{path}/{'**/' if name == 'rglob' else ''}{first}")
        return [PathValue(text) for text in found]
    elif name in _PATH_LISTS:
        emit_look(reader, path)
        return [PathValue(f"{path}/{HOLE}")] if name == "iterdir" else UNKNOWN
    elif name == "walk":
        return walk(reader, [path], keywords)
    elif name in ("symlink_to", "hardlink_to", "link_to"):
        reader.analysis.link(first, path, "python")
    elif name in ("rename", "replace") and arguments:
        copied(reader, "os.rename", path, first)
    elif name in ("unlink", "rmdir"):
        emit_delete(reader, path)
    elif name in ("chmod", "touch", "mkdir"):
        emit_write(reader, path, None, ("mode",))
    return UNKNOWN


def _handle_method(
    reader: Reader, owner: Handle, name: str, arguments: Arguments, keywords: Keywords
) -> Value:
    if owner.kind == "archive" and arguments:
        emit_read(reader, text_of(arguments[0]), deep=name == "add")
        return UNKNOWN
    if name in ("system", "popen") and arguments:
        return Handle(calls.run_shell(reader, arguments[0]), "output")
    if owner.kind in ("write", "append") and name in ("write", "writelines", "write_text"):
        lines = items(arguments[0]) if name == "writelines" and arguments else arguments[:1]
        write_to(reader, owner, "".join(map(text_of, lines)))
        return UNKNOWN
    if owner.kind == "output":
        return owner if name != "read" else owner.path
    if owner.kind == "connection" and name in ("request", "putrequest", "connect", "send", "sendall"):
        path = text_of(arguments[1]) if len(arguments) > 1 else ""
        reader.analysis.emit("net", f"http://{owner.path}{path}", "python", (name,))
        return UNKNOWN
    if owner.kind in ("response", "request"):
        return UNKNOWN
    if name in _READING:
        content = reader.analysis.content_of(owner.path) if HOLE not in owner.path else None
        if content is None:
            return [HOLE] if name == "readlines" else HOLE
        return content.splitlines(keepends=True) if name == "readlines" else content
    given.follow(reader, name, arguments, keywords)
    return UNKNOWN
