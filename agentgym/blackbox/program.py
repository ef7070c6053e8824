"""An agent program: what is started, what it is told, what it can see, and how it ended."""

from __future__ import annotations

import functools
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentgym.errors import UsageError
from agentgym.sandbox import python_binds, scratch_folder, system_folders
from agentgym.sandbox.base import Sandbox
from agentgym.tasks import FrozenDict

TASK_FILE = "/agentgym/task.md"  # inside; not in the workspace, which is what is graded
_LONGEST_VARIABLE = 100_000  # bytes; Linux starts nothing with one of 128 KiB
_PACKAGE = Path(__file__).resolve().parents[1]  # this one
_PYTHON = re.compile(r"python[\d.]*")  # and not python-agent
_OUTPUT_KEPT = 4000  # characters of the end of each stream


class Door(NamedTuple):
    """Where a program finds its model: the gateway's host and port, the session's key, the name to ask for."""

    host: str
    port: int
    key: str
    model: str

    @property
    def url(self) -> str:
        """The gateway's, without a version's path."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        outcome: "ended" with status 0, "crashed" with another, or "timed_out": it was stopped.
        exit_code: 128 + signal where one killed it.
        seconds: wall time.
        stdout, stderr: the end of what it printed.
    """

    outcome: Literal["ended", "crashed", "timed_out"]
    exit_code: int
    seconds: float
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line it printed, for messages."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1][:300] if lines else ""

    def to_row(self) -> dict[str, Any]:
        """JSON values, for the trajectory."""
        return asdict(self)


@dataclass(frozen=True)
class Program:
    """A command that works on a task with a model's help.

    It runs in the environment's sandbox, in the workspace, without any network but the gateway. The program's own file
    is shown there; where its first line names a Python, what that Python has installed too.

    Args:
        command: as a shell would split it, without a shell's other powers. ``{task}``, ``{task_file}``,
            ``{workspace}``, ``{url}`` (the gateway's), ``{base_url}`` (with /v1), ``{key}`` and ``{model}`` are
            replaced, also in the values of `env`; other braces stay.
        timeout: wall seconds; then everything it started is killed, and what it left is graded.
        env: more variables.
        show: more of this machine, read-only: path here -> path inside.

    Raises:
        UsageError: there is no such program, or a value makes no sense.
    """

    command: str
    timeout: float = 1800.0
    env: Mapping[str, str] = field(default_factory=FrozenDict)
    show: Mapping[str, str] = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise UsageError(
                f"expected the agent program's time limit to be above 0 s and finite, got {self.timeout!r}"
            )
        for here, inside in self.show.items():
            if not os.path.isabs(inside):
                raise UsageError(f"expected {here!r} to be shown at an absolute path, got {inside!r}")
        self._start  # noqa: B018  # a mistake in it is told here

    @property
    def settings(self) -> dict[str, Any]:
        """What a rollout depends on, as JSON values."""
        return {
            "command": self.command,
            "timeout": self.timeout,
            "env": dict(self.env),
            "show": dict(self.show),
        }

    @cached_property
    def _start(self) -> _Start:
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"cannot split the agent program's command {self.command!r}: {error}") from None
        if not words:
            raise UsageError("expected a command that starts the agent program, got an empty text")
        found = shutil.which(words[0])
        if found is None:
            raise UsageError(
                f"expected a program to start, there is no {words[0]!r} on this machine that may be executed"
                + (f" (chmod +x {words[0]})" if os.path.isfile(words[0]) else "")
            )
        return _resolve(os.path.abspath(found), words[1:])

    def run(
        self,
        sandbox: Sandbox,
        prompt: str,
        door: Door,
        *,
        timeout: float = math.inf,
        show: Mapping[str, str] = FrozenDict(),
    ) -> ProgramEnd:
        """Start it on a task and wait for its end.

        Args:
            sandbox: with the task's workspace.
            prompt: the task in words.
            door: its model.
            timeout: seconds that are left; the smaller of this and the program's own holds.
            show: what the task needs shown besides: path here -> path inside.

        Raises:
            SandboxError: the sandbox failed, so that nothing is known of the program.
            UsageError: the sandbox's backend cannot let it reach the gateway.
        """
        words = {
            "{task}": prompt,
            "{task_file}": TASK_FILE,
            "{workspace}": sandbox.workspace,
            "{url}": door.url,
            "{base_url}": f"{door.url}/v1",
            "{key}": door.key,
            "{model}": door.model,
        }
        with scratch_folder("program") as folder:
            file = folder / "task.md"
            file.write_text(prompt, encoding="utf-8", errors="replace")
            file.chmod(0o644)
            with sandbox.showing({**self._start.binds, **self.show, **show, str(file): TASK_FILE}):
                result = sandbox.exec(
                    [_filled(word, words) for word in self._start.argv],
                    timeout=min(self.timeout, timeout),
                    env=_variables(prompt, words) | {k: _filled(v, words) for k, v in self.env.items()},
                    reach=(door.host, door.port),
                )
        outcome: Literal["ended", "crashed", "timed_out"] = "crashed" if result.exit_code else "ended"
        return ProgramEnd(
            "timed_out" if result.timed_out else outcome,
            result.exit_code,
            result.seconds,
            result.stdout[-_OUTPUT_KEPT:],
            result.stderr[-_OUTPUT_KEPT:],
        )


