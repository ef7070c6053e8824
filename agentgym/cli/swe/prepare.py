"""Find out which repositories tasks can be made of: install what they need, run their tests, say why not.

Example:
    agentgym swe prepare sortedcontainers tinydb==4.9.0 path/to/repository --out prepared --jobs 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.envs.swe.runtime.repositories import Outcome


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym swe prepare``."""

    repositories: tyro.conf.Positional[tuple[str, ...]] = ()
    """Each a folder, a source archive, the URL of a git repository, or NAME or NAME==VERSION of the package index."""
    from_: Annotated[str, tyro.conf.arg(name="from", metavar="FILE")] = ""
    """A file that names more of them, one a line; what follows a # is left out."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = "prepared"
    """Folder for prepare.json and for what each repository needs. A second run goes on where the first one ended."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How many at a time."""
    timeout: Annotated[float, tyro.conf.arg(metavar="S")] = 300.0
    """Seconds that one run of a repository's tests may take."""
    retry: bool = False
    """Do those again that did not work."""
    images: bool = False
    """Build a Docker image for each that works, too; needs a daemon, and the network."""
    json: bool = False
    """Print JSON: what DIR/prepare.json says of the repositories named."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe prepare``."""
    args = parse(Args, "swe prepare", __doc__, words)
    names = [*args.repositories, *(_listed(Path(args.from_)) if args.from_ else [])]
    if not names:
        raise UsageError("expected at least one repository, or --from FILE that names some")
    if args.jobs < 1 or args.timeout <= 0:
        raise UsageError(
            f"expected --jobs >= 1 and --timeout > 0, got --jobs {args.jobs} --timeout {args.timeout:g}"
        )
    with console.stdout_reserved(args.json), console.Progress("repositories", len(set(names))) as progress:
        from agentgym.envs.swe.runtime.repositories import prepare_repositories, report

        outcomes = prepare_repositories(
            names,
            args.out,
            jobs=args.jobs,
            timeout=args.timeout,
            retry=args.retry,
            images=args.images,
            progress=progress.show,
        )
    if args.json:
        console.print_json(report(outcomes))
    else:
        _print_table(outcomes, Path(args.out))
    return console.OK if all(outcome.ok for outcome in outcomes) else console.NO


def _listed(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"expected --from to be a text file, one repository a line: {error}") from None
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def _print_table(outcomes: Sequence[Outcome], out: Path) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("repository", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    for column in ("python", "tests", "stable", "suite s", "all s"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("why, or what was done for it", overflow="fold")
    for o in outcomes:
        failed = "[yellow]no answer[/]" if o.infrastructure else f"[red]not {o.stage}[/]"
        numbers = (str(o.tests), str(o.stable), f"{o.suite_seconds:.1f}") if o.ok else ("-", "-", "-")
        table.add_row(
            escape(o.repository),
            "[green]ok[/]" if o.ok else failed,
            o.python or "-",
            *numbers,
            f"{o.seconds:.0f}",
            escape("; ".join(filter(None, (o.reason, *o.notes)))),
        )
    screen = console.out()
    screen.print(table)
    screen.print(
        f"{sum(o.ok for o in outcomes)} of {len(outcomes)} repositories can be worked with; see {out}"
    )
