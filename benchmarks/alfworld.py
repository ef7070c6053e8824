"""Speed and memory of ALFWorld's engines, measured in the same run.

    python benchmarks/alfworld.py [--data DIR] [--games 64] [--json FILE]

Times are CPU milliseconds, those of the processes that the alfworld package plays in included; of several repeats the
best counts, since the machine is used by others. The native engine has all games at once in this process; the package
has four, in a process each, once. Without --data the invented houses are played. Where the package is not installed the
native engine is measured alone.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from agentgym.envs.alfworld import AlfworldEnv
from agentgym.envs.alfworld.engines import Engine, cpu_seconds, make_engine
from agentgym.envs.alfworld.houses import houses
from agentgym.envs.alfworld.native import load_game
from agentgym.envs.alfworld.sources import Source, source_of
from agentgym.errors import MissingDependency

STEPS = 50
PACKAGE_GAMES = 4


def main() -> None:
    """Measure every engine there is, and the environment around it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("ALFWORLD_DATA"))
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    tasks = list(AlfworldEnv(data=args.data, split="all").task_pool)
    sources = [source_of(task.data, task.id) for task in itertools.islice(tasks, args.games)]
    report: dict[str, Any] = {"games": len(sources), "data": args.data or "houses"}
    report["engines"] = {"native": measure("native", sources, args.repeats)}
    try:
        report["engines"]["alfworld"] = measure("alfworld", sources[:PACKAGE_GAMES], 1)
    except MissingDependency as error:
        print(f"the native engine alone: {error}")
    report["environment"] = measure_environment(args.data)
    report["memory"] = measure_memory(args.data)
    show(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def measure(name: str, sources: list[Source], repeats: int) -> dict[str, float]:
    """CPU milliseconds of one engine, over all games at once."""
    others = [source_of(task.data, task.id) for task in list(houses())[-len(sources) :]]
    warm = [load(name, source) for source in others]  # what is needed once is not counted
    del warm
    rounds = [measure_once(name, sources, seed) for seed in range(repeats)]
    return {what: min(row[what] for row in rounds) for what in rounds[0]}


def measure_once(name: str, sources: list[Source], seed: int) -> dict[str, float]:
    """The same, with what one round says."""
    load_game.cache_clear()
    engines: list[Engine] = []
    loaded = per_call(len(sources), lambda: engines.extend(load(name, source) for source in sources))
    reset = per_call(len(engines), lambda: [engine.reset() for engine in engines])
    step = per_call(STEPS * len(engines), lambda: wander(engines, random.Random(seed)))
    return {"load_and_reset": loaded, "reset": reset, "step": step}


def load(name: str, source: Source) -> Engine:
    """An engine that has started its game."""
    engine = make_engine(name, source)
    engine.reset()
    return engine


def wander(engines: list[Engine], rng: random.Random) -> None:
    """Random admissible commands in every game in turn, from where it is."""
    replies = [engine.step("look") for engine in engines]
    for _ in range(STEPS - 1):
        replies = [
            engine.step(rng.choice(reply.admissible)) for engine, reply in zip(engines, replies, strict=True)
        ]


def per_call(calls: int, work: Callable[[], Any]) -> float:
    """CPU milliseconds a call."""
    gc.collect()
    start = cpu_seconds()
    work()
    return (cpu_seconds() - start) / calls * 1e3


def measure_environment(data: str | None) -> dict[str, float]:
    """CPU milliseconds of the environment, with its info."""
    env = gymnasium.make("agentgym/ALFWorld-v0", data=data)
    rng = random.Random(0)

    def episodes(count: int) -> int:
        steps = 0
        for seed in range(count):
            _, info = env.reset(seed=seed % 8)
            over = False
            while not over:
                _, _, terminated, truncated, info = env.step(rng.choice(info["admissible_actions"]))
                over, steps = terminated or truncated, steps + 1
        return steps

    episodes(8)  # loads the games
    start = cpu_seconds()
    steps = episodes(16)
    return {"step_with_reset": (cpu_seconds() - start) / steps * 1e3}


def measure_memory(data: str | None) -> dict[str, float]:
    """Resident megabytes before and after 1,000 resets."""
    env = gymnasium.make("agentgym/ALFWorld-v0", data=data)
    for seed in range(1000):
        env.reset(seed=seed)
    before = resident_mb()
    for seed in range(1000):
        env.reset(seed=seed)
    return {
        "resident_mb": before,
        "growth_mb": resident_mb() - before,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def resident_mb() -> float:
    """Megabytes in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def show(report: dict[str, Any]) -> None:
    """The report as a table."""
    print(f"{report['games']} games at once in one process ({report['data']})")
    print(f"{'engine':<12}{'load + reset':>16}{'reset again':>16}{'step':>12}{'steps/s':>12}")
    for name, row in report["engines"].items():
        columns = f"{row['load_and_reset']:>13.2f} ms{row['reset']:>13.3f} ms{row['step']:>9.3f} ms"
        print(f"{name:<12}{columns}{1e3 / row['step']:>12,.0f}")
    if "alfworld" in report["engines"]:
        native, package = (report["engines"][name] for name in ("native", "alfworld"))
        columns = "".join(f"{package[what] / native[what]:>15,.0f}x" for what in ("load_and_reset", "reset"))
        print(f"{'ratio':<12}{columns}{package['step'] / native['step']:>11,.0f}x")
    print(f"environment: {report['environment']['step_with_reset']:.3f} ms a step, resets included")
    memory = report["memory"]
    print(f"memory: {memory['resident_mb']:.0f} MB, {memory['growth_mb']:+.1f} MB over 1,000 resets")


if __name__ == "__main__":
    main()
