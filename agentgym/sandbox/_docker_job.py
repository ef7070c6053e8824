"""One command run by ``docker exec``: its streams, taken apart into pipes, and its end.

The daemon sends both outputs over one connection, in frames, and has no third stream. So what is said to us and not to
the caller comes in the outputs, behind a secret, and is taken out here: of a command's stderr, that it has started and
that it has ended; of a shell's output, its reports (see `_shell`).
"""

from __future__ import annotations

import os
import secrets
import select
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from agentgym.sandbox._job import Job, NeverRan
from agentgym.sandbox._output import CHUNK, readable

if TYPE_CHECKING:
    from agentgym.sandbox._docker_client import Stream
    from agentgym.sandbox._docker_container import Container

_HEADER = struct.Struct(">BxxxL")  # which stream, how many bytes
STDOUT, STDERR = 1, 2
STARTED, ENDED = "started", "ended"


class Frames:
    """Takes the daemon's stream apart."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Stream number and content of each frame that is now complete."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            stream, size = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            yield stream, self._buffer[_HEADER.size : end]
            self._buffer = self._buffer[end:]


class Remarks:
    """Takes out of an output the lines that are for us: ``SECRET remark``."""

    def __init__(self) -> None:
        self.secret = f"\x1f{secrets.token_hex(16)}"
        self._held = b""  # what may be the beginning of a remark

    def feed(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Pieces in their order, and whether each is a remark, with its newline."""
        secret = self.secret.encode()
        data, self._held = self._held + data, b""
        while data:
            before, found, after = data.partition(secret)
            if not found:
                keep = _overlap(data, secret)
                before, self._held = data[: len(data) - keep], data[len(data) - keep :]
                after = b""
            line, end, rest = after.partition(b"\n")
            if found and not end:
                self._held = found + line
            if before:
                yield False, before
            if end:
                yield True, line + end
            data = rest

    def rest(self) -> bytes:
        """What was held and is now known to be no remark."""
        held, self._held = self._held, b""
        return held


