"""Do SWE episodes that run at the same time disturb each other? The same ones one by one and four at once.

    python benchmarks/swe_parallel.py [--records FILE] [--episodes 12] [--workers 4] [--json FILE]

Twelve episodes over the tasks, an honest repair, none, and a cheat in turns: each opens a sandbox, works, and is graded
in another one. Every episode must end with the same reward, verdict and observations in both runs; exits with 1 if one
does not. Preparing the tasks (environments, trees) happens before and is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentgym.envs.swe import SweEnv, load_records
from agentgym.envs.swe.builtin import builtin_records
from agentgym.envs.swe.env import record_tasks
from agentgym.envs.swe.records import SweRecord
from agentgym.tools import ToolCall

KINDS = ("gold", "null", "cheat")


def play(record: SweRecord, kind: str) -> dict[str, Any]:
    """One episode; what it ended with, apart from times."""
    env = SweEnv(tasks=record_tasks([record], name="parallel"), split="all")
    try:
        env.reset(seed=0)
        submit = env.protocol.render_call(ToolCall("submit"))
        actions = {"gold": [env.gold()], "null": [], "cheat": [next(iter(env.cheats().values()))[0]]}[kind]
        observations = [env.step(action)[0] for action in actions]
        _, reward, terminated, truncated, info = env.step(submit)
        verdict = info.get("verdict")
        return {
            "task": record.instance_id,
            "kind": kind,
            "reward": reward,
            "ended": [terminated, truncated],
            "observations": observations,
            "components": dict(verdict.components) if verdict else info.get("infrastructure_error"),
        }
    finally:
        env.close()


def run(episodes: list[tuple[SweRecord, str]], workers: int) -> tuple[list[dict[str, Any]], float, float]:
    """All episodes; what they ended with, wall and CPU seconds."""
    before, began = children_cpu(), time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        rows = list(pool.map(lambda episode: play(*episode), episodes))
    return rows, time.perf_counter() - began, children_cpu() - before


def children_cpu() -> float:
    """CPU seconds of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, help="default: the three tasks of the package")
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    records = load_records(arguments.records) if arguments.records else list(builtin_records())
    episodes = [
        (records[number % len(records)], KINDS[number // len(records) % len(KINDS)])
        for number in range(arguments.episodes)
    ]
    for record in records[: arguments.episodes]:
        play(record, "null")
    serial, serial_s, serial_cpu = run(episodes, 1)
    parallel, parallel_s, parallel_cpu = run(episodes, arguments.workers)
    different = [one for one, other in zip(serial, parallel, strict=True) if one != other]
    report = {
        "episodes": len(episodes),
        "workers": arguments.workers,
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "different": len(different),
        "resolved": sum(row["reward"] == 1.0 for row in parallel),
        "serial": {"wall_s": serial_s, "cpu_s": serial_cpu},
        "parallel": {"wall_s": parallel_s, "cpu_s": parallel_cpu},
        "speed_up": serial_s / parallel_s,
    }
    print(f"{len(episodes)} episodes, {report['resolved']} resolved, {len(different)} different in parallel")
    print(f"one by one   {serial_s:7.1f} s wall  {serial_cpu:7.1f} s CPU")
    print(
        f"{arguments.workers} at once    {parallel_s:7.1f} s wall  {parallel_cpu:7.1f} s CPU"
        f"  ({report['speed_up']:.2f}x)"
    )
    print(f"load average {report['load']:.1f} on {os.cpu_count()} processors")
    for row in different:
        print("different:", row["task"], row["kind"])
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
