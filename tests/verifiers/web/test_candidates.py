"""The pages of graded quality of benchmarks/web_best_of_n.py: their cuts fit the pages, their worth falls."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("scipy")
from agentgym.verifiers.web.static import source_score
from benchmarks.web_best_of_n import figures_of
from benchmarks.web_candidates import CUTS, STUFFED, candidates


@pytest.mark.parametrize("recipe", CUTS)
@pytest.mark.parametrize("seed", [1, 3])
def test_eight_pages_of_falling_worth(recipe: str, seed: int) -> None:
    task, pages = candidates(recipe, seed)
    worth = [page.worth for page in pages]
    assert len(pages) == 8
    assert worth[0] == 1.0
    assert worth[:7] == sorted(set(worth[:7]), reverse=True)
    assert (pages[-1].name, worth[-1]) == (STUFFED, 0.0)
    assert len({len(page.html) for page in pages[:7]}) == 1
    # The reader of sources is taken in by every one of them.
    scores = [source_score(task, {"index.html": page.html.encode()}) for page in pages]
    assert max(scores) == scores[-1]
    assert len({page.html for page in pages}) == 8


def test_no_function_is_lost_twice() -> None:
    for recipe, cuts in CUTS.items():
        lost = [item for cut in cuts for item in cut.lost]
        known = {item.id for item in candidates(recipe, 1)[0].items if item.category == "functionality"}
        assert len(lost) == len(set(lost))
        assert set(lost) <= known


def test_the_figures() -> None:
    def row(name: str, worth: float, steps: float, source: float) -> dict[str, Any]:
        return {
            "task": "a",
            "page": name,
            "worth": worth,
            "steps": steps,
            "source": source,
            "screenshot": 0.5,
            "bytes": 100 * source,
        }

    names = [f"{number} cut" for number in range(7)]
    rows = [row(name, 1 - n / 10, 0.9 - n / 10, 0.1) for n, name in enumerate(names)]
    found = figures_of([*rows, row(STUFFED, 0.0, 0.0, 1.0)])
    assert found["tasks"] == 1
    steps, source, screenshot = (found["scorers"][name] for name in ("steps", "source", "screenshot"))
    assert (steps["stuffed_wins"], source["stuffed_wins"]) == (0, 1)
    assert steps["selection"]["8"] == {
        "accuracy": 1.0,
        "regret": 0.0,
        "random": pytest.approx(1 - 4.9 / 8),
        "tasks": 1,
    }
    assert (source["selection"]["8"]["accuracy"], source["selection"]["8"]["regret"]) == (0.0, 1.0)
    assert screenshot["selection"]["8"]["accuracy"] == 1 / 8  # blind
    assert screenshot["order"]["tau"] is None
    assert found["scorers"]["steps"]["selection"]["2"]["tasks"] == 28
