"""The functions of Python that are followed one by one: builtins, and those whose value matters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentgym.monitor import handed
from agentgym.monitor.code import git
from agentgym.monitor.code.computed import COMPUTED
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
    Instance,
    Name,
    PathValue,
    Value,
    text_of,
)
from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.code.python import Reader


NAMESPACE = "__namespace__"
"""The name of what globals() gives."""


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
    value = reader.include(text)
    return Handle("", "code") if value is UNKNOWN else value


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
    if isinstance(owner, Instance):
        return owner.attributes.get(name, UNKNOWN)
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
    handed.by_variable(reader.analysis, name, text)
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


def _run_module(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    """A module is run with the arguments of the program."""
    words = constant(reader, "sys.argv")
    given = [text_of(word) for word in words[1:]] if isinstance(words, list) else []
    with reader.analysis.deeper() as possible:
        if possible and arguments:
            shell = reader.analysis.make_shell(("sh",), "")
            shell.call(["python", "-m", text_of(arguments[0]), *given])
    return UNKNOWN


def _run_tests(reader: Reader, arguments: Arguments, keywords: Keywords) -> Value:
    words = arguments[0] if arguments and isinstance(arguments[0], list | tuple) else []
    with reader.analysis.deeper() as possible:
        if possible:
            reader.analysis.make_shell(("sh",), "").call(["pytest", *map(text_of, words)])
    return UNKNOWN


TABLE: dict[str, Callable[[Reader, Arguments, Keywords], Value]] = {
    **COMPUTED,
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
    "pytest.main": _run_tests,
    "runpy.run_module": _run_module,
    "vars": lambda reader, arguments, keywords: arguments[0] if arguments else Name(NAMESPACE),
    "globals": lambda reader, arguments, keywords: Name(NAMESPACE),
    "locals": lambda reader, arguments, keywords: Name(NAMESPACE),
    "exec": _execute,
    "eval": _execute,
    "compile": _execute,
    "__import__": _import,
    "importlib.import_module": _import,
    "getattr": _getattr,
    "print": _print,
    "sys.stdout.write": _print,
    "ast.literal_eval": _execute,
    "os.path.expanduser": lambda reader, arguments, keywords: (
        re.sub(
            r"^~(?=/|$)", lambda _: reader.analysis.state.variables.get("HOME", HOLE), text_of(arguments[0])
        )
        if arguments
        else UNKNOWN
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
    if (stored := reader.names.get(dotted)) is not None:
        return stored
    if dotted.startswith("sys.modules."):
        return Name(dotted.removeprefix("sys.modules."))
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
