"""From the trace of a page to what it is worth, by the task's rubric alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.core import Verdict
from agentgym.verifiers.web.score import passed_items, score_of
from agentgym.verifiers.web.task import CATEGORIES, Item, WebTask
from agentgym.verifiers.web.trace import Trace


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """What a page is worth.

    Attributes:
        task: the task's id.
        score, raw: in [0, 1], three decimals; see `agentgym.verifiers.web.score`.
        items: for every rubric item, in the task's order, whether it passed.
        functional, other: passed shares of the weight of functionality items, and of all others.
        categories: passed share of the weight of each category the rubric has.
        flags: what does not change the score: hung, deadline, popups, dialogs, blocked, errors; see `Trace`.
        seconds: wall time of the run.
    """

    task: str
    score: float
    raw: float
    items: Mapping[str, bool]
    functional: float
    other: float
    categories: Mapping[str, float]
    flags: Mapping[str, Any]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The verdict as ``agentgym web judge --json`` prints it."""
        return {
            "task": self.task,
            "score": self.score,
            "raw": self.raw,
            "items": dict(self.items),
            "functional": round(self.functional, 3),
            "other": round(self.other, 3),
            "categories": {name: round(share, 3) for name, share in self.categories.items()},
            "flags": dict(self.flags),
            "seconds": round(self.seconds, 1),
        }


def judge(task: WebTask, trace: Trace) -> PageVerdict:
    """What a page is worth by its trace.

    Args:
        task: the one that was run.
        trace: of its scenarios on the page.
    """
    items = passed_items(task, trace.held())
    score = score_of(task.items, items)
    flags = {
        "hung": trace.hung,
        "deadline": trace.deadline,
        "popups": trace.popups,
        "dialogs": trace.dialogs,
        "blocked": list(trace.blocked),
        "errors": list(trace.errors),
    }
    return PageVerdict(
        task.id,
        score.score,
        score.raw,
        items,
        score.functional,
        score.other,
        category_shares(task.items, items),
        flags,
        trace.seconds,
    )


def category_shares(items: Iterable[Item], passed: Mapping[str, bool]) -> dict[str, float]:
    """The passed share of the weight of each category that there is."""
    items = tuple(items)
    shares = {}
    for category in CATEGORIES:
        of_it = [item for item in items if item.category == category]
        if of_it:
            gained = sum(item.weight for item in of_it if passed[item.id])
            shares[category] = gained / sum(item.weight for item in of_it)
    return shares


def verdict_of(page: PageVerdict) -> Verdict:
    """A page's verdict as environments give it: passed where every item is. The evidence says which are not."""
    missed = [item for item, passed in page.items.items() if not passed]
    evidence = {"missed": ", ".join(missed)} if missed else {}
    if page.flags["deadline"]:
        spent = f"{page.seconds:.0f} s"
        evidence["deadline"] = f"the time for the page ran out ({spent}); what was left did not count"
    return Verdict(
        page.score,
        passed=not missed,
        components={"raw": page.raw, "functional": page.functional, "other": page.other, **page.categories},
        evidence=evidence,
    )