class _Start(NamedTuple):
    """What is started, with its places to fill, and what of this machine it must see."""

    argv: list[str]
    binds: dict[str, str]


def _resolve(program: str, arguments: list[str]) -> _Start:
    """How to start a program inside by its path on this machine.

    Commands in the sandbox find the task's package by PYTHONPATH. A program written in Python must not: its own imports
    would come out of the repository that it works on. So it is started with -E.
    """
    named = _python_of(program)
    if named is None:
        argv, binds = [program], {}
    else:
        python = _itself(named)
        argv, binds = [python, "-E", *([program] if named != program else [])], python_binds(python)
    if not any(f"{program}/".startswith(f"{shown}/") for shown in (*system_folders(), *binds)):
        binds = {**binds, program: program}
    if any(_PACKAGE.is_relative_to(shown) for shown in binds):
        by = "" if named in (None, program) else f"runs by {named}, which "
        raise UsageError(
            f"{program} {by}is installed beside agentgym, whose files tell the solutions of its tasks; install the "
            "agent program into an environment of its own, or let it name another Python, such as /usr/bin/python3"
        )
    return _Start([*argv, *arguments], binds)


def _python_of(program: str) -> str | None:
    """The Python a script's first line names, or the program itself where it is one."""
    if _is_python(program):
        return program
    with open(program, "rb") as file:
        first = file.readline(1000)
    if not first.startswith(b"#!"):
        return None
    words = os.fsdecode(first[2:]).split()
    if words and os.path.basename(words[0]) == "env":
        words = [shutil.which(word) or "" for word in words[1:2]]
    return words[0] if words and _is_python(words[0]) else None


def _is_python(path: str) -> bool:
    return _PYTHON.fullmatch(os.path.basename(path)) is not None


@functools.cache
def _itself(python: str) -> str:
    """The interpreter that answers to a path, which may be a script that looks for one, as pyenv's are."""
    ask = [python, "-I", "-c", "import sys; print(sys.executable)"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"expected {python!r} to be a Python that runs: {error}") from None


def _filled(text: str, words: Mapping[str, str]) -> str:
    """The text with the places replaced, in one pass: what a task says is no place."""
    pattern = "|".join(map(re.escape, words))
    return re.sub(pattern, lambda found: words[found[0]], text)


def _variables(prompt: str, words: Mapping[str, str]) -> dict[str, str]:
    """What every program is told."""
    told = {
        "AGENTGYM_TASK_FILE": words["{task_file}"],
        "AGENTGYM_WORKSPACE": words["{workspace}"],
        "AGENTGYM_MODEL": words["{model}"],
        "OPENAI_BASE_URL": words["{base_url}"],
        "OPENAI_API_BASE": words["{base_url}"],  # as LiteLLM and old clients call it
        "OPENAI_API_KEY": words["{key}"],
        "ANTHROPIC_BASE_URL": words["{url}"],
        "ANTHROPIC_API_KEY": words["{key}"],
    }
    if "\0" not in prompt and len(prompt.encode("utf-8", "replace")) <= _LONGEST_VARIABLE:
        told["AGENTGYM_TASK"] = prompt
    return told
