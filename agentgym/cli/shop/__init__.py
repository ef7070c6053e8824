"""WebShop: compare with the original.

Example:
    agentgym shop replay TRACES.jsonl --data FOLDER
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.cli.verbs import run_verb

VERBS: dict[str, tuple[str, str]] = {
    "replay": ("replay", "play recorded episodes of the original again; exits with 1 where one differs"),
}


def main(words: Sequence[str]) -> int:
    """Run ``agentgym shop``."""
    return run_verb("shop", __doc__, VERBS, words, package=__name__)
