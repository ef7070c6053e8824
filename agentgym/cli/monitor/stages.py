"""What the verbs of ``agentgym monitor`` share: their file argument and the monitor their flags ask for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.monitor.monitor import Monitor

CASES = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="CASES.jsonl")]]

CONTEXT = Annotated[str | None, tyro.conf.arg(metavar="CONTEXT.json")]


def read_context(path: str | None) -> dict[str, Any]:
    """Keys of a monitor's context out of a JSON file; none where no file is given.

    Raises:
        UsageError: it cannot be read, or holds no object.
    """
    if path is None:
        return {}
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the context {path}: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"expected {path} to hold a JSON object, got {found!r:.60}")
    return found


def make_monitor(*, rules_only: bool, judge: str | None, base_url: str | None = None) -> Monitor:
    """The monitor that the flags ask for; says on standard error which stages run.

    Args:
        rules_only: leave the reviewer out.
        judge: the model to ask about what the reviewer would block.
        base_url: where it is served.

    Raises:
        UsageError: `rules_only` together with a judge.
    """
    from agentgym.monitor.judge import LLMJudge, Reviewer
    from agentgym.monitor.monitor import Monitor

    if rules_only and judge:
        raise UsageError("expected --rules-only or --judge MODEL, got both")
    asked = None
    if judge:
        from agentgym.endpoint import Endpoint

        asked = LLMJudge(Endpoint(judge, base_url=base_url))
    monitor = Monitor(reviewer=None if rules_only else Reviewer(), judge=asked)
    print(f"stages: {', '.join(monitor.stages)}", file=sys.stderr)
    return monitor


def tell_judge(monitor: Monitor) -> None:
    """Say on standard error how often the language model was asked, and how often it gave no verdict."""
    if monitor.judge is not None:
        print(
            f"judge: asked {monitor.judge.asked} times, no verdict {monitor.judge.failed} times",
            file=sys.stderr,
        )
