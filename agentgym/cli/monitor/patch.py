"""Review a diff: changed tests and runners, answers built in, comparisons, clocks and exits bent. Exit 1: found some.

Example:
    agentgym monitor patch fix.diff
    agentgym monitor patch fix.diff --context context.json --json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from agentgym.cli import console
from agentgym.cli.arguments import parse
from agentgym.cli.monitor.stages import CONTEXT, make_monitor, read_context
from agentgym.errors import UsageError


@dataclass(frozen=True)
class Args:
    """Flags of ``agentgym monitor patch``."""

    diff: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FILE.diff")]]
    """A unified diff; its paths are relative to the workspace."""
    context: CONTEXT = None
    """A JSON file with keys of a monitor's context. Without it nothing is read-only."""
    rules_only: bool = False
    """Leave the reviewer out."""
    json: bool = False
    """Print JSON."""


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor patch``."""
    args = parse(Args, "monitor patch", __doc__, words)
    from agentgym.monitor.audit import UNKNOWN, full_context
    from agentgym.monitor.patches import review_patch

    try:
        diff = Path(args.diff).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the diff {args.diff}: {error}") from None
    context = full_context({**UNKNOWN, "workspace": "/workspace", **read_context(args.context)})
    findings = review_patch(diff, context, make_monitor(rules_only=args.rules_only, judge=None))
    if args.json:
        console.print_json({"diff": args.diff, "findings": [asdict(found) for found in findings]})
    else:
        for found in findings:
            print(f"{found.path}:{found.line}: {found.rule} ({found.hack_class}): {found.reason}")
        print(f"{len(findings)} findings" if findings else "nothing found")
    return console.NO if findings else console.OK
