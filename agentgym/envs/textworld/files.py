"""Game files: what one consists of, whether it is whole, and those in a folder of the user's. They are only read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.cache import remembered
from agentgym.envs.textworld.levels import SPLITS
from agentgym.envs.textworld.package import LOCK, VERSION, Game
from agentgym.errors import TaskError
from agentgym.tasks import Task, TaskSet

SUFFIXES = (".z8", ".ulx", ".json")
_KEYS = ("version", "world", "quests", "infos", "KB", "metadata")


@dataclass(frozen=True, slots=True)
class GameFiles:
    """A game on disk.

    Attributes:
        game: its rules, the ``.json`` that textworld writes.
        story: what the z-machine runs, a ``.z8``.
    """

    game: str
    story: str


def read_game(path: str | Path) -> Any:
    """The ``textworld.Game`` in a file.

    Raises:
        TaskError: it can't be read, or holds no game.
    """
    data = _read_json(Path(path))
    with LOCK:
        try:
            return Game.deserialize(data)
        except Exception as error:  # the reader trusts the file, so anything may come
            raise TaskError(f"{path}: not a game of textworld {VERSION}: {error!r:.200}") from error


def load_tasks(games: str) -> TaskSet:
    """The games of a file or a folder, its folders included.

    A ``.z8`` or ``.ulx`` needs the ``.json`` of the same name beside it, as textworld writes it. Games below a folder
    called train, valid or test are of that split; others are "train". The games are remembered until a file changes,
    comes or goes.

    Raises:
        TaskError: a file is broken, or there is none.
    """
    path = Path(games)
    if not games or not (path.is_dir() or (path.is_file() and path.suffix in SUFFIXES)):
        raise TaskError(f"expected a game file ({', '.join(SUFFIXES)}) or a folder of them, got {games!r}")
    return _tasks_in(path)


def _read_tasks(games: Path) -> TaskSet:
    if games.is_dir():
        root = games
        found = sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    else:
        root, found = games.parent, [games]
    tasks = [
        Task(str(path.relative_to(root)), split=_split(path, root), data={"file": str(path.resolve())})
        for path in _without_companions(found)
    ]
    if not tasks:
        raise TaskError(f"no game file ({', '.join(SUFFIXES)}) in {games}")
    for task in tasks:
        check_files(Path(task.data["file"]))
    return TaskSet(tasks, name=f"TextWorld games in {games}")


_tasks_in = remembered(_read_tasks, lambda games: [games, games.with_suffix(".json")])


def _without_companions(found: list[Path]) -> Iterator[Path]:
    """One file a game: no ``.json`` beside a story, no ``.ulx`` beside a ``.z8`` of the same name."""
    by_name: dict[Path, Path] = {}
    for path in found:
        key = path.with_suffix("")
        if key not in by_name or SUFFIXES.index(path.suffix) < SUFFIXES.index(by_name[key].suffix):
            by_name[key] = path
    yield from by_name.values()


def _split(path: Path, root: Path) -> str:
    return next((part for part in path.relative_to(root).parts[:-1] if part in SPLITS), "train")


def check_files(path: Path) -> None:
    """Whether a game file and what belongs to it are whole.

    Raises:
        TaskError: they are not.
    """
    if path.suffix != ".json" and not path.with_suffix(".json").is_file():
        raise TaskError(f"{path}: expected the game's {path.stem}.json beside it, as textworld writes it")
    _read_json(path.with_suffix(".json"))
    if path.suffix == ".z8":
        _check_story(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TaskError(f"cannot read {path}: {error}") from None
    missing = [key for key in _KEYS if not isinstance(data, dict) or key not in data]
    if missing:
        raise TaskError(f"{path}: expected a game of textworld, a JSON object with {', '.join(missing)}")
    return data  # type: ignore[no-any-return]  # an object, as was just seen


def _check_story(path: Path) -> None:
    """Whether the file is a whole story: the interpreter ends the process where it meets a broken one."""
    try:
        story = path.read_bytes()
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error}") from None
    if len(story) < 64 or story[0] != 8:
        raise TaskError(f"{path}: expected a story of version 8 of the z-machine")
    length = 8 * int.from_bytes(story[0x1A:0x1C], "big")
    checksum = int.from_bytes(story[0x1C:0x1E], "big")
    if not 64 < length <= len(story) or sum(story[64:length]) % 0x10000 != checksum:
        raise TaskError(f"{path}: the story is cut off or damaged, its checksum is wrong")
