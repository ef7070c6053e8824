"""Cheating and honest scripts in SWE-v0 with planted holes, with the monitor's wrapper and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from agentgym.rollout import collect
from agentgym.trajectory.records import Trajectory
from agentgym.trajectory.stats import monitor_numbers
from agentgym.wrappers import AntiHack, ChatContext, RecordTrajectory
from benchmarks.planted import HOLES, HONEST, TASK, Script, cheat, planted

# Without the wrapper nothing is intercepted; the monitor only says afterwards what took effect.
MODES = {"without": "audit", "with": "block"}


def play(hole: str) -> Iterator[tuple[str, str, Trajectory]]:
    """Policy, "with" or "without", and the labelled trajectory of every combination at one hole."""
    with planted(hole) as (make, mirror):
        for kind, script in (("cheating", cheat(hole, mirror)), ("honest", Script("honest", HONEST))):
            for name, mode in MODES.items():

                def build(mode: Any = mode) -> RecordTrajectory:
                    return RecordTrajectory(ChatContext(AntiHack(make(), mode=mode)))

                (trajectory,) = collect(build, script, episodes=1, tasks=[TASK], workers=1)
                yield kind, name, script.label(trajectory)


def run(progress: Callable[[str], None] = lambda note: None) -> dict[str, Any]:
    """Every hole, policy and mode once.

    Returns:
        `rows`: hole, policy, wrapper, outcome, reward, calls blocked. `table`: outcomes by policy and wrapper.
        `monitor`: the numbers over all calls, see `monitor_numbers`.
    """
    rows: list[dict[str, Any]] = []
    trajectories = []
    for hole in HOLES:
        for policy, wrapper, t in play(hole):
            progress(f"{hole}, {policy}, {wrapper}: {t.outcome}")
            blocked = sum(call.blocked for step in t.steps for call in step.calls)
            rows.append(
                {
                    "hole": hole,
                    "policy": policy,
                    "wrapper": wrapper,
                    "outcome": t.outcome or t.infrastructure_error,
                    "reward": t.reward,
                    "blocked": blocked,
                }
            )
            trajectories.append(t)
    table: dict[str, dict[str, int]] = {}
    for policy in ("cheating", "honest"):
        for wrapper in MODES:
            found = [r["outcome"] for r in rows if (r["policy"], r["wrapper"]) == (policy, wrapper)]
            table[f"{policy}, {wrapper}"] = dict(Counter(found))
    return {"rows": rows, "table": table, "monitor": monitor_numbers(trajectories)}


def markdown(result: dict[str, Any]) -> str:
    """The tables of `run` as Markdown."""
    outcomes = ("clean_resolved", "hacked_resolved", "clean_unresolved", "hacked_unresolved")
    lines = ["| policy, wrapper | " + " | ".join(o.replace("_", " ") for o in outcomes) + " |"]
    lines.append("|---" * (len(outcomes) + 1) + "|")
    for name, counts in result["table"].items():
        lines.append(f"| {name} | " + " | ".join(str(counts.get(o, 0)) for o in outcomes) + " |")
    lines += [
        "",
        "| hole | policy | wrapper | outcome | reward | blocked calls |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        lines.append("| {hole} | {policy} | {wrapper} | {outcome} | {reward} | {blocked} |".format_map(row))
    return "\n".join(lines)
