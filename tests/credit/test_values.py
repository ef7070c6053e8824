"""Measures of a critic, and values of spans, by hand."""

import math

import numpy as np
import pytest

from agentgym import credit
from agentgym.errors import UsageError


def test_value_metrics(c):
    # errors -.3, .3, -.1, .1: squares .09 .09 .01 .01, mean .05. Returns 0 1 0 1: variance .25, so EV = 1 - .05 / .25.
    # Bins of a tenth: .3 -> (.3 - 0), .7 -> (.7 - 1), .1 -> (.1 - 0), .9 -> (.9 - 1), each alone: mean of distances .2
    got = c.value_metrics([0.3, 0.7, 0.1, 0.9], [0, 1, 0, 1])
    assert got == pytest.approx(
        {"value_mse": 0.05, "value_mse_constant": 0.25, "explained_variance": 0.8, "value_ece": 0.2}
    )


def test_calibrated_in_bins(c):
    # .52 twice, paid 1 and 0: mean value .52 and mean return .5 in one bin; 1 beside 1 in the last bin.
    got = c.value_metrics([0.52, 0.52, 1.0], [1, 0, 1])
    assert got["value_ece"] == pytest.approx(2 / 3 * 0.02)
    # Four bins of returns up to 10; what is beyond falls to the ends.
    got = c.value_metrics([-1, 11], [0, 10], high=10.0, bins=4)
    assert got["value_ece"] == pytest.approx(1.0)


def test_a_constant_predictor_and_an_oracle(c):
    returns = [0, 0, 1, 1, 1]
    constant = c.value_metrics([0.6] * 5, returns)
    assert constant["value_mse"] == pytest.approx(constant["value_mse_constant"])
    assert constant["explained_variance"] == pytest.approx(0)
    assert c.value_metrics(returns, returns) == pytest.approx(
        {"value_mse": 0, "value_mse_constant": 0.24, "explained_variance": 1, "value_ece": 0}
    )
    assert c.value_metrics([0.2, 0.4], [1, 1])["explained_variance"] == 0.0  # no variance to explain


def test_returns_that_differ_by_rounding_have_no_variance_to_explain(c):
    # .1 + .2 is .30000000000000004: a variance of 7e-34, and 1 - .1 / 7e-34 would be far below all numbers.
    assert c.value_metrics([0.5, 0.1, 0.9], [0.3, 0.1 + 0.2, 0.3])["explained_variance"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "length > 0, got shapes"),
        (([1.0], [1.0, 2.0]), r"got shapes \(1,\) and \(2,\)"),
        (([math.nan], [1.0]), "finite values"),
    ],
)
def test_bad_metrics(arguments, message):
    with pytest.raises(UsageError, match=message):
        credit.value_metrics(*arguments)


def test_bad_range():
    with pytest.raises(UsageError, match="low < high"):
        credit.value_metrics([1], [1], low=1.0)


class TestSpans:
    def test_by_hand(self, c):
        # Trainable tokens at 1 2 4 5; spans begin at 1 and 4, so V = [.2, .6]; reward .1 at 2 and 1 at 5; lambda 1/2.
        # A of the second: 1 - .6 = .4; of the first: (.1 + .6 - .2) + .5 * .4 = .7
        got = c.span_gae(
            [[0, 0, 0.1, 0, 0, 1]], [[0.2, 0.6]], [[0, 1, 1, 0, 1, 1]], [[1, 4]], across="stitch", lam=0.5
        )
        np.testing.assert_allclose(got.advantages, [[0, 0.7, 0.7, 0, 0.4, 0.4]], atol=1e-15)
        np.testing.assert_allclose(got.returns, [[0, 0.9, 0.9, 0, 1.0, 1.0]], atol=1e-15)

    def test_across_segments(self):
        # One span, then two: decay by .5 for each of them, and by the number of spans, not of tokens.
        masks, starts = [[1, 1], [0, 1, 1, 1]], [[0], [1, 3]]
        got = credit.span_gae(
            [[0, 0], [0, 0, 0, 1]], [[0.5], [0.25, 0.75]], masks, starts, across="decay", lam=0.5
        )
        # last span 1 - .75 = .25; the one before .75 - .25 + .5 * .25 = .625; the first segment (1 - .5) * .5 ** 2
        np.testing.assert_allclose(got.advantages[0], [0.125, 0.125])
        np.testing.assert_allclose(got.advantages[1], [0, 0.625, 0.625, 0.25])

    def test_a_span_for_every_token_is_plain(self, c):
        rng = np.random.default_rng(0)
        masks = [rng.random(9) < 0.6 for _ in range(3)]
        values, rewards = rng.random((2, 3, 9))
        rewards = [row * mask for row, mask in zip(rewards, masks, strict=True)]
        for across in ("decay", "stitch", "independent"):
            options = {
                "across": across,
                "lam": credit.LengthAdaptive(1.5),
                "returns_lam": 1.0,
                "bootstrap": 0.5,
            }
            judged = [row[mask] for row, mask in zip(values, masks, strict=True)]
            starts = [np.flatnonzero(mask) for mask in masks]
            got = c.span_gae(rewards, judged, masks, starts, **options)
            expected = c.segment_gae(rewards, values, masks, **options)
            np.testing.assert_allclose(got.advantages, expected.advantages, atol=1e-14)
            np.testing.assert_allclose(got.returns, expected.returns, atol=1e-14)

    @pytest.mark.parametrize("starts", [[1], [0, 0], [2, 0], [0, 1], []])
    def test_bad_starts(self, starts):
        with pytest.raises(UsageError, match="ascending starts at trainable tokens, the first at token"):
            credit.span_gae([[0, 0, 1]], [[0.5] * len(starts)], [[1, 0, 1]], [starts])

    def test_bad_values(self):
        with pytest.raises(UsageError, match="one value for each of 2 spans"):
            credit.span_gae([[0, 1]], [[0.5]], [[1, 1]], [[0, 1]])
        with pytest.raises(UsageError, match="of as many segments, got 1, 1, 1 and 2"):
            credit.span_gae([[0, 1]], [[0.5]], [[1, 1]], [[0], [0]])
