"""What test runners print, as test id -> status: for records of other projects that can be graded in no better way.

A log is a weak channel: the code under test prints to it too. `agentgym.verifiers.logged` says what is done about it.
Names and ids are SWE-bench's, so that its lists of expected tests fit; the statuses are those of `SuiteRun`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_STATUSES = {
    "PASSED": "passed",
    "FAILED": "failed",
    "ERROR": "error",
    "SKIPPED": "skipped",
    "XFAIL": "xfailed",
    "XPASS": "passed",
}
_WORDS = "|".join(_STATUSES)
_STATUS_FIRST = re.compile(rf"({_WORDS})\s+(\S+)")
_STATUS_LAST = re.compile(rf"(\S+)\s+({_WORDS})(?:\s|$)")
# "SKIPPED [3] file: reason", and what code under test logs: "ERROR    logger:file.py:12 message".
_NO_TEST = re.compile(r"\[\d+\]|[^:]+:[^:]+:\d+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f]")

_UNITTEST = {"ok": "passed", "FAIL": "failed", "ERROR": "error", "expected failure": "xfailed"}
_UNITTEST_HEAD = re.compile(r"(FAIL|ERROR): (\S+(?: \([^)]*\))?)")
_UNITTEST_ID = re.compile(r"\w+ \([\w.]+\)")
_UNITTEST_RESULT = re.compile(
    r"(ok|OK|FAIL|ERROR|expected failure|unexpected success|skipped(?: .*)?)(?: \([\d.]+m?s\))?"
)
_SYMPY = {"ok": "passed", "F": "failed", "E": "error", "s": "skipped", "f": "xfailed", "X": "passed"}
_SYMPY_HEAD = re.compile(r"_+ (\S+\.py:\w+) _+")
_TAP = re.compile(r"(ok|not ok)\b\s*\d*\s*(?:-\s*)?(.*?)\s*(#\s*(?:skip|todo)\b.*)?", re.IGNORECASE)


class _Statuses(dict[str, str]):
    """Statuses by id. Where an id comes twice the worse one stays: one line of a failure outweighs any other."""

    def add(self, name: str, status: str) -> None:
        if self.get(name) not in ("failed", "error"):
            self[name] = status


def _lines(log: str) -> Iterator[str]:
    """The lines without colours and control characters."""
    for line in log.replace("\r", "\n").split("\n"):
        yield _CONTROLS.sub("", _COLOURS.sub("", line))


def parse_pytest(log: str) -> dict[str, str]:
    """Pytest's lines of ``-rA`` ("PASSED id") and of ``-v`` ("id PASSED"). An id ends at its first white space."""
    found = _Statuses()
    for line in _lines(log):
        if match := _STATUS_FIRST.match(line):
            status, name = match.groups()
        elif match := _STATUS_LAST.match(line):
            name, status = match.groups()
        else:
            continue
        if not _NO_TEST.fullmatch(name):
            found.add(name, _STATUSES[status])
    return found


def parse_pytest_options(log: str) -> dict[str, str]:
    """The same; a parameter that is an absolute path counts by its last part."""
    return _renamed(parse_pytest(log), short_paths)


def parse_matplotlib(log: str) -> dict[str, str]:
    """The same; the names of mouse buttons count as their numbers."""
    return _renamed(parse_pytest(log), button_numbers)


def _renamed(statuses: dict[str, str], rename: Callable[[str], str]) -> dict[str, str]:
    found = _Statuses()
    for name, status in statuses.items():
        found.add(rename(name), status)
    return found


def short_paths(name: str) -> str:
    """``test[/a/b.txt]`` as ``test[/b.txt]``; other ids as they are."""
    test, bracket, option = name.partition("[")
    inner, closing, _ = option.rpartition("]")
    if bracket and closing and inner.startswith("/") and not inner.startswith("//") and "*" not in inner:
        return f"{test}[/{inner.rpartition('/')[2]}]"
    return name


def button_numbers(name: str) -> str:
    """Matplotlib's ids, which differ between its versions."""
    return name.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3")


def parse_unittest(log: str) -> dict[str, str]:
    """Unittest's verbose lines, also Django's: ``test (module.Case) ... ok``.

    A test with a docstring goes by the docstring's first line, which may hold dots of its own. What a test prints may
    stand between its name and its result.
    """
    found = _Statuses()
    waiting = ""
    for line in map(str.strip, _lines(log)):
        head = _UNITTEST_HEAD.match(line)
        name, dots, said = line.partition(" ... ")
        if not dots and line.endswith(" ..."):
            name, dots, said = line.removesuffix(" ..."), " ...", ""
        if head:
            found.add(head[2], _UNITTEST[head[1]])
        elif dots:
            result = _UNITTEST_RESULT.fullmatch(said.strip())
            if result is None:
                before, _, last = line.rpartition(" ... ")
                result = _UNITTEST_RESULT.fullmatch(last.strip())
                name = before if result and not _UNITTEST_ID.fullmatch(name) else name
            waiting = "" if result else name
            if result:
                found.add(name, _unittest_status(result[1]))
        elif waiting and (result := _UNITTEST_RESULT.fullmatch(line)):
            found.add(waiting, _unittest_status(result[1]))
            waiting = ""
    return found


def _unittest_status(word: str) -> str:
    if word.startswith("skipped"):
        return "skipped"
    if word == "unexpected success":
        return "failed"
    return _UNITTEST["ok" if word == "OK" else word]


def parse_sympy(log: str) -> dict[str, str]:
    """Sympy's own runner: ``test_name ok``; failures besides as ``path.py:test_name`` from their headings."""
    found = _Statuses()
    for line in map(str.strip, _lines(log)):
        words = line.split()
        if heading := _SYMPY_HEAD.fullmatch(line):
            found.add(heading[1], "failed")
        elif len(words) > 1 and words[0].startswith("test_") and words[-1] in _SYMPY:
            found.add(words[0], _SYMPY[words[-1]])
    return found


def parse_tap(log: str) -> dict[str, str]:
    """The Test Anything Protocol: ``ok 1 - name``, ``not ok 2 - name``."""
    found = _Statuses()
    for line in map(str.strip, _lines(log)):
        match = _TAP.fullmatch(line)
        if match and match[2]:
            directive = (match[3] or "").lower()
            if "skip" in directive:
                status = "skipped"
            elif match[1].lower() == "ok":
                status = "passed"
            else:
                status = "xfailed" if "todo" in directive else "failed"
            found.add(match[2], status)
    return found


PARSERS: dict[str, Callable[[str], dict[str, str]]] = {
    "pytest": parse_pytest,
    "pytest_v2": parse_pytest,  # SWE-bench's second one strips colours, as all of these do
    "pytest_options": parse_pytest_options,
    "seaborn": parse_pytest,
    "matplotlib": parse_matplotlib,
    "django": parse_unittest,
    "unittest": parse_unittest,
    "sympy": parse_sympy,
    "tap": parse_tap,
}

# Parsers of pytest's output, and how each spells a node id.
PYTEST_IDS: dict[str, Callable[[str], str]] = {
    "": str,
    "pytest": str,
    "pytest_v2": str,
    "pytest_options": short_paths,
    "seaborn": str,
    "matplotlib": button_numbers,
}
