"""Program text that runs: told to the reader of its language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentgym.monitor import bounds
from agentgym.monitor.code import imports, literals, python, replacements
from agentgym.monitor.effects import HOLE
from agentgym.monitor.languages import SCRIPTED, language_of

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis
    from agentgym.monitor.command import Command
    from agentgym.monitor.shell import Shell


# R's and Julia's own ways to fetch a package.
_INSTALLS = re.compile(
    r"(?:install\.packages|install_\w+|download\.packages|pak|renv::install|Pkg\.(?:add|develop))\(\s*(?:c\(|\[)?\s*['\"]([\w./-]+)"
)


def run(
    analysis: Analysis,
    language: str,
    content: str,
    arguments: Sequence[str] = (),
    stdin: str = "",
    *,
    keep: bool = False,
) -> str:
    """Reads a program as if it ran now; returns what it prints. `keep`: Python's names live on in the next call."""
    if language != "bash" and (len(content) > bounds.MAX_PROGRAM or bounds.too_deep(content)):
        bounds.scan(analysis, content)
        return HOLE
    if language == "bash":
        return analysis.make_shell((analysis.file or "bash", *arguments), stdin).run_text(content)
    imports.follow(analysis, language, content)
    start = len(analysis.effects)
    printed = _read(analysis, language, content, arguments, stdin, keep=keep)
    if not analysis.is_supposed:
        replacements.follow(analysis, content, start)
    return printed


def _read(
    analysis: Analysis, language: str, content: str, arguments: Sequence[str], stdin: str, *, keep: bool
) -> str:
    """Reads a program in a language other than the shell's."""
    if language == "python":
        return python.run(analysis, content, arguments, stdin, keep=keep)
    if language == "tcl":
        for words in re.findall(r"(?m)\b(?:spawn|exec)\s+([^\n;\]]+)", content):
            analysis.make_shell(("sh",), "").run_text(words)
    if language in ("r", "julia"):
        for package in _INSTALLS.findall(content):
            analysis.emit("install", package.rpartition("/")[2], language, folder=analysis.state.cwd)
    if language in SCRIPTED:
        return literals.scan(analysis, language, content, arguments)
    return HOLE


def run_file(shell: Shell, target: str, arguments: Sequence[str], program: str = "") -> str:
    """A program file is run; what it does is known if a call wrote it."""
    analysis = shell.analysis
    content = analysis.state.files.get(target)
    if not content:
        return HOLE
    language = program or language_of(target, content) or "bash"
    outer = analysis.state.enter_subshell()
    file, analysis.file = analysis.file, target
    with analysis.deeper("script") as possible:
        output = run(analysis, language, content, arguments, shell.stdin) if possible else HOLE
    analysis.file = file
    analysis.state.leave_subshell(outer)
    return output


def inline(command: Command, language: str, text: str, arguments: Sequence[str] = ()) -> str:
    """A program given on the command line or on standard input."""
    analysis = command.analysis
    analysis.emit("code", "", language, (), text, folder=command.state.cwd, origin=command.origin)
    cwd = command.state.cwd
    with analysis.deeper(command.origin) as possible:
        output = run(analysis, language, text, arguments, command.stdin) if possible else HOLE
    command.state.cwd = cwd  # the program's own folder ends with it
    return output


def shell_text(shell: Shell, text: str, positional: Sequence[str], *, stdin: bool = True) -> str:
    """Text that a child shell runs."""
    shell.analysis.emit("code", "", "bash", (), text, folder=shell.state.cwd)
    outer = shell.state.enter_subshell()
    child = shell.analysis.make_shell(tuple(positional), shell.stdin if stdin else "")
    output = child.run_text(text)
    shell.state.leave_subshell(outer)
    return output
