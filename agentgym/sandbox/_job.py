"""One running program of a sandbox, whatever the backend."""

from __future__ import annotations

import abc
import os
import signal
from contextlib import ExitStack
from typing import IO

KILLED = 128 + signal.SIGKILL  # exit code, as a shell says it


class Job(abc.ABC):
    """A program started in a sandbox, and everything it starts.

    Attributes:
        ended: a descriptor that becomes readable when the program has ended.
        stdin, stdout, stderr: our ends of the pipes that were asked for, else None.
    """

    ended: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def reports(self, descriptor: int) -> tuple[str, str]:
        """How a bash in this job reaches `descriptor`, of those it was to keep.

        Returns:
            What to write behind the number of a descriptor of its own, and what to write before each line.
        """
        return f">&{descriptor} {descriptor}>&-", ""

    @abc.abstractmethod
    def kill(self) -> None:
        """Kill the program and everything it started; returns when they are dead. Harmless when they are."""

    @abc.abstractmethod
    def finish(self) -> int:
        """Kill what is left, free the descriptors, and give the program's exit code.

        Raises:
            NeverRan: the program was not reached.
        """


class NeverRan(Exception):
    """The backend could not get as far as the program; its own complaint is on the program's stderr."""


def pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    """A pipe's two ends; each is closed with its stack, so that a start which fails half-way leaves nothing open."""
    read, write = os.pipe()
    reading.callback(os.close, read)
    writing.callback(os.close, write)
    return read, write


def encode(text: str) -> bytes:
    """A policy's text as bytes; what UTF-8 cannot say (half a surrogate pair) becomes a question mark."""
    return text.encode("utf-8", "replace")
