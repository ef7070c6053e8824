"""The encoding in which words are folded, and how an encoded word falls into fields.

While a word is put together its text carries marks: a metacharacter that is quoted, or came out of an expansion, is
replaced by a private character, so that braces, globs and splitting act on exactly what bash would act on.
"""

from __future__ import annotations

import re

_META = "*?[]{},~()|!+@"
_BASE = 0xE000
_MARKED = {ord(char): chr(_BASE + i) for i, char in enumerate(_META)}
_PLAIN = {_BASE + i: char for i, char in enumerate(_META)}
SPLIT = "\ue010"
"""Where an unquoted expansion had white space, and between the elements of ``"$@"``: a new field starts."""
EMPTY = "\ue011"
"""Left by quotes, so that ``""`` is a field of its own."""

_NEEDS_MARKS = re.compile(r"[*?\[\]{},~()|!+@]")
_SPECIAL = re.compile(r"[*?\[{~\ue000-\ue011]|[+@!]\(")
_PRIVATE = re.compile("[\ue000-\ue01f]")
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_SEQUENCE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?\Z")
_GLOB = re.compile(r"[*?]|\[.|[?*+@!]\(")

MAX_FIELDS = 512
"""Fields that one word may become; the rest of a wilder brace expansion is left out."""


def clean(text: str) -> str:
    """`text` from outside without the characters that are marks here."""
    text = text.replace("\0", "")
    return text if text.isascii() else _PRIVATE.sub("\ufffd", text)


def clean_output(text: str) -> str:
    """`text` that a program printed, holes kept, without the characters that are marks here."""
    return text if text.isascii() else _PRIVATE.sub("\ufffd", text)


def literal(text: str) -> str:
    """`text` as it looks inside quotes: nothing in it is a metacharacter."""
    return text.translate(_MARKED) if _NEEDS_MARKS.search(text) else text


def splitting(value: str, separators: str) -> str:
    """`value` of an unquoted expansion: splits at `separators` (IFS), and may be a glob, but has no braces."""
    if not value:
        return ""
    out = value.translate({0x7B: "\ue004", 0x7D: "\ue005", 0x2C: "\ue006"}) if "{" in value else value
    for char in separators:
        out = out.replace(char, SPLIT)
    return out


def plain(encoded: str) -> str:
    """The text of an encoded word that is used as one string: marks are taken off, fields joined by spaces."""
    if not _PRIVATE.search(encoded):
        return encoded
    return encoded.translate(_PLAIN).replace(SPLIT, " ").replace(EMPTY, "")


def as_pattern(encoded: str) -> str:
    """An encoded word as a glob: what was quoted stands in brackets, so that it means itself."""
    if not _PRIVATE.search(encoded):
        return encoded
    return "".join(f"[{_PLAIN[ord(c)]}]" if ord(c) in _PLAIN else "" if c == EMPTY else c for c in encoded)


def is_special(encoded: str) -> bool:
    """Whether `encoded` needs `split` at all."""
    return _SPECIAL.search(encoded) is not None


def is_glob(encoded: str) -> bool:
    """Whether unquoted wildcards stand in `encoded`."""
    return _GLOB.search(encoded) is not None


def split(encoded: str) -> list[str]:
    """The still encoded fields of a word: braces expanded, split at the marks, empty expansions dropped."""
    out: list[str] = []
    for word in _expand_braces(encoded) if "{" in encoded else [encoded]:
        out.extend(part for part in word.split(SPLIT) if part)
    return out[:MAX_FIELDS]


def _expand_braces(word: str) -> list[str]:
    """All words that ``{a,b}`` and ``{1..3}`` make of `word`, innermost braces first."""
    done: list[str] = []
    waiting = [word]
    while waiting and len(done) + len(waiting) <= MAX_FIELDS:
        current = waiting.pop()
        match = _BRACES.search(current)
        if match is None:
            done.append(current)
            continue
        inside = match.group()[1:-1]
        choices = inside.split(",") if "," in inside else _sequence(inside)
        if choices is None:  # not a brace expansion: hide its braces and go on
            hidden = literal("{") + inside + literal("}")
            waiting.append(current[: match.start()] + hidden + current[match.end() :])
            continue
        # Innermost first repeats some words of nested braces; a monitor does not mind.
        waiting.extend(current[: match.start()] + c + current[match.end() :] for c in reversed(choices))
    return done + waiting[: MAX_FIELDS - len(done)]


def _sequence(inside: str) -> list[str] | None:
    match = _SEQUENCE.match(inside)
    if match is None:
        return None
    first, last, step = match.groups()
    size = abs(int(step)) if step and int(step) else 1
    if first.lstrip("-").isdigit() and last.lstrip("-").isdigit():
        low, high = int(first), int(last)
        width = max(len(first), len(last)) if first.startswith("0") or last.startswith("0") else 0
        if abs(high - low) // size >= MAX_FIELDS:
            high = low + (MAX_FIELDS - 1) * size * (1 if high > low else -1)
        numbers = range(low, high + 1, size) if low <= high else range(low, high - 1, -size)
        return [str(n).zfill(width) for n in numbers]
    if first.isalpha() and last.isalpha():
        low, high = ord(first), ord(last)
        codes = range(low, high + 1, size) if low <= high else range(low, high - 1, -size)
        return [chr(code) for code in codes]
    return None
