"""The shell's own commands, and the shells themselves."""

from __future__ import annotations

import posixpath
import re

from agentgym.monitor import execution, handed
from agentgym.monitor.command import Command, Row
from agentgym.monitor.effects import HOLE


def _change_folder(command: Command) -> str:
    state = command.state
    operands = [word for word in command.arguments if word not in ("-P", "-L", "-e", "-@", "--")]
    target = operands[0] if operands else state.variables.get("HOME", "/root")
    if target == "-":
        target = state.previous
    elif (search := state.variables.get("CDPATH")) and not target.startswith(("/", ".")):
        target = f"{search.split(':')[0]}/{target}"
    move(command, target)
    return ""


def move(command: Command, target: str) -> None:
    """The shell goes to `target`; to enter a folder is to look at it."""
    command.look(target)
    state = command.state
    if not target.startswith(HOLE):
        state.previous, state.cwd = state.cwd, command.analysis.locate(target)[0]


def _push(command: Command) -> str:
    state = command.state
    operands = [word for word in command.arguments if not re.fullmatch(r"-n|[+-]\d+", word)]
    if operands:
        state.stack = (state.cwd, *state.stack)
        move(command, operands[0])
    elif state.stack:
        first, *rest = state.stack
        state.stack = (state.cwd, *rest)
        move(command, first)
    return HOLE


def _pop(command: Command) -> str:
    state = command.state
    if state.stack:
        first, *rest = state.stack
        state.stack = tuple(rest)
        move(command, first)
    return HOLE


def _where(command: Command) -> str:
    return command.state.cwd + "\n"


def _eval(command: Command) -> str:
    text = " ".join(word for word in command.arguments if word != "--")
    with command.analysis.deeper(command.origin) as possible:
        if not possible:
            return HOLE
        if HOLE in text:
            command.analysis.give_up("unresolved")
        return command.shell.run_text(text) if text.strip(HOLE) else HOLE


_STDIN = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def _source(command: Command) -> str:
    if not command.arguments:
        return ""
    path = command.arguments[0]
    target = command.analysis.locate(path)[0]
    content = command.stdin if target in _STDIN else command.analysis.content_of(path)
    command.analysis.emit("run", target, "source", tuple(command.arguments[1:]), folder=command.state.cwd)
    if content is None or content == HOLE:
        return HOLE
    with command.analysis.deeper("script") as possible:
        return command.shell.run_text(content) if possible else HOLE


def shell(command: Command) -> str:
    """bash, sh and their kin: text after -c, a script, or what comes on standard input."""
    options = command.options("c o O rcfile init-file", stop_at_operand=True)
    texts = options.values("-c")
    operands = options.operands
    if options.has("-n"):  # only checks the syntax
        for path in operands[:1]:
            command.read(path)
        return ""
    analysis = command.analysis
    for path in options.values("--rcfile", "--init-file"):
        execution.run_file(command.shell, analysis.locate(path)[0], [])
    if start_up := command.state.variables.get("BASH_ENV"):
        execution.run_file(command.shell, analysis.locate(start_up)[0], [], program="bash")
    if texts:
        with analysis.deeper(command.origin) as possible:
            return (
                execution.shell_text(command.shell, texts[0], operands or [command.name])
                if possible
                else HOLE
            )
    if operands and operands[0] not in ("-", *_STDIN) and not options.has("-s"):
        target = analysis.locate(operands[0])[0]
        analysis.emit(
            "run", target, command.name, tuple(operands[1:]), folder=command.state.cwd, origin=command.origin
        )
        return execution.run_file(command.shell, target, operands[1:], program="bash")
    if not command.stdin:
        return HOLE
    if command.stdin == HOLE:
        analysis.give_up("unresolved")
        return HOLE
    with analysis.deeper("decoded" if analysis.decoders else "") as possible:
        return (
            execution.shell_text(command.shell, command.stdin, [command.name], stdin=False)
            if possible
            else HOLE
        )


def _alias(command: Command) -> str:
    for word in command.arguments:
        name, equals, text = word.partition("=")
        if equals:
            command.state.aliases[name] = text
            command.analysis.emit("env", name, "alias", (text,))
    return ""


def _unalias(command: Command) -> str:
    for name in command.arguments:
        command.state.aliases.pop(name, None)
    return ""


def _trap(command: Command) -> str:
    if len(command.arguments) > 1 and command.arguments[0] not in ("-", "-p", "-l", ""):
        command.shell.at_exit.append(command.arguments[0])
    return ""


def _read(command: Command) -> str:
    options = command.options("a d i n N p t u")
    delimiter = (options.values("-d") or ["\n"])[-1]
    text = command.stdin
    if options.values("-u"):
        text = command.state.variables.get(f"&{options.values('-u')[0]}", HOLE)
    line, _, rest = text.partition(delimiter) if delimiter else (text, "", "")
    command.shell.stdin = "" if text == HOLE else rest
    separators = command.state.variables.get("IFS", " \t\n")
    for name in options.values("-a"):
        command.state.arrays[name] = tuple(_split(line, separators, 1000))
    names = options.operands or ["REPLY"]
    parts = _split(line, separators, len(names))
    for name, value in zip(names, parts + [""] * len(names), strict=False):
        command.state.variables[name] = HOLE if line == HOLE else value
    return ""


