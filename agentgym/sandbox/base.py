"""What every sandbox backend offers. Read this file, then the backend you use."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentgym.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on everything that runs in one sandbox. None means: not limited."""

    wall_s: float = 120.0  # default time-out of one command, seconds
    memory_mb: int | None = 2048  # for the whole process tree where the machine allows it, else per process
    processes: int | None = 256  # threads count as processes
    cpu_s: int | None = None  # CPU seconds of one process
    disk_mb: int | None = 1024  # largest single file, and the size of /tmp
    output_bytes: int = 1 << 20  # output kept per command and stream; the middle is cut

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise UsageError(f"Limits({field.name}={value!r}): expected a number above 0, or None")


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Outcome of one command. `exit_code` is the shell's convention: 128 + signal when killed by a signal."""

    exit_code: int
    stdout: str
    stderr: str = ""  # empty in a persistent shell, where both streams are one
    timed_out: bool = False
    truncated: bool = False
    seconds: float = 0.0


class Shell(abc.ABC):
    """A persistent bash: working directory, variables and functions live on between commands."""

    @abc.abstractmethod
    def run(self, command: str, *, timeout: float | None = None) -> ExecResult:
        """Run `command`; its standard input is empty.

        On time-out the whole process tree of the shell is killed. After that, and after a command that ended
        the shell (``exit 3``), the next `run` starts a new shell with fresh state.

        Raises:
            SandboxError: the sandbox itself failed, or the shell or its sandbox is closed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Kill the shell and everything it started. May be called twice."""


class Sandbox(abc.ABC):
    """A place to run untrusted commands: a private working directory and nothing else of the host.

    `workspace` is the path of the working directory as the commands see it. Relative paths mean inside it. A
    sandbox is a context manager; `close` may be called twice and kills every process that ever started in it.
    """

    backend: str
    workspace: str
    limits: Limits

    @property
    @abc.abstractmethod
    def limits_in_force(self) -> Mapping[str, str]:
        """What really bounds this sandbox here: limit name -> mechanism, or "not enforced: reason".

        Keys are the fields of `Limits`, and `network` and `files` for what is reachable.
        """

    @abc.abstractmethod
    def exec(
        self,
        command: Sequence[str] | str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
    ) -> ExecResult:
        """Run an argument list, or a text through ``bash -c``. A non-zero exit is a result, not an exception.

        A program that does not exist gives 127, one that can't be run or a missing `cwd` 126. What the
        command left running in the background ends with it; use `shell` for what must live longer.

        Args:
            command: argument list or shell text.
            timeout: seconds; None means `limits.wall_s`. On time-out everything the command started is
                killed.
            env: variables added to the sandbox's own; the host's are never passed on.
            cwd: working directory as the commands see it; relative means inside the workspace.
            stdin: bytes for standard input, empty if None.

        Raises:
            SandboxError: the sandbox itself failed or is closed.
        """

    @abc.abstractmethod
    def shell(self) -> Shell:
        """Start a persistent shell."""

    @abc.abstractmethod
    def read(self, path: str) -> bytes:
        """Content of a regular file. Links are followed inside the sandbox's own view, never into the host.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: as `open` would.
            OSError: it is a pipe, socket or device.
        """

    @abc.abstractmethod
    def write(self, path: str, content: bytes | str) -> None:
        """Write a file of the workspace, making its parent folders.

        Raises:
            PermissionError: the path is, or a link leads, outside the workspace.
        """

    @abc.abstractmethod
    def upload(self, source: Path | str, target: str = ".") -> None:
        """Copy a host file or the contents of a host folder into the workspace; links are copied as links.

        A file keeps its name where `target` is a folder or ends in a slash. What is in the way is replaced,
        never followed.
        """

    @abc.abstractmethod
    def download(self, source: str, target: Path | str) -> None:
        """Copy a file or a folder's contents out of the workspace; links are copied as links.

        Set-user-id bits are dropped, pipes and sockets left out.
        """

    @abc.abstractmethod
    def snapshot(self) -> Any:
        """State of the files, to be given to `restore` of this or another sandbox of the same backend."""

    @abc.abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Kill what runs and put the files back as they were."""

    @abc.abstractmethod
    def close(self) -> None:
        """Kill every process, delete every file. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
