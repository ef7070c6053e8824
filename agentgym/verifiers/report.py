"""What grading a patch found, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentgym.errors import UsageError, nearest

REWARDS = ("binary", "fraction", "gated")


@dataclass(frozen=True, slots=True)
class TestReport:
    """What grading a patch found.

    Attributes:
        resolved: every expected test passed.
        f2p_passed, f2p_total, p2p_passed, p2p_total: counts of fail-to-pass and pass-to-pass tests.
        f2p_before: of the fail-to-pass tests, how many that passed now are known to pass without any change.
        held_out_passed, held_out_total: counts of tests that are reported and never paid for.
        applied: the diff could be applied.
        tests_touched: the agent changed tests or configuration; those changes were dropped.
        exit_code: of pytest; -1 if it was not run.
        problem: why the tests could not be run or not be believed; empty otherwise.
        seconds: wall time of grading.
        statuses: expected id -> status; "missing" where it did not appear. What is not held out.
        dropped: the changed paths that were not carried over.
        suspicious: "path: line" of added code that reaches for the test machinery; evidence, no proof.
        output: end of what the run printed.
        channel: how results came: "report" from our runner, or "log" read from what a command printed.
    """

    __test__ = False

    resolved: bool
    f2p_passed: int = 0
    f2p_total: int = 0
    f2p_before: int = 0
    p2p_passed: int = 0
    p2p_total: int = 0
    held_out_passed: int = 0
    held_out_total: int = 0
    applied: bool = True
    tests_touched: bool = False
    exit_code: int = -1
    problem: str = ""
    seconds: float = 0.0
    statuses: Mapping[str, str] = field(default_factory=dict, repr=False)
    dropped: tuple[str, ...] = ()
    suspicious: tuple[str, ...] = ()
    output: str = field(default="", repr=False)
    channel: str = "report"

    @property
    def score(self) -> float:
        """1.0 if resolved, else 0.0: parts of a repair are not paid."""
        return float(self.resolved)

    def reward(self, kind: str) -> float:
        """What the patch is paid: 1 exactly where it resolves the task, 0 for one that repairs nothing.

        `R` is the number of fail-to-pass tests that pass now and did not before, `N` how many there are that did not
        pass before, `B` the number of pass-to-pass tests that do not pass. Kinds:

        - "binary": 1 if resolved, else 0.
        - "fraction": ``max(0, R - B) / N``: a broken test costs what a repaired one earns.
        - "gated": ``R / N`` if `B` is 0, else 0.

        No kind ever pays more for a patch that breaks more. A run that is not believed pays 0.
        """
        if self.resolved or kind == "binary":
            return self.score
        if kind not in REWARDS:
            raise UsageError(f"unknown reward {kind!r}.{nearest(kind, REWARDS)}")
        repaired = self.f2p_passed - self.f2p_before
        broken = self.p2p_total - self.p2p_passed
        if kind == "gated" and broken:
            return 0.0
        return max(0, repaired - broken) / max(1, self.f2p_total - self.f2p_before)

    @property
    def not_passed(self) -> list[str]:
        """The expected ids that did not pass, each with its status."""
        return [f"{name} ({status})" for name, status in self.statuses.items() if status != "passed"]

    @property
    def held_out(self) -> dict[str, float]:
        """Fraction of the held-out tests passed; empty where there are none."""
        return {"held_out": self.held_out_passed / self.held_out_total} if self.held_out_total else {}

    @property
    def components(self) -> dict[str, float]:
        """Fractions of fail-to-pass and pass-to-pass tests passed, and the two flags as 0 or 1."""
        sound = float(self.applied and not self.problem)
        return {
            "f2p": self.f2p_passed / max(1, self.f2p_total),
            "p2p": self.p2p_passed / self.p2p_total if self.p2p_total else sound,
            "applied": float(self.applied),
            "tests_touched": float(self.tests_touched),
        }

    @property
    def evidence(self) -> dict[str, str]:
        """Texts for people: what failed, what was dropped, what looks like an attempt on the grader."""
        texts = {
            "problem": self.problem,
            "not passed": "\n".join(self.not_passed[:50]),
            "dropped": "\n".join(self.dropped[:50]),
            "suspicious": "\n".join(self.suspicious[:50]),
            "channel": "log" if self.channel == "log" else "",
            "output": self.output,
        }
        return {name: text for name, text in texts.items() if text}
