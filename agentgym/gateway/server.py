"""`Gateway`: a policy behind the interfaces that agent programs speak."""

from __future__ import annotations

import itertools
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import gymnasium
import numpy as np

from agentgym.core import Verdict
from agentgym.errors import InfrastructureError, MissingDependency, UsageError, nearest, whole_number
from agentgym.gateway.asking import Asker
from agentgym.gateway.dialect import make_dialect
from agentgym.gateway.exchange import Limits, Refusal
from agentgym.gateway.session import Screen, Session
from agentgym.policies.base import Policy
from agentgym.protocols import Protocol
from agentgym.trajectory.records import Trajectory
from agentgym.trajectory.salvage import append_or_mark
from agentgym.trajectory.store import TrajectoryStore
from agentgym.wrappers.tokens import TokenSource, make_counter

End = Literal["terminated", "truncated", "cut off"]

_LAST_PORT = 65_535


class Gateway:
    """Serves a policy to programs that speak chat completions, Responses or Anthropic's messages, and records them.

    A context manager: inside it the server runs, in a thread of its own. A program needs a base URL (`url` with
    ``/v1`` for OpenAI's clients, `url` for Anthropic's) and as its API key the key of a session.

    Sampling is the policy's: temperature, length and stop texts of a request are noted, not applied. Tools are listed
    in the prompt and calls read out of the text, by `protocol`, unless the policy's server does that itself.

    Args:
        policy: who answers. A scripted policy starts anew in each session.
        host: address to listen on. Anybody who can reach it and has a key is answered.
        port: 0 for any that is free.
        protocol: how the policy writes calls: "hermes", "xml", "bash", "react" or a `Protocol`; "native": its server
            takes tools and gives calls by itself (``openai:MODEL``).
        screen: asked of every call in a reply before the program sees it.
        limits: of each session.
        forks: "error" refuses a conversation that rewrites a known one without being a compaction; "count" logs it.
        models: names that programs may ask for; None for any.
        tokens: how `Limits.context_tokens` are counted, see `ContextCompaction`.
        seed: of the sessions' seeds.
        out: folder or file that the trajectories of ended sessions are appended to; None for none.
        admin_token: who shows it may open and end sessions by ``/sessions``; None for nobody.

    Attributes:
        host, port: where it listens.

    Raises:
        UsageError: an argument makes no sense.
        MissingDependency: starlette or uvicorn is not installed.
        InfrastructureError: on entering, the address cannot be listened on.
        OSError: on entering, `out` cannot be written.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        protocol: str | Protocol = "hermes",
        screen: Screen | None = None,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        forks: Literal["count", "error"] = "count",
        models: Sequence[str] | None = None,
        tokens: TokenSource = "chars",
        seed: int = 0,
        out: str | Path | None = None,
        admin_token: str | None = None,
    ) -> None:
        if forks not in ("count", "error"):
            raise UsageError(f"expected forks to be 'count' or 'error', got {forks!r}")
        if not host:
            raise UsageError("expected host to be an address to listen on, got ''")
        if whole_number("port", port, least=0) > _LAST_PORT:
            raise UsageError(f"expected port <= {_LAST_PORT}, got {port}")
        self.policy = policy
        self.host, self.port = host, port
        self.models = None if models is None else tuple(models)
        self.limits = limits
        self._protocol = protocol
        make_dialect(protocol, policy)  # what is wrong with it is told here
        self._screen = screen
        self._forks: Literal["count", "error"] = forks
        self._counter = make_counter(tokens)
        self._seed = whole_number("seed", seed, least=0)
        self.admin_token = admin_token
        self._store = None if out is None else TrajectoryStore(out)
        self._ids = self._store.ids() if self._store is not None else set()
        self._sessions: dict[str, Session] = {}
        self._opened = itertools.count()
        self._lock = threading.Lock()
        self._running: _Running | None = None

    # -- the server ------------------------------------------------------------------------------------------

    def __enter__(self) -> Gateway:
        if self._running is not None:
            raise UsageError("this gateway is running already")
        if self._store is not None:
            self._store.open()  # a file that cannot be written is told before anything is recorded
        self._running = _Running(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stop()
        if self._store is not None:
            self._store.close()

    @property
    def url(self) -> str:
        """Where it is reached, without ``/v1``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def base_urls(self) -> dict[str, str]:
        """What clients of each kind take as base URL."""
        return {"openai_base_url": f"{self.url}/v1", "anthropic_base_url": self.url}

    @property
    def alive(self) -> bool:
        """Whether programs are answered."""
        return self._running is not None and self._running.thread.is_alive()

    @property
    def asker(self) -> Asker:
        """Who asks the policy."""
        if self._running is None:
            raise InfrastructureError("the gateway is not running")
        return self._running.asker

    # -- sessions --------------------------------------------------------------------------------------------

    def open(
        self,
        key: str | None = None,
        *,
        id: str = "",
        task_id: str = "",
        policy: Policy | None = None,
        seed: int | None = None,
        screen: Screen | None = None,
        limits: Limits | None = None,
        protocol: str | Protocol | None = None,
    ) -> Session:
        """Begin a session.

        Args:
            key: what its program shows as API key; None for one that nobody can guess.
            id: of the trajectory; by default ``gateway/<policy>/<n>``.
            task_id: of the trajectory.
            policy: instead of the gateway's, such as a player that knows its environment (`Policy.for_episode`).
            seed: of the sampling; by default it follows from the gateway's and the number of the session.
            screen: instead of the gateway's.
            limits: the same.
            protocol: the same.

        Raises:
            UsageError: the key or the id is in use, there are as many sessions as may be, or the policy wants an
                environment to look at, or the seed is no whole number >= 0.
        """
        number = next(self._opened)
        if seed is None:
            seed = int(np.random.SeedSequence((self._seed, number)).generate_state(1)[0])
        whole_number("seed", seed, least=0)
        if policy is None:
            policy = self.policy.for_episode(gymnasium.Env(), np.random.default_rng(seed))
        with self._lock:
            if len(self._sessions) >= self.limits.sessions:
                raise UsageError(f"expected at most {self.limits.sessions} sessions at once")
            if key is None:
                key = f"sk-agentgym-{secrets.token_urlsafe(24)}"
            if not key.isascii() or not key.isprintable() or not key.strip() or key in self._sessions:
                raise UsageError(
                    f"expected a key of printable ASCII that no open session has, got {key[:8]!r}..."
                )
            if id in self._ids:
                raise UsageError(f"expected an id that no trajectory has yet, got {id!r}")
            if not id:
                names = (f"gateway/{self.policy.name}/{n}" for n in itertools.count(number))
                id = next(name for name in names if name not in self._ids)
            session = Session(
                key,
                policy,
                dialect=make_dialect(self._protocol if protocol is None else protocol, policy),
                limits=self.limits if limits is None else limits,
                counter=self._counter,
                screen=self._screen if screen is None else screen,
                forks=self._forks,
                seed=seed,
                id=id,
                task_id=task_id,
            )
            self._ids.add(id)
            self._sessions[key] = session
            return session

    def session(self, key: str) -> Session:
        """The open session with this key.

        Raises:
            Refusal: there is none.
        """
        session = self._sessions.get(key)
        if session is None or session.closed:
            raise Refusal("unauthorized", "no open session has this API key")
        return session

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those that are open."""
        with self._lock:
            return tuple(session for session in self._sessions.values() if not session.closed)

    def close_session(
        self,
        key: str,
        verdict: Verdict | None = None,
        *,
        reward: float | None = None,
        end: End = "terminated",
        infrastructure_error: str = "",
    ) -> Trajectory:
        """End a session and write its trajectory, where the gateway writes any.

        Args:
            key: of the session; from now on it is refused.
            verdict: see `Session.finish`.
            reward: the same.
            end: "terminated" by the task's own end, "truncated" by a limit, "cut off" from outside.
            infrastructure_error: see `Session.finish`.

        Raises:
            UsageError: no open session has this key.
            OSError: the trajectory could not be written; the session can be closed again.
        """
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is None:
            raise UsageError(f"no open session has the key {key[:8]!r}...")
        trajectory = session.finish(verdict, reward=reward, infrastructure_error=infrastructure_error)
        if not trajectory.infrastructure_error:
            trajectory.terminated, trajectory.truncated = end == "terminated", end == "truncated"
        if self._store is None:
            return trajectory
        try:
            return append_or_mark(self._store, trajectory)
        except OSError:  # it can be closed again once there is room
            with self._lock:
                self._sessions[key] = session
            raise

    def require_model(self, name: str) -> None:
        """Refuse a model that is not served here."""
        if self.models is not None and name not in self.models:
            raise Refusal("no_model", f"no model {name!r:.80} here.{nearest(name, self.models)}")


class _Running:
    """The server's thread, from start to stop."""

    def __init__(self, gateway: Gateway) -> None:
        try:
            import uvicorn

            from agentgym.gateway.app import make_app
        except ImportError:
            raise MissingDependency(
                "the gateway needs starlette and uvicorn: pip install 'agentgym-suite[serve]'"
            ) from None
        family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
        # With its protocol named, asyncio sends small packets at once; else they wait 40 ms for an acknowledgement.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((gateway.host, gateway.port))
        except OSError as error:
            listening.close()
            raise InfrastructureError(
                f"cannot listen on {gateway.host}:{gateway.port}: {error.strerror}"
            ) from None
        gateway.port = listening.getsockname()[1]
        self.asker = Asker(gateway.policy)
        config = uvicorn.Config(
            make_app(gateway, gateway.admin_token),
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=3600,  # a program may work for long between two calls
        )
        self._server: Any = uvicorn.Server(config)
        self.thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="agentgym-gateway", daemon=True
        )
        self.thread.start()
        while not self._server.started:
            if not self.thread.is_alive():
                raise InfrastructureError("the gateway's server did not start")
            time.sleep(0.002)

    def stop(self) -> None:
        """Answer nobody any more."""
        self.asker.close()
        self._server.should_exit = True
        self.thread.join(timeout=10)
