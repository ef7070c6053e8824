"""The estimators on real episodes of Relay-v0, beside exact advantages: a small run of `benchmarks/credit.py`."""

import pytest

from agentgym.credit import LengthAdaptive
from benchmarks.credit import ESTIMATORS, Player, figures


@pytest.fixture(scope="module")
def runs():
    """Eight hops, one compaction: take, 4 hops, summary | 4 hops, deliver; 11 actions."""
    player = Player(hops=8, compactions=1, seed=0)
    return [player.play() for _ in range(1200)]


def got(runs, critic, name):
    return figures(runs, critic, {"lam": LengthAdaptive(1.5)} | ESTIMATORS[name])


@pytest.mark.slow
def test_credit_of_the_summary_before_the_rewrite(runs):
    """By theory: with exact values what is left of it under "decay" is lambda ** 5, for five actions after the rewrite.

    The chain's lambda is 1 - 1 / (1.5 * 11); the first segment's, of 6 actions, 1 - 1 / (1.5 * 6).
    """
    exact = {name: got(runs, "exact", name) for name in ESTIMATORS}
    assert exact["stitch"]["first"] == pytest.approx(1, abs=0.05)
    assert exact["independent"]["first"] == pytest.approx(1, abs=0.05)
    assert exact["decay"]["first"] == pytest.approx((1 - 1 / 16.5) ** 5, abs=0.05)  # 0.73
    assert exact["decay, by segment"]["first"] == pytest.approx((1 - 1 / 9) ** 5, abs=0.05)  # 0.55
    assert exact["stitch"]["bias"] < 0.1
    assert exact["decay"]["bias"] > 0.15
    assert exact["stitch"]["noise"] < exact["return - V"]["noise"]


@pytest.mark.slow
def test_a_critic_that_does_not_read_the_summary(runs):
    """Then bootstrapping from it tells nothing of the summary, and "stitch" sees as much as "decay"."""
    blind = {name: got(runs, "blind", name)["first"] for name in ("stitch", "decay", "independent")}
    assert blind["stitch"] == pytest.approx(blind["decay"], abs=0.01)
    assert blind["independent"] == pytest.approx(1, abs=0.05)


def test_exact_advantages_average_to_nothing():
    """The table itself: in each state the policy's mean advantage is 0; it keeps with .8 and goes right with .9."""
    player = Player(hops=2, compactions=1, seed=1)
    told = {}
    for run in (player.play() for _ in range(60)):
        if run.cells[1][2] == "right":  # what a summary is worth depends on the mistakes before it
            told |= dict(zip(run.cells, run.exact[0] + run.exact[1], strict=True))
    # take, hop, summary | hop, deliver
    assert told[0, True, "take"] == pytest.approx(0)
    assert 0.8 * told[2, True, "keep"] + 0.2 * told[2, True, "lose"] == pytest.approx(0)
    for known in (True, False):
        assert 0.9 * told[3, known, "right"] + 0.1 * told[3, known, "wrong"] == pytest.approx(0)
