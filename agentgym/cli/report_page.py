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
from agentgym.errors import MissingDependency
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
    return environment.from_string(template).render(
        title="Run report" if len(runs) > 1 else f"Run report: {runs[0].name}",
        runs=[_view_of(run, page, views) for run in runs],
        outcomes=[part for part in OUTCOMES if any(count[part] for count in counts.values())],
        all_outcomes=OUTCOMES,
        charts=_charts(runs, counts),
        sheets=_sheets(runs),
        dates=_dates(runs),
        version=__version__,
    )


def outcomes(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """How many episodes ended in each way."""
    counts = Counter(outcome(trajectory) for trajectory in trajectories)
    return {part: counts[part] for part in OUTCOMES}


def outcome(trajectory: Trajectory) -> str:
    """A key of `OUTCOMES`."""
    return "broken" if trajectory.infrastructure_error else trajectory.outcome or "no_verdict"
