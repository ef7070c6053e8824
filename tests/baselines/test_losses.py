"""Losses and their gradients on numbers worked out by hand. "B3 n", "papers n": rows of the list of known mistakes.

Tests that take `losses` are also run on mutants, where they have to fail: see `test_mutants`.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import credit
from agentgym.errors import UsageError
from baselines import losses as real

LN = math.log
ONE = torch.ones(1, dtype=torch.float64)


@pytest.fixture(scope="session")
def losses():
    return real


def t(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def policy(losses, ratios, advantages, weights=None, old=-1.0, **options):
    """Loss, gradient with respect to the log-probs, and stats, for tokens with these ratios."""
    ratios = t(*ratios)
    old_logprobs = torch.full_like(ratios, old)
    logprobs = (old_logprobs + ratios.log()).requires_grad_()
    weights = torch.ones_like(ratios) if weights is None else t(*weights)
    loss, stats = losses.policy_loss(logprobs, old_logprobs, t(*advantages), weights, **options)
    loss.backward()
    return loss.item(), logprobs.grad.tolist(), stats


class TestPPO:
    @pytest.mark.parametrize(
        ("ratio", "advantage", "loss", "gradient"),
        [
            # d(-r A)/d logp = -r A where free, 0 where clipped; clip 0.8 to 1.2
            (1.0, 2.0, -2.0, -2.0),
            (1.1, 2.0, -2.2, -2.2),
            (1.5, 2.0, -2.4, 0.0),  # -min(3, 1.2 * 2)
            (0.5, 2.0, -1.0, -1.0),  # the pessimistic side is never clipped
            (1.5, -2.0, 3.0, 3.0),
            (0.5, -2.0, 1.6, 0.0),  # -min(-1, .8 * -2)
            (1.5, 0.0, 0.0, 0.0),
        ],
    )
    def test_by_hand(self, losses, ratio, advantage, loss, gradient):
        got, grad, _ = policy(losses, [ratio], [advantage])
        assert got == pytest.approx(loss)
        assert grad == pytest.approx([gradient])

    def test_clip_higher(self, losses):
        # DAPO: up to 1.28, down to .8
        assert policy(losses, [1.25], [1.0], clip_high=0.28)[0] == pytest.approx(-1.25)
        assert policy(losses, [1.3], [1.0], clip_high=0.28)[0] == pytest.approx(-1.28)
        assert policy(losses, [0.7], [-1.0], clip_high=0.28)[0] == pytest.approx(0.8)

    def test_dual_clip(self, losses):
        # A = -2, ratio 5: 10 without, 3 * 2 = 6 with; nothing else changes
        assert policy(losses, [5.0], [-2.0], dual_clip=3.0)[:2] == (pytest.approx(6.0), [0.0])
        assert policy(losses, [2.0], [-2.0], dual_clip=3.0)[0] == pytest.approx(4.0)
        assert policy(losses, [5.0], [2.0], dual_clip=3.0)[0] == pytest.approx(-2.4)

    def test_weights_and_importance(self, losses):
        # .5 * -2 + .25 * 4 * 3 = 2
        loss, gradient, _ = policy(losses, [1.0, 1.0], [2.0, -4.0], [0.5, 0.25], importance=t(1, 3))
        assert loss == pytest.approx(2.0)
        assert gradient == pytest.approx([-1.0, 3.0])

    def test_stats(self, losses):
        # Clipped: 1.5 with A > 0, .5 with A < 0. k3 of KL(old, new) is r - 1 - ln r.
        _, _, stats = policy(losses, [1.5, 0.5, 1.0, 1.5], [1.0, -1.0, 1.0, -1.0])
        k3 = (2 * (0.5 - LN(1.5)) + (-0.5 - LN(0.5)) + 0) / 4
        assert stats == pytest.approx(
            {"clip_fraction": 0.5, "ratio_mean": 4.5 / 4, "ratio_max": 1.5, "approx_kl": k3, "tokens": 4}
        )

    def test_same_weights_at_temperature_point_6(self, losses):
        """B3 22, papers 14: scored at the temperature it was sampled at, the ratio is 1; unscaled it is not."""
        logits = t(1.0, -0.5, 0.25)
        sampled = torch.log_softmax(logits / 0.6, -1)
        for scored, equal in (
            (torch.log_softmax(logits / 0.6, -1), True),
            (torch.log_softmax(logits, -1), False),
        ):
            _, stats = losses.policy_loss(scored, sampled, t(1, 1, 1), t(1, 1, 1))
            assert (stats["ratio_max"] == pytest.approx(1.0)) == equal


class TestGSPO:
    def test_by_hand(self, losses):
        # Row 0: ratios 4 and 1, geometric mean 2, A = 1, clipped at 1.2. Row 1: ratio 1.1, A = -1: free.
        rows = torch.tensor([0, 0, 1])
        options = {"kind": "gspo", "rows": rows}
        loss, gradient, stats = policy(losses, [4, 1, 1.1], [1, 1, -1], [0.25, 0.25, 0.5], **options)
        assert loss == pytest.approx(-0.5 * 1.2 + 0.5 * 1.1)
        assert gradient == pytest.approx([0, 0, 0.55])
        assert stats["ratio_max"] == pytest.approx(2.0)
        # Free, d(-s A w)/d logp = -s A w / tokens of the row, for each of the row's weights
        _, gradient, _ = policy(
            losses, [0.9, 0.9], [1, 1], [0.5, 0.5], kind="gspo", rows=torch.tensor([0, 0])
        )
        assert gradient == pytest.approx([-0.45, -0.45])

    @pytest.mark.parametrize("length", [10, 1000])
    def test_ratio_does_not_grow_with_length(self, losses, length):
        """B3 23: the sum of a thousand deviations of 0.01 would be exp(10)."""
        rows = torch.zeros(length, dtype=torch.long)
        _, _, stats = policy(losses, [math.exp(0.01)] * length, [1.0] * length, kind="gspo", rows=rows)
        assert stats["ratio_max"] == pytest.approx(math.exp(0.01))
        weights = losses.importance_weights(
            torch.full((length,), -1.0), torch.full((length,), -1.01), mode="sequence_mask", rows=rows
        )
        assert weights.tolist() == pytest.approx([math.exp(0.01)] * length, rel=1e-5)


class TestSAO:
    @pytest.mark.parametrize(
        ("ratio", "advantage", "loss", "gradient"),
        [
            # -f A logp with logp = -1 + ln r; inside (.2, 4) f = r and the gradient -r A; outside nothing, either sign
            (1.0, 2.0, 2.0, -2.0),
            (2.0, -1.0, 2 * (LN(2) - 1), 2.0),
            (5.0, -1.0, 0.0, 0.0),
            (5.0, 1.0, 0.0, 0.0),
            (0.1, 1.0, 0.0, 0.0),
            (0.1, -1.0, 0.0, 0.0),
        ],
    )
    def test_by_hand(self, losses, ratio, advantage, loss, gradient):
        got, grad, stats = policy(losses, [ratio], [advantage], kind="sao", clip_low=0.8, clip_high=3.0)
        assert got == pytest.approx(loss)
        assert grad == pytest.approx([gradient])
        assert stats["clip_fraction"] == (gradient == 0)

    def test_a_ratio_beyond_all_numbers_is_outside(self, losses):
        logprobs = t(-1.0).requires_grad_()
        loss, _ = losses.policy_loss(logprobs, t(-1000.0), ONE, ONE, kind="sao")
        loss.backward()
        assert (loss.item(), logprobs.grad.tolist()) == (0.0, [0.0])


@pytest.mark.parametrize("kind", ["ppo", "gspo", "sao"])
def test_on_policy_every_form_is_the_policy_gradient(losses, kind):
    """At ratio 1: -w A."""
    rows = {"rows": torch.tensor([0, 1])} if kind == "gspo" else {}
    _, gradient, _ = policy(losses, [1, 1], [2, -3], [0.5, 0.1], kind=kind, **rows)
    assert gradient == pytest.approx([-1.0, 0.3])


class TestValueLoss:
    def test_by_hand(self, losses):
        # .5 * (.25 * 1 + .5 * .25) = .1875; gradient w (V - R)
        values = t(1.0, 0.5).requires_grad_()
        loss = losses.value_loss(values, t(0, 1), t(0.25, 0.5))
        loss.backward()
        assert loss.item() == pytest.approx(0.1875)
        assert values.grad.tolist() == pytest.approx([0.25, -0.25])

    def test_clip_takes_the_larger_loss(self, losses):
        # old 0, clip .2. V = 1, R = 1: free 0, clipped (.2 - 1)^2 = .64 and no gradient.
        # V = 1, R = -1: free 4 > 1.44: free. V = .1, R = 1: not clipped.
        values = t(1.0, 1.0, 0.1).requires_grad_()
        loss = losses.value_loss(values, t(1, -1, 1), t(1, 1, 1), old_values=t(0, 0, 0), clip=0.2)
        loss.backward()
        assert loss.item() == pytest.approx(0.5 * (0.64 + 4 + 0.81))
        assert values.grad.tolist() == pytest.approx([0, 2, -0.9])

    def test_clip_is_absolute(self, losses):
        """Papers 17: for returns of 10, 0.2 stops a critic that is far off after a move of 0.2."""
        values = t(2.0).requires_grad_()
        losses.value_loss(values, t(10), ONE, old_values=t(0), clip=0.2).backward()
        assert values.grad.tolist() == [0.0]

    def test_options_go_together(self):
        nan = float("nan")
        for options in (
            {"clip": 0.2},
            {"old_values": ONE},
            {"clip": 0.0, "old_values": ONE},
            {"clip": nan, "old_values": ONE},
        ):
            with pytest.raises(UsageError, match="clip > 0 together with old_values"):
                real.value_loss(ONE, ONE, ONE, **options)


class TestKL:
    def test_by_hand(self, losses):
        # ln(1/2) against ln(1/4): d = ln 2. k1 = ln 2, k2 = ln(2)^2 / 2, k3 = 1/2 - 1 + ln 2
        pair = t(LN(0.5)), t(LN(0.25))
        assert losses.kl(*pair, "k1").item() == pytest.approx(LN(2))
        assert losses.kl(*pair, "k2").item() == pytest.approx(LN(2) ** 2 / 2)
        assert losses.kl(*pair, "k3").item() == pytest.approx(LN(2) - 0.5)
        # Sampled where the token had 1/6: it counts three times, and so does its gradient, 1 - 1/2.
        logprobs = pair[0].requires_grad_()
        estimate = losses.kl(logprobs, pair[1], "k3", old_logprobs=t(LN(1 / 6)))
        estimate.backward()
        assert estimate.item() == pytest.approx(3 * (LN(2) - 0.5))
        assert logprobs.grad.item() == pytest.approx(1.5)

    @pytest.mark.parametrize("sampler", [None, (-0.3, 0.9, 0.1)], ids=["on-policy", "older weights"])
    def test_what_their_means_and_gradients_are(self, losses, sampler):
        """Papers 15, over all three outcomes of a categorical policy: exact means and gradients of its logits."""
        logits = t(0.5, -1.0, 0.2).requires_grad_()
        reference = torch.log_softmax(t(0.0, 0.3, -0.4), -1)
        old = None if sampler is None else torch.log_softmax(t(*sampler), -1)

        def mean(kind):
            logprobs = torch.log_softmax(logits, -1)
            estimate = losses.kl(logprobs, reference, kind, old_logprobs=old)
            # Over sampled tokens: no gradient through sampling
            expected = ((logprobs.detach() if old is None else old).exp() * estimate).sum()
            return expected.item(), torch.autograd.grad(expected, logits)[0].numpy()

        logprobs = torch.log_softmax(logits, -1)
        exact = (logprobs.exp() * (logprobs - reference)).sum()
        true_gradient = torch.autograd.grad(exact, logits)[0].numpy()
        reverse = (reference.exp() * (reference - torch.log_softmax(logits, -1))).sum()
        reverse_gradient = torch.autograd.grad(reverse, logits)[0].numpy()
        assert mean("k1")[0] == pytest.approx(exact.item())
        assert mean("k3")[0] == pytest.approx(exact.item())
        np.testing.assert_allclose(mean("k1")[1], 0, atol=1e-15)
        np.testing.assert_allclose(mean("k2")[1], true_gradient, atol=1e-15)
        np.testing.assert_allclose(mean("k3")[1], reverse_gradient, atol=1e-15)


class TestImportance:
    def test_by_hand(self, losses):
        # ratios .25, 1, 4
        pair = t(LN(0.25), 0, LN(4)), t(0, 0, 0)
        assert losses.importance_weights(*pair).tolist() == pytest.approx([0.25, 1, 2])
        assert losses.importance_weights(*pair, low=0.5, high=8.0).tolist() == pytest.approx([0.5, 1, 4])
        assert losses.importance_weights(*pair, mode="mask", low=0.5, high=5.0).tolist() == pytest.approx(
            [0, 1, 4]
        )

    def test_rows(self, losses):
        # Row 0: sqrt(.25 * 1) = .5; row 1: 4, out of bounds
        rows = torch.tensor([0, 0, 1])
        got = losses.importance_weights(
            t(LN(0.25), 0, LN(4)), t(0, 0, 0), mode="sequence_mask", low=0.5 - 1e-9, high=2.0, rows=rows
        )
        assert got.tolist() == pytest.approx([0.5, 0.5, 0])

    def test_no_gradient(self, losses):
        logprobs = t(-1.0).requires_grad_()
        assert not losses.importance_weights(logprobs, t(-1.5)).requires_grad

    def test_a_masked_token_stays_in_the_denominator(self, losses):
        # Two tokens, weights 1/2 each; the one that is masked contributes 0 and the other still weighs 1/2.
        weights = torch.tensor(credit.token_weights([[1, 1]], [0])[0])
        factors = losses.importance_weights(t(0, LN(9)), t(0, 0), mode="mask")
        loss, _ = losses.policy_loss(t(0, 0), t(0, 0), t(1, 1), weights, importance=factors)
        assert loss.item() == pytest.approx(-0.5)


def test_row_means(losses):
    assert losses.row_means(t(1, 2, 6), torch.tensor([0, 2, 2])).tolist() == [1, 0, 4]


def test_two_micro_batches(losses):
    """Three tokens, each a third: -(2 + 1 - 4) / 3 = 1/3, in one call or two. The second one is clipped."""

    def part(*at):
        ratios, advantages = t(1, 1.5, 1)[list(at)], t(2, 1 / 1.2, -4)[list(at)]
        return losses.policy_loss(ratios.log(), t(0, 0, 0)[list(at)], advantages, t(*[1 / 3] * len(at)))

    whole, (first, some), (second, rest) = part(0, 1, 2), part(0), part(1, 2)
    assert whole[0].item() == pytest.approx(1 / 3)
    assert (first + second).item() == pytest.approx(1 / 3)
    assert losses.merge_stats([some, rest]) == pytest.approx(whole[1])
    assert whole[1]["clip_fraction"] == pytest.approx(1 / 3)


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    cuts=st.sets(st.integers(1, 29)),
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["ppo", "sao"]),
    reduce=st.sampled_from(["token", "rollout", "sequence"]),
)
def test_micro_batches_add_up(losses, sizes, cuts, seed, kind, reduce):
    """Papers 8: loss, gradient and statistics of the batch are those of its parts, wherever it is cut."""
    masks = [[1] * size for size in sizes]
    weights = torch.tensor(np.concatenate(credit.token_weights(masks, range(len(sizes)), reduce=reduce)))
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(4, len(weights), generator=generator, dtype=torch.float64)
    edges = [0, *sorted(cut for cut in cuts if cut < len(weights)), len(weights)]

    def run(edges):
        logprobs, values = numbers[0].clone().requires_grad_(), numbers[3].clone().requires_grad_()
        total, stats = 0.0, []
        for start, stop in itertools.pairwise(edges):
            part = slice(start, stop)
            loss, some = losses.policy_loss(
                logprobs[part], numbers[1][part], numbers[2][part], weights[part], kind=kind
            )
            loss = loss + losses.value_loss(values[part], numbers[2][part], weights[part])
            loss.backward()
            total += loss.item()
            stats.append(some)
        return total, [*logprobs.grad.tolist(), *values.grad.tolist()], losses.merge_stats(stats)

    whole, parts = run([0, len(weights)]), run(edges)
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9)


def test_a_trace_cut_in_pieces_has_the_same_gradient(losses):
    """Papers 8, end to end: five trainable tokens in one segment or in three, beside another rollout."""
    gradients = []
    for masks, rollouts in (([[1] * 5, [1] * 2], "ab"), ([[1], [1, 1], [1, 1], [1] * 2], "aaab")):
        weights = torch.tensor(np.concatenate(credit.token_weights(masks, rollouts, reduce="rollout")))
        advantages = credit.broadcast([1.0, -0.5], masks, ["ab".index(r) for r in rollouts])
        logprobs = torch.linspace(-2, -1, 7, dtype=torch.float64).requires_grad_()
        old = torch.full_like(logprobs, -1.5)
        losses.policy_loss(logprobs, old, torch.tensor(np.concatenate(advantages)), weights)[0].backward()
        gradients.append(logprobs.grad.tolist())
    assert gradients[0] == pytest.approx(gradients[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "pppo"}, "Did you mean 'ppo'"),
        ({"kind": "gspo"}, "rows with kind='gspo' and only there"),
        ({"rows": torch.tensor([0])}, "rows with kind='gspo' and only there"),
        ({"dual_clip": 0.5}, "dual_clip > 1"),
        ({"dual_clip": math.nan}, "dual_clip > 1"),
        ({"clip_high": math.nan}, "clip_low and clip_high >= 0"),
        ({"dual_clip": 3.0, "kind": "sao"}, "none with kind='sao'"),
        ({"clip_low": -0.1}, "clip_low and clip_high >= 0"),
        ({"importance": t(1, 2)}, r"one shape \(M,\)"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UsageError, match=message):
        real.policy_loss(ONE, ONE, ONE, ONE, **options)


def test_bad_shapes():
    for tensors in ([ONE, ONE, ONE, t(1, 2)], [t()] * 4, [ONE[None]] * 4):
        with pytest.raises(UsageError, match=r"one shape \(M,\)"):
            real.policy_loss(*tensors)
    with pytest.raises(UsageError, match="rows with mode='sequence_mask'"):
        real.importance_weights(ONE, ONE, mode="sequence_mask")
    with pytest.raises(UsageError, match="0 <= low < high"):
        real.importance_weights(ONE, ONE, low=2.0, high=1.0)
    with pytest.raises(UsageError, match="k1, k2, k3; got 'k4'"):
        real.kl(ONE, ONE, "k4")
