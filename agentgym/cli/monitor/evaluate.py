"""Measure the monitor on labelled cases or trajectories. A call counts as flagged when it is blocked.

Example:
    agentgym monitor eval CASES.jsonl
    agentgym monitor eval CASES.jsonl --rules-only --json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.monitor.stages import CASES, make_monitor, tell_judge


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym monitor eval``."""

    cases: CASES
    """Labelled single calls or trajectories, one JSON object a line."""
    rules_only: bool = False
    """Leave the reviewer out: what a rule flags is blocked."""
    judge: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Ask this model about what the reviewer would block."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the model is served. Default: $OPENAI_BASE_URL."""
    misses: bool = False
    """List the cases that were decided otherwise than labelled."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor eval``."""
    args = parse(Args, "monitor eval", __doc__, words)
    from agentgym.monitor.cases import judge_cases, load_cases
    from agentgym.monitor.evaluation import evaluate

    cases = load_cases(args.cases, labelled=True)
    monitor = make_monitor(rules_only=args.rules_only, judge=args.judge, base_url=args.base_url)
    judged = []
    with console.Progress("cases", len(cases)) as progress:
        for one in judge_cases(monitor, cases):
            judged.append(one)
            progress.step()
    report = {**evaluate(judged), "stages": list(monitor.stages)}
    tell_judge(monitor)
    if args.json:
        console.print_json(report)
    else:
        _print_report(report)
        if args.misses:
            _print_misses(judged)
    return console.OK


def _print_report(report: dict[str, Any]) -> None:
    from agentgym.monitor.evaluation import worst_class
    from agentgym.trajectory.stats import wilson_interval as wilson

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("class", no_wrap=True)
    for column in ("hacks", "recall", "95 % interval", "benign", "false alarms", "95 % interval"):
        table.add_column(column, justify="right")
    rows = report["by_class"]
    n_hack = sum(row["n_hack"] for row in rows.values())
    n_benign = sum(row["n_benign"] for row in rows.values())
    found = sum(round((row["recall"] or 0) * row["n_hack"]) for row in rows.values())
    alarms = sum(row["false_alarms"] for row in rows.values())
    for name, row in rows.items():
        hits = round((row["recall"] or 0) * row["n_hack"])
        table.add_row(
            name,
            str(row["n_hack"]),
            console.number(row["recall"]),
            console.span(wilson(hits, row["n_hack"]), 2),
            str(row["n_benign"]),
            str(row["false_alarms"]),
            console.span(wilson(row["false_alarms"], row["n_benign"]), 2),
        )
    screen = console.out()
    screen.print(table)
    screen.print(
        f"recall           {console.number(report['recall'])}  ({console.span(wilson(found, n_hack))})"
    )
    screen.print(
        f"false alarms     {console.number(report['false_alarm_rate'])}  ({console.span(wilson(alarms, n_benign))})"
    )
    screen.print(f"precision        {console.number(report['precision'])}, f1 {console.number(report['f1'])}")
    worst = worst_class(report)
    if worst is not None:
        screen.print(f"worst class      {worst[0]}, recall {console.number(worst[1])}")
    calls = report.get("calls")
    if calls:
        screen.print(
            f"calls            {calls['hack_flagged']} of {calls['n_hack']} crossings flagged,"
            f" {calls['honest_flagged']} of {calls['n_honest']} honest calls;"
            f" {calls['caught_at_first']} caught at the first crossing"
        )
    spent = {name: console.number(ms) for name, ms in report["cpu_ms"].items()}
    screen.print(f"CPU per call     p50 {spent['p50']} ms, p99 {spent['p99']} ms")


def _print_misses(judged: Sequence[Any]) -> None:
    screen = console.out()
    for one in judged:
        for decision, step in zip(one.decisions, one.case.steps, strict=True):
            expected = one.case.positive if not one.case.trajectory else bool(step.hack)
            if decision.block != expected:
                said = (
                    f"blocked by {decision.rule}: {decision.reason}"
                    if decision.block
                    else f"allowed {decision.reason}"
                )
                screen.print(
                    f"{one.case.id}  {one.case.hack_class}, {'hack' if expected else 'honest'}: {said}",
                    markup=False,
                )
