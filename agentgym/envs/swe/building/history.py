"""A project's history, read out of its git repository or put together from its source archives.

A repository is only read, and its configuration, hooks, attributes and filters decide nothing: commits are walked and
files taken out as git's objects hold them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgym.envs.swe.building.changes import DOCS, kind_of
from agentgym.envs.swe.repo import clean_tree, unpack
from agentgym.envs.swe.runtime.pythonenv import canonical, download_sdist
from agentgym.envs.swe.runtime.sources import version_of_tag
from agentgym.errors import InfrastructureError, MissingDependency, TaskError
from agentgym.verifiers.patches import LARGEST_FILE, git, init_repository, list_tree, write_tree

_CHANGELOG = ("change", "history", "news", "release", "whatsnew")
_FIXED_DATE = "2020-01-01T00:00:00+0000"


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a history along first parents: a commit, or a merge with all it brought.

    Attributes:
        commit, parent: hashes.
        message: of the commit; of a merge also those of the commits it brought.
    """

    commit: str
    parent: str
    message: str


class History:
    """Read access to a repository.

    Args:
        path: the folder with the working tree, or a bare repository.

    Raises:
        TaskError: there is no repository.
    """

    def __init__(self, path: Path) -> None:
        self._git_dir = _git_dir(path)

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return git([*arguments], git_dir=self._git_dir, stdin=stdin, env={"GIT_OPTIONAL_LOCKS": "0"})

    def changes(self, *, since: str = "") -> list[Change]:
        """The changes on the way from HEAD back to `since` (left out) or to the first commit, the newest first.

        Raises:
            TaskError: there is no commit, or none called `since`.
        """
        names = ["HEAD"]
        for name in ("HEAD", *([since] if since else [])):
            try:
                commit = self._git(
                    "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
                )
            except InfrastructureError:
                raise TaskError(f"the repository has no commit called {name!r}") from None
            if name != "HEAD":
                names.append("^" + commit.decode().strip())
        found = []
        log = self._git("log", "--first-parent", "-z", "--encoding=UTF-8", "--format=%H%n%P%n%B", *names)
        for entry in log.decode("utf-8", "replace").split("\0"):
            commit_hash, _, rest = entry.strip("\n").partition("\n")
            parents, _, message = rest.partition("\n")
            if not parents:
                continue  # the first commit: nothing was there before
            parent, *merged = parents.split()
            if merged:
                brought = self._git("log", "--no-merges", "--format=%B", merged[0], f"^{parent}")
                message += "\n\n" + brought.decode("utf-8", "replace")
            found.append(Change(commit_hash, parent, message))
        return found

    def changed_paths(self, change: Change) -> dict[str, int]:
        """Path of each file that a change touches -> lines added and removed; binary files count none."""
        options = ["-r", "-z", "--numstat", "--no-renames", "--no-textconv", "--no-ext-diff"]
        rows = self._git("diff-tree", *options, change.parent, change.commit).split(b"\0")
        result = {}
        for row in filter(None, rows):
            added, removed, path = row.split(b"\t", 2)
            result[os.fsdecode(path)] = 0 if added == b"-" else int(added) + int(removed)
        return result

    def export(self, commit: str, tree: Path) -> None:
        """Write the files and links of a commit into the new folder `tree`; submodules and huge files are left out."""
        entries = []
        for row in filter(None, self._git("ls-tree", "-r", "-z", "-l", "--full-tree", commit).split(b"\0")):
            head, _, path = row.partition(b"\t")
            mode, kind, name, size = head.split()
            parts = path.split(b"/")
            if kind == b"blob" and int(size) <= LARGEST_FILE and not {b"..", b".", b".git", b""} & {*parts}:
                entries.append((mode, name, os.fsdecode(path)))
        content = self._git("cat-file", "--batch", stdin=b"".join(name + b"\n" for _, name, _ in entries))
        tree.mkdir(parents=True)
        position = 0
        for mode, _, key in entries:
            start = content.index(b"\n", position) + 1
            size_of = int(content[position:start].split()[2])
            data, position = content[start : start + size_of], start + size_of + 1
            file = tree / key
            file.parent.mkdir(parents=True, exist_ok=True)
            if mode == b"120000":
                file.symlink_to(os.fsdecode(data))
            else:
                file.write_bytes(data)
                file.chmod(0o755 if mode == b"100755" else 0o644)

    def version(self, commit: str) -> str:
        """The version that tags give a commit, for projects that tell it nowhere else; empty if they give none."""
        try:
            return version_of_tag(self._git("describe", "--tags", commit).decode().strip())
        except InfrastructureError:  # it has no tag before it
            return ""


