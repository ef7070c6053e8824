"""Programs that edit other programs: what a ``replace`` puts in the place of what, in any scripting language."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentgym.monitor import writing
from agentgym.monitor.languages import language_of

if TYPE_CHECKING:
    from agentgym.monitor.analysis import Analysis

_STRING = (
    r"(?:[rbuf]{0,2}(?:\"\"\"[\s\S]{0,2000}?\"\"\"|'''[\s\S]{0,2000}?'''|\"(?:\\.|[^\"\\]){0,2000}\""
    r"|'(?:\\.|[^'\\]){0,2000}'|`(?:\\.|[^`\\]){0,2000}`)|/(?:\\.|[^/\\\n]){1,300}/\w{0,4})"
)
_REPLACES = re.compile(
    rf"(?:\.(?:replace(?:All|_all)?|g?sub!?|subn)|\b(?:str|preg)_replace)\s*\(\s*({_STRING}|\w+)\s*,\s*({_STRING}|\w+)"
)
_BOUND = re.compile(rf"^[ \t]*(?:const |let |var |my )?\$?(\w+)\s*=\s*\(?({_STRING})", re.MULTILINE)
_WORDS = ("replace", "sub(", "sub!(", "subn(")
_MOST = 20


def pairs(content: str) -> list[tuple[str, str]]:
    """(old, new) of the replacements in a program whose two sides are texts that it holds."""
    if not any(word in content for word in _WORDS):
        return []
    bound: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for old, new in _REPLACES.findall(content)[:_MOST]:
        if (old + new).isidentifier() or old.isidentifier() or new.isidentifier():
            bound = bound or dict(_BOUND.findall(content))
        texts = [bound.get(side, "") if side.isidentifier() else side for side in (old, new)]
        if texts[0] and texts[1]:
            found.append((_plain(texts[0]), _plain(texts[1])))
    return found


def follow(analysis: Analysis, content: str, start: int) -> None:
    """Says of the program files, which the effects from `start` on write, what the program `content` puts in."""
    written = {
        e.target: e.program for e in analysis.effects[start:] if e.kind == "write" and language_of(e.target)
    }
    if not written:
        return
    for old, new in pairs(content):
        for target, program in written.items():
            edited(analysis, target, program, old, new)


def edited(analysis: Analysis, target: str, program: str, old: str, new: str, *, said: str = "") -> None:
    """`program` puts `new` in the place of `old` in a program file: told as an edit is, but for the text `said`."""
    if language_of(target):
        analysis.emit("write", target, program, ("edit", old, new), new)
        if new != said:
            writing.edited(analysis, target, old, new)


def _plain(text: str) -> str:
    """What a literal stands for."""
    raw = text[:1] == "r" or text[:1] == "/"
    text = text.lstrip("rbuf") if text[:1] not in "\"'`/" else text
    quote = next((q for q in ('"""', "'''") if text.startswith(q)), text[:1])
    text = text[len(quote) :].rpartition(quote)[0]
    return text if raw else re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text)
