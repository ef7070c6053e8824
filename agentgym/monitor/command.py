"""A simple command with its words folded: what the table of programs works on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agentgym.monitor.effects import HOLE

if TYPE_CHECKING:
    from agentgym.monitor.shell import Shell

_PATH_INSIDE = re.compile(r"(?:^|[=:@,])(/[^:,]*|\.\.?/[^:,]*)")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S+")


STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
"""The names of standard input."""

Row = Callable[["Command"], str]
"""A row of the table of programs: what a command does, and what it prints."""


class Options(NamedTuple):
    """Arguments sorted into options and operands.

    Attributes:
        given: (name with its dashes, value; "" for a flag) in order.
        operands: what is no option.
    """

    given: list[tuple[str, str]]
    operands: list[str]

    def has(self, *names: str) -> bool:
        """Whether one of the options `names` is given."""
        return any(name in names for name, _ in self.given)

    def values(self, *names: str) -> list[str]:
        """The values of the options `names`, in order."""
        return [value for name, value in self.given if name in names]


def sort_options(arguments: Sequence[str], valued: str = "", *, stop_at_operand: bool = False) -> Options:
    """Reads `arguments` as getopt does.

    Args:
        arguments: words after the program's name.
        valued: options that take a value: single letters and long names ("n lines").
        stop_at_operand: the first operand ends the options, as for wrappers and interpreters.
    """
    takes = _names(valued)
    given: list[tuple[str, str]] = []
    operands: list[str] = []
    i = 0
    while i < len(arguments):
        word = arguments[i]
        i += 1
        if word == "--":
            operands.extend(arguments[i:])
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if not equals and name[2:] in takes and i < len(arguments):
                value = arguments[i]
                i += 1
            given.append((name, value))
        elif word.startswith("-") and len(word) > 1:
            i = _short(word, arguments, i, takes, given)
        else:
            operands.append(word)
            if stop_at_operand:
                operands.extend(arguments[i:])
                break
    return Options(given, operands)


@lru_cache(maxsize=512)
def _names(valued: str) -> frozenset[str]:
    return frozenset(valued.split())


def _short(
    word: str, arguments: Sequence[str], i: int, takes: frozenset[str], given: list[tuple[str, str]]
) -> int:
    """A cluster such as ``-rn5``; a whole single-dash name (``-name``) may be valued too."""
    if word[1:] in takes and len(word) > 2:
        given.append((word, arguments[i] if i < len(arguments) else ""))
        return i + 1
    for at, letter in enumerate(word[1:], 1):
        if letter in takes:
            value = word[at + 1 :]
            if not value and i < len(arguments):
                value = arguments[i]
                i += 1
            given.append(("-" + letter, value))
            break
        given.append(("-" + letter, ""))
    return i


class Command:
    """One command about to run.

    Attributes:
        shell: where it runs.
        name: the program's base name.
        arguments: its words.
        stdin: what it can read, HOLE where unknown.
    """

    def __init__(self, shell: Shell, name: str, arguments: Sequence[str], origin: str = "") -> None:
        self.shell = shell
        self.name = name
        self.arguments = list(arguments)
        self.stdin = shell.stdin
        self.analysis = shell.analysis
        self.state = shell.state
        self.origin = origin

    def options(self, valued: str = "", *, stop_at_operand: bool = False) -> Options:
        """The arguments sorted; see `sort_options`."""
        return sort_options(self.arguments, valued, stop_at_operand=stop_at_operand)

    def read(self, path: str, *, deep: bool = False, detail: tuple[str, ...] = ()) -> None:
        """It reads `path`."""
        self.analysis.read(path, self.name, detail, deep=deep, origin=self.origin)

    def look(self, path: str, *, deep: bool = False, detail: tuple[str, ...] = ()) -> None:
        """It lists or measures `path`."""
        self.analysis.look(path, self.name, detail, deep=deep, origin=self.origin)

    def content_of(self, path: str) -> str | None:
        """What a file holds, standard input among them; None where it is not known."""
        if path in STDIN:
            return None if self.stdin == HOLE else self.stdin
        return self.analysis.content_of(path)

    def input(self, paths: Sequence[str]) -> str:
        """What it reads: the files `paths`, or its standard input where there are none."""
        if not paths:
            return self.stdin
        out: list[str] = []
        for path in paths:
            if path == "-":
                out.append(self.stdin)
                continue
            self.read(path)
            content = self.analysis.content_of(path)
            out.append(HOLE if content is None else content)
        return "".join(out)


def path_words(arguments: Iterable[str]) -> list[str]:
    """The words, or parts of options, that look like paths: for programs nothing is known of."""
    found: list[str] = []
    for word in arguments:
        if _URL.search(word):
            continue
        if word.startswith("-"):
            found.extend(_PATH_INSIDE.findall(word))
            if len(word) > 2 and word[1] != "-" and word[2] in "/.":
                found.append(word[2:])
        elif "/" in word or "." in word or HOLE in word:
            found.append(word)
            if "=" in word or ":" in word or word.startswith("@"):
                found.extend(_PATH_INSIDE.findall(word))
    return found


def urls(arguments: Iterable[str]) -> list[str]:
    """The URLs that stand in `arguments`."""
    return [url for word in arguments for url in _URL.findall(word)]
