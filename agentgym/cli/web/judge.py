"""Judge a page by using it: run a task's scenarios in a browser, score what held.

Exits with 0 where a verdict was reached, however low.

Example:
    agentgym web judge --task task.json page.html --json
    agentgym web judge --task task.json page.html --judge MODEL --endpoint http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.web.writing import write
from agentgym.errors import whole_number
from agentgym.verifiers.web.judge import PageVerdict, judge
from agentgym.verifiers.web.llm import combine, page_judge
from agentgym.verifiers.web.reading import load_task
from agentgym.verifiers.web.task import WebTask

if TYPE_CHECKING:
    from agentgym.verifiers.web.trace import Trace


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym web judge``."""

    page: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="PAGE")]]
    """An HTML file, or a folder with index.html."""
    task: Annotated[str, tyro.conf.arg(metavar="TASK.json")]
    """The task: brief, rubric, scenarios."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Of the random words the scenarios type."""
    profile: Literal["quiet", "plain"] = "quiet"
    """Whether the page can tell that the browser is automated: quiet hides it."""
    trace: Annotated[str | None, tyro.conf.arg(metavar="FILE.jsonl")] = None
    """Write every step and what came of it."""
    judge: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Ask this model too: it may lower items, and judges those that steps cannot decide."""
    endpoint: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the model is served. Default: $OPENAI_BASE_URL."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym web judge``."""
    args = parse(Args, "web judge", __doc__, words)
    whole_number("--seed", args.seed, least=0)
    task = load_task(args.task)
    model = page_judge(args.judge, args.endpoint)
    with console.stdout_reserved(args.json):
        from agentgym.verifiers.browser import open_pool, read_page

        files = read_page(args.page)
        with open_pool() as pool:
            trace = pool.run(task, files, seed=args.seed, profile=args.profile)
            shown = pool.preview(files, viewport=task.viewport).text if model else ""
            versions = pool.versions
    if args.trace is not None:
        lines = (json.dumps(row, ensure_ascii=False) for row in trace.rows())
        write(args.trace, "".join(f"{line}\n" for line in lines), "trace")
    verdict = judge(task, trace)
    if model is not None:
        verdict = combine(task, verdict, model.review(task, trace, verdict, files, shown=shown))
    if args.json:
        console.print_json({**verdict.to_json(), "bytes": sum(map(len, files.values())), "browser": versions})
    else:
        _print_verdict(task, verdict, trace, versions)
    return console.OK


def _print_verdict(task: WebTask, verdict: PageVerdict, trace: Trace, versions: dict[str, str]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("item", "category", "weight", "passed", "rubric"):
        table.add_column(column, justify="right" if column == "weight" else "left")
    for item in task.items:
        mark = "[green]yes[/]" if verdict.items[item.id] else "[red]no[/]"
        table.add_row(escape(item.id), item.category, f"{item.weight:g}", mark, escape(item.text))
    screen = console.out()
    screen.print(table)
    screen.print(
        f"{escape(verdict.task)}: score {verdict.score:g} (raw {verdict.raw:g}, function {verdict.functional:.0%}), "
        f"{verdict.seconds:.1f} s, Chromium {versions['browser']}"
    )
    shown = {name: value for name, value in verdict.flags.items() if value}
    for name, value in shown.items():
        text = ", ".join(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
        screen.print(f"  [yellow]{name}[/]: {escape(text)}")
    failed = [event for event in trace.events if event.error and not event.skipped]
    for event in failed[:5]:
        place = f"scenario {event.scenario}, step {event.step}, {event.op}"
        screen.print(f"  {place}: {escape(event.error)}", soft_wrap=True)
