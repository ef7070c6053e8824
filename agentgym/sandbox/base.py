"""What every sandbox backend offers. Read this file, then the backend you use."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on everything that runs in one sandbox. None means: not limited."""

    wall_s: float = 120.0  # default time-out of one command, seconds
    memory_mb: int | None = 2048  # for the whole process tree where the machine allows it, else per process
    processes: int | None = 256
    cpu_s: int | None = None  # CPU seconds of one process
    disk_mb: int | None = 1024  # largest single file, and the size of /tmp
    output_bytes: int = 1 << 20  # output kept per command and stream; the middle is cut


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
        """Run `command`; on time-out its whole process tree is killed and the next `run` starts a new shell."""

    @abc.abstractmethod
    def close(self) -> None: ...


class Sandbox(abc.ABC):
    """A place to run untrusted commands: a private working directory and nothing else of the host.

    `workspace` is the path of the working directory as the commands see it. Relative paths mean inside it. A sandbox
    is a context manager; `close` may be called twice and kills every process that ever started in it.
    """

    backend: str
    workspace: str
    limits: Limits

    @property
    @abc.abstractmethod
    def limits_in_force(self) -> Mapping[str, str]:
        """What really bounds this sandbox here: limit name -> mechanism, or "not enforced: reason"."""

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

        Raises:
            SandboxError: the sandbox itself failed.
        """

    @abc.abstractmethod
    def shell(self) -> Shell:
        """Start a persistent shell."""

    @abc.abstractmethod
    def read(self, path: str) -> bytes:
        """Content of a file. Links are followed inside the sandbox's own view, never into the host.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: as `open` would.
        """

    @abc.abstractmethod
    def write(self, path: str, content: bytes | str) -> None:
        """Write a file, making its parent folders."""

    @abc.abstractmethod
    def upload(self, source: Path | str, target: str = ".") -> None:
        """Copy a host file or the contents of a host folder into the sandbox."""

    @abc.abstractmethod
    def download(self, source: str, target: Path | str) -> None:
        """Copy a file or a folder's contents out of the sandbox; links are copied as links."""

    @abc.abstractmethod
    def snapshot(self) -> Any:
        """State of the files, to be given to `restore` of this or another sandbox of the same backend."""

    @abc.abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Kill what runs and put the files back as they were."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
