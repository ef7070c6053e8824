"""What a task says: what was seen to fail and what the maintainers wrote, not where it is or how to repair it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from agentgym.verifiers.tests import SuiteRun

_SHOWN, _NAMED = 3, 20  # failing test functions
_LONGEST = 3000  # characters of a maintainer's text

_ENDING = (
    "The checks above are not in the repository, and changes to tests or to their configuration do not count."
    " Everything that works now must still work."
)


class Failure(NamedTuple):
    """A test that failed: its node id, its failing statement, and the error."""

    node: str
    statement: str
    error: str

    @property
    def function(self) -> str:
        """The node id without parameters."""
        return self.node.partition("[")[0]

    @property
    def name(self) -> str:
        """What the test function is called; of a file that cannot be imported, the file's name."""
        return self.function.partition("::")[2] or PurePosixPath(self.node).name


def defect_statement(
    project: str, failures: Sequence[Failure], *, failing: int, causes: int, files: Collection[str]
) -> str:
    """The statement of a task with injected bugs: what was called and what came of it, not where or why.

    Args:
        project: name and version.
        failures: of the tests; the first ones are shown.
        failing: how many tests fail.
        causes: how many bugs there are.
        files: with the bugs; their names are taken out of what is shown.
    """
    several = " There is more than one cause." if causes > 1 else ""
    place = "Find every cause" if causes > 1 else "Find the cause"
    return "\n".join(
        [
            f"Something in {project} does not work as it should.{several} What was seen:",
            "",
            *_behaviour(failures, files, failing, " for the same reason" if causes == 1 else ""),
            f"{place} in the sources of {project.partition(' ')[0]} and repair it there. {_ENDING}",
        ]
    )


def change_statement(
    project: str, text: str, failures: Sequence[Failure], *, failing: int, files: Collection[str]
) -> str:
    """The statement of a task from history: what the maintainers said, and what the tests see now.

    Args:
        project: name and version.
        text: from `problem_text`; may be empty.
        failures: as for `defect_statement`.
        failing: the same.
        files: that the fix changes.
    """
    told = [f"This is to be changed in {project}, in its maintainers' words:", "", text, ""] if text else []
    seen = (
        "What is seen now:" if text else f"Something in {project} is not as it should be. What is seen now:"
    )
    return "\n".join(
        [
            *told,
            *([seen, "", *_behaviour(failures, files, failing)] if failures else []),
            f"Make the change in the sources of {project.partition(' ')[0]}. {_ENDING}",
        ]
    )


def _behaviour(
    failures: Sequence[Failure], files: Collection[str], failing: int, reason: str = ""
) -> Iterator[str]:
    """The lines that show failing tests: one of each test function, up to a few, and the names of some more."""
    by_function: dict[str, Failure] = {}
    for failure in failures:
        by_function.setdefault(failure.function, failure)
    first = list(by_function.values())
    shown, named = first[:_SHOWN], dict.fromkeys(f"`{failure.name}`" for failure in first[_SHOWN:])
    for failure in shown:
        yield from [f"Checked by `{failure.name}`:", "", "```"]
        yield from [*_readable(failure.statement, files), *_readable(failure.error, files), "```", ""]
    more = failing - len(shown)
    if more > 0:
        where = f", in {', '.join(list(named)[:_NAMED])}" if named else ""
        yield f"{more} more {'checks fail' if more > 1 else 'check fails'}{reason}{where}."
        yield ""


def _readable(text: str, files: Collection[str]) -> list[str]:
    """The lines of a text, shortened and without what differs from run to run or names the place of the bug."""
    text = re.sub(r"0x[0-9a-fA-F]{6,}", "0x...", text)
    for name in sorted({PurePosixPath(file).name for file in files}):
        text = re.sub(rf"[\w./-]*(?<![\w-]){re.escape(name)}(:\d+)?", "...", text)
    return [line.rstrip() for line in text.strip().splitlines()[:12]]


def failures_of(run: SuiteRun, nodes: Iterable[str]) -> list[Failure]:
    """How these tests failed; a file that cannot be imported has one error for all its tests."""
    found = []
    for node in nodes:
        statement, error = run.failures.get(node, run.failures.get(node.partition("::")[0], ("", "")))
        if error:
            found.append(Failure(node, statement, error))
    return found


# What maintainers wrote

