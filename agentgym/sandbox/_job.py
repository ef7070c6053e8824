"""One running program of a sandbox, whatever the backend."""

from __future__ import annotations

import abc
import signal
import subprocess

KILLED = 128 + signal.SIGKILL  # exit code, as a shell says it


class Job(abc.ABC):
    """A program started in a sandbox, and everything it starts.

    Attributes:
        popen: the child of ours that carries it; its pipes are the program's.
        pidfd: becomes readable when the program has ended.
    """

    popen: subprocess.Popen[bytes]
    pidfd: int

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


def encode(text: str) -> bytes:
    """A policy's text as bytes; what UTF-8 cannot say (half a surrogate pair) becomes a question mark."""
    return text.encode("utf-8", "replace")
