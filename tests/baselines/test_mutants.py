"""Wrong versions of `baselines/losses.py`, each one edit away from it, and the test that catches each.

As in `tests/credit/test_mutants.py`: an edit whose old text is gone fails, so that the table follows the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from baselines import losses
from tests.baselines import test_losses as tests
from tests.mutants import mutated


class Mutant(NamedTuple):
    mistake: str
    caught_by: Callable[..., Any]
    old: str
    new: str
    arguments: dict[str, Any] = {}


PPO, GSPO, SAO = tests.TestPPO(), tests.TestGSPO(), tests.TestSAO()
VALUE, KL, IMPORTANCE = tests.TestValueLoss(), tests.TestKL(), tests.TestImportance()
OUTSIDE = {"ratio": 5.0, "advantage": 1.0, "loss": 0.0, "gradient": 0.0}
INSIDE = {"ratio": 2.0, "advantage": -1.0, "loss": 2 * (tests.LN(2) - 1), "gradient": 2.0}
CLIPPED = {"ratio": 1.5, "advantage": 2.0, "loss": -2.4, "gradient": 0.0}
PESSIMISTIC = {"ratio": 0.5, "advantage": 2.0, "loss": -1.0, "gradient": -1.0}

MUTANTS = [
    Mutant("the ratio upside down", PPO.test_by_hand,
           "log_ratio = logprobs - old_logprobs",
           "log_ratio = old_logprobs - logprobs", CLIPPED),
    Mutant("the better of clipped and free", PPO.test_by_hand,
           "torch.maximum(free, clipped)",
           "torch.minimum(free, clipped)", CLIPPED),
    Mutant("clipped always", PPO.test_by_hand,
           "torch.maximum(free, clipped)",
           "clipped", PESSIMISTIC),
    Mutant("one clip for both sides", PPO.test_clip_higher,
           "ratio.clamp(1 - clip_low, 1 + clip_high)",
           "ratio.clamp(1 - clip_low, 1 + clip_low)"),
    Mutant("dual clip for good actions, too", PPO.test_dual_clip,
           "over = (advantages < 0) & (losses > bound)",
           "over = losses > bound"),
    Mutant("weights forgotten", PPO.test_weights_and_importance,
           "(losses * weights).sum()",
           "losses.sum()"),
    Mutant("a mean over the micro-batch", tests.test_two_micro_batches,
           "return (losses * weights).sum(), stats",
           "return (losses * weights).mean(), stats"),
    Mutant("importance forgotten", PPO.test_weights_and_importance,
           "losses = losses * importance.detach()",
           "losses = losses * 1.0"),
    Mutant("clip fraction counts only ratios", PPO.test_stats,
           "stopped = clipped > free",
           "stopped = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)"),
    Mutant("KL the other way", PPO.test_stats,
           'kl(old_logprobs, logprobs, "k3")',
           'kl(logprobs, old_logprobs, "k3")'),
    Mutant("a sequence's ratio as a product", GSPO.test_ratio_does_not_grow_with_length,
           "totals / torch.bincount(rows).clamp(min=1)",
           "totals", {"length": 1000}),
    Mutant("the gate has a gradient", SAO.test_by_hand,
           "torch.where(inside, ratio, 0.0).detach()",
           "torch.where(inside, ratio, 0.0)", INSIDE),
    Mutant("the gate lets good actions through", SAO.test_by_hand,
           "inside = (ratio > 1 - clip_low) & (ratio < 1 + clip_high)",
           "inside = (ratio > 1 - clip_low) & (ratio < 1 + clip_high) | (advantages > 0)", OUTSIDE),
    Mutant("the gate as a product", SAO.test_a_ratio_beyond_all_numbers_is_outside,
           "torch.where(inside, ratio, 0.0).detach()",
           "(ratio * inside).detach()"),
    Mutant("a critic's loss without its half", VALUE.test_by_hand,
           "0.5 * (squares * weights).sum()",
           "(squares * weights).sum()"),
    Mutant("the clipped value only", VALUE.test_clip_takes_the_larger_loss,
           "torch.maximum(squares, (near - returns) ** 2)",
           "(near - returns) ** 2"),
    Mutant("k3 with the sign of k1 wrong", KL.test_by_hand,
           "torch.expm1(-difference) + difference",
           "torch.expm1(difference) - difference"),
    Mutant("k2 without its half", KL.test_what_their_means_and_gradients_are,
           "0.5 * difference**2",
           "difference**2", {"sampler": None}),
    Mutant("the divergence of older tokens without their ratio", KL.test_by_hand,
           "(logprobs - old_logprobs).exp().detach() * estimate",
           "estimate"),
    Mutant("a ratio of the divergence with a gradient", KL.test_by_hand,
           "(logprobs - old_logprobs).exp().detach() * estimate",
           "(logprobs - old_logprobs).exp() * estimate"),
    Mutant("masked tokens truncated", IMPORTANCE.test_by_hand,
           'if mode == "truncate":',
           'if mode != "sequence_mask":'),
    Mutant("the correction has a gradient", IMPORTANCE.test_no_gradient,
           "(train_logprobs - sampled_logprobs).detach()",
           "(train_logprobs - sampled_logprobs)"),
    Mutant("statistics of micro-batches averaged without their sizes", tests.test_two_micro_batches,
           'sum(part[key] * part["tokens"] for part in stats) / total',
           "sum(part[key] for part in stats) / len(stats)"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake)
def test_caught(mutant):
    changed = mutated(losses, "baselines.losses", mutant.old, mutant.new)
    with pytest.raises(AssertionError):
        mutant.caught_by(changed, **mutant.arguments)


def test_it_is_the_mistakes_that_are_caught():
    """The same way of loading, with nothing changed, passes."""
    for mutant in MUTANTS:
        mutant.caught_by(mutated(losses, "baselines.losses", mutant.old, mutant.old), **mutant.arguments)
