"""Losses as pure functions. Nothing here pads, samples or looks at a model.

Every tensor is flat, (M,): one entry for each trainable token, of a micro-batch or of the whole batch. `weights` come
from `agentgym.credit.token_weights` over the **whole** batch, so a loss is a sum, micro-batches add up to the batch
whatever their sizes, and there is no denominator to get wrong.

Log-probs are of the sampled tokens under the sampling distribution (at its temperature), natural logarithm. The old
ones are those of the weights that sampled, as the *trainer* scores them, or the engine's: never some of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from agentgym.credit.gae import choice
from agentgym.errors import UsageError

Kind: TypeAlias = Literal["ppo", "gspo", "sao"]
Stats: TypeAlias = dict[str, float]


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    importance: Tensor | None = None,
    kind: Kind = "ppo",
    rows: Tensor | None = None,
) -> tuple[Tensor, Stats]:
    """The policy's loss, to be minimised.

    With r = exp(logprobs - old_logprobs) and A the advantage, a token's loss is

    - ``"ppo"``: -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A). DAPO's clip-higher is ``clip_high=0.28``.
    - ``"gspo"``: the same with the row's ratio in place of the token's: r = exp(mean over the row's tokens of
      logprobs - old_logprobs), which does not grow with length (arXiv 2507.18071; it clips at 3e-4 and 4e-4).
    - ``"sao"``: -f(r) A logprobs with the gate f(r) = r inside (1 - clip_low, 1 + clip_high) and 0 outside, whatever
      the sign of A (arXiv 2607.07508; 0.8 and 3.0 for code, 0.3 and 5.0 for reasoning). f is detached: the paper does
      not say so, but without it the gradient has a second term, A logprobs grad f, that is no policy gradient.

    Args:
        logprobs: (M,), of the weights in training; the only input with a gradient.
        old_logprobs: (M,), of the weights that sampled.
        advantages: (M,).
        weights: (M,), see above.
        clip_low: how far below 1 the ratio may fall.
        clip_high: how far above 1 it may rise.
        dual_clip: with A < 0 a token's loss is at most ``-dual_clip * A`` (arXiv 1912.09729; > 1). Not for "sao".
        importance: (M,), factors on each token's loss, as `importance_weights` gives them.
        kind: see above.
        rows: (M,), which row a token belongs to, from 0; for "gspo" only. All tokens of a row are in the same call.

    Returns:
        The loss, and detached numbers over the M tokens: `clip_fraction` (tokens without a gradient because of clip or
        gate), `ratio_mean`, `ratio_max`, `approx_kl` (mean k3 estimate of KL(old, new)), and `tokens`, which is M.

    Raises:
        UsageError: shapes differ or M is 0; an option that `kind` does not have; limits out of range.
    """
    choice("kind", kind, get_args(Kind))
    _check(logprobs, old_logprobs, advantages, weights, *([] if importance is None else [importance]))
    if (rows is not None) != (kind == "gspo"):
        raise UsageError(f"expected rows with kind='gspo' and only there, got kind={kind!r}")
    if dual_clip is not None and (not dual_clip > 1 or kind == "sao"):
        raise UsageError(f"expected dual_clip > 1, and none with kind='sao'; got {dual_clip!r} with {kind!r}")
    if not (clip_low >= 0 and clip_high >= 0):
        raise UsageError(f"expected clip_low and clip_high >= 0, got {clip_low!r} and {clip_high!r}")

    log_ratio = logprobs - old_logprobs  # (M,)
    if rows is not None:
        log_ratio = row_means(log_ratio, rows)[rows]
    ratio = log_ratio.exp()
    if kind == "sao":
        inside = (ratio > 1 - clip_low) & (ratio < 1 + clip_high)
        losses = -torch.where(inside, ratio, 0.0).detach() * advantages * logprobs  # inf * 0 would be NaN
        stopped = ~inside
    else:
        free = -ratio * advantages
        clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
        losses = torch.maximum(free, clipped)
        stopped = clipped > free
        if dual_clip is not None:
            bound = -dual_clip * advantages
            over = (advantages < 0) & (losses > bound)
            losses = torch.where(over, bound, losses)
            stopped = stopped | over
    if importance is not None:
        losses = losses * importance.detach()
    with torch.no_grad():
        stats = {
            "clip_fraction": stopped.double().mean().item(),
            "ratio_mean": ratio.mean().item(),
            "ratio_max": ratio.max().item(),
            "approx_kl": kl(old_logprobs, logprobs, "k3").mean().item(),
            "tokens": float(len(ratio)),
        }
    return (losses * weights).sum(), stats


def value_loss(
    values: Tensor,
    returns: Tensor,
    weights: Tensor,
    *,
    old_values: Tensor | None = None,
    clip: float | None = None,
) -> Tensor:
    """The critic's loss: the weighted sum of ``0.5 * (value - return) ** 2``.

    Args:
        values: (M,), with a gradient.
        returns: (M,), the targets.
        weights: (M,).
        old_values: (M,), the values when the batch was scored; needed for `clip`.
        clip: how far a value may move from its old one before its gradient stops: the loss is the larger of the
            free and the clipped value's. In units of the return: 0.2 suits returns in [0, 1], not those in [0, 10].

    Raises:
        UsageError: shapes differ or M is 0; one of `old_values` and `clip` without the other.
    """
    if (clip is None) != (old_values is None) or (clip is not None and not clip > 0):
        raise UsageError(f"expected clip > 0 together with old_values, got clip={clip!r}")
    _check(values, returns, weights, *([] if old_values is None else [old_values]))
    squares = (values - returns) ** 2
    if clip is not None and old_values is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        squares = torch.maximum(squares, (near - returns) ** 2)
    return 0.5 * (squares * weights).sum()


def kl(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    kind: Literal["k1", "k2", "k3"] = "k3",
    *,
    old_logprobs: Tensor | None = None,
) -> Tensor:
    """Per-token estimate of KL(policy, reference) from tokens that the policy sampled, or an older one.

    - ``"k1"``: logprobs - ref_logprobs. Unbiased, large variance, may be negative. For the reward (detached): as a loss
      its gradient is 0 in expectation.
    - ``"k2"``: half its square. Biased as a number, but its gradient is the KL's: the one for a loss.
    - ``"k3"``: exp(-k1) - 1 + k1. Unbiased, never negative: the one to report. As a loss its gradient is that of
      KL(reference, policy), not of this one; GRPO uses it so.

    For tokens of older weights this holds only if each counts by its ratio, exp(logprobs - old_logprobs), which has no
    gradient here. GRPO as published leaves it out. DeepSeek-V3.2 (arXiv 2512.02556) has it, with a gradient: that gives
    k3 the gradient of KL(policy, reference), but another one than GRPO's also where the ratio is 1.

    Args:
        logprobs: (M,), of the policy.
        ref_logprobs: (M,), of the reference, given the same context.
        kind: see above.
        old_logprobs: (M,), of the weights that sampled, where these are others.

    Returns:
        (M,), with the gradient of `logprobs`.
    """
    choice("kind", kind, ("k1", "k2", "k3"))
    _check(logprobs, ref_logprobs, *([] if old_logprobs is None else [old_logprobs]))
    difference = logprobs - ref_logprobs
    if kind == "k1":
        estimate = difference
    else:
        estimate = 0.5 * difference**2 if kind == "k2" else torch.expm1(-difference) + difference
    return estimate if old_logprobs is None else (logprobs - old_logprobs).exp().detach() * estimate


def importance_weights(
    train_logprobs: Tensor,
    sampled_logprobs: Tensor,
    *,
    mode: Literal["truncate", "mask", "sequence_mask"] = "truncate",
    low: float = 0.0,
    high: float = 2.0,
    rows: Tensor | None = None,
) -> Tensor:
    """What corrects for an engine that samples from slightly other probabilities than the trainer computes.

    With r = exp(train_logprobs - sampled_logprobs):

    - ``"truncate"``: r, but at least `low` and at most `high`.
    - ``"mask"``: r inside [low, high], else 0.
    - ``"sequence_mask"``: one ratio a row, the geometric mean of its tokens', inside [low, high], else 0. (Their
      product would leave the range by length alone.)

    A token with 0 stays in the denominator: `token_weights` are not computed anew without it.

    Args:
        train_logprobs: (M,), the trainer's, of the weights that sampled.
        sampled_logprobs: (M,), the engine's record, at the same temperature.
        mode: see above.
        low: least ratio.
        high: largest ratio.
        rows: (M,), which row a token belongs to, from 0; for "sequence_mask" only.

    Returns:
        (M,), detached.

    Raises:
        UsageError: shapes differ or M is 0; rows missing or not wanted; not 0 <= low < high.
    """
    choice("mode", mode, ("truncate", "mask", "sequence_mask"))
    _check(train_logprobs, sampled_logprobs)
    if (rows is not None) != (mode == "sequence_mask"):
        raise UsageError(f"expected rows with mode='sequence_mask' and only there, got mode={mode!r}")
    if not 0 <= low < high:
        raise UsageError(f"expected 0 <= low < high, got {low!r} and {high!r}")
    log_ratio = (train_logprobs - sampled_logprobs).detach()
    if rows is not None:
        log_ratio = row_means(log_ratio, rows)[rows]
    ratio = log_ratio.exp()
    if mode == "truncate":
        return ratio.clamp(low, high)
    return torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)


def row_means(numbers: Tensor, rows: Tensor) -> Tensor:
    """(R,), the mean over the tokens of each row; 0 for a row without tokens."""
    _check(numbers, rows)
    totals = numbers.new_zeros(int(rows.max()) + 1).index_add(0, rows, numbers)
    return totals / torch.bincount(rows).clamp(min=1)


def merge_stats(stats: Sequence[Stats]) -> Stats:
    """The statistics of a batch from those of its micro-batches: `tokens` add up, the rest are means over tokens.

    A name that ends in ``_max`` is the largest.
    """
    total = sum(part["tokens"] for part in stats)
    merged = {
        key: max(part[key] for part in stats)
        if key.endswith("_max")
        else sum(part[key] * part["tokens"] for part in stats) / total
        for key in stats[0]
    }
    return merged | {"tokens": total}


def _check(*tensors: Tensor) -> None:
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if len(set(shapes)) != 1 or len(shapes[0]) != 1 or not shapes[0][0]:
        raise UsageError(
            f"expected tensors of one shape (M,), one entry for each trainable token, got {shapes}"
        )
