"""Where a game comes from: a file, or an invented house."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from agentgym.envs.alfworld.files import GameFile, read_game_file
from agentgym.envs.alfworld.houses import House
from agentgym.errors import TaskError

Source: TypeAlias = str | House  # a path, or a house


def read_game(source: Source) -> GameFile:
    """The texts of a game.

    Raises:
        TaskError: there is no such file, or it holds no game.
    """
    return source.game() if isinstance(source, House) else read_game_file(source)


def source_of(data: Mapping[str, Any], task_id: str) -> Source:
    """The source that a task's data names.

    Raises:
        TaskError: it names none.
    """
    match data:
        case {"game": str(path)}:
            return path
        case {"house": {"layout": int(layout), "number": int(number), "task_type": str(task_type)}}:
            return House(layout, number, task_type)
    raise TaskError(
        f"expected an ALFWorld task with data={{'game': PATH}}, {task_id!r} has {dict(data)!r:.80}"
    )
