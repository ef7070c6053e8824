"""Game files: what one holds, and which of a data folder are played."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.cache import remembered
from agentgym.errors import TaskError
from agentgym.tasks import Task, TaskSet

GAME = "game.tw-pddl"
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


@dataclass(frozen=True, slots=True)
class GameFile:
    """The content of a ``game.tw-pddl``.

    Attributes:
        domain: the rules, in PDDL.
        grammar: the phrases, in TextWorld's second logic format.
        problem: objects, start and goal, in PDDL.
        solvable: whether somebody has solved it.
        walkthrough: a shortest plan, as commands.
    """

    domain: str
    grammar: str
    problem: str
    solvable: bool
    walkthrough: tuple[str, ...]


def read_game_file(path: str | Path) -> GameFile:
    """Read a game file.

    Raises:
        TaskError: it can't be read, or is not in the form of such files.
    """
    data = read_json(path)
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(data.get(key), str):
            raise TaskError(f"{path}: expected {key!r} to be a text, got {data.get(key)!r:.60}")
    return GameFile(
        domain=data["pddl_domain"],
        grammar=data["grammar"],
        problem=data["pddl_problem"],
        solvable=data.get("solvable") is True,
        walkthrough=tuple(map(str, data.get("walkthrough") or ())),
    )


def read_json(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        TaskError: it can't be read, or holds something else.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TaskError(f"cannot read {path}: {error}") from None
    if not isinstance(data, dict):
        raise TaskError(f"{path}: expected a JSON object, got {type(data).__name__}")
    return data


# Folder of the official data -> split, as the original's `train_eval` calls it.
SPLITS = {
    "train": "train",
    "valid_seen": "eval_in_distribution",
    "valid_unseen": "eval_out_of_distribution",
}


def load_games(data: str) -> TaskSet:
    """The games of an official data folder.

    As the original does, a game is taken if ``traj_data.json`` stands beside it, somebody has solved it, and its path
    contains neither ``movable`` nor ``Sliced``. Files are searched for the two words that count instead of being
    parsed: there are thousands, and most are never played. The games of a folder are remembered until a file of theirs
    changes, comes or goes.

    Args:
        data: the folder with ``json_2.1.1``, or one that has ``train``, ``valid_seen`` or ``valid_unseen`` in it.

    Raises:
        TaskError: there is no game.
    """
    folders = sorted(Path(data).glob("json_2.1.*"))
    root = next((folder for folder in folders if folder.is_dir()), Path(data))
    if not root.is_dir():
        raise _no_games(root)
    return _games_in(root)


def _read_games(root: Path) -> TaskSet:
    tasks = [
        Task(
            str(path.parent.relative_to(root)),
            split=split,
            data={"game": str(path.resolve()), "task_type": task_type},
        )
        for folder, split in SPLITS.items()
        for path in sorted((root / folder).rglob(GAME))
        if (task_type := _playable(path, root)) is not None
    ]
    if not tasks:
        raise _no_games(root)
    return TaskSet(tasks, name=f"ALFWorld games in {root}")


def _no_games(root: Path) -> TaskError:
    return TaskError(
        f"expected solvable games {'|'.join(SPLITS)}/*/*/{GAME} with traj_data.json beside them in {root};"
        " the alfworld package's alfworld-download fetches them"
    )


_games_in = remembered(_read_games, lambda root: [root / folder for folder in SPLITS])


def _playable(path: Path, root: Path) -> str | None:
    """The task type of a game that is played; None for one that is not."""
    beside = path.with_name("traj_data.json")
    if re.search("movable|Sliced", str(path.relative_to(root))) or not beside.is_file():
        return None
    task_type = re.search(rb'"task_type"\s*:\s*"(\w+)"', beside.read_bytes())
    if task_type is None or re.search(rb'"solvable"\s*:\s*true', path.read_bytes()) is None:
        return None
    return task_type[1].decode()
