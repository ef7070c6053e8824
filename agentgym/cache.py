"""What is kept once it was made: on disk models, environments of tests, trees; in memory what was read of folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")
# Time of change and size by path; None where nothing is.
Marks: TypeAlias = dict[str, tuple[int, int] | None]

_REMEMBERED = 8  # paths, by each function that `remembered` makes


def cache_folder() -> Path:
    """``$AGENTGYM_CACHE``, or ``~/.cache/agentgym``. It can be deleted at any time when nothing runs."""
    return Path(os.environ.get("AGENTGYM_CACHE") or Path.home() / ".cache" / "agentgym")


def made_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """`folder`; where it is missing it is filled aside and moved there, so nobody sees half of it.

    Args:
        folder: somewhere in the cache.
        fill: puts the files into an empty folder. Where several processes fill at once, the first to finish stays.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        fill(fresh)
        os.rename(fresh, folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def remembered(
    read: Callable[[Path], Result], watched: Callable[[Path], Iterable[Path]]
) -> Callable[[Path], Result]:
    """`read`, which is done again only where something has changed since it was done last for this path.

    A folder's own time says what came and went directly in it, not what did further down, and not that a file was
    written anew. So each folder and file that was there is looked at, which costs one `stat` for each.

    Args:
        read: gives what is to be remembered, of a resolved path.
        watched: what it depends on: files, and folders with all below them, whether they are there or not.
    """
    kept: dict[Path, tuple[Marks, Result]] = {}

    def look(path: Path) -> Result:
        path = path.resolve()  # a relative one is another after a change of folders
        known = kept.get(path)
        if known is None or any(_mark(each) != mark for each, mark in known[0].items()):
            marks = {each: _mark(each) for top in watched(path) for each in _below(top)}
            known = marks, read(path)  # in this order: what changes meanwhile is seen next time
            if len(kept) >= _REMEMBERED:
                kept.clear()
            kept[path] = known
        return known[1]

    return look


def _below(top: Path) -> Iterable[str]:
    """A path, and all paths below it; folders that are links are not entered, as `Path.rglob` does not."""
    yield str(top)
    for folder, folders, files in os.walk(top):
        yield from (os.path.join(folder, name) for name in (*folders, *files))


def _mark(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
