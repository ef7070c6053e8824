"""Sum up runs and compare them: rewards with intervals, outcomes, lengths, compactions, costs, what looks wrong.

Example:
    agentgym report runs/gold
    agentgym report runs/gold runs/random --html report.html
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse, read_run

if TYPE_CHECKING:
    from agentgym.trajectory.records import Trajectory


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym report``."""

    runs: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR")]]
    """Folders of runs, or their trajectories.jsonl."""
    html: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Write one HTML page that holds everything, charts included."""
    views: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """With --html: write the pages of the first N episodes of each run too, and link to them."""
    json: bool = False
    """Print JSON: a list with one object per run."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: where it is, its trajectories, and its numbers in the form that `--json` prints."""

    name: str
    file: Path
    trajectories: list[Trajectory]
    summary: dict[str, Any]
