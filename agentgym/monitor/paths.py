"""Paths as text: made absolute, links followed, globs and holes matched. Nothing here looks at a disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from agentgym.monitor.effects import HOLE
from agentgym.monitor.globs import matches

MAX_LINKS = 8
"""How many links are followed for one path before it is taken as it stands (a loop of links)."""

_PROC = re.compile(r"/proc/(?:self|thread-self|[0-9]+|\$\$|\0|\*)(?:/task/[^/]+)?/(cwd|root)(?=/|$)")


def normalise(path: str) -> str:
    """`path`, absolute, without ``//``, ``.`` and ``..``."""
    if "//" not in path and "/." not in path:
        return path.rstrip("/") or "/"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part and part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def join(folder: str, path: str) -> str:
    """`path` as seen from `folder`, normalised."""
    return normalise(path if path.startswith("/") else f"{folder}/{path}")


def parent(path: str) -> str:
    """The folder that holds the absolute path `path`."""
    return path.rpartition("/")[0] or "/"


def is_below(path: str, folder: str) -> bool:
    """Whether the absolute `path` is `folder` or lies below it."""
    return path == folder or folder == "/" or (path.startswith(folder) and path[len(folder)] == "/")


def resolve(path: str, folder: str, links: Mapping[str, str]) -> str:
    """Where `path` leads: from `folder`, through /proc's names for it and the links that were made.

    A ``..`` after a link leaves the link's target, as the kernel does it, not the folder the link lies in.
    """
    whole = path if path.startswith("/") else f"{folder}/{path}"
    if "/proc/" in whole or "/dev/fd" in whole:
        whole = _through_proc(whole, folder)
    if not links:
        return normalise(whole)
    for _ in range(MAX_LINKS):
        followed = _follow_once(whole, links)
        if followed is None:
            break
        whole = followed
    return normalise(whole)


def _through_proc(path: str, folder: str) -> str:
    """`path` with ``/proc/PID/root`` taken as ``/`` and ``/proc/PID/cwd`` as the folder the shell is in."""
    path = re.sub(r"/+", "/", path)
    while match := _PROC.match(path):
        path = (folder if match.group(1) == "cwd" else "") + path[match.end() :] or "/"
    return path


def _follow_once(path: str, links: Mapping[str, str]) -> str | None:
    """`path` with the first link on its way replaced by its target, None where there is none."""
    walked: list[str] = []
    parts = path.split("/")
    for i, part in enumerate(parts):
        if not part or part == ".":
            continue
        if part == "..":
            if walked:
                walked.pop()
            continue
        walked.append(part)
        here = "/" + "/".join(walked)
        if (target := links.get(here)) is not None:
            rest = "/".join(parts[i + 1 :])
            return f"{target}/{rest}" if rest else target
    return None


def matches_below(pattern: str, folder: str, *, hidden: bool = False) -> str | None:
    """The path below `folder` that the absolute glob `pattern` could be; None where it cannot lead there.

    A leading wildcard leaves out names that start with a dot, unless they count as any other (`hidden`, dotglob).
    ``/e?al/*.diff`` with ``/eval`` is ``/eval/*.diff``; ``/**/x`` is ``/eval/**/x``.
    """
    if folder == "/":
        return pattern
    want = folder[1:].split("/")
    have = pattern.strip("/").split("/")
    for i, name in enumerate(want):
        if i == len(have):
            return None
        if have[i] == "**" or HOLE in have[i]:
            return _join_rest(folder, have[i:] if have[i] == "**" else have[i + 1 :])
        if have[i] != name and not matches(have[i], name):
            return None
        if name[0] == "." and have[i][:1] in ("*", "?") and not hidden:
            return None
    return _join_rest(folder, have[len(want) :])


def _join_rest(folder: str, rest: list[str]) -> str:
    return "/".join([folder, *rest]) if rest else folder


def longest_owner(path: str, owners: Iterable[str]) -> str:
    """The longest of `owners` that `path` is or lies below; "" where there is none."""
    best = ""
    for owner in owners:
        if len(owner) > len(best) and is_below(path, owner):
            best = owner
    return best
