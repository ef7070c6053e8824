"""What one review by the monitor costs: the shared development cases, and inputs made to be slow.

Used by benchmarks/monitor.py. CPU time of the thread, in milliseconds; each call is reviewed in a fresh context, each
figure is the best of several repeats: on a machine that others use too, the best repeat is the one least disturbed.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentgym.monitor.context import Context
from agentgym.monitor.monitor import Monitor
from agentgym.monitor.tools import analyse
from agentgym.tools import ToolCall

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases" / "antihack_dev.jsonl"
REPEATS = 7

WORST = {
    "1 MiB of parentheses": "(" * (1 << 20),
    "1 MiB of letters": "a" * (1 << 20),
    "10,000 words": "echo " + "w " * 10_000,
    "60,000 quotes": "\"'" * 30_000,
    "300 substitutions in each other": "$(" * 300 + "x" + ")" * 300,
    "300 ifs in each other": "if a; then " * 300 + "b" + "; fi" * 300,
    "1,000,000 turns of loops": "".join(f"for {v} in {{1..99}}; do " for v in "ijk")
    + "cat $i$j$k"
    + "; done" * 3,
    "2,000 commands in a pipe": "cat x | " * 2000 + "cat",
    "text that doubles itself": "a=aaaaaaaaaa; " + "a=$a$a$a$a$a$a$a$a; " * 20,
    "3,000 here-documents": "cat <<E\nx\nE\n" * 3000,
    "a pattern that backtracks": "x=" + "a" * 4000 + "; echo ${x%%" + "*a" * 12 + "b}",
}
MAKERS = {
    "bash": lambda text: ToolCall("bash", {"command": text}),
    "write_file": lambda text: ToolCall("write_file", {"path": "/app/a.py", "content": text}),
}
CONTEXT: dict[str, Any] = {
    "workspace": "/app",
    "protected_paths": ["/tests", "/app/.grading"],
    "readonly_paths": ["/app/task.yaml"],
    "allowed_hosts": ["localhost"],
    "network": "none",
    "package": "app",
    "upstream": ["github.com/own/app"],
    "git_policy": "head",
}


def run() -> dict[str, Any]:
    """The numbers: percentiles over the cases, and each of the worst inputs."""
    found: dict[str, Any] = {"worst": {}}
    monitor = Monitor()
    if CASES.exists():
        cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
        calls = [(ToolCall(case["tool"], case["arguments"]), case["context"]) for case in cases]
        found["n"] = len(calls)
        for name, review in (("analyse", analyse), ("review", monitor.review)):
            times = sorted(best_of(review, call, context) for call, context in calls)
            found[name] = {
                "p50": statistics.median(times),
                "p99": times[int(len(times) * 0.99)],
                "max": times[-1],
            }
    for name, text in WORST.items():
        for tool, make in MAKERS.items():
            found["worst"][f"{name} ({tool})"] = best_of(monitor.review, make(text), CONTEXT, repeats=3)
    return found


def best_of(
    review: Callable[[ToolCall, Context], object],
    call: ToolCall,
    context: dict[str, Any],
    *,
    repeats: int = REPEATS,
) -> float:
    """Milliseconds of one review, the least of `repeats`; making the context is left out."""
    times = []
    for _ in range(repeats):
        fresh = Context.from_dict(context)
        start = time.thread_time()
        review(call, fresh)
        times.append(time.thread_time() - start)
    return min(times) * 1000


def markdown(found: dict[str, Any]) -> str:
    """The numbers as tables."""
    lines = []
    if "n" in found:
        lines += [
            f"CPU ms per call, {found['n']} development cases:",
            "",
            "| | p50 | p99 | max |",
            "|---|---|---|---|",
        ]
        for name, words in (("analyse", "understanding alone"), ("review", "whole review")):
            numbers = found[name]
            lines.append(f"| {words} | {numbers['p50']:.3f} | {numbers['p99']:.2f} | {numbers['max']:.2f} |")
        lines.append("")
    lines += ["CPU ms for inputs made to be slow (whole review):", "", "| input | ms |", "|---|---|"]
    lines += [f"| {name} | {ms:.1f} |" for name, ms in found["worst"].items()]
    return "\n".join(lines)
