"""What an episode may and may not do, and what the monitor remembers of it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from agentgym.errors import UsageError
from agentgym.monitor import paths
from agentgym.monitor.effects import HOLE
from agentgym.monitor.globs import matches_path
from agentgym.monitor.state import ShellState

if TYPE_CHECKING:
    from agentgym.monitor.monitor import Decision
    from agentgym.tools import ToolCall

NETWORKS = ("none", "allowlist", "open")
GIT_POLICIES = ("head", "no-history", "open")

Protection = Literal["protected", "readonly", ""]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What `Context.snapshot` keeps."""

    state: ShellState
    history: tuple[tuple[ToolCall, Decision, str | None], ...]


@dataclass
class Context:
    """The policy of one episode and the memory of its calls; all agents of an episode share one.

    Attributes:
        workspace: where the policy works, absolute.
        protected_paths: may not be touched at all, with all below; absolute.
        readonly_paths: may be read and run, not changed; absolute.
        allowed_hosts: exact names, `host:port`, or `*`.
        network: "none", "allowlist" or "open".
        package: the package under repair, as its index names it; None where there is none.
        upstream: `host/owner/name` of the target's public repositories.
        git_policy: "head", "no-history" or "open".
        state: the shell's state and what was written so far.
        history: each call that was reviewed, with its decision and the answer, where it is known.
    """

    workspace: str
    protected_paths: tuple[str, ...] = ()
    readonly_paths: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    network: str = "none"
    package: str | None = None
    upstream: tuple[str, ...] = ()
    git_policy: str = "open"
    state: ShellState = field(init=False)
    history: list[tuple[ToolCall, Decision, str | None]] = field(init=False, default_factory=list)
    _protected: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _readonly: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.workspace = paths.normalise(_absolute("workspace", self.workspace))
        self.protected_paths = _all_absolute("protected_paths", self.protected_paths)
        self.readonly_paths = _all_absolute("readonly_paths", self.readonly_paths)
        # What a path at or below one of them begins with, a slash put at its end: asked for every path of every call.
        self._protected = tuple(path.rstrip("/") + "/" for path in self.protected_paths)
        self._readonly = tuple(path.rstrip("/") + "/" for path in self.readonly_paths)
        self.allowed_hosts = tuple(
            _text("allowed_hosts", h).lower() for h in _list("allowed_hosts", self.allowed_hosts)
        )
        self.upstream = tuple(
            _text("upstream", u).lower().strip("/").removesuffix(".git")
            for u in _list("upstream", self.upstream)
        )
        if self.package is not None:
            _text("package", self.package)
        _one_of("network", self.network, NETWORKS)
        _one_of("git_policy", self.git_policy, GIT_POLICIES)
        self.state = ShellState.fresh(self.workspace)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Context:
        """A context from its JSON form.

        Raises:
            UsageError: a key is missing, unknown or of the wrong type; names the key.
        """
        if not isinstance(data, Mapping):
            raise UsageError(f"expected context to be an object, got {data!r:.60}")
        for key in KEYS:
            if key not in data:
                raise UsageError(f"context lacks the key {key!r}; it has {sorted(data)}")
        for key in data:
            if key not in KEYS:
                raise UsageError(f"unknown key {key!r} in context; expected {', '.join(KEYS)}")
        return cls(**data)

    def reset(self) -> None:
        """Forgets every call: a new episode."""
        self.state = ShellState.fresh(self.workspace)
        self.history.clear()

    def snapshot(self) -> Snapshot:
        """An independent copy of the memory."""
        return Snapshot(self.state.copy(), tuple(self.history))

    def restore(self, snapshot: Snapshot) -> None:
        """Goes back to `snapshot`, which stays usable."""
        self.state = snapshot.state.copy()
        self.history[:] = snapshot.history

    def protection_of(self, path: str) -> Protection:
        """What the policy says of an absolute, resolved path; protected beats readonly."""
        within = path + "/"
        if within.startswith(self._protected):
            return "protected"
        return "readonly" if within.startswith(self._readonly) else ""

    def covers_protected(self, path: str) -> bool:
        """Whether something protected lies at or below the absolute `path`: is reading it as a tree a look at it?"""
        return any(paths.is_below(owner, path) for owner in self.protected_paths)

    def reaches_readonly(self, pattern: str) -> bool:
        """Whether something read-only is, or may lie below, what the absolute glob `pattern` stands for."""
        depth = pattern.count("/") + 1
        return any(
            paths.matches_below(pattern, owner) is not None
            or matches_path(pattern, "/".join(owner.split("/")[:depth]))
            for owner in self.readonly_paths
        )

    def may_be_protected(self, path: str) -> bool:
        """Whether the unknown parts of `path` could make it a protected path.

        A path that starts with an unknown part and has nothing else to say could be anything, so it could be.
        """
        if HOLE not in path:
            return self.protection_of(path) == "protected"
        if not path.startswith("/"):
            path = "/" + path if path.startswith(HOLE) else paths.join(self.state.cwd, path)
        before = posixpath.dirname(path.partition(HOLE)[0]) or "/"
        if self.protection_of(before) == "protected":
            return True
        return any(_hole_reaches(path, owner) for owner in self.protected_paths)

    def host_allowed(self, host: str, port: int | None = None) -> bool:
        """Whether the network policy lets a connection to `host` pass (the upstream rule comes on top)."""
        host = host.lower().rstrip(".").strip("[]")
        if self.network == "open":
            return True
        names = (host, "*") if port is None else (host, "*", f"{host}:{port}")
        listed = any(name in self.allowed_hosts for name in names)
        return listed and (self.network == "allowlist" or is_loopback(host))

    def is_upstream(self, url: str) -> bool:
        """Whether `url` names one of the target's public repositories, directly or through a mirror's path."""
        text = unquote(unquote(url)).lower()
        for entry in self.upstream:
            host, _, name = entry.partition("/")
            if re.search(rf"(?<![\w-]){re.escape(host)}[:/]+{re.escape(name)}(?![\w-])", text):
                return True
            if re.search(rf"[/=:@]{re.escape(name)}(?![\w-])", text):
                return True
        return False


KEYS = (
    "workspace",
    "protected_paths",
    "readonly_paths",
    "allowed_hosts",
    "network",
    "package",
    "upstream",
    "git_policy",
)


def is_loopback(host: str) -> bool:
    """Whether `host` is a name of the machine itself."""
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.") or host.endswith(".localhost")


def _hole_reaches(path: str, owner: str) -> bool:
    """Whether some filling of the holes in `path` makes it `owner` or a path below.

    What follows the first hole may always lie below the owner, so only what stands before it can exclude.
    """
    head = path.partition(HOLE)[0]
    return owner.startswith(head) or paths.is_below(head.rstrip("/") or "/", owner)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"expected context key {name!r} to hold text, got {value!r:.60}")
    return value


def _list(name: str, value: object) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UsageError(f"expected context key {name!r} to be a list, got {value!r:.60}")
    return value


def _absolute(name: str, value: object) -> str:
    text = _text(name, value)
    if not text.startswith("/"):
        raise UsageError(f"expected context key {name!r} to hold absolute paths, got {text!r:.60}")
    return text


def _all_absolute(name: str, value: object) -> tuple[str, ...]:
    return tuple(paths.normalise(_absolute(name, item)) for item in _list(name, value))


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"expected context key {name!r} to be one of {', '.join(known)}, got {value!r:.60}")
