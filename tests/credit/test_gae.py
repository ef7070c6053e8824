"""`gae` and `segment_gae` on numbers worked out by hand. "B3 n" and "papers n" are rows of the list of known mistakes.

Tests that take `c` are also run on mutants, where they have to fail: see `test_mutants`.
"""

import itertools
import math

import numpy as np
import pytest

from agentgym import credit
from agentgym.credit import LengthAdaptive
from agentgym.errors import UsageError

NAN = math.nan
ACROSS = ("decay", "stitch", "independent")


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_terminated(c):
    # delta = [.6 - .5, .7 - .6, 1 - .7] = [.1, .1, .3];  A2 = .3, A1 = .1 + .5 * .3 = .25, A0 = .1 + .5 * .25 = .225
    got = c.gae([0, 0, 1], [0.5, 0.6, 0.7], lam=0.5)
    close(got.advantages, [0.225, 0.25, 0.3])
    close(got.returns, [0.725, 0.85, 1.0])


def test_truncated_bootstraps_from_the_state_after_the_last_token(c):
    # gamma .9, lambda .5, so they chain with .45; V(s_T) = .8
    # delta2 = 0 + .9 * .8 - .7 = .02;  delta1 = 1 + .9 * .7 - .6 = 1.03;  delta0 = 0 + .9 * .6 - .5 = .04
    # A2 = .02;  A1 = 1.03 + .45 * .02 = 1.039;  A0 = .04 + .45 * 1.039 = .50755
    got = c.gae([0, 1, 0], [0.5, 0.6, 0.7], gamma=0.9, lam=0.5, bootstrap=0.8)
    close(got.advantages, [0.50755, 1.039, 0.02])


def test_lambda_of_the_targets_is_its_own(c):
    # VC-PPO: the critic's targets with lambda 1 are the plain returns, whatever the actor's lambda.
    got = c.gae([0, 0, 1], [0.5, 0.6, 0.7], lam=0.5, returns_lam=1.0)
    close(got.advantages, [0.225, 0.25, 0.3])
    close(got.returns, [1, 1, 1])


def test_value_is_of_the_state_before_the_token(c):
    """B3 16, papers 18: a three-state chain with values in closed form.

    In each state the policy goes on with probability 1/2, otherwise the episode ends with 0; after the third "on" it
    ends with 1. So V = 1/8, 1/4, 1/2 and A(on) = 2V - V = V. For any lambda the expected advantage in each state is 0.
    """
    exact = [1 / 8, 1 / 4, 1 / 2]
    close(c.gae([0, 0, 1], exact, lam=0.0).advantages, exact)
    for lam in (0.0, 0.7, 1.0):
        mean = np.zeros(3)
        for steps, probability in ((1, 1 / 2), (2, 1 / 4), (3, 1 / 8)):  # it ends at that step with 0
            mean[:steps] += probability * c.gae([0.0] * steps, exact[:steps], lam=lam).advantages
        mean += 1 / 8 * c.gae([0, 0, 1], exact, lam=lam).advantages
        close(mean, [0, 0, 0])


def test_observation_tokens_take_no_part(c):
    """B3 13, 14, 15 and papers 6: as if they were deleted, whatever stands at them; here also at both ends."""
    plain = c.gae([0, 0, 1], [0.5, 0.6, 0.7], lam=0.5)
    mask = [0, 1, 0, 0, 1, 1, 0]
    for junk in (100.0, NAN):
        got = c.gae([0, 0, 0, 0, 0, 1, 0], [junk, 0.5, junk, junk, 0.6, 0.7, junk], mask, lam=0.5)
        close(got.advantages, [0, 0.225, 0, 0, 0.25, 0.3, 0])
        close(got.returns, [0, 0.725, 0, 0, 0.85, 1.0, 0])
        assert plain.advantages.sum() == pytest.approx(got.advantages.sum())


def test_skipping_observations_matters_only_below_lambda_1():
    # Section 1c: with gamma = lambda = 1 sums telescope over observations, too, if V is 0.3 there.
    rewards, values, mask = [0, 0, 1], [0.5, 0.3, 0.7], np.array([True, False, True])
    for lam, equal in ((1.0, True), (0.5, False)):
        skipped = credit.gae(rewards, values, mask, lam=lam).advantages[mask]
        with_them = credit.gae(rewards, values, lam=lam).advantages[mask]
        assert np.allclose(skipped, with_them) == equal


