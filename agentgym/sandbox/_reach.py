"""One address of this machine, reachable from a network namespace that has nothing else.

A socket belongs to the network in which it was made, whoever holds it. So the first thing that runs in the namespace
makes a listening socket at the very address that is to be reached, hands it out to us, and then becomes the program.
We accept what connects to it and pass the bytes on to the address outside. Inside nothing of ours is left that the
program could kill, read or imitate, and no file leads out.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import Sequence
from typing import Self, TypeAlias

from agentgym.errors import SandboxError
from agentgym.sandbox._output import CHUNK

Address: TypeAlias = tuple[str, int]

_MOST_CONNECTIONS = 64  # at a time; more wait in the kernel's queue
_LONGEST_COMPLAINT = 1000

# Runs inside, with whatever Python is found there; it undoes what a Python changes for its children.
_LAUNCH = """\
import array, os, signal, socket, sys
host, port, out, *argv = sys.argv[1:]
way_out = socket.socket(fileno=int(out))
listener = socket.socket()
try:
    listener.bind((host, int(port)))
except OSError as error:
    way_out.send(str(error).encode())
    sys.exit(126)
listener.listen(128)
way_out.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))])
way_out.close()
listener.close()
for name in ("SIGPIPE", "SIGXFSZ"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
try:
    os.execvp(argv[0], argv)
except OSError as error:
    os.write(2, os.fsencode("%s: %s\\n" % (argv[0], error.strerror)))
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


class Reach:
    """Passes on the connections that a program in another network makes to `address`. A context manager.

    Attributes:
        inside: the descriptor that the launcher needs; give it to the program's start.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._ours, self._theirs = socket.socketpair()
        self.inside = self._theirs.fileno()
        self._problem = "it needs a working python3 on the path inside"
        self._stop, self._stopper = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="agentgym-reach")

    def launch(self, argv: Sequence[str]) -> list[str]:
        """What to start instead of `argv`. It needs a ``python3`` on the path inside."""
        host, port = self._address
        return ["python3", "-I", "-S", "-c", _LAUNCH, host, str(port), str(self.inside), *argv]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopper.close()
        self._thread.join()
        for end in (self._ours, self._theirs, self._stop):
            end.close()

    def check(self) -> None:
        """Tell a program that was never started from one that ended.

        Raises:
            SandboxError: the launcher did not come as far as the program.
        """
        if self._problem:
            raise SandboxError(f"a command that is to reach {self._address} did not start: {self._problem}")

    # The thread.

    def _serve(self) -> None:
        listener = self._receive()
        if listener is not None:
            with listener:
                asyncio.run(self._relay_all(listener))

    def _receive(self) -> socket.socket | None:
        """The socket made inside; None if the program ended before it was."""
        poll = select.poll()
        for end in (self._ours, self._stop):
            poll.register(end, select.POLLIN)
        # It may be there although the program has ended already
        if self._ours.fileno() not in dict(poll.poll()):
            return None
        said, descriptors, _, _ = socket.recv_fds(self._ours, _LONGEST_COMPLAINT, 1)
        # Whoever gets hold of the other end later has nobody to talk to.
        self._ours.shutdown(socket.SHUT_RDWR)
        if not descriptors:
            self._problem = said.decode(errors="replace")
            return None
        self._problem = ""
        return socket.socket(fileno=descriptors[0])

    async def _relay_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        self._stop.setblocking(False)
        accepting = asyncio.create_task(self._accept(listener))
        await loop.sock_recv(self._stop, 1)
        accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await accepting

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(_MOST_CONNECTIONS)
        async with asyncio.TaskGroup() as connections:
            while True:
                await room.acquire()
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError:  # it was given up again, or this process has no descriptors left
                    room.release()
                    await asyncio.sleep(0.1)
                    continue
                connections.create_task(self._relay(accepted)).add_done_callback(lambda _: room.release())

    async def _relay(self, accepted: socket.socket) -> None:
        """One connection, until both sides have said all or one of them is gone."""
        try:
            with accepted, socket.socket() as onward:
                onward.setblocking(False)
                for end in (accepted, onward):  # small pieces of a stream must not wait for each other
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await asyncio.get_running_loop().sock_connect(onward, self._address)
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pass_on(accepted, onward))
                    both.create_task(_pass_on(onward, accepted))
        except* OSError:
            pass


async def _pass_on(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, CHUNK):
        await loop.sock_sendall(target, data)
    with contextlib.suppress(OSError):  # it is gone, which is as good as having heard the end
        target.shutdown(socket.SHUT_WR)
