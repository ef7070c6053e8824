"""A persistent bash, spoken to over pipes.

Per command, bash reads two commands from its standard input: the text as one quoted word to ``eval``, and a
call that reports the exit code with a fresh random token on a pipe of its own. So nothing in the output is
ever searched for a delimiter, unbalanced quotes are an error of that one ``eval``, and a command that closes
or redirects its output is still reported. The command sees an empty standard input and not the report pipe.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import select
import shlex
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from agentgym.errors import SandboxError
from agentgym.sandbox._job import KILLED, Job, NeverRan, encode, pipe
from agentgym.sandbox._output import CHUNK, BoundedOutput, drain, readable
from agentgym.sandbox.base import ExecResult, Shell, machine_faults

BASH = ("bash", "--noprofile", "--norc")
# Descriptors inside bash, of the report pipe and /dev/null: not ones that scripts use.
_REPORT, _EMPTY = 62, 61
_PREPARE = """\
exec {empty}</dev/null {report}{source}
_ag() {{ builtin printf '{mark}%s %d\\n' "$1" "$2" >&{report}; return "$2"; }}
"""
# Bash reads a pipe byte by byte, a system call each: hence the short names. The space keeps a command from
# being taken for an option of eval. The empty line matters: after a syntax error in eval, bash takes the
# first token of the next line for a plain word. The report returns the exit code, so that $? lives on; its
# stderr is closed to `set -x`.
_COMMAND = """\
eval {command} <&{empty} {report}>&-

{{ _ag {token} $?; }} 2>&-
"""
_MAX_REPORT = 4096  # bytes; one report has about 40

StartJob = Callable[[list[str], int, int, tuple[int, ...]], Job]


class BashShell(Shell):
    """`Shell` of every local backend.

    Args:
        start: starts a program: arguments, stdin descriptor, one for both outputs, descriptors to keep.
        forget: called with a job that is dead.
        timeout: default seconds per command.
        output_bytes: output kept per command.
    """

    def __init__(
        self, start: StartJob, forget: Callable[[Job], None], *, timeout: float, output_bytes: int
    ) -> None:
        self._start_job = start
        self._forget = forget
        self._timeout = timeout
        self._output_bytes = output_bytes
        self._closed = False
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._start()

    def _start(self) -> None:
        with ExitStack() as ours, ExitStack() as its:
            commands, self._stdin = pipe(its, ours)
            self._output, output = pipe(ours, its)
            self._report, report = pipe(ours, its)
            inherited = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, 100)  # clear of _REPORT
            its.callback(os.close, inherited)
            self._job = self._start_job([*BASH], commands, output, (inherited,))
            ours.pop_all()  # closed at the shell's end
        os.set_blocking(self._stdin, False)
        self._poll = select.poll()
        for descriptor in (self._output, self._report, self._job.ended):
            self._poll.register(descriptor, select.POLLIN)
        self._output_open = True
        source, mark = self._job.reports(inherited)
        self._pending = _PREPARE.format(report=_REPORT, empty=_EMPTY, source=source, mark=mark).encode()

    @machine_faults("run a command in a shell")
    def run(self, command: str, *, timeout: float | None = None) -> ExecResult:
        started = time.monotonic()
        if "\0" in command:
            return ExecResult(126, "bash: a command cannot hold a NUL byte\n")
        output = BoundedOutput(self._output_bytes)
        limit = self._timeout if timeout is None else timeout
        with self._lock:
            if self._closed:
                raise SandboxError("this shell is closed")
            if self._job is not None and readable(self._job.ended, 0):
                self._end(BoundedOutput(2), kill=True)  # died between commands
            if self._job is None:
                self._start()
            exit_code, timed_out = self._converse(command, output, started + limit)
        if timed_out:
            note = f"timed out after {limit:g} s: this shell was killed; the next command starts a new one"
            output.add(f"\n[{note}]\n".encode())
        return ExecResult(
            exit_code=exit_code,
            stdout=output.text(),
            timed_out=timed_out,
            truncated=output.truncated,
            seconds=time.monotonic() - started,
        )

    def _converse(self, command: str, output: BoundedOutput, deadline: float) -> tuple[int, bool]:
        """Send the command and collect output until its report comes; exit code, and whether time ran out."""
        assert self._job is not None
        token = secrets.token_hex(4)
        text = _COMMAND.format(command=shlex.quote(f" {command}"), report=_REPORT, empty=_EMPTY, token=token)
        pending = self._send(self._pending + encode(text))
        self._pending = b""
        if pending:
            self._poll.register(self._stdin, select.POLLOUT)
        prefix = token.encode() + b" "
        reports = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return self._end(output, kill=True), True
            events = dict(self._poll.poll(left * 1000 + 1))
            if self._output in events:
                data = os.read(self._output, CHUNK)
                output.add(data)
                if not data:  # every process in there closed it
                    self._poll.unregister(self._output)
                    self._output_open = False
            if self._stdin in events:
                pending = self._send(pending)
                if not pending:
                    self._poll.unregister(self._stdin)
            if self._report in events:
                # A line with another token is none of ours: the policy may have found the pipe.
                data = os.read(self._report, _MAX_REPORT)
                if not data:  # bash replaced itself (`exec program`): the end of that program is the end
                    self._poll.unregister(self._report)
                reports = (reports + data)[-_MAX_REPORT:]
                for line in reports.split(b"\n")[:-1]:
                    code = line.removeprefix(prefix)
                    if code != line and code.isdigit():
                        if self._output_open:
                            drain(self._output, output)  # written before the report
                        return int(code), False
            if self._job.ended in events:
                return self._end(output, kill=False), False

    def _send(self, data: bytes) -> bytes:
        """Write what the pipe takes and return the rest; nothing if nobody reads any more."""
        try:
            return data[os.write(self._stdin, data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            return b""

    def _end(self, output: BoundedOutput, *, kill: bool) -> int:
        """The shell has ended, or is made to: take its last output and its exit code, and let go of it."""
        assert self._job is not None
        job, self._job = self._job, None
        if kill:
            job.kill()
        try:
            if self._output_open:
                drain(self._output, output)
            return job.finish()
        except NeverRan as error:
            if kill or self._closed:
                return KILLED
            raise SandboxError(f"a shell did not start: {output.text().strip() or error}") from None
        finally:
            self._forget(job)
            self._close_pipes()

    def _close_pipes(self) -> None:
        for descriptor in (self._stdin, self._output, self._report):
            os.close(descriptor)

    def close(self) -> None:
        self._closed = True
        job = self._job
        if job is not None:
            job.kill()  # a `run` in another thread then ends by itself
        with self._lock:
            if self._job is not None:
                self._end(BoundedOutput(2), kill=True)

    def __del__(self) -> None:
        self.close()
