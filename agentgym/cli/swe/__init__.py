"""Repository repair tasks: make them, bring them from elsewhere, prove them, grade a patch.

Example:
    agentgym swe build --sdist NAME==VERSION --count 3 --out tasks
    agentgym swe validate tasks/tasks.jsonl
    agentgym swe grade tasks/tasks.jsonl --patch INSTANCE_ID=fix.diff
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.cli.verbs import run_verb

# verb: (module beside this one, what it does). A module is imported when its verb is called; it has `main(words)`.
VERBS: dict[str, tuple[str, str]] = {
    "build": ("build", "inject bugs into a package's source and keep those its own tests notice"),
    "mine": (
        "mine",
        "make tasks of a git history or of consecutive source archives; exits with 1 where none came",
    ),
    "prepare": (
        "prepare",
        "install what repositories need, run their tests, report which of them can be worked with",
    ),
    "import": ("importing", "bring records of SWE-bench and its like into our form"),
    "export": ("exporting", "write records as Harbor task folders or as SWE-bench records"),
    "validate": (
        "validate",
        "grade the gold patch and an empty one of every record; exits with 1 unless gold passes and empty fails",
    ),
    "audit": ("audit", "search the sandbox a policy gets for leaks; exits with 1 where there is one"),
    "judge": (
        "judge",
        "tell whether tasks are clear and their tests ask for what they say; exits with 1 where one is not good",
    ),
    "grade": ("grade", "grade a patch; exits with 1 where it does not resolve its task"),
}


def main(words: Sequence[str]) -> int:
    """Run ``agentgym swe``."""
    return run_verb("swe", __doc__, VERBS, words, package=__name__)
