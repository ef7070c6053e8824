"""Programs that run another program: env, timeout, xargs, sudo and their kin."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentgym.monitor.command import Command, Row, sort_options
from agentgym.monitor.effects import HOLE
from agentgym.monitor.programs.processes import named

MAX_ITEMS = 16
"""Items of input that xargs is followed for."""

_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.DOTALL | re.ASCII)


class Wrapper(NamedTuple):
    """How to find the wrapped command.

    Attributes:
        valued: options that take a value.
        operands: operands before the command (the duration of timeout).
        background: the command goes on after the call.
    """

    valued: str = ""
    operands: int = 0
    background: bool = False


_WRAPPERS = {
    "timeout": Wrapper("k s kill-after signal", 1),
    "gtimeout": Wrapper("k s kill-after signal", 1),
    "nice": Wrapper("n adjustment"),
    "ionice": Wrapper("c n p"),
    "chrt": Wrapper("p", 1),
    "taskset": Wrapper("p", 1),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "stdbuf": Wrapper("i o e"),
    "unbuffer": Wrapper(),
    "time": Wrapper("f o format output"),
    "command": Wrapper(),
    "builtin": Wrapper(),
    "exec": Wrapper("a"),
    "noglob": Wrapper(),
    "doas": Wrapper("u C"),
    "sudo": Wrapper("u g h p C D R T U user group"),
    "gosu": Wrapper("", 1),
    "su-exec": Wrapper("", 1),
    "runuser": Wrapper("u g c"),
    "setpriv": Wrapper("reuid regid groups"),
    "setarch": Wrapper("", 1),
    "linux64": Wrapper(),
    "busybox": Wrapper(),
    "corepack": Wrapper(),
    "entr": Wrapper(),
    "chronic": Wrapper(),
    "dotenv": Wrapper("f e"),
    "direnv": Wrapper("", 2),
    "toybox": Wrapper(),
    "chroot": Wrapper("", 1),
    "unshare": Wrapper("S G setuid setgid R root w wd"),
    "nsenter": Wrapper("t target S G"),
    "proot": Wrapper("r b w"),
    "firejail": Wrapper(""),
    "fakeroot": Wrapper("l s i"),
    "faketime": Wrapper("f", 1),
    "strace": Wrapper("e o p s u E a I O S X"),
    "ltrace": Wrapper("e o p s u l n"),
    "gdb": Wrapper("p x ex ix d s e c pid command"),
    "valgrind": Wrapper("tool"),
    "perf": Wrapper("e o p F", 1),
    "hyperfine": Wrapper("w r n m M P L p c i warmup runs export-json setup prepare cleanup"),
    "script": Wrapper("c I O B T m o"),
    "catchsegv": Wrapper(),
    "watch": Wrapper("n d interval"),
    "flock": Wrapper("w E c", 1),
    "systemd-run": Wrapper("p u t slice unit"),
    "dbus-run-session": Wrapper(),
    "xvfb-run": Wrapper("s n f e w"),
    "ssh-agent": Wrapper(),
    "caffeinate": Wrapper(),
    "daemonize": Wrapper("", 0, True),
    "coproc": Wrapper("", 0, True),
}


def _wrapped(command: Command) -> str:
    row = _WRAPPERS[command.name]
    options = command.options(row.valued, stop_at_operand=True)
    if command.name == "command" and options.has("-v", "-V"):
        return which(command)
    words = options.operands[row.operands :]
    if command.name == "coproc" and words[:1] and "{" in words[1:2]:
        words = words[1:]
    words = [word for word in words if word != "{"] if command.name == "coproc" else words
    if words[:1] in (["-c"], ["--command"]):  # flock FILE -c TEXT
        return command.shell.run_text(" ".join(words[1:2]))
    if command.name in ("strace", "ltrace", "gdb", "nsenter") and options.has(
        "-p", "-t", "--pid", "--target"
    ):
        for value in options.values("-p", "-t", "--pid", "--target"):
            if value:
                command.analysis.emit(
                    "process", named(command, value), command.name, tuple(command.arguments)
                )
    if command.name in ("chroot", "unshare", "nsenter", "gdb"):
        for path in options.operands[: row.operands]:
            command.look(path)
    if command.name == "script":
        for path in options.operands[:1]:
            command.analysis.write(path, "script")
        words = []
    scripted = (
        options.values("-c", "--command") if command.name in ("script", "runuser", "flock", "su") else []
    )
    output = HOLE
    if row.background:
        with command.analysis.later():
            output = _run(command, words)
    elif words:
        output = _run(command, words)
    for text in scripted:
        output = command.shell.run_text(text)
    if command.name == "hyperfine" or (command.name == "watch" and len(words) == 1):
        for word in words:
            command.shell.run_text(word)
    return output


def _run(command: Command, words: list[str]) -> str:
    assignments: list[tuple[str, str]] = []
    while words and (match := _ASSIGNMENT.match(words[0])):
        assignments.append((match.group(1), match.group(2)))
        words = words[1:]
    return command.shell.call(words, assignments, origin=command.origin) if words else HOLE


def _env(command: Command) -> str:
    options = command.options("u C S unset chdir split-string", stop_at_operand=True)
    outer = command.state.cwd
    for folder in options.values("-C", "--chdir"):
        command.look(folder)
        command.state.cwd = command.analysis.locate(folder)[0]
    words = [
        *(word for text in options.values("-S", "--split-string") for word in text.split()),
        *options.operands,
    ]
    output = _run(command, words)
    command.state.cwd = outer
    return output


def _xargs(command: Command) -> str:
    valued = "I i n L P d a E s max-args max-procs max-lines delimiter arg-file replace"
    options = command.options(valued, stop_at_operand=True)
    words = options.operands or ["echo"]
    text = command.input(options.values("-a", "--arg-file"))
    place = (options.values("-I", "-i", "--replace") or [""])[-1]
    if options.has("-i", "--replace") and not place:
        place = "{}"
    if options.has("-0", "--null"):
        ends = "\n" if "\n" in text else "\0"  # find -print0 is followed as if it printed lines
        items = [item for item in text.split(ends) if item] if text != HOLE else [HOLE]
    elif place or options.has("-d", "--delimiter"):
        items = text.splitlines()
    else:
        items = re.findall(r"[^\s'\"]+", text)
    items = [item.strip() for item in items[:MAX_ITEMS]] or ([HOLE] if text == HOLE else [])
    stdin, command.shell.stdin = command.shell.stdin, ""
    out: list[str] = []
    if place:
        out = [
            command.shell.call([word.replace(place, item) for word in words], origin="xargs")
            for item in items
        ]
    elif options.has("-n", "-L", "--max-args", "--max-lines"):
        out = [command.shell.call([*words, item], origin="xargs") for item in items]
    elif items or not options.has("-r", "--no-run-if-empty"):
        out = [command.shell.call([*words, *items], origin="xargs")]
    command.shell.stdin = stdin
    return "".join(out)


def _parallel(command: Command) -> str:
    words = command.arguments
    items: list[str] = []
    for mark in (":::", "::::"):
        if mark in words:
            at = words.index(mark)
            items, words = words[at + 1 :], words[:at]
            if mark == "::::":
                items = [line for path in items for line in command.input([path]).splitlines()]
    items = items or command.stdin.splitlines()
    words = sort_options(words, "j n N a I colsep", stop_at_operand=True).operands
    out = []
    for item in items[:MAX_ITEMS]:
        text = " ".join(words)
        text = text.replace("{}", item) if "{}" in text else f"{text} {item}"
        with command.analysis.deeper("xargs") as possible:
            out.append(command.shell.run_text(text) if possible else HOLE)
    return "".join(out)


def _su(command: Command) -> str:
    for text in command.options("c s command shell").values("-c", "--command"):
        command.shell.run_text(text)
    return HOLE


def _multiplexer(command: Command) -> str:
    """tmux, screen, zellij: what is started in a window, or typed into one, goes on after the call."""
    options = command.options("s t n c x y F e S T h p L", stop_at_operand=command.name == "screen")
    words = [word for word in options.operands if word not in ("Enter", "C-m", "KPEnter")]
    if command.name != "screen" or options.has("-X"):
        words = words[1:]
    with command.analysis.later():
        if len(words) == 1:
            command.shell.run_text(words[0])
        elif words:
            _run(command, words)
    return HOLE


def which(command: Command) -> str:
    """which, type, command -v: where a program lies; a fixed folder stands for the search path."""
    found = []
    for name in command.options("").operands:
        if name in command.state.functions or name in command.state.aliases:
            found.append(f"{name}\n")
        else:
            found.append((name if name.startswith("/") else f"/usr/bin/{name}") + "\n")
    return "".join(found)


PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(_WRAPPERS, _wrapped),
    "env": _env,
    "xargs": _xargs,
    "gxargs": _xargs,
    "parallel": _parallel,
    "su": _su,
    **dict.fromkeys(("tmux", "screen", "byobu", "zellij"), _multiplexer),
    "which": which,
    "type": which,
    "whereis": which,
}
