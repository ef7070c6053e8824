"""Unified diffs and folder trees, with git as a tool that reads nothing of the trees it is pointed at.

A tree an agent left behind is hostile input: its `.git`, hooks, attributes, filters and ignore files must
neither run nor decide what a diff shows. So git runs here with an empty configuration and a throw-away
repository of its own, and the files to look at are listed by us, one by one, never by git.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentgym.errors import InfrastructureError, MissingDependency, TaskError

LARGEST_FILE = 16 << 20  # bytes; larger files of an agent's tree are no source code and are left out of diffs

# Highest precedence of all attribute files: whatever a tree's .gitattributes says about conversions is unset.
_NEUTRAL_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !eol !diff !merge !whitespace\n"


class PatchError(TaskError):
    """A diff does not apply; the text says where."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or link of a tree: git's mode (100644, 100755 or 120000) and its content or link target."""

    mode: str
    content: bytes


def list_tree(tree: Path) -> dict[str, Entry]:
    """Every file and link below `tree` by its path with forward slashes, sorted.

    Left out: anything named `.git`, devices and pipes, names with a line break, files above `LARGEST_FILE`.
    """
    entries: dict[str, Entry] = {}
    for folder, folders, files in os.walk(tree):
        for name in [*folders, *files]:
            path = Path(folder, name)
            if name.lower() == ".git" or "\n" in name:
                continue
            status = path.lstat()
            key = path.relative_to(tree).as_posix()
            if stat.S_ISLNK(status.st_mode):
                entries[key] = Entry("120000", os.fsencode(os.readlink(path)))
            elif stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_FILE:
                entries[key] = Entry("100755" if status.st_mode & 0o100 else "100644", _read(path))
        folders[:] = [name for name in folders if name.lower() != ".git" and "\n" not in name]
    return dict(sorted(entries.items()))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError:  # an agent may have taken its own read permission away
        path.chmod(0o644)
        return path.read_bytes()


