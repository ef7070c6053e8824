"""The daemon of Docker: who it is, how it is reached, and its errors as ours. The one file that imports the SDK."""

from __future__ import annotations

import os
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentgym.errors import MissingDependency, SandboxError, UsageError

if TYPE_CHECKING:
    from docker import APIClient

_TIMEOUT_S = 300  # of one request; a commit of a large container on a loaded machine takes its time


def daemon_address() -> str:
    """Where the daemon is: ``DOCKER_HOST``, else the usual socket."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def daemon_is_here() -> bool:
    """Whether the daemon is on this machine and so can show our files to a container."""
    return daemon_address().startswith("unix://")


def connect(address: str | None = None) -> APIClient:
    """A client of its own for each sandbox: its connections belong to no other thread, and to no forked child.

    Args:
        address: of the daemon; None is `daemon_address`.

    Raises:
        MissingDependency: the package ``docker`` is not installed.
        UsageError: DOCKER_HOST is of a kind that cannot carry a command's streams.
        SandboxError: nobody answers there, or not to us.
    """
    try:
        import docker
        from docker.utils import kwargs_from_env
    except ModuleNotFoundError:
        raise MissingDependency(
            "the docker backend needs the package docker: pip install 'agentgym-suite[docker]'"
        ) from None
    address = address or daemon_address()
    if urllib.parse.urlsplit(address).scheme not in ("unix", "tcp", "http"):
        raise UsageError(f"DOCKER_HOST={address!r}: expected unix:///path or tcp://host:port")
    settings = kwargs_from_env()
    if settings.get("tls"):
        raise UsageError(
            "DOCKER_TLS_VERIFY: a daemon behind TLS is not supported; forward its socket to unix://"
        )
    with daemon_errors("connect"):
        return docker.APIClient(base_url=address, version="auto", timeout=_TIMEOUT_S)


class Stream:
    """The connection of a request that the daemon turned into a plain two-way stream; never blocks."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._socket: socket.socket = raw._sock
        self._socket.setblocking(False)
        # What came right behind the answer's headers lies in the buffer of the HTTP client. Where that is empty,
        # peek tries one read itself.
        self._early: bytes = raw._response.raw._fp.fp.peek()

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self, most: int) -> bytes | None:
        """What is there; empty at the end, None for nothing yet."""
        if self._early:
            early, self._early = self._early, b""
            return early
        try:
            return self._socket.recv(most)
        except BlockingIOError:
            return None
        except OSError:  # the daemon went away
            return b""

    def send(self, data: bytes) -> bytes:
        """Send what is taken now and return the rest; nothing if nobody reads any more."""
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""

    def end_input(self) -> None:
        """Say that nothing more will be sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:  # it has ended
            pass

    def close(self) -> None:
        self._socket.close()
        self._raw.close()


@contextmanager
def daemon_errors(doing: str) -> Iterator[None]:
    """Turn what the SDK raises into a `SandboxError` of one line.

    Args:
        doing: what was tried, to follow "could not".
    """
    import docker.errors
    import requests
    import urllib3

    try:
        yield
    except docker.errors.APIError as error:
        raise SandboxError(f"Docker could not {doing}: {explanation(error)}") from error
    except (
        docker.errors.DockerException,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        raise SandboxError(_unreachable(error)) from error


def explanation(error: Any) -> str:
    """What the daemon says in an ``APIError``, in one line."""
    return " ".join(str(error.explanation or error).split())


def not_found(error: BaseException) -> bool:
    """Whether a `SandboxError` says that the daemon knows no such thing."""
    import docker.errors

    return isinstance(error.__cause__, docker.errors.NotFound)


def _unreachable(error: BaseException) -> str:
    address = daemon_address()
    cause = _system_error(error)
    if isinstance(cause, PermissionError):
        return (
            f"this user may not use the Docker daemon's socket {address}: add the user to its group (docker), or "
            "set DOCKER_HOST to a daemon of your own"
        )
    reason = cause.strerror if cause is not None and cause.strerror else " ".join(str(error).split())
    return f"no Docker daemon answers at {address} ({reason}): start it, or set DOCKER_HOST"


def _system_error(error: BaseException) -> OSError | None:
    """The system's own error at the bottom of what requests and urllib3 wrapped around it."""
    inner = [
        one for one in (*error.args, error.__cause__, error.__context__) if isinstance(one, BaseException)
    ]
    for one in inner:
        if (found := _system_error(one)) is not None:
            return found
    return error if isinstance(error, OSError) and error.errno is not None else None
