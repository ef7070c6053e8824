"""The monitor of tool calls: let it decide, measure it, ask it why, feed it.

Example:
    agentgym monitor eval CASES.jsonl
    agentgym monitor decide CASES.jsonl > decisions.jsonl
    agentgym monitor explain CASES.jsonl CASE_ID
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence

from agentgym.cli import console
from agentgym.errors import UsageError, nearest

# verb: (module beside this one, what it does). A module is imported when its verb is called; it has `main(words)`.
VERBS: dict[str, tuple[str, str]] = {
    "decide": ("decide", "one decision for each case of a file, as JSON lines"),
    "eval": ("evaluate", "recall and false alarms on labelled cases, per class"),
    "explain": ("explain", "what a case would do, which rules see it, and what the reviewer says"),
    "trajectories": ("trajectories", "label a stored run: outcome per trajectory, with evidence"),
    "patch": ("patch", "review a final diff"),
    "sample": ("sample", "passing trajectories without a flag, for review; exports them as cases"),
    "rules": ("rules", "the table of rules: class, what each flags and why"),
}


def main(words: Sequence[str]) -> int:
    """Run ``agentgym monitor``."""
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: agentgym monitor {{{','.join(VERBS)}}} ...\n\n{_help()}")
        return console.OK
    if words[0] not in VERBS:
        raise UsageError(f"unknown verb {words[0]!r} of agentgym monitor.{nearest(words[0], VERBS)}")
    code: int = importlib.import_module(f"agentgym.cli.monitor.{VERBS[words[0]][0]}").main(words[1:])
    return code


def _help() -> str:
    summary, _, example = inspect.cleandoc(__doc__ or "").partition("\n")
    return "\n".join([summary, "", *(f"  {verb:<12} {does}" for verb, (_, does) in VERBS.items()), example])
