"""Choosing the best of n pages by using them, and by only looking at them.

    python -m benchmarks.web_best_of_n [--workers 1] [--seed 3] [--json FILE]

Eight candidates for each of six tasks (`benchmarks.web_candidates`): a page that meets the brief, six with ever fewer
functions, and one that is stuffed with the words of the rubric. What each is worth is known by construction. Three
scorers choose: the judge that uses the page, one that reads the source, one that looks at a screenshot.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.cli.console import Progress
from agentgym.verifiers.agreement import best_of_n, length_check, rank_agreement
from agentgym.verifiers.web.judge import judge
from agentgym.verifiers.web.static import screenshot_score, source_score
from agentgym.verifiers.web.task import WebTask
from benchmarks.web_candidates import CUTS, STUFFED, Candidate, candidates

if TYPE_CHECKING:
    from agentgym.verifiers.browser import BrowserPool

SIZES = (2, 4, 8)  # how many candidates there are to choose from
SCORERS = ("steps", "source", "screenshot")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1, help="browsers")
    parser.add_argument("--seed", type=int, default=3, help="of the tasks")
    parser.add_argument("--json", help="write the figures here")
    args = parser.parse_args()
    from agentgym.verifiers.browser import open_pool

    began = time.monotonic()
    drawn = {recipe: candidates(recipe, args.seed) for recipe in CUTS}
    work = [(recipe, task, page) for recipe, (task, pages) in drawn.items() for page in pages]
    with (
        open_pool(args.workers) as pool,
        ThreadPoolExecutor(args.workers) as threads,
        Progress("pages", len(work)) as progress,
    ):

        def one(recipe: str, task: WebTask, page: Candidate) -> dict[str, Any]:
            row = {"task": recipe, "page": page.name, "worth": page.worth, **scores_of(pool, task, page)}
            progress.step(f"{recipe}, {page.name}")
            return row

        rows = list(threads.map(lambda each: one(*each), work))
    figures = {**figures_of(rows), "seconds": round(time.monotonic() - began, 1), "rows": rows}
    _print_figures(figures)
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def scores_of(pool: BrowserPool, task: WebTask, page: Candidate) -> dict[str, Any]:
    """What the scorers say of a page, its length, and the items it failed."""
    files = {"index.html": page.html.encode()}
    verdict = judge(task, pool.run(task, files))
    picture = pool.preview(files, viewport=task.viewport, screenshot=True).screenshot
    return {
        "steps": verdict.score,
        "source": source_score(task, files),
        "screenshot": 0.0 if picture is None else screenshot_score(picture),
        "bytes": len(files["index.html"]),
        "failed": [item for item, passed in verdict.items.items() if not passed],
    }


def figures_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By scorer: selection for each number of candidates (mean over subsets), order, length, wins of the stuffed."""
    tasks: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        tasks.setdefault(row["task"], []).append(row)
    groups = list(tasks.values())

    def column(name: str) -> list[list[float]]:
        return [[float(row[name]) for row in group] for group in groups]

    figures: dict[str, Any] = {}
    for scorer in SCORERS:
        selection = {}
        for size in SIZES:
            chosen = [subset for group in groups for subset in itertools.combinations(group, size)]
            worth = [[row["worth"] for row in subset] for subset in chosen]
            selection[str(size)] = asdict(
                best_of_n(worth, [[row[scorer] for row in subset] for subset in chosen])
            )
        figures[scorer] = {
            "selection": selection,
            "order": asdict(rank_agreement(column("worth"), column(scorer))),
            "length": asdict(length_check(column(scorer), column("bytes"), trusted=column("worth"))),
            "stuffed_wins": sum(
                max(group, key=lambda row: float(row[scorer]))["page"] == STUFFED for group in groups
            ),
        }
    return {"tasks": len(groups), "scorers": figures}


def _print_figures(figures: Mapping[str, Any]) -> None:
    choices = "".join(f"  of {size}: accuracy regret (blind)" for size in SIZES)
    print(f"{'scorer':<11}{choices}  tau-b  stuffed wins  pays for length")
    for scorer, found in figures["scorers"].items():
        cells = "".join(
            f"  {each['accuracy']:14.2f} {each['regret']:6.2f} ({each['random']:.2f}) "
            for each in found["selection"].values()
        )
        tau, beyond = found["order"]["tau"], found["length"]["beyond"]
        length = "-" if beyond is None else f"{beyond:+.2f}{' ALARM' if found['length']['alarm'] else ''}"
        wins = f"{found['stuffed_wins']} of {figures['tasks']}"
        print(f"{scorer:<11}{cells}  {tau:5.2f}  {wins:>12}  {length}")
    print(f"{len(figures['rows'])} pages in {figures['seconds']:.0f} s")


if __name__ == "__main__":
    main()
