"""From asserts that held to rubric items, and from items to the score."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from agentgym.verifiers.web.task import Assert, Item, WebTask

GATE = 0.5  # the functional share from which everything else counts in full


@dataclass(frozen=True, slots=True)
class Score:
    """How well a page meets a rubric, each in [0, 1].

    Attributes:
        score: `raw` with what is no function counted only as far as function works.
        raw: the weighted share of passed items.
        functional, other: the shares of functionality items and of all others; 1 where there are none.
    """

    score: float
    raw: float
    functional: float
    other: float


def passed_items(task: WebTask, held: Collection[tuple[int, int]]) -> dict[str, bool]:
    """Which items pass: an assert names it, all that do were run and held, and what it requires passes too.

    Args:
        task: the rubric and the scripts.
        held: (scenario, step) of the asserts that were run and held.

    Returns:
        Every item of the task, in its order.
    """
    proven: dict[str, bool] = {}
    for s, scenario in enumerate(task.scenarios):
        for n, step in enumerate(scenario.steps):
            if isinstance(step, Assert):
                proven[step.item] = proven.get(step.item, True) and (s, n) in held
    return with_required(task.items, proven)


def with_required(items: Sequence[Item], passed: Mapping[str, bool]) -> dict[str, bool]:
    """Which items pass once each needs all that it requires, and what those require.

    Args:
        items: of a rubric; what they require is among them.
        passed: by item, on its own; one that is not there does not pass.

    Returns:
        Every item, in its order.
    """
    requires = {item.id: item.requires for item in items}
    standing: dict[str, bool] = {}
    for item in TopologicalSorter(requires).static_order():  # what is required comes first
        standing[item] = passed.get(item, False) and all(standing[each] for each in requires[item])
    return {item: standing[item] for item in requires}


def score_of(items: Iterable[Item], passed: Mapping[str, bool]) -> Score:
    """The score of a rubric, rounded to three decimals where it is shown.

    score = (F wF + S wS min(1, F / 0.5)) / (wF + wS), with F and S the passed shares of the weights wF of functionality
    items and wS of all others. Looks and words count only as far as the page works; without any function it is 0.
    """
    weights = {True: 0.0, False: 0.0}
    gained = {True: 0.0, False: 0.0}
    for item in items:
        functional = item.category == "functionality"
        weights[functional] += item.weight
        gained[functional] += item.weight * passed[item.id]
    f, s = (gained[which] / weights[which] if weights[which] else 1.0 for which in (True, False))
    whole = weights[True] + weights[False]
    score = (gained[True] + gained[False] * min(1.0, f / GATE)) / whole
    return Score(round(score, 3), round((gained[True] + gained[False]) / whole, 3), f, s)
