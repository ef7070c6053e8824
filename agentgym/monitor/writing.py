"""Files that a call writes: what is put in is remembered, and where it is a program, read for what it would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.monitor import bounds
from agentgym.monitor.code import embedded
from agentgym.monitor.languages import READ, language_of

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis


def write_file(
    analysis: Analysis, path: str, program: str, content: str | None, *, append: bool = False
) -> str:
    """`program` writes text into a file; returns the file's absolute path."""
    target = analysis.write(path, program, content, ("append",) if append else ())
    if content:
        written(analysis, target, content, append=append)
    return target


def written(analysis: Analysis, target: str, content: str, *, append: bool = False) -> None:
    """A call writes `content` into the file `target`: if that is a program, it is said and read."""
    language = language_of(target, content)
    if not language and append and target in analysis.state.files:
        language = language_of(target, analysis.state.files[target] or "")
    if language:
        analysis.emit("code", target, language, ("append",) if append else (), content)
        _suppose(analysis, target, language, content)


def edited(analysis: Analysis, target: str, old: str, new: str) -> None:
    """A call puts `new` in the place of `old` in a program file."""
    language = language_of(target)
    if language:
        analysis.emit("code", target, language, (old,), new)
        _suppose(analysis, target, language, new)


def _suppose(analysis: Analysis, target: str, language: str, content: str) -> None:
    """Reads a program that is not run yet: its effects have the origin "written", the state stays."""
    if language == "notebook":
        language, content = "python", embedded.notebook_code(content)
    if language in READ:
        with analysis.supposed(target):
            analysis.run_program(language, content)
    elif language in embedded.HOLDING:
        _suppose_commands(analysis, target, language, content)


def _suppose_commands(analysis: Analysis, target: str, language: str, content: str) -> None:
    """Reads the commands in a file that is no program; only what they do to protected paths is said.

    Such files are mostly run by somebody else, on another machine: what they fetch and change there is no matter.
    """
    context = analysis.context
    if len(content) > bounds.MAX_TEXT or not any(path in content for path in context.protected_paths):
        return
    start = len(analysis.effects)
    with analysis.supposed(target):
        for text in embedded.commands_of(language, content):
            analysis.run_program("bash", text)
    found = analysis.effects[start:]
    analysis.effects[start:] = [e for e in found if context.protection_of(e.target) == "protected"]
