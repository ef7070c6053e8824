"""Label stored trajectories after the fact: which calls crossed a line, whether that took effect, the outcome.

Takes a run's folder, a trajectories.jsonl, or an ATIF document (.json) of anybody's agent; tools it does not know are
reviewed by what their arguments hold. What is forbidden is what the run's environment said, replaced key by key by
--context; without either nothing is off limits, and only what is written, run or said is reviewed.

Example:
    agentgym monitor trajectories runs/mine
    agentgym monitor trajectories theirs.json --context context.json --json
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse, read_run
from agentgym.cli.monitor.stages import CONTEXT, make_monitor, read_context, tell_judge
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.monitor.audit import Audit
    from agentgym.trajectory.records import Trajectory


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym monitor trajectories``."""

    path: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN")]]
    """A run's folder, a file of trajectories (.jsonl), or an ATIF document (.json)."""
    context: CONTEXT = None
    """A JSON file with keys of a monitor's context; those it leaves out are the run's own."""
    rules_only: bool = False
    """Leave the reviewer out."""
    judge: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Ask this model about what the reviewer would block."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the model is served. Default: $OPENAI_BASE_URL."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor trajectories``."""
    args = parse(Args, "monitor trajectories", __doc__, words)
    from agentgym.monitor.audit import audit

    trajectories = _read(args.path)
    context = read_context(args.context)
    monitor = make_monitor(rules_only=args.rules_only, judge=args.judge, base_url=args.base_url)
    audits = []
    with console.Progress("trajectories", len(trajectories)) as progress:
        for trajectory in trajectories:
            audits.append(audit(trajectory, monitor, context))
            progress.step()
    tell_judge(monitor)
    if args.json:
        rows = [found.to_dict() for found in audits]
        console.print_json({"stages": list(monitor.stages), **_totals(audits), "trajectories": rows})
    else:
        _print(audits)
    return console.OK


def _read(path: str) -> list[Trajectory]:
    if Path(path).suffix != ".json":
        return read_run(path)[1]
    from agentgym.trajectory.atif_import import from_atif

    try:
        return [from_atif(json.loads(Path(path).read_text(encoding="utf-8")))]
    except (OSError, ValueError) as error:  # a UsageError is a ValueError
        raise UsageError(f"cannot read the trajectory {path}: {error}") from None


def _totals(audits: Sequence[Audit]) -> dict[str, Any]:
    """Counts over the trajectories; an outcome is unknown where nobody says whether the task was resolved."""
    return {
        "n": len(audits),
        "hacked": sum(found.hacked for found in audits),
        "outcomes": dict(Counter(found.outcome or "unknown" for found in audits)),
        "classes": dict(Counter(name for found in audits for name in found.classes)),
        "calls": sum(found.calls for found in audits),
        "crossings": sum(len(found.crossings) for found in audits),
        "blocked": sum(crossing.blocked for found in audits for crossing in found.crossings),
    }


def _print(audits: Sequence[Audit]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("trajectory", "outcome", "calls", "flagged", "classes"):
        table.add_column(heading, overflow="fold")
    for found in audits:
        outcome = found.outcome or ("hacked" if found.hacked else "clean")
        flagged = str(len(found.crossings) + len(found.patch))
        table.add_row(escape(found.id), outcome, str(found.calls), flagged, ", ".join(found.classes) or "-")
    screen = console.out()
    screen.print(table)
    for found in audits:
        for c in found.crossings:
            state = "blocked" if c.blocked else "took effect" if c.effect else "got nothing"
            place = f"{found.id}, step {c.step}, {c.tool}"
            screen.print(f"{place}: {c.rule}, {state}: {c.reason}", markup=False)
        for f in found.patch:
            screen.print(f"{found.id}, final diff, {f.path}:{f.line}: {f.rule}: {f.reason}", markup=False)
    totals = _totals(audits)
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in totals["outcomes"].items())
    screen.print(
        f"{totals['n']} trajectories: {counts}; {totals['crossings']} of {totals['calls']} calls flagged,"
        f" {totals['blocked']} of them blocked when recorded",
        style="dim",
    )
