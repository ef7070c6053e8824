"""Processes for the alfworld package: who plays in which, and what happens to one that dies, hangs or has grown.

A process keeps the state of one episode. An engine whose process was given to another, or that is a copy, gets one and
plays its commands again there. So any number of episodes live on a bounded number of processes, and nobody has to wait
until somebody else's episode ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from agentgym.envs.alfworld.sources import Source, read_game
from agentgym.errors import InfrastructureError, TaskError, UsageError

MOST_PROCESSES = "AGENTGYM_ALFWORLD_PROCESSES"  # the environment variable
_DEFAULT_PROCESSES = 16
EPISODES_PER_PROCESS = 200
DEADLINE_S = 120.0  # for one answer; on a free core a reset takes 3 s, a step 0.1 s
_SCRIPT = Path(__file__).with_name("original_player.py")


class PlayerError(InfrastructureError):
    """Something failed inside the alfworld package; the text is its own."""


class Player:
    """A process that plays one game at a time.

    Attributes:
        source: the game it has loaded.
        owner: the engine whose episode it holds, if any.
        busy: whether somebody uses it now.
        episodes: how many it has started.
        cpu_s: CPU seconds it has used.
        process: the process.

    Raises:
        InfrastructureError: it can't be started.
    """

    def __init__(self) -> None:
        self.source: Source | None = None
        self.owner: weakref.ref[object] | None = None
        self.busy = False
        self.episodes = 0
        self.cpu_s = 0.0
        self._requests, theirs = Pipe()
        # Neither forked, which is unsafe after threads, nor started by multiprocessing, which refuses that in the
        # workers of a vector and runs the main module again. -P: a script's own folder is no place to import from.
        argv = [sys.executable, "-P", str(_SCRIPT), str(theirs.fileno()), str(os.getpid())]
        try:
            self.process = subprocess.Popen(
                argv,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in the terminal is for this process, which ends that one
            )
        except OSError as error:
            raise InfrastructureError(f"alfworld's process cannot be started: {error}") from None
        finally:
            theirs.close()

    def holds(self, engine: object) -> bool:
        """Whether the episode is this engine's."""
        return self.owner is not None and self.owner() is engine

    @property
    def free(self) -> bool:
        """Whether nobody will go on with the episode."""
        return self.owner is None or self.owner() is None

    @property
    def spent(self) -> bool:
        """Whether another has to take its place."""
        return self.episodes >= EPISODES_PER_PROCESS or self.process.poll() is not None

    def start(self, source: Source) -> Any:
        """Start an episode.

        Raises:
            TaskError: the package can't read the game.
            InfrastructureError: as `ask`.
        """
        if source != self.source:
            game = read_game(source)
            texts = {"pddl_domain": game.domain, "grammar": game.grammar, "pddl_problem": game.problem}
            try:
                self.ask("load", texts)
            except PlayerError as error:
                raise TaskError(f"alfworld cannot load {source}: {error}") from None
            self.source = source
        self.episodes += 1
        return self.ask("reset")

    def ask(self, method: str, *arguments: object) -> Any:
        """What a method of the player in the process returns. After an error the process is of no more use.

        Raises:
            InfrastructureError: the process ended, did not answer in time, or something failed in it.
        """
        try:
            self._requests.send((method, *arguments))
            if not self._requests.poll(DEADLINE_S):
                raise InfrastructureError(f"alfworld's process did not answer {method!r} in {DEADLINE_S:g} s")
            good, answer, self.cpu_s = self._requests.recv()
        except (EOFError, OSError):
            self.process.kill()  # it may have closed its end only
            self.process.wait()
            raise InfrastructureError(
                f"alfworld's process ended at {method!r} with status {self.process.returncode}"
            ) from None
        if not good:
            raise PlayerError(answer)
        return answer

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._requests.close()
        self.process.kill()
        self.process.wait()


class Pool:
    """The processes of this process. For any number of threads.

    Attributes:
        players: those that run, the one used last at the end.
    """

    def __init__(self) -> None:
        self.players: list[Player] = []
        self._changed = threading.Condition()
        self._ended_cpu_s = 0.0

    @contextlib.contextmanager
    def lease(self, engine: object, source: Source, *, anew: bool = False) -> Iterator[Player]:
        """A process for one use, after which it holds the engine's episode.

        It is the one that does already, if any. Of the others, one whose episode nobody goes on with is preferred,
        then a new one; where there are as many as may be, the one that was not used for longest is taken from its
        owner. Only where all are in use at this moment is one waited for.

        Args:
            engine: who asks.
            source: the game that will be played.
            anew: the episode that the engine has played so far is of no more use.
        """
        with self._changed:
            while (player := self._choose(engine, source, anew)) is None:
                self._changed.wait()
            player.busy = True
            self.players.append(player)
        try:
            yield player
            player.owner = weakref.ref(engine)
        except BaseException:
            # An interrupt, too: an answer that nobody read would be taken for the next one's.
            with self._changed:
                self._end(player)
            raise
        finally:
            with self._changed:
                player.busy = False
                self._changed.notify()

    def cpu_s(self) -> float:
        """CPU seconds of all processes so far, the ended ones included."""
        with self._changed:
            return self._ended_cpu_s + sum(player.cpu_s for player in self.players)

    def close(self) -> None:
        """End all processes. Episodes go on in new ones."""
        with self._changed:
            for player in list(self.players):
                self._end(player)

    def _choose(self, engine: object, source: Source, anew: bool) -> Player | None:
        """The process to use, taken from the list; None where all are in use."""
        idle = [player for player in self.players if not player.busy]
        mine = next((player for player in idle if player.holds(engine)), None)
        free = [player for player in idle if player is mine or player.free]
        if mine is not None and not anew:
            self.players.remove(mine)
            return mine
        if free:
            chosen = next((player for player in free if player.source == source), free[0])
        elif len(self.players) < most_processes():
            return Player()
        elif idle:
            chosen = idle[0]
        else:
            return None
        if chosen.spent:
            self._end(chosen)
            return Player()
        self.players.remove(chosen)
        chosen.owner = None
        return chosen

    def _end(self, player: Player) -> None:
        if player in self.players:
            self.players.remove(player)
            self._ended_cpu_s += player.cpu_s
        player.stop()


def most_processes() -> int:
    """How many processes there may be.

    Raises:
        UsageError: the environment variable says something else than a number.
    """
    said = os.environ.get(MOST_PROCESSES, str(_DEFAULT_PROCESSES))
    if not said.isdecimal() or int(said) < 1:
        raise UsageError(f"expected {MOST_PROCESSES} to be a whole number >= 1, got {said!r}")
    return int(said)


_pool = Pool()


def pool() -> Pool:
    """The one of this process."""
    return _pool


def _start_anew() -> None:
    """After a fork: the processes are the parent's, and its lock may be held by a thread that is not here."""
    global _pool
    _pool = Pool()


os.register_at_fork(after_in_child=_start_anew)
atexit.register(lambda: _pool.close())
