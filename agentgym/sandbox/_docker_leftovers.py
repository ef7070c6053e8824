"""What a killed process leaves on the daemon, and who removes it.

A running container ends with the connection of the process that made it, at once. That does not hold for images of
snapshots, and for what a dead daemon left. So everything we make carries labels that say whose it is. A small process
beside the first snapshot waits for the end of its parent and then removes what is the session's; and the first sandbox
of any process removes what belongs to owners of this machine that are dead, or is older than a week.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.errors import SandboxError
from agentgym.sandbox._docker_client import connect, daemon_address, daemon_errors

if TYPE_CHECKING:
    from docker import APIClient

SESSION, _OWNER, _EXPIRES = "agentgym.session", "agentgym.owner", "agentgym.expires"
# Of what belongs to a process we cannot see: on another machine, in another container
_LIFE_S = 7 * 24 * 3600
# Nothing of ours is imported before the parent's end: until then this is the smallest Python there is.
_GUARD = """\
import sys
sys.stdin.read()
from agentgym.sandbox._docker_leftovers import remove_session
remove_session(sys.argv[1])
"""

_lock = threading.Lock()
_session: tuple[int, str] | None = None  # pid, name
_reaped: set[tuple[int, str]] = set()  # pid, daemon
_guards: dict[tuple[int, str], subprocess.Popen[bytes]] = {}


def labels() -> dict[str, str]:
    """What marks a container or an image as ours."""
    return {SESSION: _own_session(), _OWNER: _owner(), _EXPIRES: str(int(time.time()) + _LIFE_S)}


def reap(client: APIClient) -> None:
    """Remove what dead owners left; once for each process and daemon."""
    with _lock:
        key = (os.getpid(), daemon_address())
        if key in _reaped:
            return
        _reaped.add(key)
    _remove(client, _is_abandoned)


def guard() -> None:
    """See to it that the images of this session go even if this process is killed; once for each process."""
    with _lock:
        key = (os.getpid(), daemon_address())
        if key in _guards:
            return
        session = _own_session_locked()
        package = str(Path(__file__).resolve().parents[2])
        _guards[key] = subprocess.Popen(
            [sys.executable, "-c", _GUARD, session],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])},
            start_new_session=True,  # a Ctrl-C in the terminal must not end it
        )


def remove_session(session: str) -> None:
    """Remove everything that carries the session's name."""
    _remove(connect(), lambda marks: marks.get(SESSION) == session)


def _let_go() -> None:
    """In a forked child: the guards must see the end of the parent, whose pipes the child holds too."""
    for process in _guards.values():
        if process.stdin is not None:
            process.stdin.close()
    _guards.clear()


os.register_at_fork(after_in_child=_let_go)


def _own_session() -> str:
    with _lock:
        return _own_session_locked()


def _own_session_locked() -> str:
    global _session
    if _session is None or _session[0] != os.getpid():
        _session = (os.getpid(), secrets.token_hex(8))
    return _session[1]


def _owner() -> str:
    return f"{_machine()} {os.getpid()} {_started(os.getpid())}"


def _machine() -> str:
    """Where a process id means the same: this boot, this namespace of processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> str:
    """When a process started, in ticks since the boot: a later one of the same number differs. Empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _is_abandoned(marks: Mapping[str, str]) -> bool:
    machine, _, process = marks.get(_OWNER, "").rpartition("]")
    if f"{machine}]" == _machine():
        pid, started = process.split()
        return _started(int(pid)) != started
    return float(marks.get(_EXPIRES, 0)) < time.time()


def _remove(client: APIClient, chosen: Callable[[Mapping[str, str]], bool]) -> None:
    with daemon_errors("list what earlier sandboxes left"):
        containers = client.containers(all=True, filters={"label": SESSION})
        images = client.images(all=True, filters={"label": SESSION})
    for container in containers:
        if chosen(container["Labels"]):
            remove_quietly(lambda found: client.remove_container(found, force=True, v=True), container["Id"])
    # An image is made from an older one, which can only go after it.
    for image in sorted(images, key=lambda image: int(image["Created"]), reverse=True):
        if chosen(image["Labels"]):
            remove_quietly(lambda found: client.remove_image(found, force=True), image["Id"])


def remove_quietly(remove: Callable[[str], object], found: str) -> None:
    """Remove one thing that others may be removing too, or still use: then they or the next start will."""
    try:
        with daemon_errors(f"remove {found[:19]}"):
            remove(found)
    except SandboxError:
        pass
