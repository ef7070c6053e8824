"""Loss weights on numbers worked out by hand. "B3 n" and "papers n" are rows of the list of known mistakes.

Tests that take `c` are also run on mutants, where they have to fail: see `test_mutants`.
"""

import math

import numpy as np
import pytest

from agentgym import credit
from agentgym.errors import UsageError

# Two rollouts: "a" with two segments (2 + 1 trainable tokens), "b" with one (1 token).
MASKS = [[0, 1, 1], [0, 1], [1, 0]]
ROLLOUTS = ["a", "a", "b"]


@pytest.mark.parametrize(
    ("reduce", "constant", "expected"),
    [
        ("token", None, [[0, 1 / 4, 1 / 4], [0, 1 / 4], [1 / 4, 0]]),  # 4 tokens
        ("rollout", None, [[0, 1 / 6, 1 / 6], [0, 1 / 6], [1 / 2, 0]]),  # 2 rollouts, 3 and 1 tokens
        ("sequence", None, [[0, 1 / 6, 1 / 6], [0, 1 / 3], [1 / 3, 0]]),  # 3 segments, 2, 1 and 1 tokens
        ("constant", 5, [[0, 1 / 10, 1 / 10], [0, 1 / 10], [1 / 10, 0]]),  # 2 rollouts
    ],
)
def test_by_hand(c, reduce, constant, expected):
    got = c.token_weights(MASKS, ROLLOUTS, reduce=reduce, constant=constant)
    for row, numbers in zip(got, expected, strict=True):
        np.testing.assert_allclose(row, numbers, atol=1e-15)


@pytest.mark.parametrize("reduce", ["token", "rollout", "sequence", "constant"])
def test_without_trainable_tokens_it_is_as_if_not_there(c, reduce):
    """B3 18: a row that was masked because it was cut off is in no denominator either."""
    constant = 5 if reduce == "constant" else None
    with_it = c.token_weights([*MASKS, [0, 0, 0]], [*ROLLOUTS, "cut"], reduce=reduce, constant=constant)
    for row, same in zip(
        with_it, c.token_weights(MASKS, ROLLOUTS, reduce=reduce, constant=constant), strict=False
    ):
        np.testing.assert_allclose(row, same, atol=1e-15)
    assert with_it[3].tolist() == [0, 0, 0]


@pytest.mark.parametrize("reduce", ["token", "rollout", "constant"])
def test_a_cut_changes_nothing(c, reduce):
    """Papers 8: rollout "a" in one segment, or in two of different lengths."""
    constant = 5 if reduce == "constant" else None
    whole = c.token_weights([[0, 1, 1, 0, 1], [1, 0]], ["a", "b"], reduce=reduce, constant=constant)
    cut = c.token_weights(MASKS, ROLLOUTS, reduce=reduce, constant=constant)
    np.testing.assert_allclose(np.concatenate(cut), np.concatenate(whole), atol=1e-15)


def test_per_segment_means_depend_on_the_cut():
    """Papers 8: what "sequence" is documented not to hold, so that nobody mistakes it."""
    whole = credit.token_weights([[1, 1, 1], [1]], ["a", "b"], reduce="sequence")
    cut = credit.token_weights([[1], [1, 1], [1]], ["a", "a", "b"], reduce="sequence")
    assert whole[1][0] == pytest.approx(1 / 2)
    assert cut[2][0] == pytest.approx(1 / 3)


def test_bad_input():
    with pytest.raises(UsageError, match="all 2 segments have none"):
        credit.token_weights([[0, 0], [0]], ["a", "b"])
    with pytest.raises(UsageError, match="one entry for each of 1 segments, got 2"):
        credit.token_weights([[1]], ["a", "b"])
    with pytest.raises(UsageError, match=r"constant > 0 with reduce='constant' and only there, got None"):
        credit.token_weights([[1]], ["a"], reduce="constant")
    with pytest.raises(UsageError, match="got 3"):
        credit.token_weights([[1]], ["a"], constant=3)
    with pytest.raises(UsageError, match="Did you mean 'rollout'"):
        credit.token_weights([[1]], ["a"], reduce="rollouts")


def test_whiten_over_trainable_tokens_only(c):
    """B3 12, papers 6 and 16: of 1, 2, 3 the mean is 2 and the deviation (n - 1) 1, whatever masked ones hold."""
    for junk in (0.0, 100.0, math.nan):
        got = c.whiten([[1, junk, junk], [junk, 2, 3]], [[1, 0, 0], [0, 1, 1]], epsilon=0)
        np.testing.assert_allclose(got, [[-1, 0, 0], [0, 0, 1]], atol=1e-15)
    got = c.whiten([[1, 9], [2, 3]], [[1, 0], [1, 1]], shift=False, epsilon=0)
    np.testing.assert_allclose(got, [[1, 0], [2, 3]])


def test_whiten_without_a_difference():
    for same in ([0.7, 0.7], [0.1 + 0.2, 0.3]):
        assert credit.whiten([same], [[1, 1]])[0].tolist() == [0, 0]
        assert credit.whiten([same], [[1, 1]], shift=False)[0].tolist() == same
    assert credit.whiten([[5.0, 1.0]], [[0, 0]])[0].tolist() == [0, 0]
