"""Copies of trees that untrusted code may be changing at this moment: walked by descriptors with O_NOFOLLOW."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentgym.sandbox._files import MAX_DEPTH, RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, closing, openat2
from agentgym.sandbox.base import Budget, TreeError


def copy_tree(
    source: int,
    target: int,
    *,
    exact: bool,
    owner: tuple[int, int] | None = None,
    skip: Callable[[str], bool] | None = None,
    most_entries: int | None = None,
    most_bytes: int | None = None,
) -> None:
    """Copy the contents of one open folder into another, following no link on either side.

    Links, hard links, modes and modification times stay; sockets are left out. Data is shared where the file
    system can (reflink), holes stay holes. Non-folders in the way are replaced.

    Args:
        source: descriptor of a folder.
        target: descriptor of a folder.
        exact: also keep set-id bits and named pipes; False drops both.
        owner: ids of the user and group who get the copies; None: this process's user.
        skip: which paths to leave out, with all below them.
        most_entries: files and folders together.
        most_bytes: of all files together.

    Raises:
        TreeError: there are more, or more than 200 folders inside one another.
    """
    if most_entries is not None or most_bytes is not None:  # before time and disk are spent on half of it
        _measure(source, (), skip or _nothing, Budget(most_entries, most_bytes))
    copy = _Copy(target, exact, owner, skip or _nothing, Budget(most_entries, most_bytes))
    copy.folder(source, target, ())
    copy.finish(target, os.fstat(source))


def _nothing(path: str) -> bool:
    return False


def _measure(folder: int, path: tuple[str, ...], skip: Callable[[str], bool], budget: Budget) -> None:
    _check_depth(path)
    inner = []
    with os.scandir(folder) as entries:
        for entry in entries:  # one by one: there may be millions
            key = "/".join((*path, entry.name))
            if skip(key):
                continue
            state = entry.stat(follow_symlinks=False)
            budget.take(key, state.st_size if stat.S_ISREG(state.st_mode) else 0)
            if stat.S_ISDIR(state.st_mode):
                inner.append(entry.name)
    for name in inner:
        with _opened(name, folder, stat.S_IFDIR) as below:
            _measure(below, (*path, name), skip, budget)


def _check_depth(path: tuple[str, ...]) -> None:
    if len(path) > MAX_DEPTH:
        raise TreeError(errno.ENAMETOOLONG, f"more than {MAX_DEPTH} folders inside one another")


class _Copy:
    def __init__(
        self,
        target: int,
        exact: bool,
        owner: tuple[int, int] | None,
        skip: Callable[[str], bool],
        budget: Budget,
    ) -> None:
        self._owner = owner
        self._skip = skip
        self._budget = budget
        self._top = target
        self._modes = 0o7777 if exact else 0o777
        self._exact = exact
        self._linked: dict[tuple[int, int], str] = {}  # inode with several names -> first path in the target

    def folder(self, source: int, target: int, path: tuple[str, ...]) -> None:
        _check_depth(path)
        for name in os.listdir(source):
            if self._skip("/".join((*path, name))):
                continue
            try:
                self._entry(name, source, target, path)
            except FileNotFoundError:  # removed while we were copying
                continue

    def finish(self, made: int, state: os.stat_result) -> None:
        """Give a complete copy its owner, and the mode and times of its original."""
        if self._owner is not None:
            os.fchown(made, *self._owner)
        os.fchmod(made, state.st_mode & self._modes)
        os.utime(made, ns=(state.st_atime_ns, state.st_mtime_ns))

    def _entry(self, name: str, source: int, target: int, path: tuple[str, ...]) -> None:
        state = os.stat(name, dir_fd=source, follow_symlinks=False)
        times = (state.st_atime_ns, state.st_mtime_ns)
        kind = stat.S_IFMT(state.st_mode)
        self._budget.take("/".join((*path, name)), state.st_size if kind == stat.S_IFREG else 0)
        if kind == stat.S_IFDIR:
            with _opened(name, source, kind) as inner:
                _make_folder(name, target)
                with closing(os.open(name, _FOLDER, dir_fd=target)) as made:
                    self.folder(inner, made, (*path, name))
                    self.finish(made, state)
        elif kind == stat.S_IFREG:
            first = self._linked.get((state.st_dev, state.st_ino))
            if first is not None:
                _make_way(name, target)
                inside = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS
                with closing(openat2(self._top, first, os.O_PATH, inside)) as other:
                    os.link(f"/proc/self/fd/{other}", name, dst_dir_fd=target, follow_symlinks=True)
                return
            with _opened(name, source, kind) as original, closing(_make_file(name, target)) as made:
                copy_data(original, made)
                self.finish(made, state)
            if state.st_nlink > 1:
                self._linked[state.st_dev, state.st_ino] = "/".join((*path, name))
        elif kind == stat.S_IFLNK:
            _make_way(name, target)
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            self._give(name, target)
            os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)
        elif kind == stat.S_IFIFO and self._exact:
            _make_way(name, target)
            os.mkfifo(name, dir_fd=target)
            self._give(name, target)
            os.chmod(name, state.st_mode & 0o777, dir_fd=target)
            os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)

    def _give(self, name: str, target: int) -> None:
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=target, follow_symlinks=False)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def _opened(name: str, folder: int, kind: int) -> Iterator[int]:
    """Open an entry for reading, also if its owner (us, as a plain user) took the permission away."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except PermissionError:
        pass
    else:
        with closing(descriptor):
            if stat.S_IFMT(os.fstat(descriptor).st_mode) != kind:
                raise _changed(name)
            yield descriptor
        return
    # First without permission to anything, so that mode and file are of one and the same inode from here on.
    with closing(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as entry:
        mode = os.fstat(entry).st_mode
        if stat.S_IFMT(mode) != kind:
            raise _changed(name)
        handle = f"/proc/self/fd/{entry}"
        needed = 0o500 if stat.S_ISDIR(mode) else 0o400
        forced = mode & needed != needed and os.getuid() != 0
        if forced:
            os.chmod(handle, stat.S_IMODE(mode) | needed)
        try:
            with closing(os.open(handle, flags & ~os.O_NOFOLLOW)) as descriptor:
                yield descriptor
        finally:
            if forced:
                os.chmod(handle, stat.S_IMODE(mode))


def _changed(name: str) -> OSError:
    return OSError(errno.EBUSY, "changed its kind while being copied", name)


def _make_folder(name: str, target: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=target)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=target, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=target)
            os.mkdir(name, 0o700, dir_fd=target)


def _make_file(name: str, target: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=target)
    except FileExistsError:
        _make_way(name, target)
        return os.open(name, flags, 0o600, dir_fd=target)


def _make_way(name: str, target: int) -> None:
    try:
        os.unlink(name, dir_fd=target)  # raises IsADirectoryError for a folder
    except FileNotFoundError:
        pass


def copy_data(source: int, target: int) -> None:
    """Copy a regular file's content between descriptors at their start, sharing blocks and keeping holes."""
    size = os.fstat(source).st_size
    position = 0
    while position < size:
        try:
            start = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                break
            raise
        position = os.lseek(source, start, os.SEEK_HOLE)
        os.lseek(source, start, os.SEEK_SET)
        os.lseek(target, start, os.SEEK_SET)
        _copy_extent(source, target, position - start)
    if size:
        os.ftruncate(target, size)


def _copy_extent(source: int, target: int, count: int) -> None:
    while count > 0:
        try:
            done = os.copy_file_range(source, target, count)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP):
                raise
            done = os.sendfile(target, source, None, count)  # between file systems of different kinds
        if done == 0:  # the file was shortened meanwhile
            return
        count -= done