def _split(line: str, separators: str, count: int) -> list[str]:
    if count == 1 or not separators:
        return [line.strip(" \t") if " " in separators else line]
    pattern = r"\s+" if separators == " \t\n" else "[" + re.escape(separators) + "]"
    return re.split(pattern, line.strip(), maxsplit=count - 1)


def _mapfile(command: Command) -> str:
    options = command.options("d n O s u C c")
    name = (options.operands or ["MAPFILE"])[0]
    command.state.arrays[name] = tuple(command.stdin.splitlines())
    return ""


def _set(command: Command) -> str:
    words = command.arguments
    if words and "--" in words:
        command.shell.positional = (command.shell.positional[0], *words[words.index("--") + 1 :])
    elif words and not words[0].startswith(("-", "+")):
        command.shell.positional = (command.shell.positional[0], *words)
    return ""


def _shift(command: Command) -> str:
    count = int(command.arguments[0]) if command.arguments and command.arguments[0].isdigit() else 1
    first, *rest = command.shell.positional or ("bash",)
    command.shell.positional = (first, *rest[count:])
    return ""


def _shopt(command: Command) -> str:
    if "-s" in command.arguments:
        command.state.options |= {word for word in command.arguments if not word.startswith("-")}
    return ""


def _hash(command: Command) -> str:
    options = command.options("p")
    for path in options.values("-p"):
        for name in options.operands:
            command.state.aliases[name] = path
            command.analysis.emit("env", name, "alias", (path,))
    return ""


def _let(command: Command) -> str:
    for word in command.arguments:
        command.shell.run_text(f"(( {word} ))")
    return ""


def _declare(command: Command) -> str:
    """export, declare, local: with -x or as export, the variables reach the programs that follow."""
    options = command.options("")
    exports = command.name == "export" or options.has("-x")
    for word in options.operands:
        name, equals, text = word.partition("=")
        if equals and name.isidentifier():
            refers = options.has("-n") and command.name in ("declare", "local", "typeset")
            command.shell.assign(name, command.state.variables.get(text, "") if refers else text)
        if options.has("-f") and name in command.state.functions:
            command.analysis.emit("env", name, "function", (command.state.functions[name],))
        elif exports and name.isidentifier():
            command.state.exported |= {name}
            text = command.state.variables.get(name, "")
            command.analysis.emit("env", name, "export", (text,))
            handed.by_variable(command.analysis, name, text)
    return ""


def _base_name(command: Command) -> str:
    operands = command.options("s").operands
    if not operands or HOLE in operands[0]:
        return HOLE
    name = posixpath.basename(operands[0].rstrip("/"))
    return (name.removesuffix(operands[1]) if len(operands) > 1 else name) + "\n"


def _folder_name(command: Command) -> str:
    operands = command.options("").operands
    return "".join((posixpath.dirname(path.rstrip("/")) or ".") + "\n" for path in operands)


def _real_path(command: Command) -> str:
    for path in command.options("").operands:
        command.look(path)
    return "".join(command.analysis.locate(path)[0] + "\n" for path in command.options("").operands)


def _temporary(command: Command) -> str:
    folder = (command.options("p tmpdir suffix").values("-p", "--tmpdir") or ["/tmp"])[-1] or "/tmp"
    if folder != "/tmp":
        command.analysis.write(f"{folder}/tmp.{HOLE}", "mktemp")
    return f"{folder}/tmp.{HOLE}\n"


def _nothing(command: Command) -> str:
    return ""


def _unknown_output(command: Command) -> str:
    return HOLE


def _complete(command: Command) -> str:
    """compgen: with -G the paths that fit a glob, with -f and -d what a folder holds."""
    options = command.options("G f d W A")
    found = [path for pattern in options.values("-G") for path in command.analysis.glob(pattern)]
    for name in ("-f", "-d"):
        for start in options.values(name):
            command.look(start)
            found.append(start + HOLE)
    for path in found:
        command.look(path)
    return "".join(f"{path}\n" for path in found)


_SILENT = (
    "true false : sleep wait exit return break continue ulimit umask disown bg fg jobs history help clear reset logout "
    "enable bind complete caller times dirs suspend getopts"
)
_TELLING = (
    "date whoami id hostname uname uptime nproc free df tty arch groups printenv cal bc dc factor yes locale expr "
    "logger notify-send say"
)

PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(_SILENT.split(), _nothing),
    **dict.fromkeys(_TELLING.split(), _unknown_output),
    "cd": _change_folder,
    "chdir": _change_folder,
    "pushd": _push,
    "popd": _pop,
    "pwd": _where,
    "eval": _eval,
    "source": _source,
    ".": _source,
    **dict.fromkeys(("bash", "sh", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash"), shell),
    "alias": _alias,
    "unalias": _unalias,
    "trap": _trap,
    "read": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "set": _set,
    "shift": _shift,
    "shopt": _shopt,
    "hash": _hash,
    "let": _let,
    "export": _declare,
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "readonly": _declare,
    "basename": _base_name,
    "dirname": _folder_name,
    "realpath": _real_path,
    "readlink": _real_path,
    "mktemp": _temporary,
    "compgen": _complete,
}
