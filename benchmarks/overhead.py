"""What this package costs beside bare Gymnasium, measured in the same run.

    python benchmarks/overhead.py [--json FILE]

Every figure is the best of several repeats, in CPU seconds of this process (wall seconds where a line says so): on a
machine that others use too, the best repeat is the one least disturbed. Ratios are against bare Gymnasium.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.spaces import Text

from agentgym import AgentEnv, Task, Verdict, tool

TEXT = "x" * 200
CALL = '<tool_call>{"name": "look", "arguments": {"where": "here"}}</tool_call>'


class Bare(gymnasium.Env[str, str]):
    """The least an environment can do: the peer of every ratio."""

    observation_space = Text(400)
    action_space = Text(400)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Count from zero."""
        super().reset(seed=seed)
        self.turns = 0
        return TEXT, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The same text, done after 20 turns."""
        self.turns += 1
        return TEXT, 0.0, False, self.turns >= 20, {}


class Trivial(AgentEnv):
    """The same as the smallest `AgentEnv` there is."""

    tasks = [Task("t", TEXT)]
    default_max_turns = 20

    def begin(self, task: Task) -> str:
        """The same text."""
        return task.prompt

    def respond(self, action: str) -> str:
        """The same text."""
        return TEXT

    def verify(self, episode: Any) -> Verdict:
        """Never solved."""
        return Verdict(0.0)


class Move(Trivial):
    """The same with every info key it can have."""

    def anchor(self) -> str:
        """One state."""
        return "state"

    def admissible_actions(self) -> tuple[str, ...]:
        """Two moves."""
        return ("left", "right")


class Called(Move):
    """The same with a tool instead of moves."""

    respond = AgentEnv.respond

    @tool
    def look(self, where: str) -> str:
        """Look somewhere."""
        return TEXT


def best(measure: Callable[[], float], repeats: int = 7) -> float:
    """The largest of several measurements of a rate, each without what the one before left to collect."""
    rates = []
    for _ in range(repeats):
        gc.collect()
        rates.append(measure())
    return max(rates)


def steps_per_second(env: gymnasium.Env[Any, Any], action: str, steps: int = 40_000) -> float:
    """Steps per CPU second with a reset after every episode."""
    env.reset(seed=0)
    start = time.process_time()
    for _ in range(steps):
        if env.step(action)[3]:
            env.reset()
    return steps / (time.process_time() - start)


def vector_steps_per_second(
    make: Callable[[], gymnasium.Env[Any, Any]], action: str, count: int = 64
) -> float:
    """Environment steps per CPU second of a `SyncVectorEnv` with default arguments."""
    envs = gymnasium.vector.SyncVectorEnv([make] * count)
    envs.reset(seed=0)
    actions = [action] * count
    start = time.process_time()
    for _ in range(200):
        envs.step(actions)
    seconds = time.process_time() - start
    envs.close()
    return 200 * count / seconds


def make_per_second(env_id: str) -> float:
    """`gymnasium.make` calls per CPU second."""
    start = time.process_time()
    for _ in range(2_000):
        gymnasium.make(env_id)
    return 2_000 / (time.process_time() - start)


def import_seconds(module: str) -> float:
    """CPU seconds of a fresh interpreter that imports `module`, files warm."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def collected_steps_per_second(
    make: Callable[[], gymnasium.Env[Any, Any]], workers: int | None = None
) -> float:
    """Steps per CPU second of `collect` with a scripted policy and nothing written to disk."""
    from agentgym.policies.scripted import Scripted
    from agentgym.rollout import collect

    start = time.process_time()
    collect(make, Scripted(["go"] * 20), episodes=1_000, workers=workers)
    return 20_000 / (time.process_time() - start)


def unrecorded() -> gymnasium.Env[Any, Any]:
    """A trivial environment whose recorder records nothing: what is left is the runner itself."""
    from agentgym.wrappers import RecordTrajectory

    class Unrecorded(RecordTrajectory):
        def attach(self, reply: Any, **rest: Any) -> None:
            pass

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            return self.env.step(action)

    return Unrecorded(Trivial())


