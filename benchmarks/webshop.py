"""How fast WebShop-v0 is: steps, resets, searches, memory, start-up.

    python benchmarks/webshop.py [--data FOLDER] [--large 100000] [--json FILE]

Measures the invented catalogue of 1,000 products, that of a folder of WebShop's files where one is given, and an
invented one of `--large` products (0: leave it out). Rates are per CPU second of one process, the best of three: on a
machine that others use too, the best repeat is the one least disturbed. Each catalogue is opened in processes of its
own: first with an empty cache (cold), then again (cached).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# One process, 1,000 products, text mode; CPU of a like machine (research on the original at commit 64fa2a5).
ORIGINAL = {
    "steps_per_s": 39.0,
    "resets_per_s": 325.0,
    "search_ms": 2.5,
    "memory_mb": 514.0,
    "start_s": 4.9,
}
REPEATS = 3
STEPS, RESETS, SEARCHES = 5000, 5000, 300


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="a folder with WebShop's files")
    parser.add_argument("--large", type=int, default=100_000, help="products of the large invented catalogue")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # in a process of its own: keywords as JSON
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(json.loads(args.measure))))
        return
    shops: dict[str, dict[str, Any]] = {"invented, 1,000": {}}
    if args.data:
        shops[f"files in {Path(args.data).name}"] = {"data": str(Path(args.data).resolve())}
    if args.large:
        shops[f"invented, {args.large:,}"] = {"num_products": args.large}
    figures = {"original, 1,000": ORIGINAL} | {
        name: _in_processes(keywords) for name, keywords in shops.items()
    }
    _print_table(figures)
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _in_processes(keywords: dict[str, Any]) -> dict[str, float]:
    """A cold start, then everything with the cache filled."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--measure", json.dumps(keywords)]
        environment = os.environ | {"AGENTGYM_CACHE": cache}

        def run() -> dict[str, float]:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            figures: dict[str, float] = json.loads(done.stdout)
            return figures

        cold = run()
        return run() | {"cold_start_s": cold["start_s"]}


def measure(keywords: dict[str, Any]) -> dict[str, float]:
    """The figures of one shop in this process."""
    import psutil

    wall, cpu = time.perf_counter(), time.process_time()
    from agentgym.envs.webshop import WebShopEnv

    env = WebShopEnv(**keywords)
    env.reset(seed=0)
    env.step("search[something]")
    start, start_cpu = time.perf_counter() - wall, time.process_time() - cpu
    queries = [env.task_pool[number % len(env.task_pool)].prompt for number in range(SEARCHES)]
    index = env.shop.catalogue.index

    def play() -> None:
        rng = random.Random(0)
        _, info = env.reset(seed=0)
        for _ in range(STEPS):
            _, _, terminated, truncated, info = env.step(rng.choice(info["admissible_actions"]))
            if terminated or truncated:
                _, info = env.reset()

    return {
        "steps_per_s": STEPS / _best(play),
        "resets_per_s": RESETS / _best(lambda: [env.reset() for _ in range(RESETS)]),
        "search_ms": 1e3 / SEARCHES * _best(lambda: [index.search(query, 50) for query in queries]),
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
        "start_s": start,
        "start_cpu_s": start_cpu,
    }


def _best(run: Callable[[], object]) -> float:
    """CPU seconds of the quickest of several runs."""
    times = []
    for _ in range(REPEATS):
        before = time.process_time()
        run()
        times.append(time.process_time() - before)
    return min(times)


ROWS = {
    "steps_per_s": "steps per CPU second, random clicks, text",
    "resets_per_s": "resets per CPU second",
    "search_ms": "CPU ms a search of an instruction's words, 50 hits",
    "memory_mb": "resident memory, MB (mapped files included)",
    "start_s": "start to first search, s",
    "start_cpu_s": "the same in CPU s",
    "cold_start_s": "the same with nothing cached, s",
}


def _print_table(figures: dict[str, dict[str, float]]) -> None:
    print("| | " + " | ".join(figures) + " |")
    print("|---|" + "---|" * len(figures))
    for key, label in ROWS.items():
        cells = [_cell(row.get(key)) for row in figures.values()]
        print(f"| {label} | " + " | ".join(cells) + " |")


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
