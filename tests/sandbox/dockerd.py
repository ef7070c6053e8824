"""A Docker daemon of the tests' own, in a temporary folder: no service, no registry, nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 60.0
PREFIX = "agentgym-dockerd-"


def why_not() -> str | None:
    """Why no daemon can be started here, or None."""
    for program in ("dockerd", "containerd", "runc", "setpriv"):
        if shutil.which(program) is None:
            return f"{program} is not installed (apt-get install docker.io)"
    if os.getuid() != 0:
        return "dockerd needs root"
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_daemon(*more: str) -> Iterator[str]:
    """Address of a daemon that lives as long as the block, or this process; it listens on `more` too."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):  # by a run that was killed
        if not _is_alive(left):
            _remove(left)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    address = f"unix://{folder}/docker.sock"
    command = ["setpriv", "--pdeathsig", "TERM", "dockerd"]
    command += [word for place in (address, *more) for word in ("-H", place)]
    command += [
        "--data-root",
        f"{folder}/data",
        "--exec-root",
        f"{folder}/exec",
        "--pidfile",
        f"{folder}/pid",
    ]
    command += ["--bridge=none", "--iptables=false", "--ip6tables=false"]
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        _wait_for(folder, daemon)
        yield address
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(DEADLINE_S)
        _remove(folder)


def _is_alive(folder: Path) -> bool:
    try:
        pid = (folder / "pid").read_text()
        return Path(f"/proc/{pid}/comm").read_text() == "dockerd\n"
    except (FileNotFoundError, ProcessLookupError):
        return time.time() - folder.stat().st_mtime < DEADLINE_S  # it may be about to start


def _wait_for(folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    import docker

    deadline = time.monotonic() + DEADLINE_S
    while True:
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"dockerd did not start:\n{(folder / 'log').read_text()[-3000:]}")
        try:
            client = docker.APIClient(base_url=f"unix://{folder}/docker.sock", version="auto")
            client.ping()
            client.close()
            return
        except docker.errors.DockerException:
            time.sleep(0.05)


def _remove(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        mounted = line.split()[4]
        if mounted.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", mounted], check=True)
    shutil.rmtree(folder)
