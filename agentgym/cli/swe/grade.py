"""Grade a patch in a fresh sandbox.

Example:
    agentgym swe grade tasks/tasks.jsonl --patch INSTANCE_ID=fix.diff
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import RECORDS, parse
from agentgym.errors import UsageError


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe grade``."""

    records: RECORDS
    """The records."""
    patch: Annotated[str, tyro.conf.arg(metavar="INSTANCE_ID=FILE.diff")]
    """The patch and the task it is for."""
    backend: str = "auto"
    """Of the sandbox: auto, bubblewrap or docker."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe grade``."""
    args = parse(Args, "swe grade", __doc__, words)
    instance_id, patch = _read_patch(args.patch)
    with console.stdout_reserved(args.json):
        from agentgym.envs.swe.grading import grade_patch
        from agentgym.envs.swe.records import load_records

        verdict = grade_patch(load_records(args.records), instance_id, patch, backend=args.backend)
    if args.json:
        console.print_json(verdict)
    else:
        _print_verdict(verdict)
    return console.OK if verdict["resolved"] else console.NO


def _read_patch(pair: str) -> tuple[str, str]:
    from agentgym.verifiers.patches import decode_diff

    instance_id, equals, name = pair.partition("=")
    if not equals or not instance_id or not name:
        raise UsageError(f"expected --patch INSTANCE_ID=FILE.diff, got {pair!r}")
    try:
        return instance_id, decode_diff(Path(name).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the patch {name}: {error}") from None


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
    if "held_out" in verdict:
        screen.print(f"  held-out tests passed: {verdict['held_out']['held_out']:.0%}")
    if verdict["problem"]:
        screen.print(f"  [red]problem:[/] {escape(verdict['problem'])}")
    elif verdict["not_passed"]:
        names = verdict["not_passed"]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        screen.print(f"  not passed: {escape(', '.join(names[:5]))}{more}")
    if verdict["channel"] == "log":
        screen.print("  its results were read from a log, which the patched code can write to")
