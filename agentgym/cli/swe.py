"""Repository repair tasks: make them from a source distribution, prove them, grade a patch.

  build     inject bugs into a package's source and keep those its own tests notice
  validate  grade the gold patch and an empty one of every record; exits with 1 unless gold passes and empty fails
  grade     grade a patch; exits with 1 where it does not resolve its task

Example:
    agentgym swe build --sdist NAME==VERSION --count 3 --out tasks
    agentgym swe validate tasks/tasks.jsonl
    agentgym swe grade tasks/tasks.jsonl --patch INSTANCE_ID=fix.diff
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.errors import UsageError, nearest

RECORDS = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RECORDS.jsonl")]]


@dataclass(frozen=True)
class BuildArgs:
    """Flags of ``agentgym swe build``."""

    sdist: Annotated[str, tyro.conf.arg(metavar="NAME==VERSION")]
    """The source distribution to start from, or the path of a source archive or folder."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder for tasks.jsonl and the snapshots."""
    count: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """How many tasks."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Which bugs are tried, and in what order."""
    test_targets: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="PATH")]] = ()
    """What the test command gets, relative to the source. Default: found in the source."""
    json: bool = False
    """Print JSON: the records file and the ids in it."""


@dataclass(frozen=True)
class ValidateArgs:
    """Flags of ``agentgym swe validate``."""

    records: RECORDS
    """The records."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class GradeArgs:
    """Flags of ``agentgym swe grade``."""

    records: RECORDS
    """The records."""
    patch: Annotated[str, tyro.conf.arg(metavar="INSTANCE_ID=FILE.diff")]
    """The patch and the task it is for."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe``."""
    verbs = {"build": build, "validate": validate, "grade": grade}
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: agentgym swe {{{','.join(verbs)}}} ...\n\n{inspect.cleandoc(__doc__ or '')}")
        return console.OK
    if words[0] not in verbs:
        raise UsageError(f"unknown verb {words[0]!r} of agentgym swe.{nearest(words[0], verbs)}")
    return verbs[words[0]](words[1:])


def build(words: Sequence[str]) -> int:
    """Run ``agentgym swe build``."""
    args = parse(BuildArgs, "swe build", _part("Make tasks from a source distribution.", "build"), words)
    with console.stdout_reserved(args.json), console.Progress("tasks", args.count) as progress:
        from agentgym.envs.swe.build import build_tasks

        records = build_tasks(
            args.sdist,
            args.out,
            count=args.count,
            seed=args.seed,
            test_targets=args.test_targets or None,
            progress=progress.show,
        )
    file = Path(args.out) / "tasks.jsonl"
    ids = [record.instance_id for record in records]
    if args.json:
        console.print_json({"records": str(file), "n": len(ids), "instance_ids": ids})
        return console.OK
    for name in ids:
        print(name)
    few = (
        ""
        if len(ids) == args.count
        else f"; no more of the bugs tried were noticed ({args.count} were asked for)"
    )
    print(f"wrote {len(ids)} tasks to {file}{few}")
    print(f"next: agentgym swe validate {file}")
    return console.OK


def validate(words: Sequence[str]) -> int:
    """Run ``agentgym swe validate``."""
    args = parse(
        ValidateArgs, "swe validate", _part("Prove tasks: gold passes, nothing fails.", "validate"), words
    )
    with console.stdout_reserved(args.json):
        from agentgym.envs.swe.grading import validate_records
        from agentgym.envs.swe.records import load_records

        records = load_records(args.records)
        with console.Progress("records", len(records)) as progress:
            report = validate_records(records, progress=progress.show)
            progress.show("", len(records), len(records))
    if args.json:
        console.print_json(report)
    else:
        _print_validation(report)
    return console.OK if report["ok"] == report["n"] else console.NO


def grade(words: Sequence[str]) -> int:
    """Run ``agentgym swe grade``."""
    args = parse(GradeArgs, "swe grade", _part("Grade a patch in a fresh sandbox.", "grade"), words)
    instance_id, patch = _read_patch(args.patch)
    with console.stdout_reserved(args.json):
        from agentgym.envs.swe.grading import grade_patch
        from agentgym.envs.swe.records import load_records

        verdict = grade_patch(load_records(args.records), instance_id, patch)
    if args.json:
        console.print_json(verdict)
    else:
        _print_verdict(verdict)
    return console.OK if verdict["resolved"] else console.NO


def _part(summary: str, verb: str) -> str:
    """What a sub-verb's help says first: a line, and its example out of this module's docstring."""
    examples = [
        line.strip() for line in (__doc__ or "").splitlines() if line.strip().startswith("agentgym swe")
    ]
    example = next(line for line in examples if line.startswith(f"agentgym swe {verb}"))
    return f"{summary}\n\nExample:\n    {example}"


def _read_patch(pair: str) -> tuple[str, str]:
    instance_id, equals, name = pair.partition("=")
    if not equals or not instance_id or not name:
        raise UsageError(f"expected --patch INSTANCE_ID=FILE.diff, got {pair!r}")
    try:
        return instance_id, Path(name).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the patch {name}: {error}") from None


def _print_validation(report: dict[str, Any]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("record", no_wrap=True)
    for column in ("gold", "null", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("problem", overflow="fold")
    for row in report["records"]:
        mark = "[green]ok[/]" if row["ok"] else "[red bold]NOT OK[/]"
        scores = ["-" if row[key] is None else f"{row[key]:g}" for key in ("gold", "null")]
        table.add_row(
            mark, row["instance_id"], *scores, f"{row['seconds']:.1f}", escape(row["problem"] or "")
        )
    screen = console.out()
    screen.print(table)
    screen.print(f"{report['ok']} of {report['n']} records are ok")


def _print_verdict(verdict: dict[str, Any]) -> None:
    parts = verdict["components"]
    state = "[green]resolved[/]" if verdict["resolved"] else "[red]not resolved[/]"
    screen = console.out()
    screen.print(
        f"{escape(verdict['instance_id'])}: {state}, score {verdict['score']:g}, {verdict['seconds']:.1f} s"
    )
    screen.print("  the patch applies: " + ("yes" if parts["applied"] else "no"))
    screen.print(
        f"  failing tests it repairs: {parts['f2p']:.0%}; passing tests it keeps: {parts['p2p']:.0%}"
    )
    screen.print("  it touches tests: " + ("yes" if parts["tests_touched"] else "no"))
