"""The files of a task's game: made for a level and kept in the cache, or the user's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from agentgym.cache import cache_folder, made_once
from agentgym.envs.textworld.files import GameFiles, check_files, read_game
from agentgym.envs.textworld.inform import compile_story
from agentgym.envs.textworld.levels import Level, generate
from agentgym.envs.textworld.package import LOCK, VERSION
from agentgym.envs.textworld.play import can_be_won
from agentgym.errors import TaskError
from agentgym.tasks import Task

_GAME, _STORY = "game.json", "game.z8"
_ATTEMPTS, _NEXT_SEED = 8, 1_000_000


def files_of(task: Task) -> GameFiles:
    """The files of a task's game, which is made first where it is not there yet.

    Raises:
        TaskError: the task names no game, or its game can't be made.
    """
    match task.data:
        case {"file": str(path)}:
            return _given(Path(path))
        case {
            "challenge": str(challenge),
            "theme": str(theme),
            "settings": Mapping() as settings,
            "seed": int(seed),
        }:
            return _generated(Level.of(challenge, theme, settings), seed, task.split)
    raise TaskError(
        f"expected a TextWorld task with data={{'file': PATH}} or a level's, {task.id!r} has {dict(task.data)!r:.80}"
    )


def _given(path: Path) -> GameFiles:
    """A game file of the user's.

    textworld plays no ``.ulx`` any more, and has no texts for a ``.json``: both are compiled from the ``.json``.
    """
    check_files(path)
    if path.suffix == ".z8":
        return GameFiles(str(path.with_suffix(".json")), str(path))
    rules = path.with_suffix(".json")
    game = rules.read_bytes()
    name = hashlib.sha256(game).hexdigest()[:32]

    def fill(folder: Path) -> None:
        read_game(rules)  # what is wrong is said of this file, not of the copy
        _write(folder, game.decode("utf-8"))

    return _kept(f"files/{name}", fill)


def _generated(level: Level, seed: int, split: str) -> GameFiles:
    """The first game of a sequence of seeds that can be won in the way its own solution says."""

    def fill(folder: Path) -> None:
        for attempt in range(_ATTEMPTS):
            if can_be_won(_write(folder, generate(level, seed + attempt * _NEXT_SEED, split))):
                return
        raise TaskError(
            f"none of {_ATTEMPTS} games of {level.name} made for seed {seed} is won by its own solution"
        )

    return _kept(f"{level.name}/{split}-{seed}", fill)


def _kept(name: str, fill: Callable[[Path], None]) -> GameFiles:
    """The files of this name in the cache, made where they are missing; once where threads ask together."""
    folder = cache_folder() / f"textworld-{VERSION}" / name
    if not folder.is_dir():
        with LOCK:
            made_once(folder, fill)
    return GameFiles(str(folder / _GAME), str(folder / _STORY))


def _write(folder: Path, game: str) -> GameFiles:
    """Write a game into a folder, with its story."""
    files = GameFiles(str(folder / _GAME), str(folder / _STORY))
    Path(files.game).write_text(game, encoding="utf-8")
    Path(files.story).write_bytes(compile_story(read_game(files.game)))
    return files