_DIFF = re.compile(r"^(diff --git |Index: |@@ -|--- a/|\+\+\+ b/)")
_NO_PROSE = re.compile(
    r"^\W*$"  # rules and empty lines
    r"|^Merge (pull request|branch|remote-tracking branch|branches|tag)\b"
    r"|^[\w-]+-by:|^(change-id|cc|git-svn-id) *:|^\(cherry picked from\b"
    r"|^(refs?|see|link|bug|issue|pr|close[sd]?|fix(e[sd])?|resolve[sd]?)\W*(#|https?:|gh-|\d)\S*\W*$"
    r"|^\W*released?( on)?\b.{0,30}$"
    r"|^\W*(unreleased|version|changes( in)?|changelog|history|news|what'?s (new|changed))?\W*$"
    r"|^\W*([\w.-]+ )?v?(ersion )?\d+(\.\d+)+\S*(\W+[\w,.: -]{0,40})?\W*$",  # "name 1.2.3 (2024-01-01)"
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"`+[^`<]*<https?://[^>]*>`+_*|:\w+:`[^`\d]*\d+`|https?://[^\s)>]+"  # links, in reStructuredText or plain
    r"|\b(issues?|pr|pull requests?|bug|gh|ticket)[ :-]*#?\d+|[\w./-]*#\d+"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b",
    re.IGNORECASE,
)
_LEFT_OVER = re.compile(  # of a reference: brackets and words that led to it
    r"(?<!\w)[(\[]\W*((fix|fixe[sd]|close[sd]?|resolve[sd]?|see|also|via|refs?|and|by|in|cf)\W*)*[)\]]"
    r"|[,;(]?\s*\b(see( also)?|fixe?[sd]|close[sd]?|resolve[sd]?|refs?|via|cf\.?)\W*$",
    re.IGNORECASE,
)
_THE_WAY = re.compile(r",?\s+by\s+(?:\w+ly\s+)?\w+ing\b.*$", re.DOTALL)
_HINT = re.compile(
    r"^\W*(\w+ ?: *)?"  # a label such as "Fix:"
    r"(this (commit|patch|change|pr|pull request)\b|we (now|can|just|simply|should)\b|now,? (we|use|it)\b"
    r"|the (fix|solution|patch|cause|culprit|reason)\b|(it|this|that) (is|was|were) (fixed|solved|done|caused)\b"
    r"|instead\b|use\b.*\binstead\b|replaced?\b|chang(e|ed|es|ing) .*\b(to|from|into)\b|swap(ped)?\b|mov(e|ed|ing)\b"
    r"|renam(e|ed|ing)\b|(switch|convert)(ed)? (.* )?(to|from|into)\b|refactor|extract(ed)?\b|inlined?\b"
    r"|(so|therefore|hence),? (we|let)\b"
    r"|add(ed|s)? (a |an |some |more |missing |unit |regression )*(checks?|guards?|conditions?|tests?|special case)\b"
    r"|simply\b|(update|improve|fix|tweak|clean)\w* (up )?(the )?(docs?|documentation|changelog|readme|tests?|typos?)\b"
    r"|thanks\b|reported by\b|contributed by\b)",
    re.IGNORECASE,
)
_EMPTY_WORDS = frozenset(
    "a an and are bug bugs bump by change changed changes cleanup code commit documentation docs error fix fixed"
    " fixes for from improve improved in is issue issues it make merge minor misc new of on or patch pr prepare problem"
    " project pull python readme refactor release request review small some test tests the this to typo update updated"
    " use version was wip with work".split()
)
_LEAST_WORDS = 3  # that say something


def first_line(message: str) -> str:
    """The subject of a commit message."""
    return (message.strip().splitlines() or [""])[0]


def problem_text(message: str, gold: str) -> str:
    """What a commit message or changelog entry says about the problem, without the fix.

    Left out are diffs, code of the gold patch, trailers, links, commit hashes and issue numbers, and the sentences that
    say how it was done, as far as their wording shows it. Empty if what is left says too little.

    Args:
        message: the text.
        gold: the gold patch.
    """
    code = [line[1:].strip() for line in gold.splitlines() if re.match(r"[+-](?![+-])", line)]
    code = [" ".join(line.split()) for line in code if len(line.strip()) >= 8]
    paragraphs: list[list[str]] = [[]]
    for line in message.splitlines():
        if _DIFF.match(line):
            break
        if not line.strip():
            paragraphs.append([])
        elif not _NO_PROSE.match(line.strip()) and not any(part in " ".join(line.split()) for part in code):
            if re.match(r"\s*([-*+]|\d+\.)\s", line):
                paragraphs.append([])
            paragraphs[-1].append(line.strip())
    kept = ["\n".join(_sentences(" ".join(lines), code)) for lines in paragraphs]
    text = "\n\n".join(part for part in kept if part)[:_LONGEST]
    words = [word for word in re.findall(r"[a-z]{2,}", text.lower()) if word not in _EMPTY_WORDS]
    return text if len(words) >= _LEAST_WORDS else ""


def _sentences(paragraph: str, code: Sequence[str]) -> Iterator[str]:
    """One text with the sentences that may stay, if any do."""
    kept = []
    for sentence in re.split(r"(?<=[.!?])\s+", paragraph):
        quoted = [span for span in re.findall(r"`+([^`]{8,})`+", sentence) if re.search(r"[^\w.()]", span)]
        plain = _REFERENCE.sub("", sentence)
        if _HINT.match(plain) or any(" ".join(span.split()) in line for span in quoted for line in code):
            continue
        told = _LEFT_OVER.sub("", _THE_WAY.sub(".", plain).strip())
        told = re.sub(r"\s+([.,;:])", r"\1", told).strip()
        if len(re.findall(r"\w\w+", told)) > 1:
            kept.append(" ".join(told.split()))
    if kept:
        yield " ".join(kept)
