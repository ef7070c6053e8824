"""What a patch is paid, by hand: R repaired of N, B broken."""

from __future__ import annotations

import pytest

from agentgym.errors import UsageError
from agentgym.verifiers.report import REWARDS, TestReport


def report(f2p: int, p2p: int, *, before: int = 0, problem: str = "", held_out: int = 0) -> TestReport:
    """Of 4 fail-to-pass and 10 pass-to-pass tests."""
    resolved = (f2p, p2p) == (4, 10) and not problem
    return TestReport(resolved, f2p, 4, before, p2p, 10, held_out, 2 if held_out else 0, problem=problem)


@pytest.mark.parametrize(
    ("found", "binary", "fraction", "gated"),
    [
        (report(4, 10), 1.0, 1.0, 1.0),
        (report(0, 10), 0.0, 0.0, 0.0),  # nothing done
        (report(2, 10), 0.0, 0.5, 0.5),
        (report(2, 9), 0.0, 0.25, 0.0),  # one broken for two repaired
        (report(4, 9), 0.0, 0.75, 0.0),
        (report(2, 8), 0.0, 0.0, 0.0),  # as many broken as repaired
        (report(4, 0), 0.0, 0.0, 0.0),
        (report(1, 10, before=1), 0.0, 0.0, 0.0),  # passed without the patch
        (report(2, 10, before=1), 0.0, 1 / 3, 1 / 3),
        (report(0, 0, problem="broke off"), 0.0, 0.0, 0.0),
    ],
)
def test_rewards(found: TestReport, binary: float, fraction: float, gated: float) -> None:
    assert [found.reward(kind) for kind in REWARDS] == pytest.approx([binary, fraction, gated])


@pytest.mark.parametrize("kind", REWARDS)
def test_breaking_never_pays(kind: str) -> None:
    for f2p in range(5):
        paid = [report(f2p, p2p).reward(kind) for p2p in range(11)]
        assert paid == sorted(paid)
        assert (paid[-1] == 1.0) is (f2p == 4)
        assert all(value < 1.0 for value in paid[:-1])


def test_an_unknown_reward() -> None:
    with pytest.raises(UsageError, match="Did you mean 'binary'"):
        report(1, 1).reward("binery")


def test_held_out_tests_are_reported_and_not_paid() -> None:
    found = report(4, 10, held_out=1)
    assert found.held_out == {"held_out": 0.5}
    assert found.reward("fraction") == 1.0
    assert "held_out" not in found.components
    assert report(4, 10).held_out == {}
