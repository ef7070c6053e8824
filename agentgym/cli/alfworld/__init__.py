"""ALFWorld's games: make new ones, play recorded episodes again.

Example:
    agentgym alfworld generate --out DIR --count 60
    agentgym alfworld replay TRANSCRIPTS.jsonl --data DIR
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.cli.verbs import run_verb

VERBS: dict[str, tuple[str, str]] = {
    "generate": ("generate", "make games of the six types, from what the alfworld package ships"),
    "replay": ("replay", "play recorded episodes, and say what differs; exits with 1 where something does"),
}


def main(words: Sequence[str]) -> int:
    """Run ``agentgym alfworld``."""
    return run_verb("alfworld", __doc__, VERBS, words, package=__name__)
