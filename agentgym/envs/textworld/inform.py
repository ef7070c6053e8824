"""Compiling a game into a story for the z-machine, by the Inform 7 that textworld brings."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from agentgym.envs.textworld.package import I7_DEFAULT_PATH, LOCK, GameMaker, Inform7Game
from agentgym.errors import InfrastructureError, TaskError

_TIMEOUT_S = 600


def compile_story(game: Any) -> bytes:
    """The ``.z8`` story of a game, as textworld itself would compile it.

    Args:
        game: a ``textworld.Game``.

    Raises:
        TaskError: Inform refuses the game, for example because it is too big for a story.
        InfrastructureError: Inform can't be run.
    """
    with LOCK:
        source = Inform7Game(game).gen_source()
    compilers = Path(I7_DEFAULT_PATH, "share", "inform7", "Compilers")
    internal = Path(I7_DEFAULT_PATH, "share", "inform7", "Internal")
    with tempfile.TemporaryDirectory(prefix="agentgym-textworld-") as folder:
        project = Path(folder, "project")
        for name in ("Source", "Build"):
            (project / name).mkdir(parents=True)
        (project / "Source" / "story.ni").write_text(source, encoding="utf-8")
        (project / "uuid.txt").touch()
        _run([compilers / "ni", "--internal", internal, "--format=.z8", "--project", project], folder)
        _run(
            [compilers / "inform6", "-E2wSv8F0", project / "Build" / "auto.inf", Path(folder, "story.z8")],
            folder,
        )
        return Path(folder, "story.z8").read_bytes()


def _run(command: list[str | Path], home: str) -> None:
    """One compiler. Inform 7 leaves notes in the home directory, so it gets another one."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"HOME": home},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"cannot run textworld's Inform compiler: {error}") from None
    if done.returncode:
        said = " ".join(done.stdout.decode("utf-8", "replace").split())
        raise TaskError(f"Inform does not compile the game (status {done.returncode}): {said[-300:]}")


class QuietMaker(GameMaker):  # type: ignore[misc]  # textworld has no types
    """textworld's maker of games, which compiles them here to play its own walkthrough, but not in the user's home."""

    def compile(self, path: str) -> str:
        """Write the game and its story to `path`, which is returned."""
        self._working_game = self.build()
        self._working_game.save(str(Path(path).with_suffix(".json")))
        Path(path).write_bytes(compile_story(self._working_game))
        return path
