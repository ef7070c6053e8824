"""How much is followed: above these sizes parsing gives way to a linear scan for what the policy names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis

MAX_TEXT = 64 * 1024
"""Characters of a command, here-documents included, or of a program that are parsed."""
MAX_SHELL = 12 * 1024
"""Characters of shell source that are parsed, the bodies of here-documents left out."""
MAX_PROGRAM = 24 * 1024
"""Characters of a program in another language that are parsed."""
MAX_WORDS = 10_000
"""Words of a command that are parsed."""
MAX_MARKS = 8000
"""Quotes, backslashes and dollar signs that are followed."""
MAX_NESTING = 50
"""Brackets that may be open at once."""
MAX_FOUND = 200

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_REST = re.compile(r"://[^\s'\"<>|;)]{1,2000}")
_REPEATS = re.compile(r"(?<!\\)[*+]|\{\d*,")
_NESTED = re.compile(r"[*+}]\)?\)[*+{]")


def too_large(text: str) -> bool:
    """Whether `text` is beyond what is parsed."""
    if len(text) > MAX_TEXT or (len(text) > 2 * MAX_WORDS and len(text.split()) > MAX_WORDS):
        return True
    return (len(text) > MAX_MARKS and sum(map(text.count, "'\"`$\\")) > MAX_MARKS) or too_deep(text)


def too_deep(text: str) -> bool:
    """Whether more than `MAX_NESTING` brackets may be open at once in `text`."""
    if text.count("(") + text.count("{") + text.count("[") <= MAX_NESTING:
        return False
    depth = 0
    for char in re.findall(r"[(){}\[\]]", text):
        depth += 1 if char in "({[" else -1 if depth else 0
        if depth > MAX_NESTING:
            return True
    return False


def expression(pattern: str, flags: int = 0, *, length: int) -> re.Pattern[str] | None:
    """A regular expression out of a command, if trying it on texts of `length` is sure to end soon."""
    repeats = len(_REPEATS.findall(pattern))
    if _NESTED.search(pattern) or len(pattern) > 500 or length ** min(repeats, 8) > 200_000:
        return None
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError):
        return None


def scan(analysis: Analysis, text: str) -> None:
    """Effects of what can be seen in a text that is too large to be parsed: paths of the policy, and addresses."""
    analysis.give_up("size")
    analysis.exhausted = False  # the last word on this call, whatever was found before
    for path in analysis.context.protected_paths:
        if _mentions(text, path):
            analysis.emit("read", path, "", ("scan",))
    at = text.find("://")
    for _ in range(MAX_FOUND):
        if at < 0:
            break
        scheme, rest = _SCHEME.search(text[max(at - 12, 0) : at]), _REST.match(text, at)
        if scheme and rest:
            analysis.emit("net", scheme.group() + rest.group(), "", ("scan",))
        at = text.find("://", at + 3)


def _mentions(text: str, path: str) -> bool:
    at = text.find(path)
    for _ in range(MAX_FOUND):
        if at < 0:
            return False
        before, after = text[max(at - 1, 0) : at], text[at + len(path) : at + len(path) + 1]
        if not re.match(r"[\w/.]", before) and not re.match(r"[\w-]", after):
            return True
        at = text.find(path, at + 1)
    return False
