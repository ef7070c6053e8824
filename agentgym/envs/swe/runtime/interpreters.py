"""Which Python a project runs on: the one this runs in where it fits, else another one that is installed."""

from __future__ import annotations

import functools
import itertools
import json
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from agentgym.errors import TaskError

_MINORS = range(15, 9, -1)  # of Python 3, in the order they are tried; pip and our test runner want 3.10
_VERSION_MANAGERS = ("~/.pyenv/versions", "~/.local/share/uv/python")  # hold one folder per Python
_ASK = "import json, platform, sys; print(json.dumps([sys.executable, platform.python_version()]))"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: its path, None for the one this runs in, and its full version."""

    path: Path | None
    version: str


def find_interpreter(versions: str) -> Interpreter:
    """A Python in this range: the running one, or else the newest installed one that fits.

    Args:
        versions: as ``requires-python`` has it, such as ">=3.9,<3.13"; empty: any.

    Raises:
        TaskError: none fits, or it is no range.
    """
    wanted = version_range(versions)
    running = Interpreter(None, platform.python_version())
    if wanted.contains(running.version, prereleases=True):
        return running
    found = installed_interpreters()
    for interpreter in found:
        if wanted.contains(interpreter.version):
            return interpreter
    there = ", ".join(dict.fromkeys(each.version for each in (running, *found)))
    raise TaskError(f"needs Python {versions}; installed are {there}")


def version_range(text: str) -> SpecifierSet:
    """A range of Python versions, also as older tools wrote it (``>=3.*``).

    Raises:
        TaskError: it is none.
    """
    try:
        return SpecifierSet(re.sub(r"([<>]=?)\s*([\d.]+)\.\*", r"\1\2", text))
    except InvalidSpecifier:
        raise TaskError(f"expected a range of Python versions such as '>=3.9,<3.13', got {text!r}") from None


@functools.cache
def installed_interpreters() -> tuple[Interpreter, ...]:
    """One Python of each minor version, from PATH or where pyenv and uv keep theirs; the newest first."""
    found = []
    for minor in _MINORS:
        name = f"python3.{minor}"
        kept = (Path(place).expanduser().glob(f"*/bin/{name}") for place in _VERSION_MANAGERS)
        for command in (name, *sorted(map(str, itertools.chain(*kept)))):
            if interpreter := _ask(command):
                found.append(interpreter)
                break
    return tuple(found)


def _ask(command: str) -> Interpreter | None:
    """The interpreter that answers to a command; None if none does."""
    try:
        done = subprocess.run(
            [command, "-I", "-c", _ASK], capture_output=True, text=True, timeout=30, check=True
        )
        path, version = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # not there, or a name that leads nowhere
        return None
    return Interpreter(Path(path), version)
