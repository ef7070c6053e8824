"""The private host folder of this process, in which all its sandboxes and snapshots live.

Its owner holds a lock on it. A folder whose lock is free was left by a process that was killed: the next
process that makes a sandbox deletes it. (A pid in the name would not do: containers that share /tmp count
pids differently.)
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym.errors import SandboxError
from agentgym.sandbox import _cgroup
from agentgym.sandbox.base import machine_faults

PREFIX = "agentgym-sandbox-"
_lock = threading.Lock()
_current: tuple[int, Path, int] | None = None  # owner pid, folder, locked descriptor of the folder
_counter = 0


def new_folder(kind: str) -> Path:
    """A fresh folder, mode 0700, unique on this machine by its name and its parent's.

    Raises:
        SandboxError: it could not be made; no policy has a hand in that.
    """
    global _counter
    try:
        with _lock:
            _counter += 1
            folder = _base() / f"{kind}{_counter}"
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise SandboxError(f"could not make a folder for a sandbox: {error}") from error
    return folder


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """A folder for the length of a block. What a killed process leaves of it the next one sweeps."""
    folder = new_folder(kind)
    try:
        yield folder
    finally:
        remove_tree(folder)


def shared_folder(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder of that name that all sandboxes of this process share; `fill` writes its content, once."""
    with _lock:
        folder = _base() / name
        if not folder.exists():
            made = folder.with_name(f".{name}")
            remove_tree(made)  # what a `fill` that failed left
            made.mkdir(mode=0o755)
            fill(made)
            made.rename(folder)
        return folder


def _base() -> Path:
    global _current
    if _current is None or _current[0] != os.getpid():  # a forked child makes its own
        _sweep()
        # Locked under another name first, so that nobody sweeps it in between.
        made = Path(os.path.realpath(tempfile.mkdtemp(prefix=f".{PREFIX}")))
        descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        folder = made.with_name(made.name.removeprefix("."))
        made.rename(folder)
        _current = (os.getpid(), folder, descriptor)
        atexit.register(_remove_base, *_current)
    return _current[1]


def _remove_base(owner: int, folder: Path, descriptor: int) -> None:
    if owner == os.getpid():
        remove_tree(folder)
        os.close(descriptor)


def _sweep() -> None:
    for folder in Path(os.path.realpath(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone already, or another user's
            continue
        try:
            if os.fstat(descriptor).st_uid == os.getuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _cgroup.sweep(folder.name)
                remove_tree(folder)
        except BlockingIOError:  # its owner lives
            pass
        finally:
            os.close(descriptor)


@machine_faults("delete a folder of a sandbox")
def remove_tree(folder: Path) -> None:
    """Delete a folder that untrusted code filled: no link is followed, no mode or depth stops it.

    Raises:
        SandboxError: something is left, for example a file of another user.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):  # no permissions, or thousands of levels: what chmod and rm can do
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True, check=False)
        done = subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip()
            raise SandboxError(f"could not delete the sandbox folder {folder}: {reason}")
