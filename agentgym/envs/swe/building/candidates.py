"""Trying candidates for tasks: several at once, in a fixed order, resumable, with a reason for each one dropped.

A candidate is known by a key that is a digest of all its outcome depends on. What became of it goes into a journal;
a later run with the same key takes the answer from there, so an interrupted run continues where it was.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agentgym.envs.swe.records import SweRecord, write_atomic
from agentgym.errors import whole_number
from agentgym.trajectory.typed import FieldTypes
from agentgym.verifiers.patches import list_tree

JOURNAL = "journal.jsonl"
REPORT = "report.json"
KEPT = "kept"
BROKEN = (
    "infrastructure failed"  # says nothing about the candidate: not remembered, so a rerun tries it again
)

Progress = Callable[[str, int, int], None]  # what is done now, tasks found, tasks wanted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate.

    Attributes:
        kind: `KEPT`, `BROKEN`, or why it was dropped, in a few words.
        detail: more about that, for people.
        data: what the task is made of, as JSON.
        seconds: it took.
    """

    kind: str
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seconds: float = 0.0


_OUTCOME = FieldTypes(Outcome)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may become a task: its key, what people call it, and the function that finds out."""

    key: str
    label: str
    attempt: Callable[[], Outcome]


class Journal:
    """The outcomes in a folder's `JOURNAL`, one a line.

    A last line that was torn by a crash is cut off. What else is no outcome is skipped with a warning: its candidate is
    tried again.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / JOURNAL
        self._lock = threading.Lock()
        self._known: dict[str, Outcome] = {}
        content = self._path.read_bytes() if self._path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            write_atomic(self._path, whole)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                known = Outcome(row["kind"], row["detail"], row["data"], row["seconds"])
                _OUTCOME.check((known,))
                self._known[row["key"]] = known
            except (ValueError, KeyError, TypeError, RecursionError):
                warnings.warn(f"{self._path}, line {number}: skipped, it is no outcome", stacklevel=2)

    def outcome(self, candidate: Candidate) -> Outcome:
        """The known outcome of a candidate, or that of trying it now."""
        if candidate.key in self._known:
            return self._known[candidate.key]
        start = time.monotonic()
        outcome = candidate.attempt()
        outcome = replace(outcome, seconds=round(time.monotonic() - start, 1))
        if outcome.kind != BROKEN:
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"key": candidate.key, "label": candidate.label, **asdict(outcome)}) + "\n"
                )
            self._known[candidate.key] = outcome
        return outcome


class Trials:
    """Tries candidates, several at once, and keeps the report on all that were.

    Args:
        folder: for journal and report.
        jobs: how many candidates are tried at once.
        inputs: what the report says it is about.
    """

    def __init__(self, folder: Path, jobs: int, inputs: Mapping[str, Any]) -> None:
        self._folder, self._jobs = folder, whole_number("jobs", jobs, least=1)
        self._inputs = dict(inputs)
        self._journal = Journal(folder)
        self._rows: list[dict[str, Any]] = []
        self._start = time.monotonic()

    def outcome(self, candidate: Candidate) -> Outcome:
        """The outcome of one candidate, tried here and now."""
        return self._reported(candidate, self._journal.outcome(candidate))

    def outcomes(self, candidates: Iterable[Candidate]) -> Generator[tuple[Candidate, Outcome]]:
        """Each candidate with its outcome, in the order of the candidates.

        Some are tried ahead of their turn. Closing the iterator waits for those that have begun.
        """
        source = iter(candidates)
        ahead = 1 if self._jobs == 1 else 2 * self._jobs
        waiting: deque[tuple[Candidate, Future[Outcome]]] = deque()
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                while True:
                    while len(waiting) < ahead and (candidate := next(source, None)) is not None:
                        waiting.append((candidate, pool.submit(self._journal.outcome, candidate)))
                    if not waiting:
                        return
                    candidate, future = waiting.popleft()
                    yield candidate, self._reported(candidate, future.result())
            finally:
                for _, future in waiting:
                    future.cancel()

    def _reported(self, candidate: Candidate, outcome: Outcome) -> Outcome:
        row = {"candidate": candidate.label, "outcome": outcome.kind, "detail": outcome.detail}
        self._rows.append({**row, "seconds": outcome.seconds})
        return outcome

    def broken(self) -> str:
        """What kept the first candidate from telling anything; empty if there is none such."""
        return next((row["detail"] for row in self._rows if row["outcome"] == BROKEN), "")

    def write_report(self, tasks: int) -> dict[str, Any]:
        """Write the report on a run that gave so many tasks into the folder, and return it."""
        counts = Counter(row["outcome"] for row in self._rows)
        report = {
            "inputs": self._inputs,
            "tasks": tasks,
            "tried": len(self._rows),
            "outcomes": dict(counts.most_common()),
            "seconds": round(time.monotonic() - self._start, 1),
            "candidates": self._rows,
        }
        write_atomic(self._folder / REPORT, (json.dumps(report, indent=1) + "\n").encode())
        return report


@dataclass(frozen=True, slots=True)
class Found:
    """The tasks that were made, and the report that stands in their folder."""

    records: list[SweRecord]
    report: dict[str, Any]


def digest(*parts: Any) -> str:
    """A short key of JSON values and of the Python that runs."""
    return hashlib.sha256(json.dumps([sys.version, *parts]).encode()).hexdigest()[:20]


def tree_digest(tree: Path) -> str:
    """A short key of a folder's files and links."""
    return digest([[path, entry.mode, entry.digest.hex()] for path, entry in list_tree(tree).items()])
