"""What all backends share: commands and shells, each a job that dies as a whole."""

from __future__ import annotations

import abc
import contextlib
import errno
import os
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox import _scratch
from agentgym.sandbox._job import KILLED, Job, NeverRan, encode
from agentgym.sandbox._output import BoundedOutput, drain, pump
from agentgym.sandbox._reach import Address
from agentgym.sandbox._shell import BashShell
from agentgym.sandbox.base import ExecResult, Limits, Sandbox, Shell, machine_faults

CLEAN_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Exit codes that are no program's: why `cat` was not run.
_CAT = '[[ -e $0 ]] || exit 101; [[ ! -d $0 ]] || exit 102; [[ -f $0 ]] || exit 103; exec cat -- "$0"'


class _State:
    """What `close` must undo, apart from the sandbox object so that its finalizer can do it too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: set[Job] = set()
        self.shells: weakref.WeakSet[BashShell] = weakref.WeakSet()
        self.undo: list[Callable[[], None]] = []  # for when all jobs are dead, done last first
        self.lock = threading.Lock()
        self.closed = False
        self.owner = os.getpid()

    def kill_all(self) -> None:
        with self.lock:
            jobs = list(self.jobs)
        for job in jobs:
            job.kill()

    def release(self) -> None:
        self.closed = True
        if os.getpid() != self.owner:
            return
        self.kill_all()
        for shell in list(self.shells):
            shell.close()
        for step in reversed(self.undo):
            step()
        _scratch.remove_tree(self.folder)


class CommandSandbox(Sandbox):
    """Base of every backend: runs what `_start` starts, and sees to its end.

    A subclass sets `backend` and `workspace`, and says in `_start` how a program is started.
    """

    def __init__(self, *, limits: Limits, env: Mapping[str, str] | None, folder: Path) -> None:
        self.limits = limits
        self._env = dict(env or {})
        self._state = _State(folder)
        self._finalizer = weakref.finalize(self, self._state.release)

    @abc.abstractmethod
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
        """Start a program under the limits; descriptors as for `subprocess.Popen`."""

    def _check_open(self) -> None:
        if self._state.closed:
            raise SandboxError("this sandbox is closed")

    def _ensure_usable(self) -> None:
        """Undo what a command may have done to the workspace itself."""

    # Commands

    @machine_faults("run a command")
    def exec(
        self,
        command: Sequence[str] | str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        reach: Address | None = None,
    ) -> ExecResult:
        started = time.monotonic()
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        if not argv or not all(isinstance(word, str) for word in argv):
            raise UsageError(f"exec(): expected a text or a list of texts, at least one; got {command!r}")
        out, err = BoundedOutput(self.limits.output_bytes), BoundedOutput(self.limits.output_bytes)
        with contextlib.ExitStack() as held:
            kept: tuple[int, ...] = ()
            if reach is not None:
                argv, kept = held.enter_context(self._reaching(reach, argv))
            code, timed_out = self._execute(argv, out, err, timeout, env, cwd, stdin, kept)
        return ExecResult(
            exit_code=code,
            stdout=out.text(),
            stderr=err.text(),
            timed_out=timed_out,
            truncated=out.truncated or err.truncated,
            seconds=time.monotonic() - started,
        )

    def _execute(
        self,
        argv: Sequence[str],
        out: BoundedOutput,
        err: BoundedOutput,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> tuple[int, bool]:
        """Run a program to its end; exit code, and whether time ran out."""
        variables = {**self._env, **(env or {})}
        # It would begin a word of its own
        if any("\0" in word for word in (*argv, *variables, *variables.values())):
            err.add(b"a command cannot hold a NUL byte\n")
            return 126, False
        try:
            job = self._track(
                [encode(word) for word in argv],
                env=variables,
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=pass_fds,
            )
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise SandboxError(f"could not start a command: {error}") from error
            err.add(f"{argv[0]}: {error.strerror}\n".encode())
            return 126, False
        assert job.stdout is not None
        assert job.stderr is not None
        outputs = {job.stdout.fileno(): out, job.stderr.fileno(): err}
        limit = self.limits.wall_s if timeout is None else timeout
        in_time = False
        try:
            stdin_fd = None
            if job.stdin is not None:
                with job.stdin:
                    stdin_fd = os.dup(job.stdin.fileno())
            in_time = pump(job.ended, outputs, stdin_fd, stdin or b"", limit)
        finally:
            job.kill()
            with job.stdout, job.stderr:
                for descriptor, output in outputs.items():
                    drain(descriptor, output)
            code = self._finish(job, err, killed=not in_time)
        return code, not in_time

    def _reaching(
        self, address: Address, argv: list[str]
    ) -> AbstractContextManager[tuple[list[str], tuple[int, ...]]]:
        """While it is open, what is started may connect to `address`; what to start, and descriptors to leave open."""
        raise UsageError(
            f"the {self.backend} backend cannot let a command reach {address} and nothing else; use bubblewrap"
        )

    def _track(
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
        state = self._state
        self._check_open()
        self._ensure_usable()
        job = self._start(
            argv, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds
        )
        with state.lock:
            state.jobs.add(job)
        if state.closed:  # by another thread, meanwhile
            job.kill()
        return job

    def _forget(self, job: Job) -> None:
        with self._state.lock:
            self._state.jobs.discard(job)

    def _finish(self, job: Job, err: BoundedOutput, *, killed: bool) -> int:
        """Exit code of a job that ended. A failed start is ours, unless the policy used up the limits."""
        self._forget(job)
        try:
            return job.finish()
        except NeverRan as error:
            if killed or self._state.closed:
                return KILLED
            if self._state.jobs:  # a shell of the same sandbox holds its processes or its memory
                err.add(b"the limits of this sandbox are used up\n")
                return 126
            raise SandboxError(f"a command did not start: {err.text().strip() or error}") from None

    @machine_faults("start a shell")
    def shell(self) -> Shell:
        def start(argv: list[str], stdin: int, output: int, keep: tuple[int, ...]) -> Job:
            return self._track(
                argv, env=self._env, cwd=None, stdin=stdin, stdout=output, stderr=output, pass_fds=keep
            )

        shell = BashShell(
            start, self._forget, timeout=self.limits.wall_s, output_bytes=self.limits.output_bytes
        )
        self._state.shells.add(shell)
        return shell

    def _cat(self, path: str, most: int | None, hint: str) -> bytes:
        """Content of a regular file as a command would read it; `hint` says where else it could not be."""
        full = os.path.join(self.workspace, path)
        largest = 1 << 40 if self.limits.disk_mb is None else self.limits.disk_mb << 20
        out, err = BoundedOutput(largest if most is None else most), BoundedOutput(1 << 12)
        code, timed_out = self._execute(["bash", "-c", _CAT, full], out, err)
        if most is not None and out.truncated:
            raise OSError(errno.EFBIG, f"larger than {most} bytes", path)
        if code == 0 and not timed_out:
            return out.raw()
        if code == 101:
            raise FileNotFoundError(errno.ENOENT, f"no such file in the sandbox{hint}", path)
        if code == 102:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if code == 103:
            raise OSError(errno.EINVAL, "not a regular file", path)
        raise PermissionError(errno.EACCES, err.text().strip() or "could not be read", path)

    def close(self) -> None:
        self._finalizer()


def check_places(workspace: str | None, binds: Mapping[str, str]) -> str:
    """Where the workspace is inside, after a check of it and of the binds.

    Raises:
        UsageError: one of the paths makes no sense.
    """
    place = os.path.normpath(workspace or "/workspace")
    if not place.startswith("/") or place == "/":
        raise UsageError(f"workspace={workspace!r}: expected an absolute path inside the sandbox, not /")
    for host, inside in binds.items():
        if not os.path.exists(host):
            raise UsageError(f"binds: {host!r} does not exist on this machine")
        if not inside.startswith("/") or f"{os.path.normpath(inside)}/".startswith(f"{place}/"):
            raise UsageError(f"binds: expected an absolute path outside {place} for {host!r}, got {inside!r}")
    return place
