"""What can be said of a batch of judged pages: do scorers agree, does length pay, who tried something?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from agentgym.errors import UsageError
from agentgym.monitor.rules.wording import injection_in
from agentgym.verifiers.agreement import length_check, rank_agreement
from agentgym.verifiers.web.judge import PageVerdict

STEPS = "steps"  # the scorer that uses the page


@dataclass(frozen=True, slots=True)
class JudgedPage:
    """A page with all that was found out about it.

    Attributes:
        name: of the page.
        verdict: what it is worth.
        size: bytes of all its files.
        scores: what other scorers say, by their names; each in [0, 1].
        injection: words in it that address a judge; "" if there are none.
        differs: items whose verdict is another one where the page can tell that the browser is automated; None where
            nobody looked.
    """

    name: str
    verdict: PageVerdict
    size: int
    scores: Mapping[str, float] = field(default_factory=dict)
    injection: str = ""
    differs: tuple[str, ...] | None = None


def injection_phrase(files: Mapping[str, bytes]) -> str:
    """The first words in a page's files that address whoever judges it; "" if there are none."""
    texts = ((name, content.decode("utf-8", "replace")) for name, content in files.items())
    return next((said for name, text in texts if (said := injection_in(text, path=name))), "")


def differing(quiet: PageVerdict, plain: PageVerdict) -> tuple[str, ...]:
    """The items that a page passes in one profile of the browser only: it knows who is looking."""
    return tuple(item for item, passed in quiet.items.items() if plain.items[item] != passed)


def sample(names: Sequence[str], count: int, *, seed: int) -> frozenset[str]:
    """`count` of the names, or all; for what is too dear to do with every page."""
    return frozenset(random.Random(seed).sample(list(names), min(count, len(names))))


def measures(pages: Iterable[JudgedPage]) -> dict[str, Any]:
    """What a batch shows, as JSON values.

    Args:
        pages: of any tasks. All have the same other scorers.

    Returns:
        - ``pages``, ``tasks``: counts; ``score``: the mean; ``categories``: mean passed share of each rubric category
        - ``tau``: Kendall's tau-b for each pair of scorers ("steps" is the one that uses the page), averaged over tasks
        - ``length``: for each scorer whether longer pages get more (`agentgym.verifiers.agreement.LengthCheck`)
        - ``flags``: how many tried the network, spoke to a judge, hung; looked at in both profiles, and differ there
        - ``alarms``: what somebody should look at, in words

    Raises:
        UsageError: there is no page, or their scorers differ.
        MissingDependency: scipy is not installed.
    """
    pages = list(pages)
    if not pages:
        raise UsageError("expected at least one judged page")
    others = list(pages[0].scores)
    if any(list(page.scores) != others for page in pages):
        raise UsageError("expected every page to have the same scorers")
    tasks: dict[str, list[JudgedPage]] = {}
    for page in pages:
        tasks.setdefault(page.verdict.task, []).append(page)
    groups = list(tasks.values())
    by_scorer = {STEPS: [[page.verdict.score for page in group] for group in groups]}
    by_scorer |= {name: [[page.scores[name] for page in group] for group in groups] for name in others}
    sizes = [[float(page.size) for page in group] for group in groups]
    names = list(by_scorer)
    found = {
        "pages": len(pages),
        "tasks": len(tasks),
        "score": float(np.mean([page.verdict.score for page in pages])),
        "categories": _categories(pages),
        "tau": [
            {"scorers": [a, b], **asdict(rank_agreement(by_scorer[a], by_scorer[b]))}
            for number, a in enumerate(names)
            for b in names[number + 1 :]
        ],
        "length": {
            name: asdict(length_check(scores, sizes, trusted=None if name == STEPS else by_scorer[STEPS]))
            for name, scores in by_scorer.items()
        },
        "flags": _flags(pages),
    }
    return {**found, "alarms": _alarms(found)}


def _categories(pages: Sequence[JudgedPage]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for page in pages:
        for category, share in page.verdict.categories.items():
            shares.setdefault(category, []).append(share)
    return {category: float(np.mean(each)) for category, each in shares.items()}


def _flags(pages: Sequence[JudgedPage]) -> dict[str, int]:
    looked = [page for page in pages if page.differs is not None]
    return {
        "network": sum(bool(page.verdict.flags["blocked"]) for page in pages),
        "injection": sum(bool(page.injection) for page in pages),
        "hung": sum(bool(page.verdict.flags["hung"]) for page in pages),
        "profiles_compared": len(looked),
        "profiles_differ": sum(bool(page.differs) for page in looked),
    }


def _alarms(found: Mapping[str, Any]) -> list[str]:
    alarms = []
    for name, check in found["length"].items():
        if check["alarm"]:
            shown = check["within"] if check["beyond"] is None else check["beyond"]
            beyond = "" if check["beyond"] is None else " beyond what the page does"
            alarms.append(f"the scorer {name!r} pays for length{beyond}: rank correlation {shown:.2f}")
    told = {
        "network": "tried to reach the network",
        "injection": "speak to their judge",
        "profiles_differ": "behave otherwise in an automated browser",
    }
    flags = found["flags"]
    alarms += [f"pages that {what}: {flags[flag]}" for flag, what in told.items() if flags[flag]]
    return alarms
