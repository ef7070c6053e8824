"""Reading what a command writes: bounded in memory, bounded in time."""

from __future__ import annotations

import array
import fcntl
import os
import select
import termios
import time

CHUNK = 1 << 16


class BoundedOutput:
    """Keeps the first and the last half of `limit` bytes, and counts what was cut between them."""

    def __init__(self, limit: int) -> None:
        self._head_size = limit - limit // 2
        self._tail_size = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_size + CHUNK:  # trimmed now and then: adding stays O(1) per byte
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_size)]

    @property
    def truncated(self) -> bool:
        return self._total > self._head_size + self._tail_size

    def raw(self) -> bytes:
        """What was kept, with a line in between that says how many bytes are missing."""
        self._trim()
        if not self.truncated:
            return bytes(self._head + self._tail)
        cut = self._total - self._head_size - self._tail_size
        return b"%s\n[... %d bytes cut ...]\n%s" % (self._head, cut, self._tail)

    def text(self) -> str:
        return self.raw().decode("utf-8", "replace")


def readable(fd: int, seconds: float) -> bool:
    """Wait until a descriptor can be read or has ended, at most so long; whether it can."""
    poll = select.poll()  # select() itself takes no descriptor above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def drain(fd: int, output: BoundedOutput) -> None:
    """Take what lies in the pipe at this moment, no more: an endless writer cannot hold us here."""
    waiting = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, waiting)
    left = waiting[0]
    while left > 0:
        data = os.read(fd, min(left, CHUNK))
        if not data:
            return
        output.add(data)
        left -= len(data)


def pump(
    done_fd: int, outputs: dict[int, BoundedOutput], stdin_fd: int | None, stdin: bytes, timeout: float
) -> bool:
    """Feed standard input and collect output until `done_fd` is readable. Closes `stdin_fd`.

    Returns:
        False if `timeout` seconds passed first.
    """
    deadline = time.monotonic() + timeout
    poll = select.poll()
    poll.register(done_fd, select.POLLIN)
    for fd in outputs:
        poll.register(fd, select.POLLIN)
    pending = memoryview(stdin)
    if stdin_fd is not None:
        os.set_blocking(stdin_fd, False)
        poll.register(stdin_fd, select.POLLOUT)
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            events = dict(poll.poll(left * 1000 + 1))  # +1: poll rounds down, and 0 would spin
            for fd in events.keys() & outputs.keys():
                data = os.read(fd, CHUNK)
                if data:
                    outputs[fd].add(data)
                else:
                    poll.unregister(fd)
            if stdin_fd is not None and stdin_fd in events:
                try:
                    pending = pending[os.write(stdin_fd, pending[:CHUNK]) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    pending = pending[:0]
                if not pending:
                    poll.unregister(stdin_fd)
                    os.close(stdin_fd)
                    stdin_fd = None
            if done_fd in events:
                return True
    finally:
        if stdin_fd is not None:
            os.close(stdin_fd)
