"""Interpreters of programming languages: inline programs, modules, files, programs on standard input."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from agentgym.monitor import execution, writing
from agentgym.monitor.code import imports, replacements
from agentgym.monitor.command import Command, Row, urls
from agentgym.monitor.effects import HOLE
from agentgym.monitor.handed import leaves_out
from agentgym.monitor.programs.sed import pairs, printed, put_in

_DOT_COMMAND = re.compile(r"(?m)^[^\S\n]*\.(read|import|open|restore|load|once|output)\s+'?([^\s']+)")
_PYTHON_MODULES = {
    "pip": "pip",
    "ensurepip": "pip",
    "easy_install": "easy_install",
    "pytest": "pytest",
    "py.test": "pytest",
    "unittest": "unittest",
    "tox": "tox",
    "nox": "nox",
    "uv": "uv",
    "pipx": "pipx",
    "poetry": "poetry",
    "base64": "base64",
    "zipfile": "unzip",
    "tarfile": "tar",
    "webbrowser": "curl",
    "coverage": "coverage",
    "json.tool": "cat",
    **{name: name for name in ("black", "ruff", "isort", "autopep8", "yapf", "mypy", "flake8")},
}


def python(command: Command) -> str:
    """python: ``-c``, ``-m``, a file, or standard input."""
    words = command.arguments
    i = 0
    while i < len(words):
        word = words[i]
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            i += 2
        elif match := re.match(r"-[bBdEhiIOPqRsSuvVx]*c(.*)", word, re.DOTALL):
            code = match.group(1) or (words[i + 1] if i + 1 < len(words) else "")
            return execution.inline(command, "python", code, words[i + (1 if match.group(1) else 2) :])
        elif match := re.match(r"-[bBdEhiIOPqRsSuvVx]*m(.*)", word):
            rest = words[i + 1 :]
            module, rest = (match.group(1), rest) if match.group(1) else ((rest or [""])[0], rest[1:])
            return _module(command, module, rest)
        elif word == "-" or (word.startswith("-") and len(word) > 1):
            i += 1
            if word == "-":
                break
        else:
            return run_script(command, words[i:], "python")
    return _from_stdin(command, "python")


def _module(command: Command, module: str, arguments: list[str]) -> str:
    known = _PYTHON_MODULES.get(module)
    command.analysis.emit(
        "run", module, "python", tuple(arguments), folder=command.state.cwd, origin=command.origin
    )
    if known is not None:
        return command.shell.call([known, *arguments], origin=command.origin)
    imports.module(command.analysis, module)
    file = f"{command.state.cwd}/{module.replace('.', '/')}.py"
    if file in command.state.files:
        return execution.run_file(command.shell, file, arguments, program="python")
    from_paths(command, arguments)
    return HOLE


def from_paths(command: Command, arguments: list[str]) -> None:
    """Arguments of a program that look like files are read by it."""
    for before, word in pairwise(["", *arguments]):
        if leaves_out(before, word):
            continue
        if "/" in word and not word.startswith("-") and "://" not in word:
            command.read(word.partition("::")[0])


def run_script(command: Command, words: list[str], language: str) -> str:
    """An interpreter runs the file `words[0]`."""
    analysis = command.analysis
    target = analysis.locate(words[0])[0]
    analysis.emit(
        "run", target, command.name, tuple(words[1:]), folder=command.state.cwd, origin=command.origin
    )
    from_paths(command, words[1:])
    return execution.run_file(command.shell, target, words[1:], program=language)


def _from_stdin(command: Command, language: str) -> str:
    if not command.stdin:
        return HOLE
    if command.stdin == HOLE:
        command.analysis.give_up("unresolved")
        return HOLE
    return execution.inline(command, language, command.stdin)


class Sorted(NamedTuple):
    """The words of an interpreter: program texts, what follows, and whether files are edited in place (-i)."""

    texts: list[str]
    rest: list[str]
    in_place: bool


def _sort_words(words: list[str], inline: list[str], valued: list[str], *, clusters: bool) -> Sorted:
    """Takes the words apart; where `clusters` are usual, ``-lane TEXT`` holds a text as ``-e TEXT`` does."""
    ends = [flag[1] for flag in inline if len(flag) == 2] if clusters else []
    texts: list[str] = []
    in_place = False
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "-":
        word = words[i]
        letters = word[1:] if clusters and word[1:].isalnum() and word[1] not in "rIMmF" else ""
        in_place = in_place or (clusters and re.match(r"-[a-z0]*i", word) is not None)
        if word in inline or (letters and letters[-1] in ends):
            texts.append(words[i + 1] if i + 1 < len(words) else "")
            i += 2
        else:
            i += 2 if word.lstrip("-") in valued else 1
    return Sorted(texts, words[i:], in_place)


def _interpreter(language: str, inline: str, valued: str = "") -> Row:
    """A row for an interpreter whose options `inline` take program text."""
    filters = language in ("perl", "ruby")  # which also read, or edit, the files after the text

    def handler(command: Command) -> str:
        texts, rest, in_place = _sort_words(
            command.arguments, inline.split(), valued.split(), clusters=filters
        )
        if not texts:
            runs_file = rest and rest[0] != "-"
            return run_script(command, rest, language) if runs_file else _from_stdin(command, language)
        output = HOLE
        if {"-p", "-pe", "--print"} & set(command.arguments) and not filters:
            texts = [f"console.log({text})" for text in texts]
        for text in texts:
            output = execution.inline(command, language, text, rest)
        for path in rest if filters else []:
            if in_place:
                _edit(command, path, texts)
            else:
                command.read(path)
        return output

    return handler


def _edit(command: Command, path: str, texts: list[str]) -> None:
    target = command.analysis.write(path, command.name, None, ("edit", *texts), origin=command.origin)
    if inserted := "\n".join(filter(None, [*map(put_in, texts), *map(printed, texts)])):
        writing.edited(command.analysis, target, "", inserted)
    for text in texts:
        for old, new in (*pairs(text), *replacements.pairs(text)):
            replacements.edited(command.analysis, target, command.name, old, new, said=inserted)


def _sqlite(command: Command) -> str:
    options = command.options("cmd separator init")
    operands = options.operands
    for path in operands[:1]:
        command.read(path)
    texts = [*operands[1:], *options.values("-cmd", "--cmd")]
    for text in texts if command.stdin == HOLE else [*texts, command.stdin]:
        for verb, path in _DOT_COMMAND.findall(text):
            if verb in ("output", "once"):
                command.analysis.write(path, command.name)
            else:
                command.read(path)
        execution.inline(command, "sql", text)
    return HOLE


def _package_runner(command: Command) -> str:
    """npx, bunx, uvx: a program of the project or of an index."""
    options = command.options("p package c call from with python", stop_at_operand=True)
    for text in options.values("-c", "--call"):
        command.shell.run_text(text)
    if not options.operands:
        return HOLE
    name = options.operands[0].partition("@")[0] or options.operands[0]
    for package in options.values("-p", "--package", "--from", "--with"):
        command.analysis.emit(
            "install", package, command.name, tuple(command.arguments), folder=command.state.cwd
        )
    always = command.name in ("uvx", "bunx", "pnpx") or options.has("-y", "--yes")
    if always or "@" in options.operands[0][1:]:
        command.analysis.emit("install", options.operands[0], command.name, tuple(command.arguments))
    return command.shell.call([name, *options.operands[1:]])


def _with_verb(row: Row) -> Row:
    """A row for an interpreter that wants to be told what to do: deno eval TEXT, bun run FILE."""

    def handler(command: Command) -> str:
        verb, *rest = command.arguments or [""]
        if verb in ("run", "eval", "x", "test", "serve", "repl"):
            rest = [word for word in rest if not re.match(r"(?:-A|--allow-|--no-)", word)]
            command.arguments = ["-e", *rest] if verb == "eval" else rest
        for url in urls(command.arguments):
            command.analysis.emit("net", url, command.name)
        return row(command)

    return handler


def _compiler(command: Command) -> str:
    options = command.options("o I L l D U std x include isystem MF MT arch target")
    for path in options.operands:
        command.read(path)
    for path in options.values("-I", "-L"):
        command.look(path)
    for path in options.values("-include"):
        command.read(path)
    for path in options.values("-o"):
        command.analysis.write(path, command.name)
    for url in urls(command.arguments):
        command.analysis.emit("net", url, command.name)
    return HOLE


PROGRAMS: dict[str, Row] = {
    **dict.fromkeys(
        ("python", "python2", "python3", "pypy", "pypy3", "ipython", "py", "python3.11", "python3.12"), python
    ),
    "perl": _interpreter("perl", "-e -E", "I M m F"),
    "ruby": _interpreter("ruby", "-e", "I r"),
    "node": _interpreter("javascript", "-e -p -pe --eval --print", "r require loader import"),
    "nodejs": _interpreter("javascript", "-e -p -pe --eval --print", "r require"),
    "deno": _with_verb(_interpreter("javascript", "-e", "")),
    "tsx": _interpreter("javascript", "-e", ""),
    "ts-node": _interpreter("javascript", "-e -p", ""),
    "php": _interpreter("php", "-r", "d c"),
    "lua": _interpreter("lua", "-e", "l"),
    "luajit": _interpreter("lua", "-e", "l"),
    "Rscript": _interpreter("r", "-e", ""),
    "R": _interpreter("r", "-e", ""),
    "julia": _interpreter("julia", "-e -E --eval", ""),
    "groovy": _interpreter("groovy", "-e", ""),
    "scala": _interpreter("scala", "-e", ""),
    "elixir": _interpreter("elixir", "-e --eval", ""),
    "erl": _interpreter("erlang", "-eval", ""),
    "ghc": _interpreter("haskell", "-e", ""),
    "osascript": _interpreter("applescript", "-e", ""),
    "tclsh": _interpreter("tcl", "-c", ""),
    "expect": _interpreter("tcl", "-c", ""),
    "guile": _interpreter("scheme", "-c", ""),
    "swipl": _interpreter("prolog", "-g", ""),
    **dict.fromkeys(("sqlite3", "duckdb"), _sqlite),
    **dict.fromkeys(("npx", "bunx", "pnpx", "uvx"), _package_runner),
    **dict.fromkeys(
        ("gcc", "cc", "g++", "c++", "clang", "clang++", "tcc", "nvcc", "as", "ld", "rustc", "javac"),
        _compiler,
    ),
}
