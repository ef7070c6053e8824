"""Training runs beside one another at equal actor tokens, and at equal total compute.

    python -m benchmarks.genac_runs runs/genac-*-[0-9] [--points 5] [--json FILE]

Reads the folders that `python -m baselines.genac`, `baselines.ppo` and `baselines.grpo` wrote; `commands/genac.sh`
makes those of the published table. Actor tokens are those that the policy sampled. Total compute is every token that
went through a model of the run: sampled, trained on by the policy (context included), read, written or trained on by
the critic; actor and critic are of one size there. The held-out return at a budget is that of the last evaluation
within it. Figures are means over seeds with 95 % t intervals. Evaluations are not counted.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baselines.logs import METRICS, read_lines
from benchmarks.genac import cell

BUDGETS = {
    "actor tokens": ("cost/generated_tokens",),
    "all tokens": ("cost/generated_tokens", "cost/trained_tokens", "cost/critic_tokens"),
}


class Point(NamedTuple):
    """One evaluation: what had been spent, by budget, and the held-out return."""

    spent: dict[str, float]
    score: float


def curve(folder: Path) -> list[Point]:
    """The evaluations of a run. The costs in a line include the update that came after its evaluation."""
    spent = dict.fromkeys(BUDGETS, 0.0)
    points = []
    for line in read_lines(folder / METRICS):
        if "eval/return" in line:
            points.append(Point(spent, line["eval/return"]))
        if "cost/generated_tokens" in line:
            spent = {name: sum(line[part] for part in parts) for name, parts in BUDGETS.items()}
    return points


def at(points: Sequence[Point], budget: str, limit: float) -> float:
    """The last evaluation within a limit."""
    return [point.score for point in points if point.spent[budget] <= limit][-1]


def label(folder: Path) -> str:
    """The algorithm, and the critic where it has a choice of several."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name = str(config["algorithm"])
    return f"{name}, {config['critic']}" if name == "genac" else name


def main() -> None:
    """Print a table for each kind of budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--points", type=int, default=5, help="budgets in each table")
    parser.add_argument("--json", type=Path, help="also write the curves here")
    arguments = parser.parse_args()
    curves: dict[str, list[list[Point]]] = defaultdict(list)
    for folder in arguments.runs:
        curves[label(folder)].append(curve(folder))
    for budget in BUDGETS:
        print(table(curves, budget, arguments.points), end="\n\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")


def table(curves: dict[str, list[list[Point]]], budget: str, points: int) -> str:
    """Held-out return of every algorithm, up to what the cheapest run spent."""
    least = min(run[-1].spent[budget] for runs in curves.values() for run in runs)
    limits: Any = np.linspace(0, least, points)
    lines = [
        f"| {budget} | " + " | ".join(f"{limit:,.0f}" for limit in limits) + " |",
        "|---" * (points + 1) + "|",
    ]
    for name, runs in sorted(curves.items()):
        cells = [cell([at(run, budget, limit) for run in runs]) for limit in limits]
        lines.append(f"| {name} ({len(runs)} seeds) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
