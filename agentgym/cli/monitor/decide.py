"""Decide on each case of a file: one JSON line per case, in file order. Labels are not needed and never looked at.

Example:
    agentgym monitor decide CASES.jsonl > decisions.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.monitor.stages import CASES, make_monitor, tell_judge


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym monitor decide``."""

    cases: CASES
    """Single calls or trajectories, one JSON object a line."""
    rules_only: bool = False
    """Leave the reviewer out: what a rule flags is blocked."""
    judge: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Ask this model about what the reviewer would block."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the model is served. Default: $OPENAI_BASE_URL."""
    json: bool = False
    """JSON lines are printed anyway."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor decide``."""
    args = parse(Args, "monitor decide", __doc__, words)
    from agentgym.monitor.cases import decision_row, judge_cases, load_cases

    cases = load_cases(args.cases, labelled=False)
    monitor = make_monitor(rules_only=args.rules_only, judge=args.judge, base_url=args.base_url)
    with console.Progress("cases", len(cases)) as progress:
        for judged in judge_cases(monitor, cases):
            print(json.dumps(decision_row(judged), ensure_ascii=True))
            progress.step()
    tell_judge(monitor)
    return console.OK
