"""How a simple command is run: alias, function, file written earlier, or a row of the table of programs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentgym.monitor import execution, handed, paths, projects
from agentgym.monitor.command import Command, path_words, urls
from agentgym.monitor.effects import HOLE
from agentgym.monitor.programs import PROGRAMS

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis
    from agentgym.monitor.shell import Shell

_NETWORK_DEVICE = re.compile(r"/dev/(tcp|udp)/([^/]+)/([^/]+)")


def run(shell: Shell, words: list[str], assignments: Sequence[tuple[str, str]] = (), origin: str = "") -> str:
    """Runs a simple command; returns what it prints."""
    if not words:
        for name, text in assignments:
            shell.assign(name, text)
        return ""
    before = {name: shell.state.variables.get(name) for name, _ in assignments}
    for name, text in assignments:
        set_variable(shell.analysis, name, text, words[0])
        shell.state.variables[name] = text
    try:
        return _dispatch(shell, words[0], words[1:], origin)
    finally:
        for name, old in before.items():
            if old is None:
                shell.state.variables.pop(name, None)
            else:
                shell.state.variables[name] = old


def _dispatch(shell: Shell, word: str, arguments: list[str], origin: str) -> str:
    state, analysis = shell.state, shell.analysis
    if shell.has_alias(word):
        return shell.run_alias(word, shlex.join(arguments))
    if word in state.functions:
        return shell.call_function(word, arguments)
    target, name = word, word
    if "/" in word:
        target, how = analysis.locate(word)
        origin = how or origin
        name = target.rpartition("/")[2]
    elif state.files or state.links:
        target = _through_path(shell, word)
        name = target.rpartition("/")[2]
    analysis.emit("run", target, name, tuple(arguments), folder=state.cwd, origin=origin)
    if HOLE in word:
        analysis.give_up("unresolved")
    if state.files.get(target):
        return execution.run_file(shell, target, arguments)
    command = Command(shell, name, arguments, origin)
    start = len(analysis.effects)
    handler = PROGRAMS.get(name) or PROGRAMS.get(re.sub(r"[-.]?[0-9][0-9.]*\Z", "", name))
    known = handler is not None and ("/" not in target or "bin/" in target)
    output = handler(command) if known and handler is not None else unknown(command)
    handed.follow(command, start)
    if HOLE in output and analysis.context.package and projects.asks_name(" ".join((name, *arguments))):
        return analysis.context.package + "\n"
    return output


def _through_path(shell: Shell, word: str) -> str:
    """The file that the search path finds for `word`, if it is one that was made by a call; else `word`."""
    for folder in shell.state.variables.get("PATH", "").split(":"):
        candidate = paths.join(shell.state.cwd, f"{folder or '.'}/{word}")
        if candidate in shell.state.files or candidate in shell.state.links:
            return shell.analysis.locate(candidate)[0]
    return word


def unknown(command: Command) -> str:
    """A program the table does not know: every word that looks like a path may be read, every URL contacted."""
    for path in path_words(command.arguments):
        command.read(path)
    for url in urls(command.arguments):
        command.analysis.emit("net", url, command.name)
    return HOLE


def connect(analysis: Analysis, path: str) -> bool:
    """Whether a redirection to `path` opens a connection (/dev/tcp/host/port), which then is an effect."""
    match = _NETWORK_DEVICE.match(path)
    if match is None:
        return False
    kind, host, port = match.groups()
    analysis.emit("net", f"{kind}://{host}:{port}", "redirect")
    return True


def set_variable(analysis: Analysis, name: str, text: str, program: str) -> None:
    """A variable is set for commands to come; only what other programs look at is an effect."""
    if name == "IFS":  # followed where words are split
        return
    if program != "assignment" or name in EXPORTED or name in analysis.state.exported:
        analysis.emit("env", name, program, (text,))
        handed.by_variable(analysis, name, text)


EXPORTED = frozenset("PATH HOME LD_PRELOAD LD_LIBRARY_PATH PYTHONPATH BASH_ENV ENV PROMPT_COMMAND".split())
"""Variables that are in the environment already, so that a plain assignment reaches programs."""
