"""Games of the tests: generated once a run, in a cache of their own."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("textworld") else ["test_*.py"]  # the extra "text"

TINY = {"rooms": 2, "objects": 4, "quest_length": 3}


@pytest.fixture(scope="session")
def games_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache(games_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of this run."""
    monkeypatch.setenv("AGENTGYM_CACHE", str(games_cache))
    return games_cache


@pytest.fixture
def folder(cache: Path, tmp_path: Path) -> Path:
    """A folder with one game in each form: a ``.z8`` and a ``.ulx`` with their ``.json``, and a ``.json`` alone."""
    from agentgym.envs.textworld import TextWorldEnv
    from agentgym.envs.textworld.making import files_of

    files = files_of(TextWorldEnv(**TINY).task_set[0])
    for name, suffixes in {"train/a": ("z8", "json"), "test/b": ("json",), "c": ("ulx", "json")}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        for suffix in suffixes:
            path = tmp_path / f"{name}.{suffix}"
            if suffix == "ulx":
                path.write_bytes(b"Glul")
            else:
                shutil.copy(files.story if suffix == "z8" else files.game, path)
    return tmp_path
