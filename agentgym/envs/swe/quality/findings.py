"""What can be wrong with a task, and what each fault says about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

LABELS = ("instruct_clear", "instruct_ut_align", "overall_good")


class Kind(NamedTuple):
    """What a kind of finding means.

    Attributes:
        against: the label that it denies besides `overall_good`; empty: only that.
        proven: it was seen, not guessed: no judge is asked any more.
        meaning: for people.
    """

    against: str
    proven: bool
    meaning: str


_CLEAR, _ALIGN = "instruct_clear", "instruct_ut_align"

KINDS: dict[str, Kind] = {
    # read off the record and its tree
    "empty_statement": Kind(_CLEAR, True, "the statement says nothing"),
    "only_a_link": Kind(_CLEAR, True, "the statement is a reference to a text that a policy cannot read"),
    "short_statement": Kind(_CLEAR, False, "the statement has hardly a word that says something"),
    "names_nothing": Kind(
        _CLEAR, False, "the statement names nothing of the package and nothing the tests expect"
    ),
    "tests_elsewhere": Kind(
        _ALIGN, False, "the statement names things of the package, but none that the tests use"
    ),
    "leaked_fix": Kind("", True, "lines of the gold patch stand in the statement"),
    "unnamed_api": Kind(_ALIGN, False, "the tests need a new name that the statement does not mention"),
    "private_name": Kind(_ALIGN, False, "the tests need a private name that only the gold patch brings"),
    "hidden_message": Kind(
        _ALIGN, False, "the tests want a text of the gold patch that the statement does not have"
    ),
    # seen in runs of the tests
    "gold_fails": Kind(_ALIGN, True, "the tests reject the gold patch"),
    "passes_before": Kind(_ALIGN, True, "a fail-to-pass test passes without any change"),
    "flaky": Kind(_ALIGN, True, "equal runs end differently"),
    "unrelated_failure": Kind(
        _ALIGN, True, "a fail-to-pass test fails only since its file cannot be imported before"
    ),
    "rejects_rewrite": Kind(_ALIGN, True, "an equivalent rewrite of the gold patch fails"),
    "rejects_renaming": Kind(
        _ALIGN, True, "the gold patch fails with another private name that nobody told of"
    ),
    "rejects_message": Kind(_ALIGN, True, "the gold patch fails with other words in an error nobody told of"),
    "weak_tests": Kind(_ALIGN, False, "most small defects in the gold patch pass the tests"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a task: its kind, one of `KINDS`, and what was seen."""

    kind: str
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """As ``agentgym swe judge --json`` prints it."""
        return {"kind": self.kind, "detail": self.detail}


def listed(names: Iterable[str], most: int) -> str:
    """The first names, each once, and how many more there are."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def labels_of(findings: Iterable[Finding]) -> dict[str, bool]:
    """The three labels of a task with these findings, if nothing else is wrong with it."""
    kinds = {finding.kind for finding in findings}
    denied = {KINDS[kind].against for kind in kinds}
    return {
        "instruct_clear": _CLEAR not in denied,
        "instruct_ut_align": _ALIGN not in denied,
        "overall_good": not kinds,
    }