def _git_dir(path: Path) -> Path:
    place = path / ".git"
    if place.is_file():  # of a further working tree
        place = path / place.read_text(encoding="utf-8", errors="replace").partition("gitdir:")[2].strip()
    for folder in (place, path):
        if (folder / "HEAD").is_file():
            return folder
    raise TaskError(f"expected the folder of a git repository, got {str(path)!r}")


def history_of_sdists(requirements: Sequence[str], folder: Path) -> History:
    """A repository in the new `folder` with one commit for each source archive, in this order.

    The message of a commit is the version and what its changelog has that the one before did not have.

    Args:
        requirements: ``NAME==VERSION`` or the paths of archives, at least two.
        folder: for the repository.

    Raises:
        TaskError: fewer than two, or one that does not exist.
        InfrastructureError: pip failed.
    """
    if len(requirements) < 2:
        raise TaskError(f"expected at least two source archives, got {len(requirements)}")
    git_dir = folder / "git"
    init_repository(git_dir)
    before: Path | None = None
    commit = ""
    for number, requirement in enumerate(requirements):
        tree = folder / str(number)
        unpack(Path(requirement) if Path(requirement).is_file() else download_sdist(requirement), tree)
        clean_tree(tree)
        news = _new_lines(before, tree) if before else ""
        message = f"{requirement.rpartition('/')[2].replace('==', ' ')}\n\n{news}"
        identity = ["-c", "user.name=agentgym", "-c", "user.email=agentgym@localhost"]
        parent = ["-p", commit] if commit else []
        commit = (
            git(
                [*identity, "commit-tree", *parent, write_tree(git_dir, list_tree(tree))],
                git_dir=git_dir,
                stdin=message.encode(),
                env={"GIT_AUTHOR_DATE": _FIXED_DATE, "GIT_COMMITTER_DATE": _FIXED_DATE},
            )
            .decode()
            .strip()
        )
        before = tree
    git(["update-ref", "refs/heads/main", commit], git_dir=git_dir)
    return History(git_dir)


def _new_lines(before: Path, after: Path) -> str:
    """The lines of the changelogs of one tree that are not in those of the other."""
    known: set[str] = set()
    found: list[str] = []
    for tree in (before, after):
        for key in list_tree(tree):
            name = key.lower().rpartition("/")[2]
            if kind_of(key) == DOCS and name.startswith(_CHANGELOG):
                lines = (tree / key).read_text(encoding="utf-8", errors="replace").splitlines()
                if tree == before:
                    known.update(line.strip() for line in lines)
                else:
                    found += [line for line in lines if not line.strip() or line.strip() not in known]
    return "\n".join(found)


def last_versions(name: str, count: int) -> list[str]:
    """The last `count` final versions of a project that the index has source archives of, the oldest first.

    Returns:
        ``NAME==VERSION`` each.

    Raises:
        TaskError: the index has fewer than two.
        InfrastructureError: pip failed.
    """
    if importlib.util.find_spec("pip") is None:
        raise MissingDependency("this needs pip in agentgym's environment: python -m ensurepip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "index", "versions"]
    done = subprocess.run([*command, "--no-binary", ":all:", name], capture_output=True, text=True)
    if done.returncode and "No matching distribution" not in done.stderr:
        raise InfrastructureError(f"pip failed: {done.stderr.strip()[-300:]}")
    line = next((line for line in done.stdout.splitlines() if line.startswith("Available versions:")), "")
    versions = [version.strip() for version in line.partition(":")[2].split(",") if version.strip()]
    if len(versions) < 2:
        raise TaskError(
            f"the package index has {len(versions)} source archives of {name!r}, expected two or more"
        )
    return [f"{canonical(name)}=={version}" for version in reversed(versions[:count])]
