"""Group estimators on numbers worked out by hand. "B3 n" and "papers n" are rows of the list of known mistakes.

Tests that take `c` are also run on mutants, where they have to fail: see `test_mutants`.
"""

import math

import numpy as np
import pytest

from agentgym import credit
from agentgym.errors import UsageError

NAN = math.nan


def close(got, expected, atol=1e-12):
    np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


def test_grpo(c):
    # mean 2, deviations -1, 0, 1; variance with n - 1: (1 + 0 + 1) / 2 = 1
    close(c.group_advantages([1, 2, 3], "aaa", epsilon=0), [-1, 0, 1])
    # mean .25, deviations .75 and three times -.25; variance (.5625 + 3 * .0625) / 3 = .25, std .5
    close(c.group_advantages([1, 0, 0, 0], "aaaa", epsilon=0), [1.5, -0.5, -0.5, -0.5])
    close(c.group_advantages([1, 0, 0, 0], "aaaa", epsilon=0.5), [0.75, -0.25, -0.25, -0.25])


def test_dr_grpo(c):
    # Papers 12: no division, so a nearly solved task doesn't count more than one half solved.
    close(c.group_advantages([1, 0, 0, 0], "aaaa", scale="none"), [0.75, -0.25, -0.25, -0.25])


def test_rloo(c):
    # Mean of the others: 0 for the first, 1/3 for each of the rest.
    expected = [1, -1 / 3, -1 / 3, -1 / 3]
    close(c.group_advantages([1, 0, 0, 0], "aaaa", baseline="leave_one_out", scale="none"), expected)


def test_reinforce(c):
    close(c.group_advantages([1, 0.5, NAN], "aab", baseline="none", scale="none"), [1, 0.5, 0])


def test_reinforce_plus_plus_with_baseline():
    # Group means off: [.5, -.5], [0, 0]; on the tokens (2, 1, 1, 1): .5 .5 -.5 0 0.
    # Their mean is .1; squares of deviations .16 .16 .36 .01 .01 = .7; / 4 = .175.
    masks = [[1, 1], [1, 0], [1, 0], [0, 1]]
    centred = credit.group_advantages([1, 0, 0.3, 0.3], "aabb", scale="none")
    got = credit.whiten(credit.broadcast(centred, masks, range(4)), masks, epsilon=0)
    std = math.sqrt(0.175)
    expected = [[0.4 / std, 0.4 / std], [-0.6 / std, 0], [-0.1 / std, 0], [0, -0.1 / std]]
    close(np.array(got), np.array(expected))


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("scale", ["std", "none"])
@pytest.mark.parametrize("reward", [0.7, 9.9, 0.3, 0.1, -1e9, 1e-12])
def test_equal_rewards_are_exactly_nothing(c, reward, baseline, scale):
    """Papers 11: (x - mean) / (std + 1e-6) in float32 gives 0.47 for eight rewards of 9.9."""
    got = c.group_advantages([reward] * 8, "a" * 8, baseline=baseline, scale=scale)
    assert got.tolist() == [0.0] * 8


def test_a_residue_of_rounding_is_no_difference(c):
    """B3 24: .1 + .2 is not .3; in float32 both are still the same reward."""
    for rewards in ([0.1 + 0.2, 0.3, 0.3], np.array([0.7, 0.7, 0.7 + 1e-7], dtype=np.float32)):
        assert c.group_advantages(rewards, "aaa").tolist() == [0, 0, 0]
        assert c.degenerate(rewards, "aaa") == 1.0


def test_one_that_differs_a_little_is_bounded(c):
    """B3 24: with n - 1 the most one of n can have is (n - 1) / sqrt(n), here 7 / sqrt(8) = 2.4749."""
    got = c.group_advantages([0.35] * 7 + [0.4], "a" * 8, epsilon=0)
    close(got, [-1 / math.sqrt(8)] * 7 + [7 / math.sqrt(8)])


def test_groups_of_different_sizes(c):
    """B3 10: groups of 4, 3, 5 in mixed order: each has mean 0 and its own deviation."""
    groups = np.array(list("abcabcabcacc"))
    returns = np.array([1, 0, 3, 0, 1, 1, 0, 1, 2, 1, 5, 0], dtype=float)
    for scale in ("std", "none"):
        got = c.group_advantages(returns, groups, scale=scale, epsilon=0)
        for group in "abc":
            assert got[groups == group].mean() == pytest.approx(0)
            if scale == "std":
                assert got[groups == group].std(ddof=1) == pytest.approx(1)


def test_group_of_one(c):
    for baseline in ("mean", "leave_one_out"):
        assert c.group_advantages([5.0, 1, 2], ["alone", "a", "a"], baseline=baseline)[0] == 0


def test_what_infrastructure_ended_does_not_exist(c):
    """B3 21, papers 4: neither a reward of 0, nor a member of its group; NaN and `valid` say the same."""
    for returns, valid in (([1, 0, NAN, 0, 0], None), ([1, 0, -77, 0, 0], [1, 1, 0, 1, 1])):
        got = c.group_advantages(returns, "aaaaa", valid=valid, epsilon=0)
        close(got, [1.5, -0.5, 0, -0.5, -0.5])
        assert c.informative(returns, "aaaaa", valid).tolist() == [True, True, False, True, True]
    assert c.group_advantages([1, NAN], "aa").tolist() == [0, 0]  # its sibling is alone


