"""From trajectories to tokens: what each token's loss weighs, and numbers of a trajectory on its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from agentgym.credit.gae import Array, Mask, choice, scatter
from agentgym.credit.groups import differ
from agentgym.errors import UsageError

Reduce: TypeAlias = Literal["token", "rollout", "sequence", "constant"]


def token_weights(
    masks: Sequence[ArrayLike],
    rollouts: Sequence[Hashable],
    *,
    reduce: Reduce = "token",
    constant: float | None = None,
) -> list[Array]:
    """Weights w such that the batch's loss is ``sum(w * loss of the token)``.

    Compute them once over the whole batch; a micro-batch then needs no denominator of its own, and however the batch is
    cut, the gradients add up to the same.

    | reduce | weight of a token | published in |
    |---|---|---|
    | token | 1 / trainable tokens of the batch | DAPO, CompactionRL |
    | rollout | 1 / (rollouts * trainable tokens of its rollout) | slime |
    | sequence | 1 / (segments * trainable tokens of its segment) | GRPO |
    | constant | 1 / (rollouts * `constant`) | Dr. GRPO |

    "token", "rollout" and "constant" stay the same when a trajectory is split into more segments. "sequence" does not:
    a trajectory that was compacted often weighs more, and so do its short segments. Rollouts and segments without a
    trainable token are not counted.

    Args:
        masks: per segment of the whole batch, (T_k,), True at trainable tokens.
        rollouts: per segment, which trajectory it belongs to.
        reduce: see above.
        constant: tokens; for "constant" only, for example the largest reply there may be.

    Returns:
        Per segment, (T_k,), 0 at masked tokens.

    Raises:
        UsageError: no trainable token in the batch; lengths differ; `constant` missing, not positive or not wanted.
    """
    choice("reduce", reduce, get_args(Reduce))
    if (constant is not None) != (reduce == "constant") or (constant is not None and not constant > 0):
        raise UsageError(f"expected constant > 0 with reduce='constant' and only there, got {constant!r}")
    trainable = _masks(masks, rollouts)
    counts = [int(mask.sum()) for mask in trainable]
    if not sum(counts):
        raise UsageError(f"expected trainable tokens in the batch; all {len(counts)} segments have none")
    of_rollout: Counter[Hashable] = Counter()
    for rollout, count in zip(rollouts, counts, strict=True):
        of_rollout[rollout] += count
    n_rollouts = sum(count > 0 for count in of_rollout.values())
    n_segments = sum(count > 0 for count in counts)
    weights = []
    for mask, rollout, count in zip(trainable, rollouts, counts, strict=True):
        denominator = {
            "token": float(sum(counts)),
            "rollout": float(n_rollouts * of_rollout[rollout]),
            "sequence": float(n_segments * count),
            "constant": n_rollouts * (constant or 0.0),
        }[reduce]
        weights.append(mask / denominator if count else np.zeros(len(mask)))
    return weights


def broadcast(advantages: ArrayLike, masks: Sequence[ArrayLike], rollouts: Sequence[int]) -> list[Array]:
    """A trajectory's number on every trainable token of all its segments.

    Args:
        advantages: (N,), one a trajectory.
        masks: per segment, (T_k,), True at trainable tokens.
        rollouts: per segment, the index of its trajectory in `advantages`.

    Returns:
        Per segment, (T_k,), 0 at masked tokens.

    Raises:
        UsageError: a segment of no trajectory.
    """
    of = np.asarray(advantages, dtype=np.float64)
    for n in rollouts:
        if not 0 <= n < len(of):
            raise UsageError(f"expected rollouts to be indices of the {len(of)} advantages, got {n!r}")
    return [np.where(mask, of[n], 0.0) for mask, n in zip(_masks(masks, rollouts), rollouts, strict=True)]


def whiten(
    arrays: Sequence[ArrayLike], masks: Sequence[ArrayLike], *, shift: bool = True, epsilon: float = 1e-8
) -> list[Array]:
    """Divide by the standard deviation over all trainable tokens, after subtracting their mean.

    Do it over the whole batch, and before other terms (distillation, skills) are added: afterwards it would change what
    they weigh. Masked tokens are in neither statistic.

    Args:
        arrays: per segment, (T_k,).
        masks: per segment, (T_k,), True at trainable tokens.
        shift: subtract the mean; without it signs stay.
        epsilon: added to the standard deviation (with n - 1).

    Returns:
        Per segment, (T_k,), 0 at masked tokens. Numbers that are equal up to rounding are not divided: with `shift`
        they become 0.
    """
    trainable = _masks(masks, arrays)
    flat = np.concatenate(
        [np.zeros(0), *(np.asarray(a, dtype=np.float64)[m] for a, m in zip(arrays, trainable, strict=True))]
    )
    if len(flat) and differ(flat):
        return scatter((flat - flat.mean() * shift) / (flat.std(ddof=1) + epsilon), trainable)
    return scatter(np.zeros(len(flat)) if shift else flat, trainable)


def _masks(masks: Sequence[ArrayLike], beside: Sequence[object]) -> list[Mask]:
    if len(masks) != len(beside):
        raise UsageError(f"expected one entry for each of {len(masks)} segments, got {len(beside)}")
    return [np.asarray(mask, dtype=bool) for mask in masks]
