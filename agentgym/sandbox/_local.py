"""What the backends on this machine share: commands, shells, files and snapshots of a host folder."""

from __future__ import annotations

import abc
import errno
import os
import stat
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox import _scratch
from agentgym.sandbox._files import Tree, closing, copy_data, copy_tree, read_all
from agentgym.sandbox._job import KILLED, Job, NeverRan, encode
from agentgym.sandbox._output import BoundedOutput, drain, pump
from agentgym.sandbox._shell import BashShell
from agentgym.sandbox.base import ExecResult, Limits, Sandbox, Shell

CLEAN_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Snapshot:
    """A copy of a workspace on the host, deleted when nobody refers to it any more."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.folder = _scratch.new_folder("snapshot")
        weakref.finalize(self, _remove_if_owner, self.folder, os.getpid())


def _remove_if_owner(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has the object too
        _scratch.remove_tree(folder)


class _State:
    """What `close` must undo, apart from the sandbox object so that its finalizer can do it too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: set[Job] = set()
        self.shells: weakref.WeakSet[BashShell] = weakref.WeakSet()
        self.undo: list[Callable[[], None]] = []  # what the backend wants done when all jobs are dead
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
        for step in self.undo:
            step()
        _scratch.remove_tree(self.folder)


class LocalSandbox(Sandbox):
    """Base of the backends whose workspace is a folder of this machine.

    A subclass sets `backend` and `workspace`, and says in `_start` how a program is started.
    """

    def __init__(self, *, limits: Limits, env: Mapping[str, str] | None, folder: Path) -> None:
        self.limits = limits
        self._env = dict(env or {})
        self._state = _State(folder)
        self._finalizer = weakref.finalize(self, self._state.release)
        self._tree: Tree

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

    def _read_elsewhere(self, path: str, error: OSError | None, most: int | None) -> bytes:
        """Content of a file that is not in the workspace, as a command would see it.

        Args:
            path: as the caller gave it.
            error: why it could not be opened in the workspace; None if it does not even name a place there.
            most: bytes; more raises EFBIG.
        """
        raise error or FileNotFoundError(errno.ENOENT, f"not in the workspace {self.workspace}", path)

    # Commands

    def exec(
        self,
        command: Sequence[str] | str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
    ) -> ExecResult:
        started = time.monotonic()
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        if not argv or not all(isinstance(word, str) for word in argv):
            raise UsageError(f"exec(): expected a text or a list of texts, at least one; got {command!r}")
        out, err = BoundedOutput(self.limits.output_bytes), BoundedOutput(self.limits.output_bytes)
        code, timed_out = self._execute(argv, out, err, timeout, env, cwd, stdin)
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
    ) -> tuple[int, bool]:
        """Run a program to its end; exit code, and whether time ran out."""
        if any("\0" in word for word in argv):
            err.add(b"a command cannot hold a NUL byte\n")
            return 126, False
        try:
            job = self._track(
                [encode(word) for word in argv],
                env={**self._env, **(env or {})},
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise SandboxError(f"could not start a command: {error}") from error
            err.add(f"{argv[0]}: {error.strerror}\n".encode())
            return 126, False
        process = job.popen
        assert process.stdout is not None
        assert process.stderr is not None
        outputs = {process.stdout.fileno(): out, process.stderr.fileno(): err}
        stdin_fd = None
        if process.stdin is not None:
            stdin_fd = os.dup(process.stdin.fileno())
            process.stdin.close()
        limit = self.limits.wall_s if timeout is None else timeout
        in_time = False
        try:
            in_time = pump(job.pidfd, outputs, stdin_fd, stdin or b"", limit)
        finally:
            job.kill()
            with process.stdout, process.stderr:
                for descriptor, output in outputs.items():
                    drain(descriptor, output)
            code = self._finish(job, err, killed=not in_time)
        return code, not in_time

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
        if state.closed:
            raise SandboxError("this sandbox is closed")
        self._tree.ensure_usable()
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

    # Files

    def _relative(self, path: str) -> str:
        relative = self._tree.relative(path)
        if relative is None:
            raise PermissionError(
                errno.EACCES, f"outside the workspace {self.workspace}: nothing else is kept", path
            )
        return relative

    def read(self, path: str, *, most: int | None = None) -> bytes:
        relative = self._tree.relative(path)
        if relative is None:
            return self._read_elsewhere(path, None, most)
        try:
            return read_all(self._tree.open_regular(relative), most)
        except (FileNotFoundError, PermissionError) as error:  # perhaps a link out of the workspace
            return self._read_elsewhere(path, error, most)

    def write(self, path: str, content: bytes | str) -> None:
        data = encode(content) if isinstance(content, str) else content
        with open(self._tree.open_for_writing(self._relative(path)), "wb") as file:
            file.write(data)

    def upload(self, source: Path | str, target: str = ".") -> None:
        source = Path(source)
        relative = self._relative(target)
        if source.is_dir():
            with (
                closing(os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as original,
                closing(self._tree.open_folder(relative, make=True)) as folder,
            ):
                copy_tree(original, folder, exact=False)
            return
        with closing(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as original:
            state = os.fstat(original)
            if not stat.S_ISREG(state.st_mode):
                raise OSError(errno.EINVAL, "neither a file nor a folder", str(source))
            if target.endswith("/") or self._is_folder(relative):
                relative = os.path.join(relative, source.name)
            with closing(self._tree.open_for_writing(relative)) as made:
                copy_data(original, made)
                os.fchmod(made, state.st_mode & 0o777)
                os.utime(made, ns=(state.st_atime_ns, state.st_mtime_ns))

    def _is_folder(self, relative: str) -> bool:
        try:
            os.close(self._tree.open_folder(relative))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def download(
        self,
        source: str,
        target: Path | str,
        *,
        skip: Callable[[str], bool] | None = None,
        most_entries: int | None = None,
        most_bytes: int | None = None,
    ) -> None:
        target = Path(target)
        relative = self._relative(source)
        if self._is_folder(relative):
            target.mkdir(parents=True, exist_ok=True)
            with (
                closing(self._tree.open_folder(relative)) as original,
                closing(os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder,
            ):
                bounds = {"most_entries": most_entries, "most_bytes": most_bytes}
                copy_tree(original, folder, exact=False, skip=skip, **bounds)
            return
        with closing(self._tree.open_regular(relative)) as original:
            state = os.fstat(original)
            if target.is_dir():
                target = target / os.path.basename(relative)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as file:
                copy_data(original, file.fileno())
                os.fchmod(file.fileno(), state.st_mode & 0o777)
            os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))

    # Snapshots

    def snapshot(self) -> Snapshot:
        if self._state.closed:
            raise SandboxError("this sandbox is closed")
        taken = Snapshot(self.backend)
        with (
            closing(self._tree.open_folder(".")) as original,
            closing(os.open(taken.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as copy,
        ):
            copy_tree(original, copy, exact=True)
        return taken

    def restore(self, snapshot: Any) -> None:
        if not isinstance(snapshot, Snapshot) or snapshot.backend != self.backend:
            raise UsageError(f"restore(): expected a snapshot of a {self.backend} sandbox, got {snapshot!r}")
        if self._state.closed:
            raise SandboxError("this sandbox is closed")
        self._state.kill_all()
        with (
            closing(os.open(snapshot.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as copy,
            closing(self._tree.open_folder(".")) as workspace,
        ):
            for name in os.listdir(workspace):
                _remove_entry(self._tree.workspace / name)
            copy_tree(copy, workspace, exact=True)

    def close(self) -> None:
        self._finalizer()


def _remove_entry(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _scratch.remove_tree(path)
    else:
        path.unlink()
