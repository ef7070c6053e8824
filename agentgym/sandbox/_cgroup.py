"""Control groups: the only bounds on memory and processes that hold for a whole tree, and for root.

Each sandbox gets a group of its own below the group this process is in (v1, one per controller), or beside it
(v2, where a group that holds processes may not hand controllers to children). Whatever the machine does not
let us make is said in `Cgroup.refused`, never skipped silently.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

CONTROLLERS = ("memory", "pids")


@dataclass(slots=True)
class Cgroup:
    """The groups of one sandbox."""

    folders: list[Path] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)  # controller in force -> 1 or 2
    refused: dict[str, str] = field(default_factory=dict)  # controller not in force -> why

    def add(self, pid: int) -> None:
        """Move one process in; what it starts later is born inside.

        Raises:
            OSError: the group is gone.
        """
        for folder in self.folders:
            _write(folder / "cgroup.procs", pid)

    def remove(self) -> None:
        """Delete the groups, once the processes in them are dead."""
        for folder in self.folders:
            _remove(folder)


def create(name: str, *, memory_mb: int | None, processes: int | None) -> Cgroup:
    """Make the groups called `name` for the limits that are not None."""
    group = Cgroup()
    wanted = {"memory": memory_mb, "pids": processes}
    for controller, limit in wanted.items():
        if limit is None:
            continue
        parent, version = _parent(controller)
        if parent is None:
            group.refused[controller] = f"no {controller} cgroup that this process may divide"
            continue
        folder = parent / name
        try:
            if folder not in group.folders:
                folder.mkdir(exist_ok=True)
                group.folders.append(folder)
            _write_limit(folder, controller, version, limit)
        except OSError as error:
            group.refused[controller] = f"cgroup v{version} {controller}: {error.strerror}"
            continue
        group.versions[controller] = version
    return group


def sweep(name: str) -> None:
    """Remove the groups of a dead owner, whose names begin with `name`, and kill what is still in them."""
    for controller in CONTROLLERS:
        parent, _ = _parent(controller)
        if parent is None:
            continue
        for folder in parent.glob(f"{name}*"):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            _remove(folder)


def _write_limit(folder: Path, controller: str, version: int, limit: int) -> None:
    if controller == "pids":
        _write(folder / "pids.max", limit)
    elif version == 1:
        _write(folder / "memory.limit_in_bytes", limit << 20)
        swap = folder / "memory.memsw.limit_in_bytes"
        if swap.exists():  # only where the kernel accounts swap
            _write(swap, limit << 20)
    else:
        _write(folder / "memory.max", limit << 20)
        swap = folder / "memory.swap.max"
        if swap.exists():
            _write(swap, 0)


def _parent(controller: str) -> tuple[Path | None, int]:
    """Folder in which a group with this controller can be made (None: nowhere), and the cgroup version."""
    own = _own_group(controller)
    if own is not None:
        return (own if os.access(own, os.W_OK) else None), 1
    own = _own_group("")
    if own is None:
        return None, 2
    for folder in (own, own.parent):
        control = folder / "cgroup.subtree_control"
        if control.exists() and controller in control.read_text().split() and os.access(folder, os.W_OK):
            return folder, 2
    return None, 2


def _own_group(controller: str) -> Path | None:
    """Folder of the group this process is in, for a v1 controller, or in the v2 tree for an empty name."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            break
    else:
        return None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        root, mount_point = fields[3], fields[4]
        kind, _, options = fields[fields.index("-") + 1 :][:3]
        fits = kind == "cgroup" and controller in options.split(",") if controller else kind == "cgroup2"
        if fits and (path + "/").startswith(root.rstrip("/") + "/"):
            return Path(mount_point) / path[len(root.rstrip("/")) :].lstrip("/")
    return None


def _write(path: Path, value: int) -> None:
    # No buffering, no truncation: the kernel takes one write.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    for _ in range(200):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:  # busy: the kernel is still putting away the dead; at most about a second
            time.sleep(0.005)
