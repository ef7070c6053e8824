"""What stepping many text worlds in one vector costs beside stepping them in a plain loop, measured in the same run.

    python benchmarks/vectors.py [--json FILE]

Environment steps per CPU second of 64 environments: in a loop, and in gymnasium's `SyncVectorEnv` with default
arguments. The ratio is the most that any vector of our own (`vector_entry_point`) could gain, were it to do nothing at
all beside stepping. Resets of finished episodes are part of both. Of several repeats, loop and vector in turn, the best
counts.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv

import agentgym  # noqa: F401  # registers the ids

COUNT = 64
REPEATS = 4
ROUNDS = {"agentgym/Relay-v0": 150, "agentgym/ALFWorld-v0": 60, "agentgym/WebShop-v0": 60}
Env = gymnasium.Env[Any, Any]


def main() -> None:
    """Measure each world and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"{'steps per CPU second':24}{'loop':>10}{'vector':>10}{'ratio':>8}")
    rows = []
    for env_id, rounds in ROUNDS.items():
        row = measure(functools.partial(gymnasium.make, env_id), rounds)
        rows.append({"id": env_id, **row})
        print(f"{env_id:24}{row['loop']:10.0f}{row['vector']:10.0f}{row['ratio']:8.2f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def measure(make: Callable[[], Env], rounds: int) -> dict[str, float]:
    """The best rate of each."""
    envs = [make() for _ in range(COUNT)]
    vector: Any = SyncVectorEnv([make] * COUNT)
    loops, vectors = [], []
    for _ in range(REPEATS):
        gc.collect()
        loops.append(loop_rate(envs, rounds))
        gc.collect()
        vectors.append(vector_rate(vector, rounds))
    vector.close()
    return {"loop": max(loops), "vector": max(vectors), "ratio": max(loops) / max(vectors)}


def loop_rate(envs: Sequence[Env], rounds: int) -> float:
    """Steps per CPU second one by one."""
    listed = [env.reset(seed=index)[1]["admissible_actions"] for index, env in enumerate(envs)]
    over = [False] * len(envs)
    start = time.process_time()
    for number in range(rounds):
        actions = choose(listed, number)
        for index, env in enumerate(envs):
            if over[index]:
                info, over[index] = env.reset()[1], False
            else:
                _, _, terminated, truncated, info = env.step(actions[index])
                over[index] = terminated or truncated
            listed[index] = info["admissible_actions"]
    return rounds * len(envs) / (time.process_time() - start)


def vector_rate(vector: Any, rounds: int) -> float:
    """Steps per CPU second of the vector."""
    _, infos = vector.reset(seed=0)
    start = time.process_time()
    for number in range(rounds):
        *_, infos = vector.step(choose(infos["admissible_actions"], number))
    return rounds * COUNT / (time.process_time() - start)


def choose(listed: Sequence[Sequence[str]], number: int) -> tuple[str, ...]:
    """Some admissible action for each, the same in every run."""
    return tuple(
        actions[(7 * number + index) % len(actions)] if actions else ""
        for index, actions in enumerate(listed)
    )


if __name__ == "__main__":
    main()
