"""What Python programs do with files: effects of open, listings and copies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentgym.monitor import writing
from agentgym.monitor.code.values import UNKNOWN, Handle, PathValue, Unknown, Value, text_of
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader

Arguments = list[Value]
Keywords = dict[str, Value]


def emit_delete(reader: Reader, path: str, *, deep: bool = False) -> None:
    """A program removes `path`."""
    if worth_saying(reader, path):
        reader.analysis.delete(path, "python", deep=deep)


def worth_saying(reader: Reader, path: str) -> bool:
    """Whether an effect on `path` says anything: in code that is only written, a parameter could be every path."""
    return path != "" and not (path.strip(HOLE) == "" and (reader.analysis.is_supposed or reader.calls))


def emit_read(reader: Reader, path: str, *, deep: bool = False) -> None:
    if worth_saying(reader, path):
        reader.analysis.read(path, "python", deep=deep)


def emit_look(reader: Reader, path: str, *, deep: bool = False) -> None:
    if worth_saying(reader, path):
        reader.analysis.look(path, "python", deep=deep)


def emit_write(reader: Reader, path: str, content: str | None, detail: tuple[str, ...] = ()) -> None:
    if not worth_saying(reader, path):
        return
    target = reader.analysis.write(path, "python", content, detail)
    if content and HOLE not in target:
        writing.written(reader.analysis, target, content, append=detail == ("append",))


def joined(arguments: Arguments) -> Value:
    out = ""
    for part in map(text_of, arguments):
        out = part if part.startswith("/") or not out else out.rstrip("/") + "/" + part
    return out


def opened(reader: Reader, path: str, mode: str) -> Value:
    if set(mode) & set("wax+") and mode in ("w", "wb", "wt", "a", "ab", "at", "x", "w+", "a+", "wb+", "xb"):
        return Handle(path, "append" if "a" in mode else "write")
    emit_read(reader, path)
    if "+" in mode:
        emit_write(reader, path, None, ("edit",))
    return Handle(path)


def open_file(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    path = arguments[0] if arguments else keywords.get("file", HOLE)
    mode = text_of(arguments[1]) if len(arguments) > 1 else text_of(keywords.get("mode", "r"))
    handle = opened(reader, text_of(path), mode)
    if handle.kind in ("write", "append"):
        # Said once when it is opened; what is then written follows with its content.
        emit_write(reader, handle.path, None, ("append",) if handle.kind == "append" else ())
    return handle


def os_open(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    path = text_of(arguments[0]) if arguments else HOLE
    flags = repr(arguments[1]) if len(arguments) > 1 else ""
    if "O_W" in flags or "O_CREAT" in flags or isinstance(arguments[1] if len(arguments) > 1 else 0, Unknown):
        emit_write(reader, path, None)
        return Handle(path, "write")
    emit_read(reader, path)
    return Handle(path)


def listed(reader: Reader, name: str, path: str) -> Value:
    if path == HOLE and name in ("os.listdir", "os.scandir"):
        path = "."
    emit_look(reader, path, deep=name == "os.fwalk")
    if name == "os.chdir" and HOLE not in path:
        reader.analysis.state.cwd = reader.analysis.locate(path)[0]
    return (
        [HOLE] if name == "os.listdir" else [PathValue(f"{path}/{HOLE}")] if name == "os.scandir" else UNKNOWN
    )


def walk(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    path = text_of(arguments[0]) if arguments else HOLE
    emit_look(reader, path, deep=True)
    return [(f"{path}/{HOLE}", [HOLE], [HOLE])]


def glob_files(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    pattern = text_of(arguments[0]) if arguments else HOLE
    if root := keywords.get("root_dir"):
        pattern = f"{text_of(root)}/{pattern}"
    return expanded(reader, pattern)


def expanded(reader: Reader, pattern: str) -> list[str]:
    found = reader.analysis.glob(pattern)
    for path in found:
        emit_look(
            reader, re.sub(r"/[^/]*[*?\[].*", "", path) or "/" if "*" in path else path, deep="**" in path
        )
    return found


def copied(reader: Reader, name: str, source: str, target: str) -> None:
    moves = "move" in name or name.startswith("os.")
    emit_read(reader, source, deep="tree" in name)
    if not worth_saying(reader, target):
        return
    content = reader.analysis.content_of(source)
    emit_write(reader, target, content)
    reader.analysis.copied(source, reader.analysis.locate(target)[0])
    if moves:
        emit_delete(reader, source)


def write_to(reader: Reader, handle: Handle, text: str) -> None:
    """Text goes into an open file; the first that does is its content, what follows is appended."""
    if text.strip(HOLE) == "" or handle.kind not in ("write", "append"):
        return
    appends = handle.kind == "append" or bool(reader.analysis.content_of(handle.path))
    emit_write(reader, handle.path, text, ("append",) if appends else ())
