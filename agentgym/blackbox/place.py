"""Where a program works on an episode, what it is told of it, and what came of it: one class for each kind of place."""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from agentgym.core import AgentEnv, Verdict
from agentgym.episode import expect_verdict
from agentgym.errors import SandboxError
from agentgym.sandbox import make_sandbox, scratch_folder
from agentgym.sandbox.base import MACHINE_ERRORS, Sandbox

BACKEND = "bubblewrap"  # the only one that lets a program reach the gateway and nothing else
_MOST_ENTRIES, _MOST_BYTES = 2000, 16 << 20  # of a folder that is taken back


class Outcome(NamedTuple):
    """What an environment says of an episode: its verdict, the sum of its rewards, and how it ended."""

    verdict: Verdict
    reward: float
    end: Literal["terminated", "truncated"]


class Place(abc.ABC):
    """Where a program works on the running episode of an environment.

    Args:
        env: the environment.

    Attributes:
        prompt: the task in words.
        replies: how many the program may ask for.
        shown: files of this machine that it needs to see, path here -> path inside; while the place is open.
    """

    def __init__(self, env: AgentEnv) -> None:
        self.env = env
        self.prompt = env.episode.prompt
        self.replies = env.max_turns
        self.shown: Mapping[str, str] = {}

    @abc.abstractmethod
    def open(self) -> AbstractContextManager[Sandbox]:
        """The sandbox to run in. When it is left without an error, the environment has what the program made."""

    def outcome(self, *, cut_off: bool) -> Outcome:
        """What the environment says in the end.

        Args:
            cut_off: the program did not end by itself.

        Raises:
            InfrastructureError: it could not say anything.
        """
        if not cut_off:
            self.env.finish()
        verdict = expect_verdict(self.env.verify(self.env.episode), f"{type(self.env).__name__}.verify")
        return Outcome(verdict, verdict.score, "truncated" if cut_off else "terminated")

    def record(self) -> Mapping[str, object]:
        """What the trajectory should hold besides, as JSON values by name."""
        return {}


class OwnSandbox(Place):
    """The sandbox in which the environment's own tools work, too."""

    def open(self) -> AbstractContextManager[Sandbox]:
        """See `Place.open`."""
        sandbox: Sandbox = self.env.episode.workspace
        return contextlib.nullcontext(sandbox)


@runtime_checkable
class LendsFiles(Protocol):
    """An environment whose work is a folder of files that it holds itself."""

    def lend_files(self) -> Mapping[str, str]:
        """Text by relative path, as the work stands."""

    def take_files(self, files: Mapping[str, bytes]) -> None:
        """Put what a program made of them in their place; what they may not be is left out."""


class LentFiles(Place):
    """A fresh sandbox with the environment's files."""

    @contextlib.contextmanager
    def open(self) -> Iterator[Sandbox]:
        """See `Place.open`."""
        env = self.env
        assert isinstance(env, LendsFiles)
        with make_sandbox(BACKEND) as sandbox:
            for path, text in env.lend_files().items():
                sandbox.write(path, text)
            yield sandbox
            env.take_files(_files_of(sandbox))


def _files_of(sandbox: Sandbox) -> dict[str, bytes]:
    """Every regular file by relative path; none where the folder cannot be read, which is the program's doing."""
    with scratch_folder("files") as folder:
        try:
            sandbox.download(".", folder, skip=_is_hidden, most_entries=_MOST_ENTRIES, most_bytes=_MOST_BYTES)
        except OSError as error:
            if error.errno in MACHINE_ERRORS:
                raise SandboxError(f"could not take the files out of the sandbox: {error}") from error
            return {}
        return {
            os.path.relpath(os.path.join(parent, name), folder): content
            for parent, _, names in os.walk(folder)
            for name in names
            if (content := _content(os.path.join(parent, name))) is not None
        }


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(".")


def _content(path: str) -> bytes | None:
    """What is in a file; None for a link, which leads anywhere."""
    if os.path.islink(path):
        return None
    with open(path, "rb") as file:
        return file.read()
