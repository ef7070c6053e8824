"""The monitor of tool calls: let it decide, measure it, ask it why, feed it.

Example:
    agentgym monitor eval CASES.jsonl
    agentgym monitor decide CASES.jsonl > decisions.jsonl
    agentgym monitor explain CASES.jsonl CASE_ID
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.cli.verbs import run_verb

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
    return run_verb("monitor", __doc__, VERBS, words, package=__name__)
