"""How far and how fast training runs got: held-out success at the start and the end, and what 90 % of it cost.

    python -m benchmarks.learning runs/box-grpo-* [--goal 0.9] [--json FILE]

Reads the folders that `python -m baselines.grpo` and `baselines.ppo` wrote; `commands/box.sh` makes those of the
published table. CPU minutes are those of the whole process, loading and evaluation included; the goal counts as reached
at the first evaluation at or above it, and its time includes the update that was made after that evaluation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from baselines.logs import METRICS, read_lines

COLUMNS = (
    "run",
    "algorithm",
    "seed",
    "start",
    "end",
    "interval",
    "goal_step",
    "goal_cpu_min",
    "cpu_min",
    "env_steps",
)


def main() -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--goal", type=float, default=0.9, help="share of held-out tasks resolved")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    rows = [row_of(folder, arguments.goal) for folder in arguments.runs]
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join("-" if row[name] is None else str(row[name]) for name in COLUMNS) + " |")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def row_of(folder: Path, goal: float) -> dict[str, Any]:
    """What one run's metrics say."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    lines = read_lines(folder / METRICS)
    # An evaluation in which every episode broke tells no share, and leaves its cells empty.
    evaluated = [line for line in lines if "eval/resolved" in line]
    first, last = lines[0].get("eval/resolved"), lines[-1].get("eval/resolved")
    minutes = {line["step"]: round(line["time/cpu_seconds"] / 60, 1) for line in lines}
    reached = next((line["step"] for line in evaluated if line["eval/resolved"] >= goal), None)
    played = [line["cost/environment_steps"] for line in lines if "cost/environment_steps" in line]
    return {
        "run": folder.name,
        "algorithm": config["algorithm"],
        "seed": config["seed"],
        "start": None if first is None else round(first, 3),
        "end": None if last is None else round(last, 3),
        "interval": None if last is None else _interval(lines[-1]),
        "goal_step": reached,
        "goal_cpu_min": None if reached is None else minutes[reached],
        "cpu_min": minutes[lines[-1]["step"]],
        "env_steps": int(played[-1]) if played else 0,
    }


def _interval(line: dict[str, Any]) -> str:
    return f"{line['eval/resolved_low']:.2f} to {line['eval/resolved_high']:.2f}"


if __name__ == "__main__":
    main()
