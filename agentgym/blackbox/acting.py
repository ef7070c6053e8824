"""A place for environments that are played, not worked on: a command in the program's sandbox takes actions to them."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentgym.blackbox.place import BACKEND, Outcome, Place
from agentgym.core import AgentEnv
from agentgym.errors import InfrastructureError
from agentgym.sandbox import make_sandbox, scratch_folder
from agentgym.sandbox.base import Sandbox

ACT, _SOCKET = "/agentgym/act", "/agentgym/socket"  # inside
_HOW = (
    f"You act by a command: run `{ACT} ACTION` in a shell, or give it the action on its standard input. It prints what"
    " you are answered. Take one action at a time; the task is over when the answer says so."
)
_OVER = "[The task is over.]"
_LONGEST_ACTION = 1 << 20  # bytes
_PATIENCE_S = 10.0  # for an action to arrive once somebody has called

_SCRIPT = f"""\
#!/usr/bin/env python3
import socket, sys
action = " ".join(sys.argv[1:]) if len(sys.argv) > 1 else sys.stdin.read()
with socket.socket(socket.AF_UNIX) as line:
    line.connect("{_SOCKET}")
    line.sendall(action.encode("utf-8", "replace"))
    line.shutdown(socket.SHUT_WR)
    answer = b"".join(iter(lambda: line.recv(65536), b""))
sys.stdout.buffer.write(answer + b"\\n")
"""


class Acting(Place):
    """A fresh, empty sandbox with a command that takes an action to the environment and prints the answer.

    An action is a whole message, as for `AgentEnv.step`; the task says how the environment wants it written. Its turns
    are the actions. The program may ask its model twice as often, since it also thinks, and says goodbye.
    """

    def __init__(self, env: AgentEnv) -> None:
        super().__init__(env)
        self.prompt = "\n\n".join(filter(None, (env.system_prompt, self.prompt, _HOW)))
        self.replies = 2 * env.max_turns
        self._taken: list[dict[str, Any]] = []
        self._reward = 0.0
        self._ended: Outcome | None = None
        self._failure: BaseException | None = None

    @contextlib.contextmanager
    def open(self) -> Iterator[Sandbox]:
        """See `Place.open`."""
        with make_sandbox(BACKEND) as sandbox, scratch_folder("act") as folder:
            script, line = folder / "act", folder / "socket"
            script.write_text(_SCRIPT)
            script.chmod(0o755)
            with _Line(str(line), self._answer):
                self.shown = {str(script): ACT, str(line): _SOCKET}
                yield sandbox

    def outcome(self, *, cut_off: bool) -> Outcome:
        """See `Place.outcome`; a program that stops before the task is over is judged by how things stand."""
        if self._failure is not None:
            raise self._failure
        if self._ended is not None:
            return self._ended
        verdict, reward, end = super().outcome(cut_off=cut_off)
        return Outcome(verdict, self._reward + reward, end)

    def record(self) -> Mapping[str, object]:
        """The actions, each with its answer and reward."""
        return {"actions": self._taken}

    def _answer(self, action: str) -> str:
        """One turn of the environment."""
        if self._ended is not None or self._failure is not None:
            return _OVER
        if not action.strip():  # also of a caller who hangs up
            return "Expected an action, got nothing."
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            if "infrastructure_error" in info:
                raise InfrastructureError(info["infrastructure_error"])
        except Exception as error:  # told when the program has ended, in the thread that plays the episode
            self._failure = error
            return _OVER
        self._reward += float(reward)
        self._taken.append({"action": action, "observation": observation, "reward": float(reward)})
        if not (terminated or truncated):
            return observation
        self._ended = Outcome(info["verdict"], self._reward, "terminated" if terminated else "truncated")
        return f"{observation}\n{_OVER}"


class _Line(socketserver.UnixStreamServer):
    """Answers one caller after the other, in a thread of its own. A context manager."""

    def __init__(self, path: str, answer: Callable[[str], str]) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                action = _received(self.request)
                if action is not None:
                    self.request.sendall(answer(action).encode("utf-8", "replace"))

        super().__init__(path, Handler)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.05,), daemon=True, name="agentgym-act"
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller who went away before the answer is nobody's concern."""

    def __enter__(self) -> _Line:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def _received(line: socket.socket) -> str | None:
    """What a caller says until it has said all; None where that takes too long or is too much."""
    line.settimeout(_PATIENCE_S)
    said = bytearray()
    with contextlib.suppress(TimeoutError):
        while len(said) <= _LONGEST_ACTION:
            data = line.recv(1 << 16)
            if not data:
                return said.decode("utf-8", "replace")
            said += data
    return None
