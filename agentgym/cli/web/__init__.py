"""Web pages: judge them by using them in a real browser.

Example:
    agentgym web judge --task TASK.json PAGE.html
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.cli.verbs import run_verb

# verb: (module beside this one, what it does). A module is imported when its verb is called; it has `main(words)`.
VERBS: dict[str, tuple[str, str]] = {
    "judge": ("judge", "run a task's scenarios on a page and say which rubric items it passes"),
    "plan": (
        "plan",
        "make a task of a rubric in words: a language model plans the steps, which are then tried",
    ),
    "preview": ("preview", "what a page shows: accessibility tree, text, console, a screenshot"),
    "gallery": ("gallery", "judge many pages for a task: one HTML page with screenshots and verdicts"),
}


def main(words: Sequence[str]) -> int:
    """Run ``agentgym web``."""
    return run_verb("web", __doc__, VERBS, words, package=__name__)
