"""What making repair tasks yields and takes: by mutation and from the history of source archives, each task validated.

    python benchmarks/swe_building.py --out DIR [--jobs N] [--repeats N] [--json FILE]

Every task's gold patch must get 1 and the empty patch 0 in each of `--repeats` runs. An interrupted run continues: what
stands in DIR is not made again, and the minutes of such a package are those of the last run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym.envs.swe.building.build import build_tasks
from agentgym.envs.swe.building.candidates import Found
from agentgym.envs.swe.building.history import last_versions
from agentgym.envs.swe.building.mine import mine_sdists
from agentgym.envs.swe.grading import validate_records

MUTATED = ("isodate==0.7.2", "cachetools==6.2.6", "tinydb==4.9.0")
COUNT, SEED, BUGS = 6, 0, (1, 2)  # of the mutations
MINED = ("cachetools", "sqlparse", "marshmallow")
VERSIONS = 14  # of each


def say(what: str, done: int, total: int) -> None:
    print(f"    {done} tasks, {what}"[:150], flush=True)


def row(kind: str, package: str, found: Found, minutes: float, jobs: int, repeats: int) -> dict[str, Any]:
    """What one package gave, its tasks validated."""
    start = time.monotonic()
    answer = validate_records(found.records, repeats=repeats, jobs=jobs)
    return {
        "kind": kind,
        "package": package,
        "tried": found.report["tried"],
        "outcomes": found.report["outcomes"],
        "tasks": len(found.records),
        "sound": answer["ok"],
        "minutes": round(minutes, 1),
        "validation_minutes": round((time.monotonic() - start) / 60, 1),
        "instance_ids": [record.instance_id for record in found.records],
        "problems": [entry["problem"] for entry in answer["records"] if entry["problem"]],
    }


def measure(out: Path, jobs: int, repeats: int) -> list[dict[str, Any]]:
    """Make and validate the tasks of all packages."""
    rows = []
    for package in MUTATED:
        print(f"  {package}, by mutation", flush=True)
        start = time.monotonic()
        place = out / package.partition("==")[0]
        found = build_tasks(package, place, count=COUNT, seed=SEED, bugs=BUGS, jobs=jobs, progress=say)
        rows.append(row("mutation", package, found, (time.monotonic() - start) / 60, jobs, repeats))
    for package in MINED:
        print(f"  {package}, from its last {VERSIONS} source archives", flush=True)
        start = time.monotonic()
        versions = last_versions(package, VERSIONS)
        found = mine_sdists(versions, out / f"{package}-history", jobs=jobs, progress=say)
        span = f"{versions[0]} .. {versions[-1].partition('==')[2]}"
        rows.append(row("history", span, found, (time.monotonic() - start) / 60, jobs, repeats))
    return rows


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)
    rows = measure(args.out, args.jobs, args.repeats)
    print(f"{'kind':<10}{'package':<36}{'tried':>6}{'tasks':>7}{'sound':>7}{'minutes':>9}{'validation':>12}")
    for entry in rows:
        numbers = f"{entry['tried']:>6}{entry['tasks']:>7}{entry['sound']:>7}{entry['minutes']:>9}"
        print(f"{entry['kind']:<10}{entry['package']:<36}{numbers}{entry['validation_minutes']:>12}")
        for problem in entry["problems"]:
            print(f"    {problem}")
    if args.json:
        args.json.write_text(json.dumps({**vars(args), "rows": rows}, default=str, indent=1) + "\n")


if __name__ == "__main__":
    main()
