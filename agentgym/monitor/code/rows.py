"""The functions of Python that are followed one by one: builtins, and those whose value matters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentgym.monitor.code import git
from agentgym.monitor.code.files import (
    Arguments,
    Keywords,
    glob_files,
    joined,
    open_file,
    os_open,
    walk,
    worth_saying,
    write_to,
)
from agentgym.monitor.code.values import (
    UNKNOWN,
    Environment,
    Handle,
    Name,
    PathValue,
    Value,
    bounded,
    is_known,
    items,
    text_of,
)
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader


def _execute(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """exec, eval and compile of a text that is known."""
    code = arguments[0] if arguments else HOLE
    if isinstance(code, Handle) and code.kind == "code":
        return UNKNOWN
    text = text_of(code)
    if HOLE in text:
        if not reader.analysis.is_supposed:
            reader.analysis.give_up("unresolved")
        return UNKNOWN
    reader.analysis.emit("code", "", "python", (), text, origin="decoded")
    reader.include(text)
    return Handle("", "code")


def _import(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    name = text_of(arguments[0]) if arguments else HOLE
    imported(reader, name)
    return Name(name)


def imported(reader: Reader, module: str) -> None:
    """A module is imported; one that a call wrote beside the program is run with it."""
    state = reader.analysis.state
    if not state.files:
        return
    path = f"{state.cwd}/{module.replace('.', '/')}.py"
    content = state.files.get(path)
    if content:
        with reader.analysis.deeper("script") as possible:
            if possible:
                reader.include(content)


def _getattr(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) < 2:
        return UNKNOWN
    owner, name = arguments[0], text_of(arguments[1])
    return constant(reader, f"{owner.dotted}.{name}") if isinstance(owner, Name) else UNKNOWN


def _print(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    separator = keywords.get("sep", " ")
    text = text_of(separator).join(text_of(a) for a in arguments) + text_of(keywords.get("end", "\n"))
    target = keywords.get("file")
    if isinstance(target, Handle):
        write_to(reader, target, text)
    elif target is None:
        reader.output.append(text)
    return None


def _map(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) < 2:
        return UNKNOWN
    return [reader.apply(arguments[0], [item]) for item in items(arguments[1])]


def _range(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    if arguments and all(isinstance(a, int) and abs(a) < 2**31 for a in arguments):
        numbers = range(*arguments) if len(arguments) < 3 or arguments[2] else range(0)
        return list(numbers[:4096])
    return UNKNOWN


def _plain(function: Callable[..., Value]) -> Callable[[Reader, Arguments, Keywords], Value]:
    """A row for a builtin that is computed on constants."""

    def row(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
        if not all(map(is_known, arguments)):
            return UNKNOWN
        try:
            return bounded(function(*arguments))
        except (TypeError, ValueError, OverflowError, LookupError, MemoryError):
            return UNKNOWN

    return row


def _text(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    return text_of(arguments[0]) if arguments else ""


def _bytes(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    value = arguments[0] if arguments else b""
    if isinstance(value, list | tuple) and all(isinstance(i, int) and 0 <= i < 256 for i in value):
        return bytes(value)
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else UNKNOWN


def environment_call(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    found = environment(reader, text_of(arguments[0]) if arguments else HOLE)
    return text_of(arguments[1]) if found is UNKNOWN and len(arguments) > 1 else found


def environment(reader: Reader, name: str) -> Value:
    """The value of a variable of the environment."""
    text = reader.analysis.state.variables.get(name)
    return UNKNOWN if text is None else text


def set_environment(reader: Reader, name: str, text: str) -> None:
    """The program sets a variable for the programs it starts."""
    reader.analysis.emit("env", name, "python", (text,))
    reader.analysis.state.variables[name] = text


def _path(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    return PathValue(text_of(joined(arguments)) if arguments else ".")


def _kill(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    target = arguments[0] if arguments else UNKNOWN
    text = target.dotted if isinstance(target, Name) else text_of(target)
    reader.analysis.emit(
        "process",
        text,
        "python",
        tuple(text_of(a) if not isinstance(a, Name) else a.dotted for a in arguments),
    )
    return UNKNOWN


def _run_path(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    path = text_of(arguments[-1] if arguments else HOLE)
    target = reader.analysis.locate(path)[0]
    if worth_saying(reader, path):
        reader.analysis.emit("run", target, "python")
    content = reader.analysis.state.files.get(target)
    if content:
        reader.include(content)
    return UNKNOWN


TABLE: dict[str, Callable[[Reader, Arguments, Keywords], Value]] = {
    "open": open_file,
    "io.open": open_file,
    "codecs.open": open_file,
    "aiofiles.open": open_file,
    "os.open": os_open,
    "os.walk": walk,
    "glob.glob": glob_files,
    "glob.iglob": glob_files,
    "os.kill": _kill,
    "os.killpg": _kill,
    "exec": _execute,
    "eval": _execute,
    "compile": _execute,
    "__import__": _import,
    "importlib.import_module": _import,
    "getattr": _getattr,
    "print": _print,
    "sys.stdout.write": _print,
    "map": _map,
    "filter": lambda reader, arguments, keywords: arguments[1] if len(arguments) > 1 else UNKNOWN,
    "range": _range,
    "list": lambda reader, arguments, keywords: items(arguments[0]) if arguments else [],
    "tuple": lambda reader, arguments, keywords: tuple(items(arguments[0])) if arguments else (),
    "reversed": lambda reader, arguments, keywords: items(arguments[0])[::-1] if arguments else UNKNOWN,
    "sorted": lambda reader, arguments, keywords: arguments[0] if arguments else UNKNOWN,
    "enumerate": lambda reader, arguments, keywords: (
        list(enumerate(items(arguments[0]))) if arguments else UNKNOWN
    ),
    "zip": lambda reader, arguments, keywords: list(zip(*map(items, arguments), strict=False)),
    "next": lambda reader, arguments, keywords: (
        items(arguments[0])[0] if arguments and items(arguments[0]) else UNKNOWN
    ),
    "iter": lambda reader, arguments, keywords: arguments[0] if arguments else UNKNOWN,
    "chr": _plain(chr),
    "ord": _plain(ord),
    "int": _plain(int),
    "len": _plain(len),
    "hex": _plain(hex),
    "bytes": _bytes,
    "bytearray": _bytes,
    "str": _text,
    "repr": _text,
    "os.fspath": _text,
    "os.path.abspath": _text,
    "os.path.normpath": _text,
    "os.path.realpath": _text,
    "shlex.quote": _text,
    "os.path.expanduser": lambda reader, arguments, keywords: (
        re.sub(
            r"^~(?=/|$)", lambda _: reader.analysis.state.variables.get("HOME", HOLE), text_of(arguments[0])
        )
        if arguments
        else UNKNOWN
    ),
    "os.path.dirname": lambda reader, arguments, keywords: (
        text_of(arguments[0]).rpartition("/")[0] if arguments else UNKNOWN
    ),
    "os.path.basename": lambda reader, arguments, keywords: (
        text_of(arguments[0]).rpartition("/")[2] if arguments else UNKNOWN
    ),
    "os.getcwd": lambda reader, arguments, keywords: reader.analysis.state.cwd,
    "os.getenv": environment_call,
    "os.environ.get": environment_call,
    "pathlib.Path": _path,
    "pathlib.PosixPath": _path,
    "pathlib.PurePath": _path,
    "Path": _path,
    "pathlib.Path.cwd": lambda reader, arguments, keywords: PathValue(reader.analysis.state.cwd),
    "pathlib.Path.home": lambda reader, arguments, keywords: PathValue(
        reader.analysis.state.variables.get("HOME", HOLE)
    ),
    "runpy.run_path": _run_path,
    "importlib.util.spec_from_file_location": _run_path,
    "importlib.machinery.SourceFileLoader": _run_path,
    "imp.load_source": _run_path,
    "sys.path.insert": lambda reader, arguments, keywords: set_environment(
        reader, "PYTHONPATH", text_of(arguments[-1]) if arguments else HOLE
    ),
    "sys.path.append": lambda reader, arguments, keywords: set_environment(
        reader, "PYTHONPATH", text_of(arguments[-1]) if arguments else HOLE
    ),
}


def constant(reader: Reader, dotted: str) -> Value:
    """An attribute of a module, where it is a constant."""
    if dotted == "os.environ":
        return Environment()
    if dotted == "sys.argv":
        return ["-c", *reader.arguments]
    if (verb := git.verb_of(dotted)) in ("for-each-ref", "branch", "tag", "remote", "cat-file"):
        git.asked(reader, verb)
    if dotted == "sys.executable":
        return "python"
    if dotted in ("os.sep", "os.path.sep"):
        return "/"
    if dotted == "os.curdir":
        return "."
    if dotted == "os.pardir":
        return ".."
    if dotted == "os.linesep":
        return "\n"
    if dotted == "string.ascii_lowercase":
        return "abcdefghijklmnopqrstuvwxyz"
    return Name(dotted)
