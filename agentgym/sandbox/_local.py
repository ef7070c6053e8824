"""What the backends share whose workspace is a folder of this machine: files and snapshots."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox import _scratch
from agentgym.sandbox._commands import CommandSandbox
from agentgym.sandbox._copy import copy_data, copy_tree
from agentgym.sandbox._files import Tree, closing, read_all
from agentgym.sandbox._job import encode
from agentgym.sandbox.base import machine_faults


class Snapshot:
    """A copy of a workspace on the host, deleted when nobody refers to it any more."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.folder = _scratch.new_folder("snapshot")
        weakref.finalize(self, _remove_if_owner, self.folder, os.getpid())

    def open(self) -> int:
        """A descriptor of its folder.

        Raises:
            SandboxError: the folder is gone; only who cleans up /tmp can have deleted it.
        """
        try:
            return os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SandboxError(f"the snapshot's folder is gone: {self.folder}") from None


def _remove_if_owner(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has the object too
        _scratch.remove_tree(folder)


class LocalSandbox(CommandSandbox):
    """Base of the backends whose workspace is a folder of this machine; a subclass sets `_tree`."""

    _tree: Tree

    def _ensure_usable(self) -> None:
        self._tree.ensure_usable()

    def _read_elsewhere(self, path: str, error: OSError | None, most: int | None) -> bytes:
        """Content of a file that is not in the workspace, as a command would see it.

        Args:
            path: as the caller gave it.
            error: why it could not be opened in the workspace; None if it does not even name a place there.
            most: bytes; more raises EFBIG.
        """
        raise error or FileNotFoundError(errno.ENOENT, f"not in the workspace {self.workspace}", path)

    # Files

    def _relative(self, path: str) -> str:
        relative = self._tree.relative(path)
        if relative is None:
            raise PermissionError(
                errno.EACCES, f"outside the workspace {self.workspace}: nothing else is kept", path
            )
        return relative

    @machine_faults("read a file of the sandbox")
    def read(self, path: str, *, most: int | None = None) -> bytes:
        self._check_open()
        relative = self._tree.relative(path)
        if relative is None:
            return self._read_elsewhere(path, None, most)
        try:
            return read_all(self._tree.open_regular(relative), most)
        except (FileNotFoundError, PermissionError) as error:  # perhaps a link out of the workspace
            return self._read_elsewhere(path, error, most)

    @machine_faults("write a file of the sandbox")
    def write(self, path: str, content: bytes | str) -> None:
        self._check_open()
        data = encode(content) if isinstance(content, str) else content
        with open(self._tree.open_for_writing(self._relative(path)), "wb") as file:
            file.write(data)

    @machine_faults("copy files into the sandbox")
    def upload(self, source: Path | str, target: str = ".") -> None:
        self._check_open()
        source = Path(source)
        relative = self._relative(target)
        if source.is_dir():
            with (
                closing(os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as original,
                closing(self._tree.open_folder(relative, make=True)) as folder,
            ):
                copy_tree(original, folder, exact=False, owner=self._tree.owner)
            return
        with closing(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as original:
            state = os.fstat(original)
            if not stat.S_ISREG(state.st_mode):
                raise OSError(errno.EINVAL, "neither a file nor a folder", str(source))
            if target.endswith("/") or self._tree.is_folder(relative):
                relative = os.path.join(relative, source.name)
            with closing(self._tree.open_for_writing(relative)) as made:
                copy_data(original, made)
                os.fchmod(made, state.st_mode & 0o777)
                os.utime(made, ns=(state.st_atime_ns, state.st_mtime_ns))

    @machine_faults("copy files out of the sandbox")
    def download(
        self,
        source: str,
        target: Path | str,
        *,
        skip: Callable[[str], bool] | None = None,
        most_entries: int | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self._check_open()
        copy_out(
            self._tree,
            self._relative(source),
            Path(target),
            skip=skip,
            most_entries=most_entries,
            most_bytes=most_bytes,
        )

    # Snapshots

    @machine_faults("take a snapshot of the sandbox")
    def snapshot(self) -> Snapshot:
        self._check_open()
        taken = Snapshot(self.backend)
        with (
            closing(self._tree.open_folder(".")) as original,
            closing(taken.open()) as copy,
        ):
            copy_tree(original, copy, exact=True)
        return taken

    @machine_faults("restore a snapshot of the sandbox")
    def restore(self, snapshot: Any) -> None:
        if not isinstance(snapshot, Snapshot) or snapshot.backend != self.backend:
            raise UsageError(f"restore(): expected a snapshot of a {self.backend} sandbox, got {snapshot!r}")
        self._check_open()
        self._state.kill_all()
        with (
            closing(snapshot.open()) as copy,
            closing(self._tree.open_folder(".")) as workspace,
        ):
            for name in os.listdir(workspace):
                _remove_entry(self._tree.workspace / name)
            copy_tree(copy, workspace, exact=True, owner=self._tree.owner)


def _remove_entry(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _scratch.remove_tree(path)
    else:
        path.unlink()


def copy_out(
    tree: Tree,
    relative: str,
    target: Path,
    *,
    skip: Callable[[str], bool] | None = None,
    most_entries: int | None = None,
    most_bytes: int | None = None,
) -> None:
    """Copy a file or a folder's contents out of a tree, as `Sandbox.download` does."""
    if tree.is_folder(relative):
        target.mkdir(parents=True, exist_ok=True)
        with (
            closing(tree.open_folder(relative)) as original,
            closing(os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder,
        ):
            copy_tree(
                original, folder, exact=False, skip=skip, most_entries=most_entries, most_bytes=most_bytes
            )
        return
    with closing(tree.open_regular(relative)) as original:
        state = os.fstat(original)
        if target.is_dir():
            target = target / os.path.basename(relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as file:
            copy_data(original, file.fileno())
            os.fchmod(file.fileno(), state.st_mode & 0o777)
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
