"""What all verbs share of the terminal: exit codes, output on the right stream, progress."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape

OK = 0
NO = 1  # it ran; the answer is no
USAGE = 2
INFRASTRUCTURE = 3
BUG = 70  # EX_SOFTWARE: Python's own 1 would read as "the answer is no"
INTERRUPTED = 130
BROKEN_PIPE = 141

_PLAIN_WIDTH = 160  # of tables that go to a file or a pipe, where nothing says how wide
_PLAIN_FIRST, _PLAIN_MOST = 5.0, 30.0  # seconds between plain progress lines, which grow


def out() -> Console:
    """A console on standard output, wide where that is no terminal."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)


def complain(message: str) -> None:
    """One line on standard error."""
    print("agentgym: " + " ".join(message.split()), file=sys.stderr)


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Show a warning as one line, without the place in the code that Python prints."""

    def show(message: Warning | str, *place: Any, **more: Any) -> None:
        complain(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def traceback() -> None:
    """The traceback of the exception being handled: for bugs only."""
    import traceback

    traceback.print_exc()
    print("agentgym: this is a bug; please report it with the lines above", file=sys.stderr)


def print_json(value: Any) -> None:
    """The answer of a verb under ``--json``: standard JSON, nothing else."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


@contextlib.contextmanager
def stdout_reserved(reserved: bool) -> Iterator[None]:
    """Send what an environment or policy prints to standard error, so that only the JSON is on standard output."""
    with contextlib.redirect_stdout(sys.stderr) if reserved else contextlib.nullcontext():
        yield


class HelpShown(SystemExit):
    """A verb printed its help; there is nothing more to do. A script that catches nothing ends well."""


class Progress:
    """How far a long verb is, on standard error: a bar on a terminal, else a plain line every few seconds.

    Args:
        what: what is counted, in the plural.
        total: how many there are; None where nobody knows.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = what, total
        self._done = 0
        self._note = ""
        self._start = time.monotonic()
        self._bar: Any = None
        self._ended = threading.Event()
        self._printed = ""
        self._printer = threading.Thread(target=self._print_now_and_then, daemon=True)

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )
            from rich.progress import Progress as Bar

            columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
            self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._bar.start()
            self._bar.add_task(self._what, total=self._total)
        else:
            self._printer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._bar is not None:
            self._bar.stop()
            return
        self._printer.join()
        if time.monotonic() - self._start > 2 and self._state() != self._printed:
            self._print()

    def step(self, note: str = "", done: int = 1) -> None:
        """`done` more are done; `note` says what goes on, in a few words."""
        self.show(note, self._done + done, self._total)

    def show(self, note: str, done: int, total: int | None) -> None:
        """What goes on, and how many are done of how many: for work that keeps its own count."""
        self._note, self._done, self._total = note, done, total
        if self._bar is not None:
            description = f"{self._what}  {escape(note)}".rstrip()
            self._bar.update(0, completed=done, total=total, description=description)

    def _print_now_and_then(self) -> None:
        pause = _PLAIN_FIRST
        while not self._ended.wait(pause):
            self._print()
            pause = min(1.5 * pause, _PLAIN_MOST)

    def _print(self) -> None:
        self._printed = self._state()
        print(f"{time.monotonic() - self._start:4.0f} s  {self._printed}", file=sys.stderr, flush=True)

    def _state(self) -> str:
        count = str(self._done) if self._total is None else f"{self._done}/{self._total}"
        return f"{count} {self._what}{', ' + self._note if self._note else ''}"


def number(value: float | None, digits: int = 3) -> str:
    """A number for people; a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def span(interval: Sequence[float | None] | None, digits: int = 3) -> str:
    """An interval for people."""
    if interval is None or interval[0] is None or interval[1] is None:
        return "-"
    return f"{number(interval[0], digits)} to {number(interval[1], digits)}"
