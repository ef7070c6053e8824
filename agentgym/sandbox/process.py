"""Bare processes: resource limits and a private folder, no isolation.

For trusted code where bubblewrap cannot run. A command has all the rights of this process: it reads every
file and environment that we may read (the variables of this process are not passed on, but /proc shows them),
reaches the network, and can hide processes from `close` by emptying their environment, which is where their
marks are.

Each sandbox has a watchdog, a shell that sleeps until this process closes its pipe or dies and then kills
what carries the sandbox's mark.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Mapping, Sequence

from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox import _scratch
from agentgym.sandbox._commands import CLEAN_ENV
from agentgym.sandbox._files import Tree, read_all
from agentgym.sandbox._job import Job
from agentgym.sandbox._local import LocalSandbox
from agentgym.sandbox._output import readable
from agentgym.sandbox.base import Limits

_SANDBOX_MARK, _JOB_MARK = "AGENTGYM_SANDBOX", "AGENTGYM_JOB"
_DEADLINE_S = 60.0  # far more than a SIGKILL takes on a loaded machine
_WATCHDOG = """\
read -r _
while found=$(grep -slzx "$0" /proc/[0-9]*/environ); [ -n "$found" ]; do
  for file in $found; do pid=${file#/proc/}; kill -9 "${pid%%/*}"; done
done
"""


class IsolationWarning(UserWarning):
    """Commands run without isolation from this machine."""


class ProcessSandbox(LocalSandbox):
    """Commands as plain processes of this user. Not a sandbox in the sense of security.

    Args:
        limits: see `Limits`; what holds here is in `limits_in_force`.
        network: no meaning, the network cannot be taken away.
        binds: accepted where host path and path inside are the same: such a path is visible anyway.
        env: variables for all commands.
        workspace: must be None; commands see the host's path of the folder.

    Raises:
        UsageError: an argument asks for what this backend cannot give.
    """

    backend = "process"

    def __init__(
        self,
        *,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        network: bool = False,
        binds: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        workspace: str | None = None,
    ) -> None:
        if workspace is not None:
            raise UsageError("the process backend cannot choose where commands see the workspace")
        for host, inside in (binds or {}).items():
            if os.path.normpath(inside) != os.path.normpath(host):
                raise UsageError(f"the process backend cannot show {host!r} as {inside!r}")
        warnings.warn(
            "the process backend does NOT isolate: commands can read, change and send whatever this user can",
            IsolationWarning,
            stacklevel=3,
        )
        folder = _scratch.new_folder("box")
        super().__init__(limits=limits, env=env, folder=folder)
        home, workspace_folder = folder / "home", folder / "workspace"
        home.mkdir()
        self.workspace = str(workspace_folder)
        self._tree = Tree(workspace_folder, self.workspace, root=None)
        self._mark = secrets.token_hex(8)
        self._base_env = {**CLEAN_ENV, "HOME": str(home), _SANDBOX_MARK: self._mark}
        self._state.undo.append(_Watchdog(f"{_SANDBOX_MARK}={self._mark}").kill)

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        said = {
            "wall_s": "timer, kills what carries the command's mark in its environment",
            "memory_mb": "RLIMIT_AS, per process only",
            "processes": "not enforced: RLIMIT_NPROC would count all processes of this user",
            "cpu_s": "RLIMIT_CPU, per process",
            "disk_mb": "RLIMIT_FSIZE, per file; folders are not bounded",
            "output_bytes": "cut while reading",
        }
        for name in said:
            if getattr(self.limits, name) is None:
                said[name] = "not limited: set to None"
        said["network"] = "not enforced: the host's network is reachable"
        said["files"] = "not enforced: everything this user may read or write is reachable"
        return said

    def _start(
        self,
        argv: Sequence[str | bytes],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int, ...] = (),
    ) -> Job:
        limits, mark = self.limits, secrets.token_hex(8)
        bounds = [
            (flag, value)
            for flag, value in (
                ("c", 0),
                ("t", limits.cpu_s),
                ("f", None if limits.disk_mb is None else limits.disk_mb << 10),  # KiB, as v
                ("v", None if limits.memory_mb is None else limits.memory_mb << 10),
            )
            if value is not None
        ]
        script = "".join(f"ulimit -{flag} {value}\n" for flag, value in bounds)
        script += '[[ -z $1 ]] || cd -- "$1" || exit 126\nshift\nexec -- "$@"\n'
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", script, "bash", cwd or "", *argv],
            cwd=self.workspace,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**self._base_env, **env, _JOB_MARK: mark},
            pass_fds=pass_fds,
            start_new_session=True,
        )
        return _ProcessJob(process, f"{_JOB_MARK}={mark}")

    def _read_elsewhere(self, path: str, error: OSError | None, most: int | None) -> bytes:
        if error is not None:
            raise error
        return read_all(os.open(path, os.O_RDONLY | os.O_CLOEXEC), most)


class _ProcessJob(Job):
    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self.popen = process
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._mark = mark.encode()
        try:
            self.ended = os.pidfd_open(process.pid)
        except OSError:
            kill_marked(self._mark)
            process.communicate()
            raise
        self._lock = threading.Lock()

    def kill(self) -> None:
        with self._lock:  # not while another thread frees the descriptor
            if self.ended < 0:
                return
            try:
                signal.pidfd_send_signal(self.ended, signal.SIGKILL)
            except ProcessLookupError:
                pass
            kill_marked(self._mark)
            if not readable(self.ended, _DEADLINE_S):
                raise SandboxError(
                    f"process {self.popen.pid} did not die within {_DEADLINE_S:g} s of SIGKILL"
                )

    def finish(self) -> int:
        self.kill()
        code = self.popen.wait()
        with self._lock:
            os.close(self.ended)
            self.ended = -1
        return code if code >= 0 else 128 - code


class _Watchdog:
    """Kills everything with a mark when this process closes its pipe, in `kill`, or dies."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._process = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=CLEAN_ENV,
            start_new_session=True,  # a Ctrl-C in the terminal must not end it
        )

    def kill(self) -> None:
        kill_marked(self._mark)
        self._process.communicate()


def kill_marked(mark: bytes) -> None:
    """SIGKILL every process that has `mark` ("NAME=value") in its environment, until none is found alive."""
    deadline = time.monotonic() + _DEADLINE_S
    while found := [
        int(name) for name in os.listdir("/proc") if name.isdigit() and _has_mark(int(name), mark)
    ]:
        if time.monotonic() > deadline:
            raise SandboxError(f"processes {found} of a sandbox do not die of SIGKILL")
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # empty for a zombie
            return mark in file.read().split(b"\0")
    except OSError:  # gone, or another user's
        return False
