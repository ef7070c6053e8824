"""Speed and memory of TextWorld-v0, beside the textworld package on the same games, measured in the same run.

    python benchmarks/textworld_speed.py [--games 8] [--json FILE]

CPU milliseconds of one process on games of two rooms and a quest of three steps; of three repeats the best counts,
since the machine is used by others. Games are made first, which is timed by itself where they are not in the cache; the
compilers are processes of their own and counted too. A step is a random admissible command with admissible commands and
anchor in its info; the package is asked for its admissible commands, and has no anchors.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentgym.core import Task
from agentgym.envs.textworld import TextWorldEnv
from agentgym.envs.textworld.making import files_of

WORLD: dict[str, Any] = {"rooms": 2, "objects": 4, "quest_length": 3}
REPEATS = 3
STEPS, RESETS, OTHER_RESETS = 400, 200, 40


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    tasks = list(TextWorldEnv(**WORLD).task_pool)[: args.games]
    start = cpu_seconds()
    stories = [files_of(task).story for task in tasks]
    made = (cpu_seconds() - start) / len(tasks) * 1e3
    report = {"make": made, "agentgym": ours(tasks), "textworld": theirs(stories), "memory": memory(tasks)}
    print(f"a game, made or found in the cache: {made:.0f} ms")
    print(f"{'CPU ms':12}{'step':>10}{'reset, same game':>20}{'reset, other game':>20}")
    for name in ("agentgym", "textworld"):
        row = report[name]
        print(f"{name:12}{row['step']:10.2f}{row['reset']:20.2f}{row['reset_other']:20.2f}")
    before, grown = report["memory"]["resident_mb"], report["memory"]["growth_mb"]
    print(f"memory: {before:.0f} MB, {grown:+.1f} MB over 1,000 resets")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def ours(tasks: list[Task]) -> dict[str, float]:
    """CPU milliseconds of the environment."""
    env = TextWorldEnv(tasks=tasks, max_turns=1_000_000)
    rng = random.Random(0)
    turn = itertools.cycle(range(len(tasks)))

    def step() -> None:
        choices = env.admissible_actions()
        if not choices:  # the game has ended
            env.reset(options={"task": 0})
            choices = env.admissible_actions()
        env.step(rng.choice(choices))

    env.reset(options={"task": 0})
    return {
        "step": best(STEPS, step),
        "reset": best(RESETS, lambda: env.reset(options={"task": 0})),
        "reset_other": best(OTHER_RESETS, lambda: env.reset(options={"task": next(turn)})),
    }


def theirs(stories: list[str]) -> dict[str, float]:
    """CPU milliseconds of the package, an environment a game, as it wants it."""
    import textworld

    infos = textworld.EnvInfos(admissible_commands=True, won=True, lost=True, score=True)
    rng = random.Random(0)
    env = textworld.start(stories[0], infos)
    state, over = env.reset(), False
    turn = itertools.cycle(stories)

    def step() -> None:
        nonlocal state, over
        if over:
            state = env.reset()
        state, _, over = env.step(rng.choice(state.admissible_commands))

    def other() -> None:
        another = textworld.start(next(turn), infos)
        another.reset()
        another.close()

    return {
        "step": best(STEPS, step),
        "reset": best(RESETS // 10, env.reset),
        "reset_other": best(OTHER_RESETS // 4, other),
    }


def memory(tasks: list[Task]) -> dict[str, float]:
    """Resident megabytes before and after 1,000 resets."""
    env = TextWorldEnv(tasks=tasks)
    for seed in range(200):
        env.reset(seed=seed)
    before = resident_mb()
    for seed in range(1000):
        env.reset(seed=seed)
    return {"resident_mb": before, "growth_mb": resident_mb() - before}


def best(calls: int, work: Callable[[], Any]) -> float:
    """CPU milliseconds a call, in the best repeat."""
    rounds = []
    for _ in range(REPEATS):
        start = cpu_seconds()
        for _ in range(calls):
            work()
        rounds.append((cpu_seconds() - start) / calls * 1e3)
    return min(rounds)


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def resident_mb() -> float:
    """Megabytes in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
