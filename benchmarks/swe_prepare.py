"""Which of twenty well-known packages of the index can tasks be made of? The table of docs/swe-runtime.md.

    nice -n 10 python benchmarks/swe_prepare.py --out runs/prepare [--jobs N] [--timeout S] [--json FILE]

The rule of choice, fixed before any of them was looked at: ten kinds of library; of each kind the two pure-Python
projects that come to mind first as the best known; the newest version on the index. The run can be interrupted and
goes on where it ended. It needs the index, and about half an hour of two cores.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from agentgym.envs.swe.runtime.repositories import Outcome, prepare_repositories, report

CHOSEN = {
    "data structures": ("sortedcontainers", "attrs"),
    "command lines": ("click", "docopt"),
    "dates": ("python-dateutil", "arrow"),
    "text": ("inflect", "humanize"),
    "parsing": ("pyparsing", "lark"),
    "markup and templates": ("jinja2", "markdown"),
    "serialisation": ("marshmallow", "tomlkit"),
    "HTTP": ("requests", "h11"),
    "web frameworks": ("flask", "bottle"),
    "mathematics and graphs": ("networkx", "mpmath"),
}


def row(outcome: Outcome) -> str:
    """One line of the table, in Markdown."""
    numbers = (
        f"{outcome.tests} | {outcome.stable} | {outcome.suite_seconds:.0f}" if outcome.ok else "- | - | -"
    )
    answer = "ok" if outcome.ok else "no answer" if outcome.infrastructure else f"not {outcome.stage}"
    name = f"{outcome.repository} {outcome.version}".strip()
    told = "; ".join(filter(None, (outcome.reason, *outcome.notes))).replace("|", "\\|")
    return f"| {name} | {answer} | {numbers} | {outcome.seconds:.0f} | {told} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is prepared")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one run of a suite")
    parser.add_argument("--json", type=Path, help="write the report there too")
    args = parser.parse_args()
    names = [name for pair in CHOSEN.values() for name in pair]
    outcomes = prepare_repositories(
        names,
        args.out,
        jobs=args.jobs,
        timeout=args.timeout,
        progress=lambda name, done, total: print(f"{done}/{total} {name}", flush=True),
    )
    print("| package | outcome | tests | stable | suite, s | all, s | why, or what was done for it |")
    print("|---|---|---|---|---|---|---|")
    for outcome in outcomes:
        print(row(outcome))
    print(f"\n{sum(outcome.ok for outcome in outcomes)} of {len(outcomes)} can be worked with")
    if args.json:
        args.json.write_text(json.dumps(report(outcomes), indent=2) + "\n")


if __name__ == "__main__":
    main()
