"""What every sandbox backend offers. Read this file, then the backend you use."""

from __future__ import annotations

import abc
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentgym.errors import SandboxError, UsageError, real_number, whole_number

_LONGEST_WAIT_S = 2_000_000  # poll counts milliseconds in 32 bits


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on everything that runs in one sandbox.

    None means "not limited", for all but `wall_s` and `output_bytes`: no command runs for ever, and output is kept in
    the memory of this process.

    Raises:
        UsageError: a value is no number above 0, or no whole one where it counts something; or `wall_s` is more than
            the 23 days that the system's timers reach.
    """

    wall_s: float = 120.0  # default time-out of one command, seconds
    memory_mb: int | None = 2048  # for the whole process tree where the machine allows it, else per process
    processes: int | None = 256  # threads count as processes
    cpu_s: int | None = None  # CPU seconds of one process
    disk_mb: int | None = 1024  # largest single file, and the size of /tmp
    output_bytes: int = 1 << 20  # output kept per command and stream; the middle is cut

    def __post_init__(self) -> None:
        if real_number("Limits.wall_s", self.wall_s, least=0.0, most=_LONGEST_WAIT_S) == 0:
            raise UsageError("expected Limits.wall_s > 0, got 0")
        whole_number("Limits.output_bytes", self.output_bytes, least=1)
        for name in ("memory_mb", "processes", "cpu_s", "disk_mb"):
            value = getattr(self, name)
            if value is not None:
                whole_number(f"Limits.{name}", value, least=1)


# What says nothing about a tree, only about the machine it is read on or copied to.
MACHINE_ERRORS = frozenset(
    [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS]
)


@contextmanager
def machine_faults(doing: str) -> Iterator[None]:
    """While it is open, an `OSError` that is the machine's fault becomes one that no policy is told and no reward.

    Also a decorator of functions that touch files. What a policy can bring about passes unchanged.

    Args:
        doing: what could not be done, for the message: "read a file".

    Raises:
        SandboxError: instead of an error among `MACHINE_ERRORS`.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in MACHINE_ERRORS:
            raise
        raise SandboxError(f"could not {doing}: {error}") from error


class TreeError(OSError):
    """A tree that untrusted code left is too large, too deep or cannot be read; the machine is not at fault."""


_MOST_PATH = 3000  # bytes; longer ones cannot be opened by name


class Budget:
    """Counts the entries and bytes of a tree against bounds; None means: not bounded.

    With a bound, no path may be longer than 3000 bytes either.
    """

    def __init__(self, most_entries: int | None, most_bytes: int | None) -> None:
        self._most_entries, self._most_bytes = most_entries, most_bytes
        self._longest = None if most_entries is most_bytes is None else _MOST_PATH
        self._entries = self._bytes = 0

    def take(self, path: str, size: int) -> None:
        """Count one entry.

        Raises:
            TreeError: it is one too many, or its path is too long.
        """
        self._entries += 1
        self._bytes += size
        if self._most_entries is not None and self._entries > self._most_entries:
            raise TreeError(errno.EFBIG, f"more than {self._most_entries} files and folders")
        if self._most_bytes is not None and self._bytes > self._most_bytes:
            raise TreeError(errno.EFBIG, f"more than {self._most_bytes} bytes in files")
        if self._longest is not None and len(os.fsencode(path)) > self._longest:
            raise TreeError(
                errno.ENAMETOOLONG, f"a path of more than {self._longest} bytes", f"{path[:80]}..."
            )


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

    No method tells a fault of the machine, such as a full disk or no descriptor left, in any other way than by a
    `SandboxError`: an `OSError` speaks of the path that was given or of what lies there.

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
        reach: tuple[str, int] | None = None,
    ) -> ExecResult:
        """Run an argument list, or a text through ``bash -c``. A non-zero exit is a result, not an exception.

        A program that does not exist gives 127, one that can't be run or a missing `cwd` 126. What the
        command left running in the background ends with it; use `shell` for what must live longer.

        Args:
            command: argument list or shell text.
            timeout: seconds; None means `limits.wall_s`. After that everything the command started is killed.
            env: variables added to the sandbox's own; the host's are never passed on.
            cwd: working directory as the commands see it; relative means inside the workspace.
            stdin: bytes for standard input, empty if None.
            reach: an IPv4 address and port of this machine that the command may connect to, under the same numbers
                inside; nothing else of the network. Needs a ``python3`` on the path inside.

        Raises:
            SandboxError: the sandbox itself failed or is closed.
            UsageError: the backend knows no way to `reach`.
        """

    @abc.abstractmethod
    def shell(self) -> Shell:
        """Start a persistent shell."""

    def showing(self, binds: Mapping[str, str]) -> AbstractContextManager[None]:
        """While it is open, commands and shells that start see more of the host, read-only.

        Args:
            binds: host path -> absolute path inside.

        Raises:
            UsageError: a path makes no sense, or the backend cannot.
        """
        raise UsageError(f"the {self.backend} backend cannot show more of the host later; use bubblewrap")

    @abc.abstractmethod
    def read(self, path: str, *, most: int | None = None) -> bytes:
        """Content of a regular file. Links are followed inside the sandbox's own view, never into the host.

        Args:
            path: the file.
            most: bytes; a larger file is not read.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: as `open` would.
            OSError: it is a pipe, socket or device, or larger than `most` (errno EFBIG).
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
    def download(
        self,
        source: str,
        target: Path | str,
        *,
        skip: Callable[[str], bool] | None = None,
        most_entries: int | None = None,
        most_bytes: int | None = None,
    ) -> None:
        """Copy a file or a folder's contents out of the workspace; links are copied as links.

        Set-user-id bits are dropped, pipes and sockets left out. With bounds, a folder is measured before anything
        of it is copied.

        Args:
            source: in the workspace.
            target: on the host.
            skip: which paths below a folder to leave out, with all below them.
            most_entries: files and folders below a folder, together.
            most_bytes: of its files together; holes and further names of a file count in full.

        Raises:
            TreeError: a folder has more, more than 200 levels, or with bounds a path above 3000 bytes.
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
