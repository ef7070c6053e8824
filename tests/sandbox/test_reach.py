"""A command that may connect to one address of this machine and to nothing else."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agentgym.errors import MissingDependency, SandboxError, UsageError
from agentgym.sandbox import Sandbox, make_sandbox

from .conftest import Sleeper


class Server:
    """Answers each connection with what it was sent, backwards, once the other side has said all."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.address: tuple[str, int] = self.socket.getsockname()
        self.served = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            said = b""
            while data := connection.recv(1 << 16):
                said += data
            connection.sendall(said[::-1])
            self.served += 1


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.socket.close()


def made(backend: str) -> Sandbox:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the process backend, which does not isolate
        try:
            return make_sandbox(backend, allow_unsafe=True)
        except (MissingDependency, SandboxError) as error:
            pytest.skip(f"{backend} cannot run here: {error}")


def command_lines() -> list[str]:
    """Of every process of this machine, as anybody may read them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return found


def ask(address: tuple[str, int], text: str) -> str:
    """A shell command that sends a text and prints the answer."""
    code = (
        f"import socket, sys; s = socket.create_connection({address!r}, 5); s.sendall(sys.argv[1].encode());"
        "s.shutdown(1); print(b''.join(iter(lambda: s.recv(4096), b'')).decode())"
    )
    return f"""python3 -c "{code}" '{text}'"""


def refuses(box: Sandbox, server: Server) -> None:
    with pytest.raises(UsageError, match=r"backend cannot let a command reach .* use bubblewrap"):
        box.exec("true", reach=server.address)
    with pytest.raises(UsageError, match="backend cannot show more of the host later; use bubblewrap"):
        box.showing({"/usr": "/more"})


def test_bare_processes_are_refused(server: Server) -> None:
    with made("process") as box:
        refuses(box, server)


@pytest.mark.slow
def test_docker_says_that_it_cannot(daemon: str, server: Server) -> None:
    with made("docker") as box:
        refuses(box, server)


class TestBubblewrap:
    @pytest.fixture
    def box(self) -> Iterator[Sandbox]:
        with made("bubblewrap") as box:
            yield box

    def test_the_address_is_reached(self, box: Sandbox, server: Server) -> None:
        result = box.exec(ask(server.address, "stressed"), reach=server.address)
        assert (result.stdout, result.stderr, result.exit_code) == ("desserts\n", "", 0)

    def test_nothing_else_is_reached(self, box: Sandbox, server: Server) -> None:
        other = Server()
        result = box.exec(ask(other.address, "x"), reach=server.address)
        assert "refused" in result.stderr
        devices = box.exec("cat /proc/net/dev", reach=server.address).stdout
        assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo"]
        assert other.served == 0
        other.socket.close()

    def test_only_the_command_that_was_given_it(self, box: Sandbox, server: Server) -> None:
        assert "refused" in box.exec(ask(server.address, "x")).stderr
        assert server.served == 0

    def test_many_at_once(self, box: Sandbox, server: Server) -> None:
        script = (
            "import socket\n"
            f"held = [socket.create_connection({server.address!r}, 20) for _ in range(100)]\n"
            "for n, s in enumerate(held):\n    s.sendall(b'%03d' % n); s.shutdown(1)\n"
            "print(sum(s.recv(9) == (b'%03d' % n)[::-1] for n, s in enumerate(held)))"
        )
        assert box.exec(["python3", "-c", script], reach=server.address).stdout == "100\n"

    def test_a_long_answer(self, box: Sandbox, server: Server) -> None:
        script = (
            f"import socket, threading; s = socket.create_connection({server.address!r}, 20)\n"
            "def send():\n    s.sendall(b'ab' * 1_000_000); s.shutdown(1)\n"
            "threading.Thread(target=send).start()\n"
            "print(b''.join(iter(lambda: s.recv(65536), b'')) == b'ba' * 1_000_000)"
        )
        assert box.exec(["python3", "-c", script], reach=server.address).stdout == "True\n"

    def test_a_program_as_if_started_directly(self, box: Sandbox, server: Server) -> None:
        look = "ls /proc/self/fd | wc -l; grep -E 'SigIgn' /proc/self/status; env | sort; exit 3"
        plain, reaching = box.exec(look), box.exec(look, reach=server.address)
        assert reaching.stdout == plain.stdout
        assert reaching.exit_code == plain.exit_code == 3
        assert box.exec(["no-such-program"], reach=server.address).exit_code == 127
        assert box.exec(["/usr"], reach=server.address).exit_code == 126

    def test_time_and_descendants(self, box: Sandbox, server: Server, sleeper: Sleeper) -> None:
        result = box.exec(f"setsid {sleeper.command} & {sleeper.command}", reach=server.address, timeout=0.5)
        assert result.timed_out
        assert sleeper.alive() == 0

    def test_connections_end_with_the_command(self, box: Sandbox, server: Server) -> None:
        before = set(threading.enumerate())
        command = ask(server.address, "x").replace("s.shutdown(1);", "import os; os._exit(0);")
        box.exec(f"({command})", reach=server.address)
        assert len(set(threading.enumerate()) - before) <= 1  # the server's, about to end

    def test_an_address_where_nobody_listens(self, box: Sandbox) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = taken.getsockname()
        result = box.exec(ask(address, "x"), reach=address)
        assert result.stdout.strip() == "" or "reset" in result.stderr

    def test_a_sandbox_without_python(self, box: Sandbox, server: Server) -> None:
        box.write("bin/bash", '#!/usr/bin/bash\nexec /usr/bin/bash "$@"\n')
        box.exec("chmod +x bin/bash")
        with pytest.raises(SandboxError, match="needs a working python3"):
            box.exec(["true"], reach=server.address, env={"PATH": f"{box.workspace}/bin"})

    def test_an_address_that_cannot_be_had_inside(self, box: Sandbox) -> None:
        with pytest.raises(SandboxError, match=r"is to reach \('192.0.2.1', 80\) did not start: .*assign"):
            box.exec(["true"], reach=("192.0.2.1", 80))

    def test_variables_are_not_in_the_list_of_processes(self, box: Sandbox) -> None:
        """Where every user of this machine could read a key among them."""
        key, mark = f"key-{secrets.token_hex(8)}", f"9{secrets.randbelow(10**8):08d}"
        thread = threading.Thread(target=box.exec, args=(f"sleep {mark}",), kwargs={"env": {"KEY": key}})
        thread.start()
        while f"sleep {mark}" not in (listed := [words for words in command_lines() if mark in words]):
            time.sleep(0.02)
        box.close()
        thread.join()
        assert not [words for words in listed if key in words]

    def test_a_variable_too_long_for_the_kernel_fails_the_command(self, box: Sandbox) -> None:
        assert box.exec("echo ${#LONG}", env={"LONG": "x" * 131_000}).stdout == "131000\n"
        result = box.exec("true", env={"LONG": "x" * 131_072})
        assert (result.exit_code, result.stderr) == (126, "bash: Argument list too long\n")

    def test_more_of_the_host_is_shown_for_a_while(self, box: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "note").write_text("hello")
        with box.showing({str(tmp_path): "/opt/notes"}):
            assert box.exec("cat /opt/notes/note").stdout == "hello"
            assert box.exec("touch /opt/notes/x").exit_code != 0
        assert box.exec("ls /opt/notes").exit_code != 0
        with pytest.raises(UsageError, match="outside /workspace"), box.showing({"/usr": "/workspace/x"}):
            pass