def test_reward_at_a_masked_token_goes_to_the_trainable_one_before(c):
    """B3 14, papers 5: an observation at the end keeps nobody from being paid."""
    got = c.gae([0, 0, 0, 0.25, 1], [0.5, 0.6, NAN, 0.7, NAN], [1, 1, 0, 1, 0], lam=0.5)
    close(
        got.advantages, c.gae([0, 0, 0, 1.25, 0], [0.5, 0.6, 0, 0.7, 0], [1, 1, 0, 1, 0], lam=0.5).advantages
    )
    # and between segments: the reward on the second one's prompt was earned by the first one's last token
    paid = c.segment_gae([[0], [1, 0]], [[0.5], [0, 0.5]], [[1], [0, 1]], across="stitch", lam=0.5)
    close(paid.advantages[0], [1 + 0.5 - 0.5 + 0.5 * -0.5])


TWO = {"rewards": [[0, 0], [1]], "values": [[0.2, 0.4], [0.5]], "masks": [[1, 1], [1]]}


def test_decay(c):
    # Second segment: 1 - .5 = .5. First, paid 1 at its end: delta = [.4 - .2, 1 - .4], A1 = .6, A0 = .2 + .5 * .6 = .5;
    # one trainable token follows, so both times .5. Targets are not: .5 + .2 and .6 + .4.
    got = c.segment_gae(**TWO, across="decay", lam=0.5)
    close(np.concatenate(got.advantages), [0.25, 0.3, 0.5])
    close(np.concatenate(got.returns), [0.7, 1.0, 1.0])


def test_independent(c):
    got = c.segment_gae(**TWO, across="independent", lam=0.5)
    close(np.concatenate(got.advantages), [0.5, 0.6, 0.5])


def test_stitch(c):
    # A2 = .5; A1 = (.5 - .4) + .5 * .5 = .35; A0 = (.4 - .2) + .5 * .35 = .375
    got = c.segment_gae(**TWO, across="stitch", lam=0.5)
    close(np.concatenate(got.advantages), [0.375, 0.35, 0.5])


def test_no_bootstrap_over_the_boundary_unless_stitched(c):
    """Papers 2: what V says of the rewritten context is used by "stitch" only."""
    for value in (0.5, 100.0):
        values = [[0.2, 0.4], [value]]
        rows = {a: c.segment_gae(TWO["rewards"], values, TWO["masks"], across=a, lam=0.5) for a in ACROSS}
        close(rows["decay"].advantages[0], [0.25, 0.3])
        close(rows["independent"].advantages[0], [0.5, 0.6])
    assert rows["stitch"].advantages[0][1] == pytest.approx((100 - 0.4) + 0.5 * (1 - 100))


def test_truncated_chain(c):
    """Papers 3: V(s_T) = .3 follows the last segment; for the first it is part of what came after it.

    decay: second 1 + .3 - .5 = .8; first, paid 1.3: A1 = .9, A0 = .2 + .45 = .65, times .5.
    stitch: A2 = .8, A1 = .1 + .4 = .5, A0 = .2 + .25 = .45.
    """
    expected = {"decay": [0.325, 0.45, 0.8], "independent": [0.65, 0.9, 0.8], "stitch": [0.45, 0.5, 0.8]}
    for across, numbers in expected.items():
        got = c.segment_gae(**TWO, across=across, lam=0.5, bootstrap=0.3)
        close(np.concatenate(got.advantages), numbers)


def test_every_segment_gets_the_full_reward(c):
    """B3 7, papers 9: not a share of it, and not only the last segment."""
    masks = [[1], [1], [1]]
    for across in ACROSS:
        got = c.segment_gae([[0], [0], [1]], [[0]] * 3, masks, across=across)
        close(np.concatenate(got.advantages), [1, 1, 1])


def test_what_was_paid_before_a_segment_is_not_its_doing(c):
    # Rewards 2 then 3: the first segment sees 5, the second 3.
    for across in ACROSS:
        close(
            np.concatenate(c.segment_gae([[2], [3]], [[0], [0]], [[1], [1]], across=across).advantages),
            [5, 3],
        )


def test_decay_counts_trainable_tokens_of_later_segments_only(c):
    # Three trainable tokens in two segments follow, and two that are masked: 1 * .5 ** 3. The second segment has one
    # after it; inside it lambda chains [.5, 1].
    masks = [[1, 0], [0, 1, 1], [1, 0]]
    zeros = [[0] * len(m) for m in masks]
    got = c.segment_gae([[0, 0], [0, 0, 0], [1, 0]], zeros, masks, lam=0.5)
    close(got.advantages[0], [0.125, 0])
    close(got.advantages[1], [0, 0.25, 0.5])


def test_a_segment_without_trainable_tokens_changes_nothing(c):
    for across in ACROSS:
        got = c.segment_gae(
            [[0, 0], [0], [1]], [[0.2, 0.4], [9], [0.5]], [[1, 1], [0], [1]], across=across, lam=0.5
        )
        close(got.advantages[0], c.segment_gae(**TWO, across=across, lam=0.5).advantages[0])
        close(got.advantages[1], [0])


