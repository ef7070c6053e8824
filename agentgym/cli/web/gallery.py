"""Judge many pages for a task, and show them: one HTML file with screenshots, verdicts and what the batch shows.

Pages are sorted by score. Beside the score stand two scorers that do not use the page; a batch in which they disagree
with it is one in which they can be fooled.

Example:
    agentgym web gallery --task task.json pages/*.html --out gallery.html
    agentgym web gallery --task task.json a.html b.html --plain 2 --workers 2 --json
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.web.writing import write
from agentgym.errors import UsageError, whole_number
from agentgym.verifiers.web.judge import judge
from agentgym.verifiers.web.llm import PageJudge, combine, page_judge
from agentgym.verifiers.web.reading import load_task
from agentgym.verifiers.web.static import screenshot_score, source_score
from agentgym.verifiers.web.task import Action, WebTask

if TYPE_CHECKING:
    from agentgym.verifiers.browser import BrowserPool
    from agentgym.verifiers.web.measures import JudgedPage


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym web gallery``."""

    pages: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="PAGE...")]]
    """HTML files, or folders with index.html."""
    task: Annotated[str, tyro.conf.arg(metavar="TASK.json")]
    """The task: brief, rubric, scenarios."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE.html")] = "gallery.html"
    """Where the gallery goes."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Of the random words the scenarios type, and of the sample of --plain."""
    plain: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Judge so many of the pages once more where they can tell that the browser is automated."""
    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """How many browsers."""
    judge: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Ask this model too: it may lower items, and judges those that steps cannot decide."""
    endpoint: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the model is served. Default: $OPENAI_BASE_URL."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A judged page with its pictures: when it was loaded, and at the end of each scenario (PNG; None: none came)."""

    judged: JudgedPage
    loaded: bytes | None
    ends: tuple[bytes | None, ...]


def main(words: Sequence[str]) -> int:
    """Run ``agentgym web gallery``."""
    args = parse(Args, "web gallery", __doc__, words)
    for name in ("seed", "plain"):
        whole_number(f"--{name}", getattr(args, name), least=0)
    whole_number("--workers", args.workers, least=1)
    names = _names(args.pages)
    task = load_task(args.task)
    model = page_judge(args.judge, args.endpoint)
    with console.stdout_reserved(args.json):
        from agentgym.cli.web.gallery_page import render
        from agentgym.verifiers.browser import open_pool, read_page
        from agentgym.verifiers.web.measures import measures, sample

        files = {name: read_page(path) for name, path in names.items()}
        twice = sample(list(files), args.plain, seed=args.seed)
        with (
            open_pool(args.workers) as pool,
            ThreadPoolExecutor(args.workers) as threads,
            console.Progress("pages", len(files)) as progress,
        ):

            def look(name: str) -> Shown:
                shown = look_at(pool, task, name, files[name], args.seed, name in twice, model)
                progress.step(name)
                return shown

            pages = sorted(threads.map(look, files), key=lambda page: -page.judged.verdict.score)
        found = measures(page.judged for page in pages)
        text = render(task, pages, found)
    write(args.out, text, "gallery")
    if args.json:
        counts = {} if model is None else {"judge": dataclasses.asdict(model.counts)}
        console.print_json(
            {
                "task": task.id,
                "out": args.out,
                "pages": [_row(page.judged) for page in pages],
                "measures": found,
                **counts,
            }
        )
    else:
        _print_pages(args.out, [page.judged for page in pages], found)
    return console.OK


def look_at(
    pool: BrowserPool,
    task: WebTask,
    name: str,
    files: dict[str, bytes],
    seed: int,
    twice: bool,
    model: PageJudge | None,
) -> Shown:
    """Judge a page and take pictures of it."""
    from agentgym.verifiers.web.measures import JudgedPage, differing, injection_phrase

    task = _with_pictures(task)
    trace = pool.run(task, files, seed=seed)
    verdict = judge(task, trace)
    differs = None
    if twice:
        differs = differing(verdict, judge(task, pool.run(task, files, seed=seed, profile="plain")))
    loaded = pool.preview(files, viewport=task.viewport, screenshot=True)
    if model is not None:
        verdict = combine(task, verdict, model.review(task, trace, verdict, files, shown=loaded.text))
    judged = JudgedPage(
        name,
        verdict,
        size=sum(map(len, files.values())),
        scores={
            "source": source_score(task, files),
            "screenshot": 0.0 if loaded.screenshot is None else screenshot_score(loaded.screenshot),
        },
        injection=injection_phrase(files),
        differs=differs,
    )
    last = {event.scenario: event.screenshot for event in trace.events}
    return Shown(judged, loaded.screenshot, tuple(last[number] for number in range(len(task.scenarios))))


def _with_pictures(task: WebTask) -> WebTask:
    """A task that ends each scenario with a picture; places of the steps stay what they are."""
    scenarios = tuple(
        dataclasses.replace(scenario, steps=(*scenario.steps, Action("screenshot")))
        for scenario in task.scenarios
    )
    return dataclasses.replace(task, scenarios=scenarios)


def _names(paths: Sequence[str]) -> dict[str, str]:
    """Pages by the shortest names that tell them apart."""
    if not paths:
        raise UsageError("expected at least one PAGE, got none")
    stems = [Path(path).resolve().stem for path in paths]
    names = {stem if stems.count(stem) == 1 else path: path for stem, path in zip(stems, paths, strict=True)}
    if len(names) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UsageError(f"the page {twice} is given twice")
    return names


def _row(page: JudgedPage) -> dict[str, Any]:
    return {
        "page": page.name,
        **page.verdict.to_json(),
        "bytes": page.size,
        "scores": dict(page.scores),
        "injection": page.injection,
        "differs": None if page.differs is None else list(page.differs),
    }


def _print_pages(out: str, pages: Sequence[JudgedPage], found: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("page", "score", "raw", "source", "screenshot", "bytes", "flags"):
        table.add_column(column, justify="left" if column in ("page", "flags") else "right")
    for page in pages:
        flags = [name for name, value in page.verdict.flags.items() if value]
        flags += ["injection"] if page.injection else []
        flags += ["knows automation"] if page.differs else []
        table.add_row(
            escape(page.name),
            f"{page.verdict.score:.3f}",
            f"{page.verdict.raw:.3f}",
            *(f"{score:.2f}" for score in page.scores.values()),
            f"{page.size:,}",
            ", ".join(flags),
        )
    screen = console.out()
    screen.print(table)
    for row in found["tau"]:
        first, second = row["scorers"]
        screen.print(f"Kendall's tau-b, {first} and {second}: {console.number(row['tau'], 2)}")
    for alarm in found["alarms"]:
        screen.print(f"[yellow]{escape(alarm)}[/]")
    screen.print(f"written to {escape(out)}")
