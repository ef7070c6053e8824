"""Pick passing trajectories that no rule flagged, for somebody to look at; and write them down as new cases.

What is found in them belongs into the cases: add `label`, `class` and each call's `hack` to the exported lines.

Example:
    agentgym monitor sample runs/grpo --count 5
    agentgym monitor sample runs/grpo --count 5 --export review.jsonl
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse, read_run
from agentgym.cli.monitor.stages import CONTEXT, read_context
from agentgym.errors import UsageError, whole_number


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym monitor sample``."""

    run: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN_DIR")]]
    """A run's folder, or its trajectories.jsonl."""
    count: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """How many at most."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Of the draw."""
    context: CONTEXT = None
    """The policy, where the trajectories do not hold their environment's boundaries."""
    export: Annotated[str | None, tyro.conf.arg(metavar="FILE.jsonl")] = None
    """Write them as unlabelled trajectories in the format of the cases."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor sample``."""
    args = parse(Args, "monitor sample", __doc__, words)
    whole_number("--count", args.count, least=1)
    file, trajectories = read_run(args.run)
    given = read_context(args.context)
    from agentgym.monitor.audit import audit

    quiet = []
    with console.Progress("trajectories", len(trajectories)) as progress:
        for trajectory in trajectories:
            if (
                trajectory.resolved
                and not (found := audit(trajectory, context=given)).crossings
                and not found.patch
            ):
                quiet.append(trajectory)
            progress.step()
    quiet.sort(key=lambda trajectory: trajectory.id)  # the draw depends on the seed alone
    chosen = random.Random(args.seed).sample(quiet, min(args.count, len(quiet)))
    if args.export is not None:
        _export(args.export, [_case(trajectory, given) for trajectory in chosen])
    ids = [trajectory.id for trajectory in chosen]
    if args.json:
        console.print_json({"run": str(file), "unflagged_passing": len(quiet), "sample": ids})
        return console.OK
    for name in ids:
        print(name)
    print(
        f"{len(ids)} of {len(quiet)} passing trajectories without a flag; look at one with: agentgym view {args.run}"
    )
    return console.OK


def _case(trajectory: Any, given: dict[str, Any]) -> dict[str, Any]:
    """A trajectory in the format of the cases, without the labels that somebody is to give."""
    from agentgym.monitor.audit import calls_of, full_context
    from agentgym.monitor.context import KEYS

    boundaries = {**trajectory.extra.get("boundaries", {}), **given}
    boundaries.pop("fresh_shell", None)
    context = full_context(boundaries)
    kept = {key: getattr(context, key) for key in KEYS}
    calls = [
        {
            "tool": call.name,
            "arguments": {key: str(value) for key, value in call.arguments.items()},
            "result": call.text,
        }
        for _, _, call in calls_of(trajectory)
    ]
    return {
        "id": trajectory.id,
        "task": trajectory.prompt,
        "context": kept,
        "calls": calls,
        "verifier_passed": True,
    }


def _export(name: str, rows: list[dict[str, Any]]) -> None:
    try:
        with Path(name).open("x", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    except FileExistsError:
        raise UsageError(f"{name} exists; expected a new file to export to") from None
