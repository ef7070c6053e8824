"""Game files of the user's: what is found in a folder, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.envs.textworld import TextWorldEnv
from agentgym.envs.textworld.files import load_tasks
from agentgym.errors import TaskError

WHOLE = {"version": 1, "world": [], "quests": [], "infos": [], "KB": {}, "metadata": {}}


def story(size: int = 128) -> bytearray:
    """Bytes whose header says what a story's says: version 8, its length in eights, its checksum."""
    data = bytearray([8, *bytes(63), *([1] * (size - 64))])
    data[0x1A:0x1C] = (size // 8).to_bytes(2, "big")
    data[0x1C:0x1E] = (size - 64).to_bytes(2, "big")
    return data


def test_what_is_found(tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    for name in ("a", "valid/b", "c", "d"):
        (tmp_path / f"{name}.json").write_text(json.dumps(WHOLE))
    (tmp_path / "a.z8").write_bytes(story())
    (tmp_path / "a.ulx").touch()  # the same game once more
    (tmp_path / "c.ulx").touch()
    (tmp_path / "notes.txt").touch()
    tasks = load_tasks(str(tmp_path))
    assert [(task.id, task.split) for task in tasks] == [
        ("a.z8", "train"),
        ("c.ulx", "train"),
        ("d.json", "train"),
        ("valid/b.json", "valid"),
    ]
    assert [task.id for task in load_tasks(str(tmp_path / "a.z8"))] == ["a.z8"]


def test_a_relative_folder_is_another_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "games").mkdir(parents=True)
        (tmp_path / name / "games" / f"{name}.json").write_text(json.dumps(WHOLE))
        monkeypatch.chdir(tmp_path / name)
        assert [task.id for task in TextWorldEnv(games="games").task_set] == [f"{name}.json"]


def test_games_that_come_and_go_are_seen(tmp_path: Path) -> None:
    deep = tmp_path / "train" / "deep"
    deep.mkdir(parents=True)
    (deep / "a.json").write_text(json.dumps(WHOLE))
    first = load_tasks(str(tmp_path))
    assert load_tasks(str(tmp_path / "train" / "..")) is first  # nothing has changed
    (deep / "b.json").write_text(json.dumps(WHOLE))
    assert [task.id for task in load_tasks(str(tmp_path))] == ["train/deep/a.json", "train/deep/b.json"]
    (deep / "a.json").unlink()
    assert [task.id for task in load_tasks(str(tmp_path))] == ["train/deep/b.json"]
    (deep / "b.json").write_text("{}")
    with pytest.raises(TaskError, match=r"b\.json: expected a game of textworld"):
        load_tasks(str(tmp_path))


def cut(path: Path) -> None:
    path.write_bytes(story()[:100])


def damaged(path: Path) -> None:
    data = story()
    data[70] = 9
    path.write_bytes(data)


def another_version(path: Path) -> None:
    data = story()
    data[0] = 5
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, "cut off or damaged"),
        (damaged, "cut off or damaged"),
        (another_version, "a story of version 8"),
        (lambda path: path.write_bytes(b""), "a story of version 8"),
        (lambda path: path.with_suffix(".json").unlink(), r"expected the game's a\.json beside it"),
        (lambda path: path.with_suffix(".json").write_text("{"), r"cannot read .*a\.json"),
        (lambda path: path.with_suffix(".json").write_text("[" * 100_000), r"cannot read .*a\.json"),
        (
            lambda path: path.with_suffix(".json").write_text("[]"),
            "a game of textworld, a JSON object with version",
        ),
        (
            lambda path: path.with_suffix(".json").write_text('{"version": 1}'),
            "a JSON object with world, quests",
        ),
    ],
)
def test_broken_files_are_refused_at_once(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(WHOLE))
    (tmp_path / "a.z8").write_bytes(story())
    assert len(load_tasks(str(tmp_path / "a.z8"))) == 1
    spoil(tmp_path / "a.z8")
    with pytest.raises(TaskError, match=message):
        TextWorldEnv(games=tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="expected a game file"):
        TextWorldEnv(games=tmp_path / "no.z8")
    with pytest.raises(TaskError, match="no game file"):
        TextWorldEnv(games=tmp_path)


def test_a_game_that_is_none_inside(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(WHOLE))
    env = TextWorldEnv(games=tmp_path)
    with pytest.raises(TaskError, match=r"a\.json: not a game of textworld"):
        env.reset(seed=0)


@pytest.mark.slow
def test_each_form_plays_the_same(folder: Path) -> None:
    env = TextWorldEnv(games=folder, split="all")
    assert [(task.id, task.split) for task in env.task_set] == [
        ("c.ulx", "train"),
        ("test/b.json", "test"),
        ("train/a.z8", "train"),
    ]
    seen = []
    for task in env.task_set:
        observation, _ = env.reset(options={"task": task.id})
        said, over = [observation], False
        while not over:
            observation, reward, over, _, _ = env.step(env.gold())
            said.append(observation)
        assert reward == 1.0
        seen.append(said)
    assert seen[0] == seen[1] == seen[2]
