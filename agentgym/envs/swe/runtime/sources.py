"""A repository by its name: fetched into a folder as the tree that tasks are made of."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from agentgym.envs.swe.repo import clean_tree, unpack
from agentgym.envs.swe.runtime.pythonenv import download_sdist
from agentgym.errors import InfrastructureError, TaskError
from agentgym.verifiers.tests import copy_tree

CLONE_S = 600.0
PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py", "PKG-INFO")

_URL = re.compile(r"(https?|ssh|git|file)://|[\w.-]+@[\w.-]+:")
_DESCRIBED = re.compile(r"(?:.*?[-_/])?v?(\d+(?:\.\w+)+)(?:-(\d+)-g([0-9a-f]+))?")
EXPECTED = "expected a folder, a source archive, the URL of a git repository, NAME or NAME==VERSION"


def fetch(repository: str, tree: Path) -> str:
    """Copy, clone, unpack or download a repository into the new folder `tree`, cleaned and without history.

    Of a git repository it is the last commit: what is not committed stays behind, and nothing is written into it.

    Args:
        repository: a folder, a source archive, the URL of a git repository, or ``NAME`` or ``NAME==VERSION`` of the
            package index.
        tree: where to.

    Returns:
        The version its git tags give it; empty for anything else, which tells its version itself.

    Raises:
        TaskError: there is no such thing.
        InfrastructureError: git or pip failed.
    """
    path = Path(repository)
    version = ""
    if _URL.match(repository):
        clone = tree.with_name(tree.name + ".clone")
        _git(["clone", "--quiet", "--depth", "1", "--", repository, str(clone)])
        version = _export(clone, tree)
        shutil.rmtree(clone)
    elif (path / ".git").exists():
        version = _export(path, tree)
    elif path.is_dir():
        copy_tree(path, tree)
    elif path.is_file():
        unpack(path, tree)
    elif "/" in repository or repository.endswith((".gz", ".zip")):
        raise TaskError(f"{EXPECTED}; {repository!r} does not exist")
    else:
        unpack(download_sdist(repository), tree)
    clean_tree(tree)
    _step_into_the_project(tree)
    return version


def _export(repository: Path, tree: Path) -> str:
    """Unpack the last commit; returns the version that tags give it."""
    archive = _git(["-C", str(repository), "archive", "--format=tar", "HEAD"])
    tree.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(tree, filter="data")
    described = subprocess.run(
        ["git", "-C", str(repository), "describe", "--tags", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    return version_of_tag(described)


def version_of_tag(described: str) -> str:
    """The version `git describe` tells, as tools that ask git would write it; empty where it tells none."""
    match = _DESCRIBED.fullmatch(described)
    if match is None:
        return ""
    version, commits, commit = match.groups()
    return version if commits is None else f"{version}.post{commits}+g{commit}"


def _git(arguments: list[str]) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, timeout=CLONE_S)
    except FileNotFoundError:
        raise InfrastructureError("this needs git; install it with: apt-get install git") from None
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"git {arguments[0]} took longer than {CLONE_S:g} s") from None
    if done.returncode:
        raise TaskError(f"git failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout


def _step_into_the_project(tree: Path) -> None:
    """Where the project is in a folder of its own, as in a monorepo of one package, make that folder the tree.

    Raises:
        TaskError: there are several.
    """
    if any((tree / name).is_file() for name in PROJECT_FILES):
        return
    inner = sorted(
        {
            path.parent
            for name in PROJECT_FILES
            for depth in ("*", "*/*")
            for path in tree.glob(f"{depth}/{name}")
        }
    )
    inner = [
        folder
        for folder in inner
        if not any(folder.is_relative_to(other) for other in inner if other != folder)
    ]
    if len(inner) > 1:
        names = ", ".join(folder.relative_to(tree).as_posix() for folder in inner[:6])
        raise TaskError(f"it holds several projects ({names}): give the folder of one of them")
    if inner:
        aside = tree.with_name(tree.name + ".project")
        inner[0].rename(aside)
        shutil.rmtree(tree)
        aside.rename(tree)
