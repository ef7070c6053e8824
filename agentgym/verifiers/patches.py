"""Unified diffs and folder trees, with git as a tool that reads nothing of the trees it is pointed at.

A tree an agent left behind is hostile input: its `.git`, hooks, attributes, filters and ignore files must
neither run nor decide what a diff shows. So git runs here with an empty configuration and a throw-away
repository of its own, and the files to look at are listed by us, one by one, never by git.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentgym.errors import InfrastructureError, MissingDependency, TaskError
from agentgym.sandbox import scratch_folder
from agentgym.sandbox.base import MACHINE_ERRORS, Budget, TreeError

LARGEST_FILE = 16 << 20  # bytes; larger files of an agent's tree are no source code and are left out of diffs

# Highest precedence of all attribute files: whatever a tree's .gitattributes says about conversions is unset.
_NEUTRAL_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !eol !diff !merge !whitespace\n"


class PatchError(TaskError):
    """A diff does not apply; the text says where."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or link of a tree as it was when listed: equal entries have equal modes and contents.

    Attributes:
        mode: git's (100644, 100755 or 120000).
        size: bytes of its content, or of the link's target.
        digest: SHA-256 of the same.
        path: where it lies; its content is read only when asked for.
    """

    mode: str
    size: int
    digest: bytes
    path: Path = field(compare=False)

    @property
    def content(self) -> bytes:
        """The file's bytes, or the link's target."""
        return os.fsencode(os.readlink(self.path)) if self.mode == "120000" else self.path.read_bytes()


def list_tree(
    tree: Path,
    *,
    skip: Callable[[str], bool] = lambda path: False,
    most_entries: int | None = None,
    most_bytes: int | None = None,
) -> dict[str, Entry]:
    """Every file and link below `tree` by its path with forward slashes, sorted. Contents are not kept in memory.

    Left out: anything named `.git`, devices and pipes, names with a line break, files above `LARGEST_FILE`.

    Args:
        tree: the folder; what its owner took the read permission from gets it back.
        skip: which paths to leave out, with all below them.
        most_entries: of files, links and folders together.
        most_bytes: of all files together.

    Raises:
        TreeError: there is more, or something cannot be read.
    """
    entries: dict[str, Entry] = {}
    budget = Budget(most_entries, most_bytes)
    folders = [""]
    try:
        while folders:
            above = folders.pop()
            for name, status in _scan(tree / above):
                key = f"{above}/{name}" if above else name
                if name.lower() == ".git" or "\n" in name or skip(key):
                    continue
                path = tree / key
                regular = stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_FILE
                budget.take(key, status.st_size if regular else 0)
                if stat.S_ISDIR(status.st_mode):
                    if status.st_mode & 0o500 != 0o500:
                        path.chmod(0o755)
                    folders.append(key)
                elif stat.S_ISLNK(status.st_mode):
                    target = os.fsencode(os.readlink(path))
                    entries[key] = Entry("120000", len(target), hashlib.sha256(target).digest(), path)
                elif regular:
                    mode = "100755" if status.st_mode & 0o100 else "100644"
                    if not status.st_mode & 0o400:
                        path.chmod(int(mode[-3:], 8))
                    entries[key] = Entry(mode, status.st_size, _digest(path), path)
    except OSError as error:
        if isinstance(error, TreeError) or error.errno in MACHINE_ERRORS:
            raise
        raise TreeError(error.errno, error.strerror, error.filename) from None
    return dict(sorted(entries.items()))


def _scan(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as found:
        for entry in found:
            yield entry.name, entry.stat(follow_symlinks=False)


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def write_entry(tree: Path, key: str, entry: Entry | None) -> None:
    """Make `key` below `tree` what `entry` says, or absent for None; never follows a link that lies in the way."""
    path = tree / key
    for parent in parents(key):
        step = tree / parent
        if not _is_folder(step):
            if entry is None:
                return
            step.unlink(missing_ok=True)
            step.mkdir()
    if _is_folder(path):
        if entry is None:
            return
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if entry is None:
        _remove_empty_parents(tree, path)
    elif entry.mode == "120000":
        os.symlink(os.fsdecode(entry.content), path)
    else:
        shutil.copyfile(entry.path, path)
        path.chmod(0o755 if entry.mode == "100755" else 0o644)


def _is_folder(path: Path) -> bool:
    """Whether there is a folder, not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _remove_empty_parents(tree: Path, path: Path) -> None:
    for parent in path.parents:
        if parent == tree or not parent.is_dir() or any(parent.iterdir()):
            return
        parent.rmdir()


def overlay(
    target: Path,
    changed: Path,
    *,
    protected: Callable[[str], bool],
    since: Mapping[str, Entry] | None = None,
    skip: Callable[[str], bool] = lambda path: False,
    most_entries: int | None = None,
    most_bytes: int | None = None,
) -> tuple[list[str], list[str]]:
    """Carry every difference of the tree `changed` over to the tree `target`, except on protected paths.

    Args:
        target: the tree to change.
        changed: the tree an agent left.
        protected: which paths stay as they are.
        since: what `changed` differs from, by default `target`.
        skip: paths of `changed` not to look at.
        most_entries: see `list_tree`; of `changed`.
        most_bytes: the same.

    Returns:
        The paths carried over and the paths dropped.

    Raises:
        TreeError: `changed` is too large or cannot be read.
    """
    old = list_tree(target) if since is None else since
    new = list_tree(changed, skip=skip, most_entries=most_entries, most_bytes=most_bytes)
    differing = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    # A file or link in place of a folder that holds protected files would take them away.
    holders = {parent for key in old if protected(key) for parent in parents(key)}
    dropped = [key for key in differing if protected(key) or key in holders]
    carried = sorted(set(differing) - set(dropped))
    for key in sorted(carried, key=lambda key: key in new):  # removals first: a folder may have become a file
        write_entry(target, key, new.get(key))
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
    return decode_diff(diff)


def decode_diff(diff: bytes) -> str:
    """A diff as text, with surrogate escapes for what is no UTF-8: it may be of files in another encoding."""
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
        # Whoever strips a diff, as many do with what a model writes, takes the end of its last line.
        data = diff.encode("utf-8", "surrogateescape").removesuffix(b"\n") + b"\n"
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
            path = entry.path.absolute()
            if entry.mode == "120000":
                path = Path(folder, str(number))
                path.write_bytes(entry.content)
            paths.append(os.fsencode(path))
        arguments = ["hash-object", "-w", "--no-filters", "--stdin-paths"]
        hashes = git(arguments, git_dir=git_dir, stdin=b"\n".join(paths)).decode().split()
    for (key, entry), digest in zip(entries.items(), hashes, strict=True):
        lines.append(f"{entry.mode} {digest}\t".encode() + os.fsencode(key))
    git(["read-tree", "--empty"], git_dir=git_dir)
    index = b"".join(line + b"\0" for line in lines)
    git(["update-index", "-z", "--index-info"], git_dir=git_dir, stdin=index)
    return git(["write-tree"], git_dir=git_dir).decode().strip()


@contextmanager
def scratch_repository() -> Iterator[Path]:
    """An empty repository outside every tree, gone afterwards; yields its git directory."""
    with scratch_folder("git") as folder:
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
