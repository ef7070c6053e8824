"""Make a task of a rubric in words: a language model plans the steps for all items, and the plan is tried in a browser.

An item that fails on the good page, or passes on the blank one, is dropped and reported. Without --good only the second
is known. Exits with 1 where items were dropped.

Example:
    agentgym web plan rubric.json --out task.json --model MODEL --endpoint http://127.0.0.1:8000/v1 --good good.html
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.web.writing import write
from agentgym.errors import whole_number
from agentgym.verifiers.web.plan import BLANK_PAGE, Plan, plan, reviewed
from agentgym.verifiers.web.reading import parse_task
from agentgym.verifiers.web.rubric import load_rubric


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym web plan``."""

    rubric: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUBRIC.json")]]
    """Brief and rubric, in words."""
    out: Annotated[str, tyro.conf.arg(metavar="TASK.json")]
    """Where the task goes."""
    model: Annotated[str, tyro.conf.arg(metavar="MODEL")]
    """Who plans."""
    endpoint: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the model is served. Default: $OPENAI_BASE_URL."""
    good: Annotated[str | None, tyro.conf.arg(metavar="PAGE")] = None
    """A page that does all that is asked for."""
    blank: Annotated[str | None, tyro.conf.arg(metavar="PAGE")] = None
    """A page that does nothing of it. Default: an empty one."""
    tries: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """How often the model may answer, being told what was wrong."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym web plan``."""
    args = parse(Args, "web plan", __doc__, words)
    whole_number("--tries", args.tries, least=1)
    rubric = load_rubric(args.rubric)
    with console.stdout_reserved(args.json):
        from agentgym.endpoint import Endpoint
        from agentgym.verifiers.browser import open_pool, read_page

        good = None if args.good is None else read_page(args.good)
        blank = BLANK_PAGE if args.blank is None else read_page(args.blank)
        drawn = plan(rubric, Endpoint(args.model, base_url=args.endpoint), tries=args.tries)
        task = parse_task(drawn.task)
        with open_pool() as pool:
            drawn = reviewed(
                drawn,
                blank=pool.run(task, blank),
                good=None if good is None else pool.run(task, good),
            )
    write(args.out, json.dumps(drawn.task, ensure_ascii=False, indent=1) + "\n", "task")
    if args.json:
        kept = [item["id"] for item in drawn.task["items"]]
        console.print_json(
            {"task": args.out, "kept": kept, "dropped": dict(drawn.dropped), "faults": list(drawn.faults)}
        )
    else:
        _print_plan(args, drawn)
    return console.NO if drawn.dropped else console.OK


def _print_plan(args: Args, drawn: Plan) -> None:
    screen = console.out()
    items, scenarios = drawn.task["items"], drawn.task["scenarios"]
    screen.print(f"{len(items)} items in {len(scenarios)} scenarios, written to {escape(args.out)}")
    for item, why in drawn.dropped.items():
        screen.print(escape(f"dropped {item}: {why}"))
    for fault in drawn.faults:
        screen.print(escape(f"left out of the plan: {fault}"))
    if args.good is None:
        screen.print("not tried on a good page: --good PAGE finds items that no page can pass")
    if not any(item["category"] == "functionality" for item in items):
        screen.print("no item about functionality is left, so looks alone decide the score")
