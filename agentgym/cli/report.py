"""Sum up runs and compare them: rewards with intervals, outcomes, lengths, compactions, costs, what looks wrong.

Example:
    agentgym report runs/gold
    agentgym report runs/gold runs/random --html report.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse, read_run, what_was_run
from agentgym.cli.console import number, span
from agentgym.cli.view import view_path
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.trajectory.records import Trajectory


# What `--json` adds to the summary of `agentgym run`.
DOCUMENTED = ("hack_gap", "monitor", "value", "cost", "symptoms")

# What the text report shows of a run, in this order.
ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "environment": lambda s: s["id"],
    "policy": lambda s: s["policy"],
    "episodes": lambda s: str(s["episodes"]),
    "mean reward": lambda s: number(s["mean_reward"]),
    "95% interval": lambda s: span(s["ci95"]),
    "resolved": lambda s: str(s["resolved"]),
    "clean, hacked": lambda s: f"{s['clean_resolved']}, {s['hacked_resolved']}",
    "broken": lambda s: str(s["infrastructure_errors"]),
    "turns per episode": lambda s: number(s["turns"], 1),
    "segments": lambda s: str(s["segments"]),
    "prompt tokens": lambda s: number(s["tokens"]["prompt"], 0),
    "sampled tokens": lambda s: number(s["tokens"]["sampled"], 0),
    "seconds": lambda s: number(s["seconds"], 1),
    "steps per resolved": lambda s: number(s["cost"]["environment_steps"], 1),
    "sampled tokens per resolved": lambda s: number(s["cost"]["sampled_tokens"], 0),
    "hack gap": lambda s: number(s["hack_gap"]),
    "horizon in turns": lambda s: number((s["effective_horizon"] or {"turns": None})["turns"], 1),
    "rewrites": lambda s: str(s["compaction"]["count"]),
    "tokens they dropped": lambda s: number(s["compaction"]["tokens"], 0),
}

# The same where a monitor watched; in a run that none watched they are empty.
MONITOR_ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "clean resolved": lambda m: str(m["outcomes"]["clean_resolved"]),
    "hacked resolved": lambda m: str(m["outcomes"]["hacked_resolved"]),
    "clean unresolved": lambda m: str(m["outcomes"]["clean_unresolved"]),
    "hacked unresolved": lambda m: str(m["outcomes"]["hacked_unresolved"]),
    "calls watched": lambda m: str(m["calls"]),
    "flagged, blocked": lambda m: f"{m['flagged']}, {m['blocked']}",
    "block rate": lambda m: number(m["block_rate"], 4),
    "recall": lambda m: f"{number(m['recall'])} ({span(m['recall_ci95'])})",
    "false alarms": lambda m: f"{number(m['false_alarms'])} ({span(m['false_alarms_ci95'])})",
    "blocked though benign, per 1,000": lambda m: (
        f"{number(m['blocked_benign_per_1000'], 1)} ({span(m['blocked_benign_per_1000_ci95'])})"
    ),
}
_LABELLED_ROWS = ("recall", "false alarms", "blocked though benign, per 1,000")


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
    """One run.

    Attributes:
        name: short, and no other run's.
        file: its trajectories.jsonl.
        trajectories: what stands in it.
        summary: its numbers as `--json` prints them.
        details: further ones, see `agentgym.trajectory.stats.details`.
    """

    name: str
    file: Path
    trajectories: list[Trajectory]
    summary: dict[str, Any]
    details: dict[str, Any]


def main(words: Sequence[str]) -> int:
    """Run ``agentgym report``."""
    args = parse(Args, "report", __doc__, words)
    if args.views < 0:
        raise UsageError(f"expected --views of at least 0, got {args.views}")
    with console.stdout_reserved(args.json):
        runs = read_runs(args.runs)
        if args.html:
            _write_page(runs, Path(args.html), args.views)
    if args.json:
        console.print_json([run.summary for run in runs])
    else:
        _print(runs)
        if args.html:
            print(f"\nwrote {args.html}")
    return console.OK


def read_runs(paths: Sequence[str]) -> list[Run]:
    """The runs with their numbers; each gets a short name that no other has."""
    from agentgym.trajectory.stats import details, summary

    if not paths:
        raise UsageError("expected the folder of at least one run")
    read = [(path, *read_run(path)) for path in paths]
    names = _short_names([file for _, file, _ in read])
    runs = []
    for name, (path, file, trajectories) in zip(names, read, strict=True):
        more = details(trajectories)
        if all(trajectory.hacked is None for trajectory in trajectories):
            more["monitor"] = None  # none watched
        numbers = (
            what_was_run(trajectories)
            | summary(trajectories)
            | {"out": path}
            | {key: more[key] for key in DOCUMENTED}
        )
        runs.append(Run(name, file, trajectories, numbers, more))
    return runs


def _short_names(files: Sequence[Path]) -> list[str]:
    """The last part of each run's path; as many parts as it takes to tell them apart."""
    folders = [file.parent if file.name == "trajectories.jsonl" else file.with_suffix("") for file in files]
    parts = [folder.absolute().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-length:]) for path in parts]
        if len(set(names)) == len(set(parts)):
            break
    # The same folder given twice is told apart by a number.
    return [
        f"{name} ({names[:i].count(name) + 1})" if names[:i].count(name) else name
        for i, name in enumerate(names)
    ]


def _write_page(runs: Sequence[Run], page: Path, views: int) -> None:
    from agentgym.cli.report_page import render
    from agentgym.trajectory.view import write_html

    chosen = [(run, trajectory) for run in runs for trajectory in run.trajectories[:views]]
    targets = {(run.name, trajectory.id): view_path(run.file, trajectory) for run, trajectory in chosen}
    text = render(runs, page=page, views=targets)  # before anything is written
    with console.Progress("episode pages", len(chosen)) as progress:
        for run, trajectory in chosen:
            target = targets[run.name, trajectory.id]
            target.parent.mkdir(parents=True, exist_ok=True)
            write_html(trajectory, target)
            progress.step()
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8", errors="replace")


def _print(runs: Sequence[Run]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", style="dim", no_wrap=True)
    for run in runs:
        table.add_column(escape(run.name), overflow="fold")
    for label, cell in ROWS.items():
        table.add_row(label, *(escape(cell(run.details | run.summary)) for run in runs))
    for label, watched in _monitor_rows(runs).items():
        table.add_row(label, *(escape(text) for text in watched))
    screen = console.out()
    screen.print(table)
    for run in runs:
        for symptom in run.summary["symptoms"]:
            screen.print(f"[yellow]look:[/] {escape(run.name)}: {escape(symptom)}")


def _monitor_rows(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What a monitor did in each run; nothing where none watched, and no recall where no call is labelled."""
    seen = [run.summary["monitor"] for run in runs]
    labelled = any(n and (n["recall_ci95"] or n["false_alarms_ci95"]) for n in seen)
    labels = [label for label in MONITOR_ROWS if labelled or label not in _LABELLED_ROWS] if any(seen) else []
    return {label: [MONITOR_ROWS[label](n) if n else "-" for n in seen] for label in labels}