def test_lengths_of_the_adaptive_lambda(c):
    """Section 1b: what a segment of 50 or 200 tokens keeps of its credit with 2000 tokens after it, alpha = 1.5."""

    def kept(length, after, decay_length):
        lengths = (length, after)
        zeros, masks = [np.zeros(n) for n in lengths], [np.ones(n) for n in lengths]
        rewards = [np.zeros(length), np.eye(1, after, after - 1)[0]]
        got = c.segment_gae(rewards, zeros, masks, lam=LengthAdaptive(1.5), decay_length=decay_length)
        return got.advantages[0][-1]

    assert kept(200, 2000, "segment") == pytest.approx(1.3e-3, rel=0.05)
    assert kept(50, 2000, "segment") == pytest.approx(2e-12, rel=0.2)
    # by the whole chain: (1 - 1 / (1.5 * 2050)) ** 2000 = exp(-2000 / 3075) up to 1e-4
    assert kept(50, 2000, "rollout") == pytest.approx(math.exp(-2000 / 3075), abs=2e-4)


def test_equal_segments_with_the_segments_length(c):
    """Section 1b: about exp(-m / 1.5) for m later segments: 0.513, 0.264, 0.135."""
    masks = [np.ones(1000)] * 4
    zeros = [np.zeros(1000)] * 4
    rewards = [*zeros[:3], np.eye(1, 1000, 999)[0]]
    got = c.segment_gae(rewards, zeros, masks, lam=LengthAdaptive(1.5), decay_length="segment")
    assert [row[-1] for row in got.advantages[2::-1]] == pytest.approx([0.513, 0.264, 0.135], abs=1e-3)


def test_length_adaptive():
    assert LengthAdaptive(0.05)(1000) == pytest.approx(0.98)  # 1 - 1 / 50
    assert LengthAdaptive(0.05)(10) == 0.0  # 1 - 2 would be negative
    assert LengthAdaptive(1.5)(0) == 0.0
    # which length: the chain's 4 trainable tokens for "stitch" (1 - 1/6), each segment's 2 for "independent" (1 - 1/3)
    chain = {"rewards": [[0, 0], [0, 1]], "values": [[0, 0]] * 2, "masks": [[1, 1]] * 2}
    got = credit.segment_gae(**chain, across="stitch", lam=LengthAdaptive(1.5))
    close(np.concatenate(got.advantages), [(5 / 6) ** n for n in (3, 2, 1, 0)])
    got = credit.segment_gae(**chain, across="independent", lam=LengthAdaptive(1.5))
    close(np.concatenate(got.advantages), [2 / 3, 1, 2 / 3, 1])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_all_agree_at_gamma_lambda_1(n):
    rows = [[0.25] * 3] * n
    masks = [[0, 1, 1]] * n
    rewards = [[0, 0, 0]] * (n - 1) + [[0, 0, 1]]
    results = [credit.segment_gae(rewards, rows, masks, across=a, bootstrap=0.5) for a in ACROSS]
    for one, other in itertools.pairwise(results):
        close(np.concatenate(one.advantages), np.concatenate(other.advantages))


def test_nothing_at_all():
    for across in ACROSS:
        assert credit.segment_gae([], [], [], across=across) == ([], [])
        close(credit.segment_gae([[0, 0]], [[NAN, NAN]], [[0, 0]], across=across).advantages[0], [0, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": [0, 0]}, r"one length; in segment 0 they are \(2,\), \(3,\) and \(3,\)"),
        ({"values": [[0], [0], [0]]}, "one length"),
        ({"values": [0, NAN, 0]}, "got NaN or infinity"),
        ({"rewards": [0, 0, math.inf]}, "got NaN or infinity"),
        ({"rewards": [0, 0, NAN], "mask": [1, 1, 0]}, "got NaN or infinity"),
        ({"rewards": [1, 0, 0], "mask": [0, 1, 1]}, "token 0 of the chain has 1.0 and nothing"),
        ({"gamma": 1.1}, "0 <= gamma <= 1, got 1.1"),
        ({"lam": -0.1}, "0 <= lambda <= 1, got -0.1"),
        ({"bootstrap": NAN}, "finite bootstrap, got nan"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(UsageError, match=message):
        credit.gae(**({"rewards": [0, 0, 1], "values": [0, 0, 0], "mask": [1, 1, 1]} | change))


def test_bad_choices():
    with pytest.raises(UsageError, match="of as many segments, got 2, 1 and 1"):
        credit.segment_gae([[1], [1]], [[0]], [[1]])
    with pytest.raises(UsageError, match="Did you mean 'stitch'"):
        credit.segment_gae([[1]], [[0]], [[1]], across="stich")
    with pytest.raises(UsageError, match="decay_length to be one of rollout, segment"):
        credit.segment_gae([[1]], [[0]], [[1]], decay_length="chain")
    with pytest.raises(UsageError, match="alpha > 0, got 0"):
        LengthAdaptive(0)
