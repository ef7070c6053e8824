"""Repositories by name: folders, archives, git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agentgym.envs.swe.runtime import sources
from agentgym.envs.swe.runtime.sources import fetch, version_of_tag
from agentgym.errors import TaskError
from agentgym.verifiers.patches import list_tree
from tests.envs.swe.tiny_package import PACKAGE, make_sdist, put_tree


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = put_tree(tmp_path / "repository", {"pyproject.toml": "", "a.py": "committed\n"})
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "tag", "v1.2.0")
    put_tree(folder, {"a.py": "changed\n", "b.py": "new\n"})
    return folder


def test_of_a_git_repository_the_last_commit(repository: Path, tmp_path: Path) -> None:
    before = subprocess.run(["git", "-C", str(repository), "status", "-s"], capture_output=True).stdout
    assert fetch(str(repository), tmp_path / "tree") == "1.2.0"
    assert {key: entry.content for key, entry in list_tree(tmp_path / "tree").items()} == {
        "a.py": b"committed\n",
        "pyproject.toml": b"",
    }
    assert not (tmp_path / "tree/.git").exists()
    assert (
        subprocess.run(["git", "-C", str(repository), "status", "-s"], capture_output=True).stdout == before
    )


def test_a_repository_by_its_url(repository: Path, tmp_path: Path) -> None:
    fetch(f"file://{repository}", tmp_path / "tree")
    assert (tmp_path / "tree/a.py").read_text() == "committed\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["repository", "tree"]
    with pytest.raises(TaskError, match="git failed"):
        fetch(f"file://{tmp_path}/none", tmp_path / "other")


def test_folders_and_archives(tmp_path: Path) -> None:
    folder = put_tree(tmp_path / "folder", PACKAGE | {"build/lib/x.py": "", "src/__pycache__/x.pyc": ""})
    fetch(str(folder), tmp_path / "one")
    fetch(str(make_sdist(tmp_path, PACKAGE)), tmp_path / "two")
    assert set(list_tree(tmp_path / "one")) == set(list_tree(tmp_path / "two")) == set(PACKAGE)


def test_names_go_to_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    archive = make_sdist(tmp_path, PACKAGE)
    monkeypatch.setattr(sources, "download_sdist", lambda name: (asked.append(name), archive)[1])
    assert fetch("tiny-pkg==1.5", tmp_path / "tree") == ""
    assert asked == ["tiny-pkg==1.5"]


def test_a_monorepo(tmp_path: Path) -> None:
    one = {"README": "", "python/client/pyproject.toml": "", "python/client/tests/pyproject.toml": ""}
    fetch(str(put_tree(tmp_path / "one", one)), tmp_path / "tree")
    assert set(list_tree(tmp_path / "tree")) == {"pyproject.toml", "tests/pyproject.toml"}
    two = put_tree(tmp_path / "two", {"a/pyproject.toml": "", "b/setup.py": ""})
    with pytest.raises(TaskError, match=r"several projects \(a, b\): give the folder of one"):
        fetch(str(two), tmp_path / "other")


@pytest.mark.parametrize("name", ["no/such/folder", "none.tar.gz"])
def test_what_does_not_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(TaskError, match=f"expected a folder, .*{name}' does not exist"):
        fetch(name, tmp_path / "tree")


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v1.2.3", "1.2.3"),
        ("1.2rc1", "1.2rc1"),
        ("release-2.0-5-gabc123", "2.0.post5+gabc123"),
        ("pkg/v0.1.0", "0.1.0"),
        ("nightly", ""),
        ("", ""),
    ],
)
def test_versions_from_tags(described: str, version: str) -> None:
    assert version_of_tag(described) == version
