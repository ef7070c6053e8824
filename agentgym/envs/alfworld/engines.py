"""What plays a game: the engines by name, and what all of them answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from agentgym.envs.alfworld.sources import Source
from agentgym.errors import UsageError, nearest


class Reply(NamedTuple):
    """What an engine answers.

    Attributes:
        obs: the text.
        admissible: the commands that are possible now, sorted, each once.
        won: whether the goal is reached.
    """

    obs: str
    admissible: tuple[str, ...]
    won: bool

    @property
    def score(self) -> float:
        """1 once the goal is reached."""
        return float(self.won)

    @property
    def done(self) -> bool:
        """A game ends only by being won."""
        return self.won


class Engine(Protocol):
    """Plays one game, one episode at a time."""

    def reset(self) -> Reply:
        """Start an episode."""

    def step(self, command: str) -> Reply:
        """Do what a command says; one that is not admissible changes nothing."""

    def anchor(self) -> str:
        """What is here and what is carried, without doing anything."""


def _native(source: Source) -> Engine:
    from agentgym.envs.alfworld.native import NativeEngine

    return NativeEngine(source)


def _original(source: Source) -> Engine:
    from agentgym.envs.alfworld.original import OriginalEngine

    return OriginalEngine(source)


ENGINES: Mapping[str, Callable[[Source], Engine]] = {"native": _native, "alfworld": _original}


def make_engine(name: str, source: Source) -> Engine:
    """An engine for a game.

    Raises:
        UsageError: there is no such engine.
        TaskError: the source holds no game.
    """
    if name not in ENGINES:
        raise UsageError(f"unknown engine {name!r} of ALFWorld.{nearest(name, ENGINES)}")
    return ENGINES[name](source)


def cpu_seconds() -> float:
    """CPU seconds so far of this process, and of those that the alfworld package plays in for it."""
    from agentgym.envs.alfworld.original_pool import pool

    return time.process_time() + pool().cpu_s()
