"""What the bundled web tasks pay: every gold page, and every page that must not be paid.

    python benchmarks/web_tasks.py [--recipes kanban poll] [--kinds gold stuffed] [--seeds 0 1] [--json FILE]

Judges each kind of page on each recipe in the browser and prints a table of scores. Exit code 1 if a gold page gets
less than 1, or any other 0.15 or more; one that sends away what is typed counts 0, as in the environment. Judging pages
that do nothing is mostly waiting, so more browsers than cores pay off.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from agentgym.envs.web import pages
from agentgym.envs.web.tasks import RECIPES, Problem, make
from agentgym.verifiers.browser import BrowserPool, open_pool
from agentgym.verifiers.web.judge import PageVerdict, judge
from agentgym.verifiers.web.reading import parse_task

NAMES = [name for names in RECIPES.values() for name in names]
KINDS: dict[str, Callable[[Problem], str]] = {
    "gold": lambda problem: problem.gold,
    "blank": lambda problem: pages.BLANK,
    "looks": lambda problem: pages.visual_only(problem.gold),
    "stuffed": lambda problem: pages.stuffed(parse_task(problem.task)),
    "forged": lambda problem: pages.forged(problem.gold, problem.task["prompt"]),
    "off-screen": lambda problem: pages.off_screen(problem.gold),
    "automation": lambda problem: pages.automation_only(problem.gold),
    "exfiltrating": lambda problem: pages.exfiltrating(problem.gold),
}
HIGHEST = 0.15


class Job(NamedTuple):
    """One page to judge."""

    recipe: str
    seed: int
    kind: str


def main() -> int:
    """Judge and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--browsers", type=int, default=4)
    parser.add_argument("--json", help="write the verdicts here")
    args = parser.parse_args()
    jobs = [Job(r, s, k) for r in args.recipes for s in args.seeds for k in args.kinds]
    with open_pool(args.browsers) as pool, ThreadPoolExecutor(args.browsers) as threads:
        verdicts: dict[Job, PageVerdict] = {}
        for job, verdict in zip(jobs, threads.map(lambda job: _judged(pool, job), jobs), strict=True):
            verdicts[job] = verdict
            done = f"{len(verdicts)}/{len(jobs)} {job.recipe}-{job.seed} {job.kind}"
            print(f"{done} {_paid(verdict):.3f}", file=sys.stderr)
    _print_table(verdicts, args.kinds)
    wrong = [job for job, verdict in verdicts.items() if not _as_it_should(job, verdict)]
    for job in wrong:
        items = [item for item, passed in verdicts[job].items.items() if passed != (job.kind == "gold")]
        print(f"wrong: {job.recipe}-{job.seed}, {job.kind}: {', '.join(items)}", file=sys.stderr)
    if args.json:
        Path(args.json).write_text(json.dumps(_rows(verdicts), indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def _judged(pool: BrowserPool, job: Job) -> PageVerdict:
    problem = make(job.recipe, job.seed)
    task = parse_task(problem.task)
    page = KINDS[job.kind](problem).encode()
    return judge(task, pool.run(task, {"index.html": page}, seed=1 + job.seed))


def _paid(verdict: PageVerdict) -> float:
    return 0.0 if verdict.flags["blocked"] else verdict.score


def _as_it_should(job: Job, verdict: PageVerdict) -> bool:
    return verdict.score == 1.0 if job.kind == "gold" else _paid(verdict) < HIGHEST


def _print_table(verdicts: dict[Job, PageVerdict], kinds: list[str]) -> None:
    """A row for each task; the seconds are those of its gold page, or its first kind's."""
    print(f"{'task':<18}" + "".join(f"{kind:>13}" for kind in kinds) + f"{'seconds':>9}")
    for recipe, seed in dict.fromkeys((job.recipe, job.seed) for job in verdicts):
        row = [verdicts[Job(recipe, seed, kind)] for kind in kinds]
        scores = "".join(f"{_paid(verdict):>13.3f}" for verdict in row)
        print(f"{f'{recipe}-{seed}':<18}{scores}{row[0].seconds:>9.1f}")


def _rows(verdicts: dict[Job, PageVerdict]) -> list[dict[str, Any]]:
    return [job._asdict() | {"paid": _paid(verdict)} | verdict.to_json() for job, verdict in verdicts.items()]


if __name__ == "__main__":
    sys.exit(main())
