"""Trees to and from a container, as the daemon takes and gives them: tar archives."""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from agentgym.errors import SandboxError
from agentgym.sandbox._files import MAX_DEPTH, RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, closing, openat2
from agentgym.sandbox._output import CHUNK
from agentgym.sandbox.base import Budget, TreeError


def pack(source: Path, name: str, user: tuple[int, int], target: IO[bytes]) -> None:
    """Write a host file or folder as an archive with one entry `name` at its top, links as links.

    Set-id bits are dropped, pipes, sockets and devices left out.

    Args:
        source: file or folder.
        name: what it is called in the archive.
        user: ids of user and group who get it.
        target: where the archive is written.
    """

    def ours(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if entry.isfifo() or entry.isdev():
            return None
        entry.uid, entry.gid = user
        entry.uname = entry.gname = ""
        entry.mode &= 0o777
        return entry

    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(source, name, filter=ours)


def pack_folder(path: str, user: tuple[int, int]) -> bytes:
    """An archive that holds one empty folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.mode, (entry.uid, entry.gid) = tarfile.DIRTYPE, 0o755, user
        archive.addfile(entry)
    return buffer.getvalue()


def unpack(
    chunks: Iterator[bytes],
    folder: Path,
    *,
    skip: Callable[[str], bool] | None = None,
    most_entries: int | None = None,
    most_bytes: int | None = None,
) -> None:
    """Unpack an archive of one file or tree into an empty folder that nobody else touches.

    Nothing in it is trusted: no entry lands outside `folder` or behind a link. Zeros become holes; set-id bits are
    dropped, pipes and devices left out.

    Args:
        chunks: the archive.
        folder: where to.
        skip: which paths below the tree's top to leave out, with all below them.
        most_entries: files and folders below the top, together.
        most_bytes: of its files together.

    Raises:
        TreeError: there are more, or more than 200 folders inside one another.
        SandboxError: this is no archive of that kind.
    """
    budget = Budget(most_entries, most_bytes)
    try:
        with (
            tarfile.open(fileobj=_Reader(chunks), mode="r|", bufsize=1 << 20) as archive,
            closing(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as top,
        ):
            _Unpacking(archive, top, skip or (lambda path: False), budget).run()
    except tarfile.TarError as error:
        raise SandboxError(f"the daemon sent a broken archive: {error}") from error


class _Unpacking:
    def __init__(
        self, archive: tarfile.TarFile, top: int, skip: Callable[[str], bool], budget: Budget
    ) -> None:
        self._archive, self._top, self._skip, self._budget = archive, top, skip, budget
        self._folders: list[tarfile.TarInfo] = []

    def run(self) -> None:
        skipped = ""
        for entry in self._archive:
            name = entry.name.strip("/")
            parts = name.split("/")
            if ".." in parts or "." in parts:
                raise SandboxError(f"the daemon sent an archive with the path {entry.name!r}")
            if len(parts) - 2 > MAX_DEPTH:
                raise TreeError(errno.ENAMETOOLONG, f"more than {MAX_DEPTH} folders inside one another")
            below = "/".join(parts[1:])
            if below:
                if skipped and below.startswith(skipped):
                    continue
                if self._skip(below):
                    skipped = f"{below}/"
                    continue
                self._budget.take(below, entry.size if entry.isreg() else self._linked_size(entry))
            self._entry(entry, name)
        for entry in reversed(self._folders):  # what was put into them has changed their times
            with closing(self._open(entry.name.strip("/"), os.O_RDONLY | os.O_DIRECTORY)) as made:
                _finish(made, entry)

    def _linked_size(self, entry: tarfile.TarInfo) -> int:
        """A further name of a file counts in full."""
        if not entry.islnk():
            return 0
        with closing(self._open(entry.linkname.strip("/"), os.O_PATH)) as other:
            return os.fstat(other).st_size

    def _entry(self, entry: tarfile.TarInfo, name: str) -> None:
        parent, base = os.path.split(name)
        with closing(self._open(parent or ".", os.O_RDONLY | os.O_DIRECTORY)) as folder:
            if entry.isdir():
                os.mkdir(base, 0o700, dir_fd=folder)
                self._folders.append(entry)
            elif entry.isreg():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with closing(os.open(base, flags, 0o600, dir_fd=folder)) as made:
                    self._content(entry, made)
                    _finish(made, entry)
            elif entry.issym():
                os.symlink(entry.linkname, base, dir_fd=folder)
                os.utime(base, (entry.mtime, entry.mtime), dir_fd=folder, follow_symlinks=False)
            elif entry.islnk():
                with closing(self._open(entry.linkname.strip("/"), os.O_PATH)) as other:
                    os.link(f"/proc/self/fd/{other}", base, dst_dir_fd=folder, follow_symlinks=True)

    def _open(self, path: str, flags: int) -> int:
        return openat2(self._top, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)

    def _content(self, entry: tarfile.TarInfo, made: int) -> None:
        source = self._archive.extractfile(entry)
        assert source is not None
        while data := source.read(CHUNK):
            if data.count(0) == len(data):
                os.lseek(made, len(data), os.SEEK_CUR)
            else:
                _write_all(made, data)
        os.ftruncate(made, entry.size)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _finish(made: int, entry: tarfile.TarInfo) -> None:
    os.fchmod(made, stat.S_IMODE(entry.mode) & 0o777)
    os.utime(made, (entry.mtime, entry.mtime))


class _Reader(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        parts, left = [], size
        while left > 0:
            data = self._rest or next(self._chunks, b"")
            if not data:
                break
            parts.append(data[:left])
            self._rest = data[left:]
            left -= len(parts[-1])
        return b"".join(parts)
