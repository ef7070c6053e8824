"""Put an environment through the audit: seeding, limits, leaks, floors and gold, cheats, snapshots, resources.

Exits with 1 where a probe fails. `module:Id-v0` checks an environment of your own.

Example:
    agentgym check agentgym/Relay-v0
    agentgym check my_env:MyEnv-v0 --resets 50
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import constructor_errors, parse, read_pairs
from agentgym.errors import InfrastructureError
from agentgym.registration import require

if TYPE_CHECKING:
    from agentgym.check import Report


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym check``."""

    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ID")]]
    """The environment's id, or module:id."""
    set: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")]] = ()
    """A keyword of the environment; the value is JSON or text."""
    resets: Annotated[int, tyro.conf.arg(metavar="N")] = 200
    """How often the probe for leaked resources resets."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Of every probe."""
    only: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="PROBE")]] = ()
    """Run only this probe."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym check``."""
    args = parse(Args, "check", __doc__, words)
    kwargs = read_pairs(args.set)
    with console.stdout_reserved(args.json):
        require(args.env)
        from agentgym.check import PROBES, check

        started = itertools.count()
        total = len(args.only) or len(PROBES)
        with console.Progress("probes", total) as progress, constructor_errors():
            report = check(
                args.env,
                kwargs=kwargs,
                resets=args.resets,
                seed=args.seed,
                only=args.only or None,
                progress=lambda name: progress.show(name, next(started), total),
            )
    if args.json:
        console.print_json(report.to_dict())
    else:
        _print(report)
    if report.infrastructure_error:
        raise InfrastructureError(report.infrastructure_error)
    return console.OK if report.ok else console.NO


def _print(report: Report) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("probe", no_wrap=True)
    table.add_column("seconds", justify="right")
    table.add_column("detail", overflow="fold")
    marks = {True: "[green]pass[/]", False: "[red bold]FAIL[/]", None: "[dim]n/a[/]"}
    for probe in report.probes:
        table.add_row(marks[probe.ok], probe.name, f"{probe.seconds:.2f}", escape(probe.detail))
    screen = console.out()
    screen.print(table)
    failed = sum(probe.ok is False for probe in report.probes)
    passed = sum(probe.ok is True for probe in report.probes)
    verdict = "[green]ok[/]" if report.ok else "[red bold]not ok[/]"
    screen.print(f"{escape(report.id)}: {verdict}, {passed} passed, {failed} failed")