def test_more_segments_do_not_weigh_more(c):
    """B3 9, papers 10: groups are over trajectories. The first of them has three segments, or six."""
    returns, groups = [1, 0, 0, 0], "aaaa"
    for extra in (3, 6):
        masks = [[1, 1]] * (extra + 3)
        rollouts = [0] * extra + [1, 2, 3]
        got = c.broadcast(c.group_advantages(returns, groups, epsilon=0), masks, rollouts)
        close(got[0], [1.5, 1.5])
        close(got[-1], [-0.5, -0.5])


@pytest.mark.parametrize("stray", [-1, 2])
def test_a_segment_of_no_trajectory_is_refused(stray):
    with pytest.raises(UsageError, match=f"indices of the 2 advantages, got {stray}"):
        credit.broadcast([2, -3], [[1], [1]], [0, stray])


def test_broadcast_reaches_every_trainable_token(c):
    """B3 11: all segments carry their trajectory's number, whatever else the batch holds; masked tokens 0."""
    got = c.broadcast([2, -3], [[0, 1, 1], [1], [0, 0, 1, 0]], [1, 0, 1])
    assert [row.tolist() for row in got] == [[0, -3, -3], [2], [0, 0, -3, 0]]


def test_informative_and_degenerate(c):
    returns = [1, 1, 0, 1, 0.5, NAN, NAN]
    groups = ["same", "same", "mixed", "mixed", "alone", "broken", "broken"]
    assert c.informative(returns, groups).tolist() == [False, False, True, True, False, False, False]
    assert c.degenerate(returns, groups) == 0.75


def test_overlong_penalty():
    # limit 100, slope 20: free to 80, half at 90, full at 100
    close(credit.overlong_penalty([10, 80, 90, 95, 100, 500], 100, 20), [0, 0, -0.5, -0.75, -1, -1])
    with pytest.raises(UsageError, match="0 < cache <= limit, got cache=0"):
        credit.overlong_penalty([1], 100, 0)


class TestSteps:
    def test_gigpo(self, c):
        # Two siblings, gamma 1/2. Returns from each step on: [0 + .5 * (0 + .5 * 4), 2, 4] = [1, 2, 4] and [0, 0].
        # State x: 1 against 0, mean .5, std sqrt(.5). State y: 2 against 0, mean 1, std sqrt(2). z is alone.
        got = c.step_advantages([[0, 0, 4], [0, 0]], ["xyz", "xy"], "aa", gamma=0.5, epsilon=0)
        half = math.sqrt(0.5)
        close(got[0], [half, half, 0])
        close(got[1], [-half, -half])
        got = c.step_advantages([[0, 0, 4], [0, 0]], ["xyz", "xy"], "aa", gamma=0.5, scale="none")
        close(got[0], [0.5, 1, 0])

    def test_a_state_met_twice_in_one_episode(self):
        # Returns 1 (gamma 1) from both, and 0 in the sibling: mean 2/3.
        got = credit.step_advantages([[0, 1], [0]], ["xx", "x"], "aa", gamma=1, scale="none")
        close(got[0], [1 / 3, 1 / 3])
        close(got[1], [-2 / 3])

    def test_a_state_nobody_else_saw_says_nothing(self, c):
        """Section 4: a group of one step has mean 0 and deviation 1 in the published code: the raw return."""
        assert c.step_advantages([[3], [4]], ["x", "y"], "aa")[0].tolist() == [0]
        assert c.step_advantages([[3], [4]], ["x", "x"], "ab")[0].tolist() == [0]  # another task's

    def test_left_out(self, c):
        rows = c.step_advantages([[1], [0], [9]], [["x"]] * 3, "aaa", valid=[1, 1, 0], scale="none")
        close(np.concatenate(rows), [0.5, -0.5, 0])
        rows = c.step_advantages([[1, 0], [0, 5]], [["x", None], ["x", None]], "aa", gamma=0, scale="none")
        close(np.concatenate(rows), [0.5, 0, -0.5, 0])

    def test_bad_input(self):
        with pytest.raises(UsageError, match="as many rewards as anchors in each of 2"):
            credit.step_advantages([[1], [0, 1]], ["x", "x"], "aa")
        assert credit.step_advantages([], [], []) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"returns": [1]}, "one return and one valid flag for each of 2"),
        ({"valid": [True]}, "one return and one valid flag for each of 2"),
        ({"returns": [1, math.inf]}, "got infinity"),
        ({"baseline": "median"}, "mean, leave_one_out, none; got 'median'"),
        ({"scale": "max"}, "std, none; got 'max'"),
        ({"baseline": "none"}, "scale='none' with baseline='none'"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(UsageError, match=message):
        credit.group_advantages(**({"returns": [1, 0], "groups": "aa"} | options))


def test_no_groups():
    assert credit.group_advantages([], []).tolist() == []
    with pytest.raises(UsageError, match="at least one group"):
        credit.degenerate([], [])
