"""How fast SearchQA-v0 is: steps, resets, searches, start-up, memory.

    python benchmarks/search_qa.py [--large 100000] [--json FILE]

Measures the invented worlds as they are, worlds of 1,000 documents, and a JSONL corpus of `--large` documents (0: leave
it out), which are those of invented worlds. Rates are per CPU second of one process, the best of three: on a machine
that others use too, the best repeat is the one least disturbed. Each corpus is opened in processes of its own: first
with an empty cache (cold), then again (cached).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPEATS = 3
STEPS, RESETS, SEARCHES = 2000, 2000, 500


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", type=int, default=100_000, help="documents of the large corpus")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # in a process of its own: keywords as JSON
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(json.loads(args.measure))))
        return
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, dict[str, Any]] = {
            "worlds of 120 documents": {},
            "worlds of 1,000 documents": {"documents": 1000},
        }
        if args.large:
            corpus = Path(folder) / "corpus.jsonl"
            write_corpus(corpus, args.large)
            settings[f"a file of {args.large:,} documents"] = {"corpus": str(corpus)}
        figures = {name: _in_processes(keywords) for name, keywords in settings.items()}
    _print_table(figures)
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def write_corpus(path: Path, count: int) -> None:
    """Documents of as many invented worlds as it takes."""
    from agentgym.envs.search_qa.world import WorldOptions, make_world
    from agentgym.envs.search_qa.writing import write_documents

    def rows() -> Iterator[str]:
        for number in itertools.count():
            rng = random.Random(number)
            for document in write_documents(make_world(WorldOptions(documents=1000), "train", rng), rng):
                yield json.dumps({"title": document.title, "text": document.text}) + "\n"

    with open(path, "w", encoding="utf-8") as file:
        file.writelines(itertools.islice(rows(), count))


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
    """The figures of one setting in this process."""
    import psutil

    wall = time.perf_counter()
    from agentgym.envs.search_qa import SearchQAEnv

    env = SearchQAEnv(**keywords)
    env.reset(seed=0)
    env.step(_call(env, "something"))
    start = time.perf_counter() - wall
    fresh = _fresh_world(env)
    env.reset(seed=0)
    queries = []
    for _ in range(SEARCHES):
        queries.append(env.reset()[0])
    env.reset(options={"task": 0})
    retriever = env._retriever

    def play() -> None:
        env.reset(seed=0, options={"task": 0})
        for number in range(STEPS):
            _, _, terminated, truncated, _ = env.step(_call(env, queries[number % SEARCHES]))
            if terminated or truncated:
                env.reset(options={"task": 0})

    return {
        "steps_per_s": STEPS / _best(play),
        "resets_per_s": RESETS / _best(lambda: [env.reset() for _ in range(RESETS)]),
        "new_world_ms": fresh,
        "searches_per_s": SEARCHES / _best(lambda: [retriever.search(query, 3) for query in queries]),
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
        "start_s": start,
    }


def _fresh_world(env: Any) -> float:
    """CPU ms of the first reset to a world and the first search in it, over twenty worlds."""
    tasks = [task for task in env.task_set.split("test") if task.id.endswith("/0")][:20]
    before = time.process_time()
    for task in tasks:
        env.reset(options={"task": task.id})
        env.step(_call(env, "something"))
    return 1e3 * (time.process_time() - before) / len(tasks)


def _call(env: Any, query: str) -> str:
    text: str = env._write("search", query=query)
    return text


def _best(run: Callable[[], object]) -> float:
    """CPU seconds of the quickest of several runs."""
    times = []
    for _ in range(REPEATS):
        before = time.process_time()
        run()
        times.append(time.process_time() - before)
    return min(times)


ROWS = {
    "steps_per_s": "steps per CPU second, each a search for a question's words",
    "resets_per_s": "resets per CPU second, worlds made before",
    "new_world_ms": "CPU ms to make a world's texts, questions and index",
    "searches_per_s": "searches per CPU second, 3 hits",
    "memory_mb": "resident memory, MB (mapped files included)",
    "start_s": "start to first search, s",
    "cold_start_s": "the same with nothing cached, s",
}


def _print_table(figures: dict[str, dict[str, float]]) -> None:
    print("| | " + " | ".join(figures) + " |")
    print("|---|" + "---|" * len(figures))
    for key, label in ROWS.items():
        cells = [_cell(row[key]) for row in figures.values()]
        print(f"| {label} | " + " | ".join(cells) + " |")


def _cell(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
