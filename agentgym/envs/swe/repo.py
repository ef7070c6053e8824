"""A task's tree: out of its snapshot, cleaned, and as a repository that holds one commit and no history."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

from agentgym.errors import TaskError
from agentgym.verifiers.patches import apply_patch, git, init_repository, list_tree, tree_diff, write_tree

__all__ = ["apply_patch", "clean_tree", "make_repository", "pack_tree", "tree_diff", "unpack"]

_IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in {
        "NAME": "agentgym",
        "EMAIL": "agentgym@localhost",
        "DATE": "2020-01-01T00:00:00+0000",
    }.items()
}
_CONFIG = {"core.bare": "false", "gc.auto": "0", "user.name": "agent", "user.email": "agent@localhost"}
_JUNK_FOLDERS = frozenset(
    "__pycache__ .git .hg .svn .tox .nox .eggs .pytest_cache .mypy_cache .ruff_cache".split()
)
_JUNK_SUFFIXES = (".pyc", ".pyo", ".egg-link")


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip file into the new folder `target`; a single top-level folder is stepped into.

    Raises:
        TaskError: it is no archive, or a member points outside of it.
    """
    inside = target.with_name(target.name + ".unpack")
    inside.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(inside)  # drops absolute and parent parts of names by itself
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(inside, filter="data")
        entries = list(inside.iterdir())
        single = len(entries) == 1 and entries[0].is_dir() and not entries[0].is_symlink()
        (entries[0] if single else inside).rename(target)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise TaskError(f"{archive.name} cannot be unpacked: {error}") from None
    finally:
        shutil.rmtree(inside, ignore_errors=True)


def pack_tree(tree: Path) -> bytes:
    """A tar.gz of the tree's files and links under one folder; equal trees give equal bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for key, entry in list_tree(tree).items():
            info = tarfile.TarInfo(f"tree/{key}")
            info.mode = 0o755 if entry.mode == "100755" else 0o644
            if entry.mode == "120000":
                info.type = tarfile.SYMTYPE
                info.linkname = os.fsdecode(entry.content)
                tar.addfile(info)
            else:
                info.size = len(entry.content)
                tar.addfile(info, io.BytesIO(entry.content))
    return gzip.compress(plain.getvalue(), mtime=0)


def clean_tree(tree: Path) -> None:
    """Remove byte code, caches, repository data and build products, all of which may be of another state.

    Egg-info stays: packages that look up their own version or entry points need it.
    """
    for folder, folders, files in os.walk(tree):
        for name in list(folders):
            built = (
                Path(folder) == tree
                and name in ("build", "dist")
                and not Path(folder, name, "__init__.py").exists()
            )
            if name in _JUNK_FOLDERS or built:
                _remove(Path(folder, name))
                folders.remove(name)
        for name in files:
            if name.endswith(_JUNK_SUFFIXES) or name in _JUNK_FOLDERS:
                Path(folder, name).unlink()


def _remove(path: Path) -> None:
    path.unlink() if path.is_symlink() else shutil.rmtree(path)


def make_repository(tree: Path) -> str:
    """Make `tree` a fresh git repository with one commit on branch ``main``, and return the commit's hash.

    Author and date are fixed: equal trees give equal hashes. There is no remote, no hook, no reflog and no
    object that the commit does not hold, so there is nothing to dig for.
    """
    git_dir = tree / ".git"
    if git_dir.is_symlink() or git_dir.exists():
        _remove(git_dir) if git_dir.is_dir() else git_dir.unlink()
    init_repository(git_dir)
    for key, value in _CONFIG.items():
        git(["config", key, value], git_dir=git_dir)
    files = write_tree(git_dir, list_tree(tree))
    commit = git(["commit-tree", "-m", "base", files], git_dir=git_dir, env=_IDENTITY).decode().strip()
    git(["update-ref", "refs/heads/main", commit], git_dir=git_dir)
    git(["read-tree", commit], git_dir=git_dir)
    git(["repack", "-a", "-d", "-q"], git_dir=git_dir)
    git(["prune-packed", "-q"], git_dir=git_dir)
    git(["update-index", "-q", "--refresh"], git_dir=git_dir, work_tree=tree)
    shutil.rmtree(git_dir / "logs", ignore_errors=True)
    return commit