def recorded_rollouts_per_second() -> float:
    """One-turn rollouts per CPU second, recorded and written to disk."""
    from agentgym.policies.scripted import Scripted
    from agentgym.rollout import collect

    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        collect(OneTurn, Scripted(["go"]), episodes=2_000, out=Path(folder))
        return 2_000 / (time.process_time() - start)


class OneTurn(Trivial):
    """An episode of a single step."""

    default_max_turns = 1


def rows() -> list[dict[str, Any]]:
    """Every measurement: what, value, unit, goal, ratio to bare Gymnasium."""
    from agentgym.wrappers import ChatContext

    import_bare = min(import_seconds("gymnasium") for _ in range(7))
    import_ours = min(import_seconds("agentgym") for _ in range(7))
    gymnasium.register("bench/Bare-v0", Bare)
    bare = best(lambda: steps_per_second(Bare(), "go"))
    bare_vector = best(lambda: vector_steps_per_second(Bare, "go"))
    move = best(lambda: steps_per_second(Move(), "go"))
    called = best(lambda: steps_per_second(Called(), CALL))
    chat = best(lambda: steps_per_second(ChatContext(Move()), "go"))
    vector = best(lambda: vector_steps_per_second(Trivial, "go"))
    vector_full = best(lambda: vector_steps_per_second(Move, "go"))
    make_bare, make_ours = (
        best(lambda: make_per_second("bench/Bare-v0")),
        best(lambda: make_per_second("agentgym/Relay-v0")),
    )

    def row(what: str, value: float, unit: str, goal: str, ratio: float | None = None) -> dict[str, Any]:
        return {"what": what, "value": value, "unit": unit, "goal": goal, "ratio": ratio}

    return [
        row(
            "import agentgym, above gymnasium",
            import_ours - import_bare,
            "CPU s",
            "<= 0.1",
            import_ours / import_bare,
        ),
        row("make agentgym/Relay-v0", 1e6 / make_ours, "us", "<= 50", make_bare / make_ours),
        row("step, bare gymnasium", bare, "/CPU s", "", 1.0),
        row("step, plain move, all info keys", move, "/CPU s", ">= 250,000", bare / move),
        row("step, one tool call", called, "/CPU s", ">= 100,000", bare / called),
        row("step, ChatContext, 20 turns", chat, "/CPU s", "<= 2x plain move", move / chat),
        row("sync vector of 64, bare gymnasium", bare_vector, "/CPU s", "", 1.0),
        row("sync vector of 64, plain move", vector, "/CPU s", ">= 150,000", bare_vector / vector),
        row("the same, all info keys", vector_full, "/CPU s", "", bare_vector / vector_full),
        row(
            "collect, the runner alone, 1 thread",
            best(lambda: collected_steps_per_second(unrecorded, 1)),
            "/CPU s",
            ">= 100,000",
        ),
        row(
            "the same, a thread for each core",
            best(lambda: collected_steps_per_second(unrecorded)),
            "/CPU s",
            "",
        ),
        row(
            "collect, chat and record, 20 turns",
            best(lambda: collected_steps_per_second(Trivial)),
            "/CPU s",
            "",
        ),
        row("collect and record, one turn", best(recorded_rollouts_per_second, 3), "/CPU s", ">= 1,000"),
    ]


def main() -> None:
    """Print the table; write it as JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    table = rows()
    print(f"Python {platform.python_version()}, gymnasium {gymnasium.__version__}, {os.cpu_count()} cores")
    for row in table:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}x"
        value = f"{row['value']:,.3f}" if row["value"] < 100 else f"{row['value']:,.0f}"
        print(f"{row['what']:38}{value:>14} {row['unit']:8}{ratio:>9}   goal {row['goal'] or '-'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