def write_entry(tree: Path, key: str, entry: Entry | None) -> None:
    """Make `key` below `tree` what `entry` says, or absent for None; never follows a link that lies in the way."""
    path = tree / key
    for parent in reversed(path.relative_to(tree).parents[:-1]):
        step = tree / parent
        if step.is_symlink() or (step.exists() and not step.is_dir()):
            if entry is None:
                return
            step.unlink()
        if entry is not None:
            step.mkdir(exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        if entry is None:
            return
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if entry is None:
        _remove_empty_parents(tree, path)
    elif entry.mode == "120000":
        os.symlink(os.fsdecode(entry.content), path)
    else:
        path.write_bytes(entry.content)
        path.chmod(0o755 if entry.mode == "100755" else 0o644)


def _remove_empty_parents(tree: Path, path: Path) -> None:
    for parent in path.parents:
        if parent == tree or not parent.is_dir() or any(parent.iterdir()):
            return
        parent.rmdir()


def overlay(base: Path, changed: Path, *, protected: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Carry every difference of the tree `changed` over to the tree `base`, except on protected paths.

    Returns:
        The paths carried over and the paths dropped.
    """
    old, new = list_tree(base), list_tree(changed)
    differing = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    # A file or link in place of a folder that holds protected files would take them away.
    holders = {parent for key in old if protected(key) for parent in parents(key)}
    dropped = [key for key in differing if protected(key) or key in holders]
    carried = sorted(set(differing) - set(dropped))
    for key in sorted(carried, key=lambda key: key in new):  # removals first: a folder may have become a file
        write_entry(base, key, new.get(key))
    return carried, dropped


def parents(key: str) -> list[str]:
    """The folders above a path, the root left out."""
    parts = key.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def tree_diff(base: Path, changed: Path) -> str:
    """Unified diff in git's form that turns the tree `base` into the tree `changed`; empty if they are equal.

    Renames appear as a removal and a new file; binary files are included. Bytes that are no UTF-8 appear as
    surrogate escapes, which `apply_patch` turns back.
    """
    old, new = list_tree(base), list_tree(changed)
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if not differing:
        return ""
    with scratch_repository() as git_dir:
        trees = [
            write_tree(git_dir, {key: entry for key, entry in entries.items() if key in differing})
            for entries in (old, new)
        ]
        options = ["-r", "-p", "--binary", "--full-index", "--no-renames", "--no-textconv", "--no-ext-diff"]
        diff = git(["diff-tree", *options, *trees], git_dir=git_dir)
    return diff.decode("utf-8", "surrogateescape")


def apply_patch(tree: Path, diff: str, *, reverse: bool = False) -> None:
    """Apply a unified diff to the files below `tree`, all of it or nothing.

    Raises:
        PatchError: it does not apply, is no diff, or reaches outside the tree.
    """
    if not diff.strip():
        return
    with scratch_repository() as git_dir:
        options = ["--whitespace=nowarn", *(["--reverse"] if reverse else []), "-"]
        data = diff.encode("utf-8", "surrogateescape")
        try:
            git(["apply", *options], git_dir=git_dir, work_tree=tree, stdin=data)
        except _GitFailed as error:
            raise PatchError(f"the diff does not apply: {error}") from None


def write_tree(git_dir: Path, entries: Mapping[str, Entry]) -> str:
    """Write a tree object of exactly these files and links; its hash depends on nothing else."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, entry in enumerate(entries.values()):
            path = Path(folder, str(number))
            path.write_bytes(entry.content)
            paths.append(str(path))
        arguments = ["hash-object", "-w", "--no-filters", "--stdin-paths"]
        hashes = git(arguments, git_dir=git_dir, stdin="\n".join(paths).encode()).decode().split()
    for (key, entry), digest in zip(entries.items(), hashes, strict=True):
        lines.append(f"{entry.mode} {digest}\t".encode() + os.fsencode(key))
    git(["read-tree", "--empty"], git_dir=git_dir)
    git(
        ["update-index", "-z", "--index-info"],
        git_dir=git_dir,
        stdin=b"".join(line + b"\0" for line in lines),
    )
    return git(["write-tree"], git_dir=git_dir).decode().strip()


@contextmanager
def scratch_repository() -> Iterator[Path]:
    """An empty repository outside every tree, gone afterwards; yields its git directory."""
    with tempfile.TemporaryDirectory(prefix="agentgym-git-") as folder:
        git_dir = Path(folder, "repo.git")
        init_repository(git_dir)
        (git_dir / "info").mkdir(exist_ok=True)
        (git_dir / "info" / "attributes").write_text(_NEUTRAL_ATTRIBUTES)
        yield git_dir


def init_repository(git_dir: Path) -> None:
    """Make a bare-bones git directory on branch ``main``: no template, so no hooks and no excludes."""
    git_dir.mkdir(parents=True, exist_ok=True)
    git(["init", "--quiet", "--template=", "--initial-branch=main"], git_dir=git_dir)


class _GitFailed(InfrastructureError):
    pass


def git(
    arguments: list[str],
    *,
    git_dir: Path,
    work_tree: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> bytes:
    """Run git with no configuration but the repository's own, and return its standard output.

    Args:
        arguments: after the word git.
        git_dir: the repository; must be one this package made.
        work_tree: the tree to work on; by default the git directory, which holds none.
        stdin: given to the command.
        env: further variables, for example an author.
    """
    program = shutil.which("git")
    if program is None:
        raise MissingDependency("this needs git: install the package named git (apt-get install git)")
    safe = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.autocrlf=false"]
    safe += ["-c", "core.quotePath=true", "-c", "core.protectNTFS=false"]
    safe += ["-c", "core.attributesFile=/dev/null", "-c", "core.excludesFile=/dev/null", "-c", "gc.auto=0"]
    result = subprocess.run(
        [program, *safe, *arguments],
        cwd=work_tree or git_dir,
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_DIR": str(git_dir.absolute()),
            **({"GIT_WORK_TREE": str(work_tree.absolute())} if work_tree else {}),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_TERMINAL_PROMPT": "0",
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            **(env or {}),
        },
        input=stdin,
        capture_output=True,
    )
    if result.returncode:
        text = result.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _GitFailed("; ".join(text[:4]) or f"git {arguments[0]} exited with {result.returncode}")
    return result.stdout
