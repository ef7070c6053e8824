"""Replay recorded episodes of the original WebShop in compat mode and say where ours differ.

Each is replayed twice: with the recorded rankings of the search engine, and with our own search.

Example:
    agentgym shop replay traces.jsonl --data FOLDER
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro
from rich.markup import escape

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.tasks import read_jsonl

_SHOWN = 160  # characters of a value that differs


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym shop replay``."""

    traces: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TRACES.jsonl")]]
    """The recorded episodes."""
    data: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """The files of the shop they were recorded on."""
    num_products: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Only the first rows of the product file, as the original's num_products."""
    pos: Literal["auto", "rule", "spacy"] = "auto"
    """How nouns of titles are found; auto: spaCy where it is installed."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym shop replay``."""
    args = parse(Args, "shop replay", __doc__, words)
    with console.stdout_reserved(args.json):
        from agentgym.envs.webshop.catalogue import open_catalogue
        from agentgym.envs.webshop.nouns import choose
        from agentgym.envs.webshop.replay import Replay

        traces = [trace for trace, _ in read_jsonl(args.traces)]
        tagger, nouns = choose(args.pos)
        replay = Replay(open_catalogue(args.data, args.num_products), nouns)
        with console.Progress("episodes", len(traces)) as progress:
            report = replay.run(traces, each=lambda trace_id: progress.step(str(trace_id)))
    if args.json:
        console.print_json(report)
    else:
        _print_report(report, tagger)
    return console.OK if report["equal"] == report["n"] else console.NO


def _print_report(report: dict[str, Any], tagger: str) -> None:
    screen = console.out()
    for trace in report["traces"]:
        difference = trace["first_difference"]
        if difference is not None:
            screen.print(
                f"[red]{escape(str(trace['id']))}[/]: step {difference['step']}, {difference['field']}"
            )
            for name in ("expected", "got"):
                screen.print(
                    f"  {name:<8} {escape(json.dumps(difference[name], ensure_ascii=False)[:_SHOWN])}"
                )
    screen.print(
        f"{report['equal']} of {report['n']} equal, {report['equal_given_hits']} with the recorded rankings"
    )
    agreement = report["search"]
    screen.print(
        f"search: first hit the same in {console.number(agreement['top1'])}, first ten shared "
        f"{console.number(agreement['top10_overlap'])}; nouns by {tagger}"
    )
