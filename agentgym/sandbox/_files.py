"""File access in a folder that untrusted code may be changing at this moment.

Nothing here follows a link out of the folder, blocks on a pipe, or trusts a check made before an open: paths
are resolved by the kernel inside the folder (openat2). Whole trees are copied in `_copy`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from agentgym.errors import SandboxError

_SYS_OPENAT2 = 437  # the same on every architecture
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08  # refuse what leaves the folder
RESOLVE_IN_ROOT = 0x10  # treat the folder as /, as chroot does
MAX_DEPTH = 200  # folders inside folders; two descriptors are open per level
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Open a path below an open folder, as `resolve` allows; never through the links of /proc."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve | RESOLVE_NO_MAGICLINKS)
    name = os.fsencode(path)
    while True:
        # Varargs: every argument is given its full width.
        descriptor = _libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_long(folder),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code == errno.EAGAIN:  # something was renamed while ".." was resolved: the kernel asks for a retry
            continue
        if code == errno.ENOSYS:
            raise SandboxError("sandboxes need the system call openat2 (Linux 5.6 or later)")
        raise OSError(code, os.strerror(code), path)


class Tree:
    """The files below `workspace`, a host folder that holds what commands see at `inside`.

    Args:
        root: the host folder that stands for / in absolute links, or None where commands see the host's own
            paths; then absolute links are refused.
        owner: ids of the user and group who get what is made here; None where that is this process's user.
    """

    def __init__(
        self, workspace: Path, inside: str, root: Path | None, owner: tuple[int, int] | None = None
    ) -> None:
        self.workspace = workspace
        self.owner = owner
        self.inside = PurePosixPath(inside)
        self._root = workspace if root is None else root
        self._prefix = "" if root is None else os.path.relpath(workspace, root)
        self._resolve = RESOLVE_BENEATH if root is None else RESOLVE_IN_ROOT

    def relative(self, path: str) -> str | None:
        """`path` as seen by commands, relative to the workspace; None if it does not lie in it."""
        if "\0" in path:
            raise ValueError("a path holds a NUL byte")
        # Lexical: whoever writes "a/../b" means b. What links do is the kernel's business below.
        full = os.path.normpath(self.inside / path)
        if full == str(self.inside) or full.startswith(f"{self.inside}/"):
            return os.path.relpath(full, self.inside)
        return None

    def ensure_usable(self) -> None:
        """Undo what a command may have done to the workspace itself: deleted it, or made it inaccessible.

        Raises:
            SandboxError: the folder above it is gone, which no command can delete, but who cleans up /tmp can.
        """
        try:
            self.workspace.mkdir(mode=0o755, exist_ok=True)
        except FileNotFoundError:
            raise SandboxError(f"the sandbox's folder is gone: {self.workspace.parent}") from None
        mode = self.workspace.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            self.workspace.chmod(stat.S_IMODE(mode) | 0o700)

    def _open(self, relative: str, flags: int) -> int:
        self.ensure_usable()
        root = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            descriptor = openat2(root, os.path.join(self._prefix, relative) or ".", flags, self._resolve)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _outside(relative) from None
            raise
        finally:
            os.close(root)
        # With an absolute link the file may lie in `root` but beside the workspace, where no command sees it.
        where = os.readlink(f"/proc/self/fd/{descriptor}")
        if where != str(self.workspace) and not where.startswith(f"{self.workspace}/"):
            os.close(descriptor)
            raise _outside(relative)
        return descriptor

    def open_regular(self, relative: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file; what else it may be raises instead of blocking."""
        descriptor = self._open(relative, flags | os.O_NONBLOCK | os.O_NOCTTY)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(code, "not a regular file" if code == errno.EINVAL else os.strerror(code), relative)
        return descriptor

    def open_folder(self, relative: str, *, make: bool = False) -> int:
        """Open a folder, with `make` after creating it and its parents."""
        if relative.count("/") > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, f"more than {MAX_DEPTH} folders inside one another", relative)
        try:
            return self._open(relative, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not make or relative == ".":
                raise
        parent, name = os.path.split(relative)
        with closing(self.open_folder(parent or ".", make=True)) as above:
            try:
                os.mkdir(name, dir_fd=above)
                if self.owner is not None:
                    os.chown(name, *self.owner, dir_fd=above, follow_symlinks=False)
            except FileExistsError:  # a dangling link, or somebody was faster: the open decides
                pass
        return self._open(relative, os.O_RDONLY | os.O_DIRECTORY)

    def is_folder(self, relative: str) -> bool:
        """Whether there is a folder of that name, also by way of links."""
        try:
            os.close(self.open_folder(relative))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def open_for_writing(self, relative: str) -> int:
        """Open a regular file, emptied or new, its parent folders made."""
        parent, name = os.path.split(relative)
        with closing(self.open_folder(parent or ".", make=True)) as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                made = os.open(name, flags, 0o666, dir_fd=folder)
            except FileExistsError:
                pass
            else:
                if self.owner is not None:
                    os.fchown(made, *self.owner)
                return made
        try:
            descriptor = self.open_regular(relative, os.O_WRONLY)
        except FileNotFoundError:  # there is a link, but not to a file of the workspace
            raise _outside(relative) from None
        os.ftruncate(descriptor, 0)
        return descriptor


def _outside(path: str) -> PermissionError:
    return PermissionError(errno.EACCES, "leads out of the workspace", path)


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_all(descriptor: int, most: int | None = None) -> bytes:
    """Content of an open regular file, and close it.

    Raises:
        OSError: EFBIG, it has more than `most` bytes.
    """
    with open(descriptor, "rb", closefd=True) as file:
        data = file.read() if most is None else file.read(most + 1)
    if most is not None and len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes")
    return data
