"""The HTML page of ``agentgym report``: one file without outside parts, for light and dark."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.cli import charts
from agentgym.cli.console import number, span
from agentgym.errors import MissingDependency
from agentgym.trajectory.stats import effective_horizon
from agentgym.version import __version__

if TYPE_CHECKING:
    from agentgym.cli.report import Run
    from agentgym.trajectory.records import Trajectory

# In this order in bars and legend; each has a color in the template.
OUTCOMES = (
    "clean_resolved",
    "hacked_resolved",
    "clean_unresolved",
    "hacked_unresolved",
    "no_verdict",
    "broken",
)

# Histograms: title, unit, and how to read one episode; None leaves it out.
DISTRIBUTIONS: tuple[tuple[str, str, Callable[[Trajectory], float | None]], ...] = (
    ("Reward", "reward", lambda t: t.reward),
    ("Turns", "turns", lambda t: t.turns),
    ("Effective horizon", "turns to the reward", lambda t: horizon(t)),
    ("Segments", "segments", lambda t: segments(t)),
    ("Prompt tokens", "tokens", lambda t: sum(step.prompt_tokens for step in t.steps)),
    ("Sampled tokens", "tokens", lambda t: sum(step.sampled_tokens for step in t.steps)),
)


def render(runs: Sequence[Run], *, page: Path, views: dict[tuple[str, str], Path]) -> str:
    """The text of the page.

    Args:
        runs: what it is about.
        page: where it will be, for links.
        views: pages of single trajectories, by run and trajectory id.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise MissingDependency(
            "the HTML report needs jinja2: pip install 'agentgym-suite[report]'"
        ) from None
    template = (files("agentgym.cli") / "templates" / "report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"num": number, "span": span}
    counts = {run.name: outcomes(run.trajectories) for run in runs}
    text: str = environment.from_string(template).render(
        title="Run report" if len(runs) > 1 else f"Run report: {runs[0].name}",
        runs=[_view_of(run, page, views) for run in runs],
        outcomes=[part for part in OUTCOMES if any(count[part] for count in counts.values())],
        all_outcomes=OUTCOMES,
        charts=_charts(runs, counts),
        sheets=_sheets(runs),
        dates=_dates(runs),
        version=__version__,
    )
    return text


def outcomes(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """How many episodes ended in each way."""
    counts = Counter(outcome(trajectory) for trajectory in trajectories)
    return {part: counts[part] for part in OUTCOMES}


def outcome(trajectory: Trajectory) -> str:
    """A key of `OUTCOMES`."""
    return "broken" if trajectory.infrastructure_error else trajectory.outcome or "no_verdict"


def segments(trajectory: Trajectory) -> int:
    """How many token sequences a trainer gets; retries that were kept aside do not count."""
    return sum(segment.cause != "retry" for segment in trajectory.segments)


def horizon(trajectory: Trajectory) -> float | None:
    """Turns from the first decision to the one that was rewarded; None where the episode says nothing."""
    if trajectory.infrastructure_error or not trajectory.steps:
        return None
    return effective_horizon(trajectory)["turns"]


def _view_of(run: Run, page: Path, views: dict[tuple[str, str], Path]) -> dict[str, Any]:
    """What the template reads of a run."""
    rows = []
    for trajectory in run.trajectories:
        target = views.get((run.name, trajectory.id))
        rows.append(
            {
                "id": trajectory.id,
                "view": os.path.relpath(target, page.parent).replace(os.sep, "/") if target else None,
                "task": trajectory.task_id,
                "outcome": outcome(trajectory),
                "why": (trajectory.infrastructure_error.splitlines() or [""])[-1][:120],
                "reward": trajectory.reward,
                "turns": trajectory.turns,
                "segments": segments(trajectory),
                "tokens": sum(step.sampled_tokens for step in trajectory.steps),
                "seconds": trajectory.seconds,
            }
        )
    return {"name": run.name, "path": str(run.file.parent), "summary": run.summary, "episodes": rows}


def _charts(runs: Sequence[Run], counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    """The SVG of every chart; our own text, so it is not escaped again."""
    from markupsafe import Markup

    means = []
    for run in runs:
        low, high = run.summary["ci95"] or (None, None)
        means.append(charts.Interval(run.name, run.summary["mean_reward"], low, high))
    distributions = []
    for title, unit, read in DISTRIBUTIONS:
        series = _series(runs, read)
        values = [x for some in series.values() for x in some]
        if not any(values) and title != "Reward":
            continue  # nothing was counted
        tenths = title == "Reward" and all(0.0 <= x <= 1.0 for x in values)
        svg = charts.histogram(series, unit=unit, edges=charts.TENTHS if tenths else None)
        distributions.append({"title": title, "svg": Markup(svg)})
    return {
        "reward": Markup(charts.intervals(means)),
        "outcomes": Markup(charts.stacked(counts)),
        "distributions": distributions,
    }


def _series(runs: Sequence[Run], read: Callable[[Trajectory], float | None]) -> dict[str, list[float]]:
    return {run.name: [x for t in run.trajectories if (x := read(t)) is not None] for run in runs}


def _dates(runs: Sequence[Run]) -> str:
    """When the episodes ran."""
    days = [
        time.strftime("%Y-%m-%d", time.gmtime(t.started))
        for run in runs
        for t in run.trajectories
        if t.started
    ]
    if not days:
        return ""
    return min(days) if min(days) == max(days) else f"{min(days)} to {max(days)}"


def _sheets(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Tables that stand only where a run has something in them."""
    compactions = {run.name: run.details["compaction"] for run in runs}
    boundaries = {run.name: run.details["boundaries"] for run in runs}
    horizons = {run.name: run.details["effective_horizon"] or {} for run in runs}
    monitors = {run.name: run.summary["monitor"] or {} for run in runs}
    sheets = []
    if any(horizons.values()):
        sheets.append(
            _sheet(
                "Effective horizon",
                "How far a decision lies from the reward it is credited with; means over episodes. Tokens after: what "
                "the same agent sampled in later segments, the exponent by which credit across a rewrite decays.",
                {"turns": "turns", "sampled tokens": "tokens", "tokens after": "tokens_after"},
                {name: {key: number(x, 1) for key, x in row.items()} for name, row in horizons.items()},
            )
        )
    if any(row["count"] for row in compactions.values()):
        rows = {
            name: {
                "count": number(row["count"], 0),
                "tokens": number(row["tokens"], 0),
                "messages": number(row["messages"], 0),
                "each": number(row["tokens"] / row["count"], 0) if row["count"] else "-",
                "how": ", ".join(f"{how} {count}" for how, count in row["by_strategy"].items()) or "-",
            }
            for name, row in compactions.items()
        }
        columns = {
            "rewrites": "count",
            "tokens dropped": "tokens",
            "per rewrite": "each",
            "messages dropped": "messages",
            "strategy": "how",
        }
        lead = "What rewrites of the conversation left out. The episode pages show the dropped messages themselves."
        sheets.append(_sheet("What compaction dropped", lead, columns, rows))
    odd = ("realign", "fork", "empty_reply", "superseded", "delegation")
    if any(row[kind] for row in boundaries.values() for kind in odd):
        rows = {name: {kind: number(row[kind], 0) for kind in odd} for name, row in boundaries.items()}
        lead = (
            "Prompts that did not simply continue. Realigned: the chat template rendered old turns differently. Fork: "
            "a rewrite that nobody announced. Empty and superseded replies are kept and not trained on."
        )
        sheets.append(_sheet("Boundaries", lead, {kind.replace("_", " "): kind for kind in odd}, rows))
    if any(row.get("calls") for row in monitors.values()) or any(
        run.summary["hack_gap"] is not None for run in runs
    ):
        rows = {
            run.name: {
                "gap": number(run.summary["hack_gap"]),
                "calls": number(monitors[run.name].get("calls"), 0),
                "blocked": number(monitors[run.name].get("blocked"), 0),
                "rate": number(monitors[run.name].get("block_rate")),
                "recall": number(monitors[run.name].get("recall")),
                "false alarms": number(monitors[run.name].get("false_alarms")),
            }
            for run in runs
        }
        columns = {"hack gap": "gap", "calls watched": "calls", "blocked": "blocked", "block rate": "rate"}
        if any(row.get("recall_ci95") or row.get("false_alarms_ci95") for row in monitors.values()):
            columns |= {"recall": "recall", "false alarms": "false alarms"}
        lead = (
            "Hack gap: visible score minus held-out score. Recall and false alarms: over calls with labels."
        )
        sheets.append(_sheet("Verifier and monitor", lead, columns, rows))
    return sheets


def _sheet(title: str, lead: str, columns: dict[str, str], rows: dict[str, dict[str, str]]) -> dict[str, Any]:
    """A table for the template: one row per run, `columns` maps headings to keys of the rows."""
    cells = [
        {"name": name, "cells": [row.get(key, "-") for key in columns.values()]} for name, row in rows.items()
    ]
    return {"title": title, "lead": lead, "columns": list(columns), "rows": cells}
