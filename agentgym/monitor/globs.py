"""Shell patterns as regular expressions that cannot run away: each wildcard takes the first place that fits.

``a*b*c`` becomes ``a(?>.*?b).*c``: for a pattern without alternatives the leftmost fit of each part is as good as any
other, so nothing is ever tried twice.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agentgym.monitor.effects import HOLE

MAX_PATTERN = 1024
"""Characters of a pattern; a longer one matches nothing."""
MAX_EXTENDED = 256
"""Characters of a text that an extended pattern is tried on: alternatives may be tried again and again."""

_EXTENDED = re.compile(r"[?*+@!]\(")


def matches(pattern: str, text: str) -> bool:
    """Whether `text` as a whole fits the shell pattern: one name, or in ``case`` and -path any text.

    Wildcards match ``/`` too; whoever matches paths name by name splits both sides first. A hole fits everything.
    """
    if len(pattern) > MAX_PATTERN:
        return False
    if _EXTENDED.search(pattern) and (len(text) > MAX_EXTENDED or pattern.count("(") > 4):
        return False
    return _compiled(pattern).match(text) is not None


def matches_path(pattern: str, path: str) -> bool:
    """Whether an absolute `path` fits an absolute glob, name by name; ``**`` stands for any number of folders."""
    return _match_names(pattern.split("/"), path.split("/"))


def _match_names(want: list[str], have: list[str]) -> bool:
    if "**" in want:
        at = want.index("**")
        if not _match_names(want[:at], have[:at]):
            return False
        rest = want[at + 1 :]
        return not rest or any(_match_names(rest, have[i:]) for i in range(at, len(have)))
    return len(want) == len(have) and all(a == b or matches(a, b) for a, b in zip(want, have, strict=True))


def source_of(pattern: str) -> str:
    """`pattern` as the source of a regular expression, not anchored."""
    parts = _parts(pattern)
    out: list[str] = []
    for i, part in enumerate(parts):
        if part != ".*":
            out.append(part)
        elif ".*" in parts[i + 1 :]:
            nearest = parts.index(".*", i + 1)
            out.append(f"(?>.*?{''.join(parts[i + 1 : nearest])})")
            parts[i + 1 : nearest] = [""] * (nearest - i - 1)
        else:
            out.append(".*")
    return "".join(out)


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(source_of(pattern) + r"\Z", re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern) + r"\Z", re.DOTALL)


def _parts(pattern: str) -> list[str]:
    """The pieces of a pattern: each wildcard is a ``.*`` of its own, an extended pattern is one piece."""
    out: list[str] = []
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char in "?*+@!" and pattern.startswith("(", i + 1) and (end := _group_end(pattern, i + 1)):
            out.append(_group(char, pattern[i + 2 : end]))
            i = end
        elif char == "*" or char == HOLE:
            if not out or out[-1] != ".*":
                out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[" and (end := _bracket_end(pattern, i)):
            out.append(_bracket(pattern[i + 1 : end]))
            i = end
        else:
            out.append(re.escape(char))
        i += 1
    return out


def _group_end(pattern: str, start: int) -> int:
    depth = 0
    for i in range(start, len(pattern)):
        depth += {"(": 1, ")": -1}.get(pattern[i], 0)
        if depth == 0:
            return i
    return 0


def _group(kind: str, inside: str) -> str:
    if kind == "!":
        return ".*"  # what is left out cannot be said in a plain expression; everything keeps recall
    choices = "|".join("".join(_parts(choice)) for choice in inside.split("|"))
    return f"(?:{choices}){'' if kind == '@' else kind}"


def _bracket_end(pattern: str, start: int) -> int:
    """Where the ``]`` of the bracket expression at `start` stands; 0 where there is none."""
    first = start + 1
    if pattern[first : first + 1] in ("!", "^"):
        first += 1
    i = first
    while i < len(pattern):
        if pattern.startswith("[:", i):
            close = pattern.find(":]", i + 2)
            if close < 0:
                return 0
            i = close + 2
        elif pattern[i] == "]" and i > first:
            return i
        else:
            i += 1
    return 0


_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "xdigit": "0-9a-fA-F",
    "word": r"\w",
}


def _bracket(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = re.escape(inside[1:] if negated else inside).replace(r"\-", "-").replace("--", r"\--")
    body = re.sub(r"\\\[:(\w+):\\\]", lambda m: _CLASSES.get(m.group(1), ""), body)
    return f"[{'^' if negated else ''}{body}]"
