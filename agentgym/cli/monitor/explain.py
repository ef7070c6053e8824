"""Explain a case: what its calls would do, which rules see them, and what the reviewer says to each.

Example:
    agentgym monitor explain CASES.jsonl CASE_ID
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.monitor.stages import CASES
from agentgym.errors import UsageError, nearest


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym monitor explain``."""

    cases: CASES
    """Single calls or trajectories; labels are not needed."""
    id: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="CASE_ID")]]
    """The case to explain."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor explain``."""
    args = parse(Args, "monitor explain", __doc__, words)
    from agentgym.monitor.cases import load_cases

    cases = {case.id: case for case in load_cases(args.cases, labelled=False)}
    if args.id not in cases:
        raise UsageError(f"no case {args.id!r} in {args.cases}.{nearest(args.id, cases)}")
    rows = _explain(cases[args.id])
    if args.json:
        console.print_json({"id": args.id, "calls": rows})
        return console.OK
    screen = console.out()
    for number, row in enumerate(rows, 1):
        screen.print(
            f"{number}. {row['tool']}: {'blocked' if row['block'] else 'allowed'}", style="bold", markup=False
        )
        for key, value in row["arguments"].items():
            screen.print(f"   {key}: {value[:400]}", markup=False)
        for effect in row["effects"]:
            screen.print(f"   does   {effect}", markup=False)
        for flag in row["flags"]:
            screen.print(f"   flag   {flag['rule']} ({flag['class']}): {flag['reason']}", markup=False)
            screen.print(f"          {flag['explained'] or 'nothing explains it'}", markup=False)
        if not row["flags"]:
            screen.print("   no rule sees anything")
    return console.OK


def _explain(case: Any) -> list[dict[str, Any]]:
    from agentgym.monitor.context import Context
    from agentgym.monitor.judge import Reviewer
    from agentgym.monitor.monitor import Monitor

    context, monitor, reviewer = Context.from_dict(case.context), Monitor(), Reviewer()
    rows = []
    for step in case.steps:
        before = context.snapshot()
        scene, flags = monitor.look(step.call, context)
        explained = [
            {
                "rule": flag.rule.name,
                "class": flag.hack_class,
                "reason": flag.finding.reason,
                "explained": reviewer.explain(scene, flag),
            }
            for flag in flags
        ]
        effects = [_told(effect) for effect in scene.effects]
        context.restore(before)
        decision = monitor.review(step.call, context, step.answer)
        rows.append(
            {
                "tool": step.call.name,
                "arguments": dict(step.call.arguments),
                "block": decision.block,
                "rule": decision.rule,
                "stage": decision.stage,
                "effects": effects,
                "flags": explained,
            }
        )
    return rows


def _told(effect: Any) -> str:
    """An effect on one line."""
    words = [effect.kind, effect.target.replace("\0", "…") or "-"]
    words += [f"by {effect.program}"] if effect.program else []
    words += [f"with {' '.join(effect.detail)[:80]!r}"] if effect.detail else []
    words += [f"holding {effect.content[:60]!r}"] if effect.content else []
    words += [f"({effect.origin})"] if effect.origin else []
    words += [name for name in ("deep", "background") if getattr(effect, name)]
    return " ".join(words)
