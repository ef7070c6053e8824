"""What values are worth, and values that stand for spans of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agentgym.credit.gae import Array, Credit, Mask, scatter, segment_gae
from agentgym.credit.groups import differ
from agentgym.errors import UsageError


def span_gae(
    rewards: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    starts: Sequence[Sequence[int]],
    **options: Any,
) -> Credit:
    """`segment_gae` for a critic that judges a few states only, such as a generative one (GenAC, arXiv 2604.10701).

    A span is the trainable tokens from one judged state to the next. It is one step of the estimator: its tokens share
    one advantage and one return, gamma and lambda count spans, and so does `LengthAdaptive`.

    Args:
        rewards: per segment of one chain, (T_k,).
        values: per segment, one for each of its spans: V of the state before the span's first token.
        masks: per segment, (T_k,), True at trainable tokens.
        starts: per segment, the positions at which its spans begin, ascending; each is a trainable token, and the first
            of them the segment's first trainable one.
        **options: of `segment_gae`.

    Returns:
        Per segment, (T_k,), 0 at masked tokens.

    Raises:
        UsageError: the spans do not begin as described; besides, what `segment_gae` raises.
    """
    if not len(rewards) == len(values) == len(masks) == len(starts):
        raise UsageError(
            f"expected rewards, values, masks and starts of as many segments, got {len(rewards)}, {len(values)}, "
            f"{len(masks)} and {len(starts)}"
        )
    trainable = [np.asarray(mask, dtype=bool) for mask in masks]
    at = [np.asarray(row, dtype=int) for row in starts]
    for k, (mask, row) in enumerate(zip(trainable, at, strict=True)):
        tokens = np.flatnonzero(mask)
        if not np.isin(row, tokens).all() or (np.diff(row) <= 0).any() or list(row[:1]) != list(tokens[:1]):
            raise UsageError(
                f"expected ascending starts at trainable tokens, the first at token {tokens[:1].tolist()}; in segment "
                f"{k} they are {row.tolist()[:20]}"
            )
    judged = [_placed(row, value, len(mask)) for row, value, mask in zip(at, values, trainable, strict=True)]
    begins = [np.isin(np.arange(len(mask)), row) for row, mask in zip(at, trainable, strict=True)]
    # With only the first token of each span trainable, what is paid inside a span falls to that token.
    credit = segment_gae(rewards, judged, begins, **options)
    sizes = np.concatenate([np.zeros(0, int), *map(_sizes, begins, trainable)])
    spread = (
        scatter(np.repeat(np.concatenate([np.zeros(0), *map(np.extract, begins, rows)]), sizes), trainable)
        for rows in credit
    )
    return Credit(*spread)


def value_metrics(
    values: ArrayLike, returns: ArrayLike, *, low: float = 0.0, high: float = 1.0, bins: int = 10
) -> dict[str, float]:
    """How good a critic's values are, beside the constant that knows the mean.

    Args:
        values: (M,), of trainable tokens.
        returns: (M,), what came of them: returns without bootstrap (lambda = 1), or the result means little.
        low: least possible return.
        high: largest possible return.
        bins: into how many equal parts the calibration divides that range.

    Returns:
        `value_mse`: mean squared error; `value_mse_constant`: the same of the mean return; `explained_variance`:
        1 - Var(return - value) / Var(return), 0 where all returns are equal up to rounding (a millionth); `value_ece`:
        expected calibration error.
        For that tokens are put into bins by value (beyond the range into the first or last one); it is the mean over
        tokens of the distance between mean value and mean return in their bin.

    Raises:
        UsageError: no tokens, lengths differ, a number is not finite, an empty range.
    """
    v, g = np.asarray(values, dtype=np.float64), np.asarray(returns, dtype=np.float64)
    if v.shape != g.shape or v.ndim != 1 or not len(v) or not np.isfinite([v, g]).all():
        raise UsageError(
            f"expected finite values and returns of one length > 0, got shapes {v.shape} and {g.shape}"
        )
    if not low < high or bins < 1:
        raise UsageError(f"expected low < high and bins >= 1, got {low!r}, {high!r}, {bins!r}")
    bin_of = np.clip(((v - low) / (high - low) * bins).astype(int), 0, bins - 1)
    gap = np.abs(np.bincount(bin_of, weights=v - g, minlength=bins))  # tokens in the bin * |mean v - mean g|
    spread = float(g.var())
    return {
        "value_mse": float(np.mean((v - g) ** 2)),
        "value_mse_constant": spread,
        "explained_variance": 1.0 - float((g - v).var()) / spread if differ(g) else 0.0,
        "value_ece": float(gap.sum() / len(v)),
    }


def _placed(positions: np.ndarray[Any, Any], numbers: ArrayLike, length: int) -> Array:
    """`numbers` at `positions`, NaN elsewhere."""
    given = np.asarray(numbers, dtype=np.float64)
    if given.shape != positions.shape:
        raise UsageError(f"expected one value for each of {len(positions)} spans, got {given.shape}")
    placed = np.full(length, np.nan)
    placed[positions] = given
    return placed


def _sizes(begins: Mask, trainable: Mask) -> np.ndarray[Any, Any]:
    """Trainable tokens of each span of a segment."""
    return np.bincount(np.cumsum(begins)[trainable] - 1, minlength=int(begins.sum()))
