"""Tell whether tasks are fit for training: is the instruction clear, do the hidden tests ask for what it says?

Example:
    agentgym swe judge tasks/tasks.jsonl --run
    agentgym swe judge tasks/tasks.jsonl --judge MODEL --endpoint http://127.0.0.1:8000/v1 --gold
    agentgym swe judge tasks/tasks.jsonl --labels labels.jsonl --json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import RECORDS, parse
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.envs.swe.quality.judge import TaskJudge


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe judge``."""

    records: RECORDS
    """The records."""
    labels: Annotated[str | None, tyro.conf.arg(metavar="LABELS.jsonl")] = None
    """What is right, to be measured against: instance_id and any of the three labels a line."""
    run: bool = False
    """Run the tests too: with the gold patch, without it, with rewrites of it and with defects in it."""
    repeats: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """With --run: how often with the same tree."""
    most_runs: Annotated[int, tyro.conf.arg(metavar="N")] = 12
    """With --run: how many further runs a record may have."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """With --run: chooses the defects."""
    judge: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Ask this model about each task of which no fault is proven."""
    endpoint: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the model is served. Default: $OPENAI_BASE_URL."""
    few_shot: Annotated[str | None, tyro.conf.arg(metavar="FILE.jsonl")] = None
    """Examples for the model: problem_statement, test_patch, patch, the three labels, reason."""
    gold: bool = False
    """Show the model the gold patch."""
    agentic: bool = False
    """Let the model read the repository and run commands in a sandbox before it decides."""
    turns: Annotated[int, tyro.conf.arg(metavar="N")] = 12
    """With --agentic: how often it may look."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How many records are looked at at once."""
    backend: str = "auto"
    """Of the sandbox: auto, bubblewrap or docker."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe judge``."""
    args = parse(Args, "swe judge", __doc__, words)
    with console.stdout_reserved(args.json):
        from agentgym.envs.swe.quality.assess import assess_records
        from agentgym.envs.swe.quality.labels import agreement, load_labels
        from agentgym.envs.swe.quality.runs import RunPlan
        from agentgym.envs.swe.records import load_records

        records = load_records(args.records)
        labels = load_labels(args.labels, [record.instance_id for record in records]) if args.labels else None
        plan = RunPlan(args.repeats, args.most_runs, args.seed, args.backend)
        judge = _make_judge(args)
        with console.Progress("records", len(records)) as progress:
            report = assess_records(
                records,
                judge=judge,
                plan=plan if args.run else None,
                jobs=args.jobs,
                progress=progress.show,
            )
        if labels is not None:
            report["labels"] = agreement(report["records"], labels)
    if args.json:
        console.print_json(report)
    else:
        _print_report(report)
    if report["unknown"]:
        return console.INFRASTRUCTURE
    return console.OK if labels is not None or report["good"] == report["n"] else console.NO


def _make_judge(args: Args) -> TaskJudge | None:
    if args.judge is None:
        lost = [name for name in ("endpoint", "few_shot", "gold", "agentic") if getattr(args, name)]
        if lost:
            raise UsageError(f"expected --judge MODEL beside --{lost[0].replace('_', '-')}, there is none")
        return None
    from agentgym.endpoint import Endpoint
    from agentgym.envs.swe.quality.judge import TaskJudge, load_examples

    return TaskJudge(
        Endpoint(args.judge, base_url=args.endpoint),
        examples=load_examples(args.few_shot, gold=args.gold) if args.few_shot else (),
        gold=args.gold,
        agentic=args.agentic,
        turns=args.turns,
        backend=args.backend,
    )


def _print_report(report: dict[str, Any]) -> None:
    screen = console.out()
    for row in report["records"]:
        mark = "[green]good[/]" if row["overall_good"] else "[red bold]NOT GOOD[/]"
        parts = [
            *([] if row["instruct_clear"] else ["not clear"]),
            *([] if row["instruct_ut_align"] else ["tests not aligned"]),
            row["stage"].replace("_", " "),
        ]
        screen.print(f"{mark}  {escape(row['instance_id'])}  ({', '.join(parts)})")
        for finding in row["findings"]:
            screen.print(escape(f"    {finding['kind']}: {finding['detail']}"))
        if row["reason"]:
            screen.print(escape(f"    judge: {row['reason']}"))
        for text in row["not_checked"]:
            screen.print(escape(f"    not checked: {text}"))
    screen.print(f"{report['good']} of {report['n']} tasks are good")
    if "judge" in report:
        counts = report["judge"]
        screen.print(
            f"the judge was asked about {counts['asked']} tasks and gave no usable answer on {counts['failed']};"
            f" {counts['parse_failures']} answers could not be read"
        )
    if "labels" in report:
        _print_agreement(report["labels"])


def _print_agreement(labels: dict[str, dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("label", "n", "precision", "95 % interval", "recall", "95 % interval", "F1"):
        table.add_column(column, justify="left" if column == "label" else "right")
    for label, row in labels.items():
        table.add_row(
            label,
            str(row["n"]),
            console.number(row["precision"]),
            console.span(row["precision_ci95"], 2),
            console.number(row["recall"]),
            console.span(row["recall_ci95"], 2),
            console.number(row["f1"]),
        )
    console.out().print(table)
