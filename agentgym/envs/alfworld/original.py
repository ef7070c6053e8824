"""The alfworld package itself as an engine: the reference that the native one is compared with.

It is hundreds of times slower, not safe in threads, and each instance keeps memory for good; so it plays in processes
of its own (`agentgym.envs.alfworld.original_pool`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from agentgym.envs.alfworld.engines import Reply
from agentgym.envs.alfworld.original_pool import Player, pool
from agentgym.envs.alfworld.sources import Source
from agentgym.errors import InfrastructureError, MissingDependency

PACKAGES = ("alfworld", "textworld", "fast_downward")


class OriginalEngine:
    """One episode at a time of one game, played by the alfworld package.

    A copy, and an engine whose process was given to another, goes on by playing its commands again: the package can't
    restore a state.

    Args:
        source: where the game comes from.

    Raises:
        MissingDependency: the package is not installed.
    """

    def __init__(self, source: Source) -> None:
        # Looked for, not imported: importing alfworld makes folders and takes a second.
        if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
            raise MissingDependency(
                f"engine='alfworld' needs {', '.join(missing)}: pip install 'agentgym-suite[alfworld]'"
            )
        self._source = source
        self._commands: list[str] = []
        self._reply: Reply | None = None

    def reset(self) -> Reply:
        """Start."""
        self._commands = []
        with pool().lease(self, self._source, anew=True) as player:
            self._reply = Reply(*player.start(self._source))
        return self._reply

    def step(self, command: str) -> Reply:
        """Do what a command says; one that is not admissible changes nothing."""
        with self._playing() as player:
            self._reply = Reply(*player.ask("step", command))
        self._commands.append(command)
        return self._reply

    def anchor(self) -> str:
        """What is here and what is carried, without doing anything."""
        with self._playing() as player:
            return str(player.ask("anchor"))

    @contextmanager
    def _playing(self) -> Iterator[Player]:
        """A process in which the game stands where this engine left it."""
        with pool().lease(self, self._source) as player:
            if not player.holds(self):
                reply = Reply(*player.start(self._source))
                for command in self._commands:
                    reply = Reply(*player.ask("step", command))
                if reply != self._reply:
                    raise InfrastructureError(
                        f"alfworld answered otherwise when {len(self._commands)} commands were played again"
                    )
            yield player