def _overlap(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `secret`."""
    sizes = range(min(len(secret) - 1, len(data)), 0, -1)
    return next((size for size in sizes if data.endswith(secret[:size])), 0)


class DockerJob(Job):
    """A command run by ``docker exec``.

    Args:
        container: where it runs.
        stdin, stdout, stderr: as for `subprocess.Popen`.
        report: where the reports of a shell go, or None.

    Attributes:
        mark: what its processes carry in their environment.
        secret: what its wrapper writes before what is for us.
    """

    def __init__(
        self, container: Container, *, stdin: int, stdout: int, stderr: int, report: int | None
    ) -> None:
        self.mark = secrets.token_hex(8)
        self.exec_id = ""
        self._container = container
        self._lock = threading.Lock()
        self._finished = False
        self._begun = threading.Event()  # it runs, or never will
        self._started = False
        self._remarks = {STDERR: Remarks()}
        self.secret = self._remarks[STDERR].secret
        self.stdin, self._source = _pipe(stdin, os.O_WRONLY)
        self.stdout, out = _pipe(stdout, os.O_RDONLY)
        self.stderr, err = _pipe(stderr, os.O_RDONLY)
        self._outputs = {STDOUT: out, STDERR: err}
        self._report_to = -1
        if report is not None:
            self._report_to = os.dup(report)
            self._remarks[STDOUT] = Remarks()
        self.ended, self._end = os.pipe()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._pending: deque[tuple[int, bytes]] = deque()
        self._discard = False

    def begin(self, exec_id: str, stream: Stream) -> None:
        """Carry data between the connection of a started command and the pipes, in a thread."""
        self.exec_id, self._stream = exec_id, stream
        self._relay = threading.Thread(target=self._run, daemon=True, name="agentgym-docker-exec")
        self._relay.start()

    def abandon(self) -> None:
        """Give up a job that did not begin."""
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()
        self._close(self._end, self.ended, self._wake)

    def reports(self, descriptor: int) -> tuple[str, str]:
        return ">&1 2>&1", self._remarks[STDOUT].secret

    def kill(self) -> None:
        with self._lock:
            if self._finished:
                return
            self._discard = True
            os.eventfd_write(self._wake, 1)
            self._container.end(self)

    def has_begun(self, seconds: float) -> bool:
        """Wait until it runs or cannot any more, at most so long."""
        return self._begun.wait(seconds)

    def has_ended(self, seconds: float) -> bool:
        """Wait for the end, at most so long."""
        return readable(self.ended, seconds)

    def finish(self) -> int:
        self.kill()
        code = self._container.exit_code(self)
        with self._lock:
            self._finished = True
            self._relay.join()
            for descriptor in (self.ended, self._wake):
                os.close(descriptor)
        if not self._started:
            raise NeverRan(f"the daemon ended it with exit code {code}")
        return code

    # The relay, in a thread of its own

    def _run(self) -> None:
        try:
            self._carry()
        finally:
            self._begun.set()
            self._stream.close()
            self._close(self._end)  # seen at the other side: the end

    def _close(self, *more: int) -> None:
        for descriptor in {*self._outputs.values(), self._source, self._report_to, *more} - {-1}:
            os.close(descriptor)

    def _carry(self) -> None:
        """Between the connection and the pipes until the connection ends; once killed, no reader is waited for."""
        frames, to_send = Frames(), b""
        while True:
            self._write_pending()
            ready = self._wait(bool(to_send))
            if self._source in ready:
                to_send = os.read(self._source, CHUNK)
                if not to_send:
                    os.close(self._source)
                    self._source = -1
                    self._stream.end_input()
            if to_send:
                to_send = self._stream.send(to_send)
            if not self._pending:
                data = self._stream.receive(CHUNK)
                if data == b"":
                    break
                for stream, content in frames.feed(data or b""):
                    self._sort(stream, content)
        for stream, remarks in self._remarks.items():
            self._pending.append((self._outputs[stream], remarks.rest()))
        while self._pending:
            self._write_pending()
            if self._pending:
                self._wait(False)

    def _wait(self, sending: bool) -> set[int]:
        """Sleep until one of the descriptors can go on; which ones."""
        poll = select.poll()
        connection = (0 if self._pending else select.POLLIN) | (select.POLLOUT if sending else 0)
        if connection:
            poll.register(self._stream, connection)
        if self._pending:
            poll.register(self._pending[0][0], select.POLLOUT)
        if self._source >= 0 and not sending and not self._pending:
            poll.register(self._source, select.POLLIN)
        if not self._discard:
            poll.register(self._wake, select.POLLIN)
        return {descriptor for descriptor, _ in poll.poll()}

    def _sort(self, stream: int, content: bytes) -> None:
        """Queue what came for the pipe it belongs to; heed what is for us."""
        if stream not in self._remarks:
            self._pending.append((self._outputs[stream], content))
            return
        for is_remark, piece in self._remarks[stream].feed(content):
            if not is_remark:
                self._pending.append((self._outputs[stream], piece))
            elif stream == STDOUT:
                self._pending.append((self._report_to, piece))
            elif piece.strip().decode(errors="replace") == STARTED:
                self._started = True
                self._begun.set()
            else:
                self._container.clear(self)

    def _write_pending(self) -> None:
        while self._pending:
            descriptor, data = self._pending.popleft()
            try:
                rest = data[os.write(descriptor, data) :]
            except BlockingIOError:
                rest = data
            except BrokenPipeError:  # nobody wants it any more
                continue
            if rest and not self._discard:
                self._pending.appendleft((descriptor, rest))
                return


def _pipe(given: int, our_end: int) -> tuple[IO[bytes] | None, int]:
    """Our end of a pipe if one is asked for, for reading or writing, and the relay's descriptor (-1: none)."""
    if given == subprocess.DEVNULL:
        return None, -1
    ours: IO[bytes] | None = None
    if given == subprocess.PIPE:
        read_end, write_end = os.pipe()
        reading = our_end == os.O_RDONLY
        relay = write_end if reading else read_end
        ours = os.fdopen(read_end, "rb", 0) if reading else os.fdopen(write_end, "wb", 0)
    else:
        relay = os.dup(given)
    os.set_blocking(relay, False)
    return ours, relay
