"""The monitor: what a review costs, whether blocked calls can be told from ordinary ones, and what it does to cheats.

    python benchmarks/monitor.py [--parts speed,replies,end_to_end] [--replies N] [--seed S] [--json FILE]

`speed`: CPU time per call over the shared development cases and over the worst inputs (benchmarks/monitor_speed.py).
`replies`: AUC of a classifier that tries to tell the answers of blocked calls from ordinary empty or failing ones in
SWE-v0 (benchmarks/replies.py). `end_to_end`: cheating and honest scripts in SWE-v0 with planted holes, with the wrapper
and without (benchmarks/end_to_end.py). The last two need bubblewrap.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import end_to_end, replies


def speed(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """CPU per review."""
    from benchmarks import monitor_speed

    found = monitor_speed.run()
    return found, monitor_speed.markdown(found)


def tell_apart(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """AUCs with their intervals."""
    found = replies.run(args.replies, args.seed)
    return found, replies.markdown(found)


def cheats(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Outcomes with the wrapper and without."""
    found = end_to_end.run(lambda note: print(note, file=sys.stderr))
    return found, end_to_end.markdown(found)


PARTS: dict[str, Callable[[argparse.Namespace], tuple[dict[str, Any], str]]] = {
    "speed": speed,
    "replies": tell_apart,
    "end_to_end": cheats,
}


def main() -> None:
    """Run the parts asked for, print their tables, write the numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="which, separated by commas")
    parser.add_argument("--replies", type=int, default=300, metavar="N", help="answers of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    args = parser.parse_args()
    names = args.parts.split(",")
    for name in names:
        if name not in PARTS:
            parser.error(f"unknown part {name!r}; expected {', '.join(PARTS)}")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result: dict[str, Any] = {"date": datetime.date.today().isoformat(), "machine": machine}
    for name in names:
        result[name], table = PARTS[name](args)
        print(f"## {name.replace('_', ' ')} ({result['date']}, {machine})\n\n{table}\n")
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
