"""One running bubblewrap: held at its start, dead with everything in it at its end."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from resource import RLIM_INFINITY, prlimit

from agentgym.errors import SandboxError
from agentgym.sandbox._job import Job, NeverRan, encode, pipe
from agentgym.sandbox._output import readable

_DEADLINE_S = 60.0  # far more than a start or a SIGKILL takes on a loaded machine; then something is broken


class BwrapJob(Job):
    """A bubblewrap, held before its program until `go`.

    Args:
        bwrap: path of the program.
        options: for it.
        private: more of them, such as variables with keys: no user of this machine sees them in its list of processes.
        argv: what it starts.
        stdin, stdout, stderr: as for `subprocess.Popen`.
        pass_fds: descriptors that `argv` is to have.
    """

    def __init__(
        self,
        bwrap: str,
        options: Sequence[str],
        private: Sequence[str],
        argv: Sequence[str | bytes],
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int, ...],
    ) -> None:
        with ExitStack() as ours, ExitStack() as its:
            self._status, status = pipe(ours, its)
            block, self._hold = pipe(its, ours)
            # Each word ends with a NUL: the last may be empty
            secret = _held_in_memory(b"".join(encode(word) + b"\0" for word in private))
            its.callback(os.close, secret)
            control = ["--json-status-fd", str(status), "--block-fd", str(block), "--args", str(secret)]
            self.popen = subprocess.Popen(
                [bwrap, *control, *options, "--", *argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={},
                pass_fds=(status, block, secret, *pass_fds),
                start_new_session=True,  # a Ctrl-C in the terminal is ours to handle
            )
            ours.pop_all()  # closed at the job's end
        self.stdin, self.stdout, self.stderr = self.popen.stdin, self.popen.stdout, self.popen.stderr
        self._lock = threading.Lock()
        self._said = b""
        while b"\n" not in self._said:
            if not readable(self._status, _DEADLINE_S):
                self.popen.kill()
                break
            data = os.read(self._status, 4096)
            if not data:
                break
            self._said += data
        try:
            self.init_pid = int(json.loads(self._said.splitlines()[0])["child-pid"])
        except (IndexError, ValueError, KeyError):
            raise SandboxError(f"bubblewrap did not start: {self._complaint()}") from None
        # Held, so alive: the descriptor is of the right process.
        # It becomes readable when the namespace is empty.
        try:
            self.ended = os.pidfd_open(self.init_pid)
        except OSError:
            self.popen.kill()
            self._complaint()
            raise

    def _complaint(self) -> str:
        """What a bubblewrap that did not get going said; lets go of it."""
        for descriptor in (self._hold, self._status):
            os.close(descriptor)
        _, stderr = self.popen.communicate()
        return (stderr or b"").decode(errors="replace").strip() or f"exit code {self.popen.returncode}"

    def go(self) -> None:
        os.write(self._hold, b"x")
        os.close(self._hold)
        self._hold = -1

    def abandon(self) -> None:
        """Give up a job that was never let go."""
        os.close(self._hold)
        try:
            self.finish()
        except NeverRan:
            pass

    def kill(self) -> None:
        with self._lock:  # not while another thread frees the descriptor
            if self.ended < 0:
                return
            try:
                signal.pidfd_send_signal(self.ended, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if not readable(self.ended, _DEADLINE_S):
                raise SandboxError(
                    f"process {self.init_pid} of a sandbox did not die within {_DEADLINE_S:g} s of SIGKILL"
                )

    def finish(self) -> int:
        self.kill()
        self.popen.wait()
        while data := os.read(self._status, 4096):
            self._said += data
        with self._lock:
            os.close(self._status)
            os.close(self.ended)
            self.ended = -1
        for line in self._said.splitlines():
            code = json.loads(line).get("exit-code")
            if code is not None:
                return int(code)
        raise NeverRan(f"bubblewrap ended with exit code {self.popen.returncode}")


def _held_in_memory(content: bytes) -> int:
    """A descriptor at the beginning of a nameless file."""
    descriptor = os.memfd_create("agentgym")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def lower_limit(pid: int, name: int, value: int) -> None:
    hard = prlimit(pid, name)[1]
    if hard != RLIM_INFINITY:
        value = min(value, hard)
    prlimit(pid, name, (value, value))


class _Spawner:
    """A thread that lives as long as this process, to start what must outlive the calling thread.

    ``--die-with-parent`` is a signal at the death of the *thread* that started bubblewrap. A shell is often
    started in a worker thread and used in another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._work: queue.SimpleQueue[tuple[Callable[[], BwrapJob], Future[BwrapJob]]]

    def call(self, work: Callable[[], BwrapJob]) -> BwrapJob:
        future: Future[BwrapJob] = Future()
        with self._lock:
            if self._owner != os.getpid():  # first use, or we are a forked child, which has no such thread
                self._work = queue.SimpleQueue()
                threading.Thread(target=self._serve, daemon=True, name="agentgym-sandbox").start()
                self._owner = os.getpid()
            self._work.put((work, future))
        return future.result()

    def _serve(self) -> None:
        work_queue = self._work
        while True:
            work, future = work_queue.get()
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)


spawner = _Spawner()
