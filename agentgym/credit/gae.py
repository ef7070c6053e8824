"""Generalised advantage estimation over the tokens of one segment, and over the chain of segments of one agent.

Arrays are per segment and as long as it: one entry for every token, prompts and tool results included. Only
**trainable** tokens (mask True) take part: `gae` is the estimator on the sequence that is left when all other tokens
are deleted. The critic still reads them: ``values[t]`` is V of the state **before** token t, so it must not have seen
token t. Values at masked tokens never matter and may be NaN. A reward at a masked token goes to the last trainable
token before it. Discounting is per trainable token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym.errors import UsageError, nearest

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Across: TypeAlias = Literal["decay", "stitch", "independent"]


class TokenCredit(NamedTuple):
    """Credit for the tokens of one segment; 0 at masked tokens.

    Attributes:
        advantages: (T,).
        returns: (T,), what the critic's values are trained towards.
    """

    advantages: Array
    returns: Array


class Credit(NamedTuple):
    """Credit for the tokens of a chain of segments, one array a segment; 0 at masked tokens.

    Attributes:
        advantages: of segment k, (T_k,).
        returns: of segment k, (T_k,), what the critic's values are trained towards.
    """

    advantages: list[Array]
    returns: list[Array]


@dataclass(frozen=True)
class LengthAdaptive:
    """A lambda that grows with length: ``1 - 1 / (alpha * length)``, at least 0 (VAPO, arXiv 2504.05118).

    Credit then reaches the same share of a sequence, however long it is: over `length` tokens lambda decays to about
    ``exp(-1 / alpha)``. VAPO has alpha = 0.05, CompactionRL 1.5.

    Attributes:
        alpha: the larger, the further credit reaches; > 0.
    """

    alpha: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise UsageError(f"expected alpha > 0, got {self.alpha!r}")

    def __call__(self, length: int) -> float:
        """Lambda for `length` trainable tokens."""
        return max(0.0, 1.0 - 1.0 / (self.alpha * length)) if length else 0.0


Lambda: TypeAlias = float | Callable[[int], float]  # of the number of trainable tokens, as `LengthAdaptive`


def gae(
    rewards: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    gamma: float = 1.0,
    lam: Lambda = 1.0,
    bootstrap: float = 0.0,
    returns_lam: Lambda | None = None,
) -> TokenCredit:
    """Advantages and value targets of one segment (Schulman et al. 2016).

    ``delta_t = r_t + gamma * V_{t+1} - V_t`` and ``A_t = delta_t + gamma * lam * A_{t+1}``, where t + 1 is the next
    trainable token.

    Args:
        rewards: (T,).
        values: (T,), V of the state before each token.
        mask: (T,), True at trainable tokens; by default all are.
        gamma: discount per trainable token.
        lam: lambda of the advantages.
        bootstrap: V of the state after the last token where the episode was truncated; 0 where it terminated.
        returns_lam: lambda of the value targets (VC-PPO has 1 for the critic and 0.95 for the actor); by default `lam`.

    Raises:
        UsageError: lengths differ; a number is not finite; a reward stands before the first trainable token.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    trainable = np.ones(len(rewards), dtype=bool) if mask is None else mask
    advantages, returns = segment_gae(
        [rewards],
        [values],
        [trainable],
        across="stitch",
        gamma=gamma,
        lam=lam,
        bootstrap=bootstrap,
        returns_lam=returns_lam,
    )
    return TokenCredit(advantages[0], returns[0])


def segment_gae(
    rewards: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    *,
    across: Across = "decay",
    gamma: float = 1.0,
    lam: Lambda = 1.0,
    returns_lam: Lambda | None = None,
    bootstrap: float = 0.0,
    decay_length: Literal["rollout", "segment"] = "rollout",
) -> Credit:
    """Advantages and value targets of one chain: the segments of one agent in one trajectory, in order.

    How credit crosses from one segment into the one before it:

    - ``"decay"`` (CompactionRL, arXiv 2607.05378): GAE inside each segment without any bootstrap over the boundary.
      What came after the segment (later rewards, and `bootstrap`) is added in full at its last trainable token, and
      its advantages are multiplied by ``(gamma * lam) ** n`` for the n trainable tokens of later segments.
    - ``"stitch"``: the last token of a segment bootstraps from V of the next segment's first state, as if the chain
      were one sequence. Right if V judges the rewritten context well: it is what the policy will act on.
    - ``"independent"``: as "decay" without the factor. Each segment is an episode of its own.

    With one segment, or with ``gamma = lam = 1``, all three are equal.

    Args:
        rewards: per segment, (T_k,).
        values: per segment, (T_k,), V of the state before each token.
        masks: per segment, (T_k,), True at trainable tokens.
        across: see above.
        gamma: discount per trainable token. The published form of "decay" has 1; what came after a segment is not
            discounted at its end.
        lam: lambda of the advantages. With `LengthAdaptive` its length is that of the sequence GAE runs over: the chain
            for "stitch", the segment for "independent", and for "decay" what `decay_length` says.
        returns_lam: lambda of the value targets; by default `lam`. Targets are not multiplied by the factor of "decay".
        bootstrap: V of the state after the chain's last token where the episode was truncated; 0 where it terminated.
        decay_length: which length "decay" takes for `LengthAdaptive`: trainable tokens of the whole chain, or of each
            segment. Published text does not settle it. With "segment" a short segment before a long one gets next to
            nothing: 50 tokens before 2000 keep 2e-12 of their credit at alpha = 1.5.

    Raises:
        UsageError: lengths differ; a number is not finite or out of range; a reward stands before the first
            trainable token.
    """
    choice("across", across, get_args(Across))
    choice("decay_length", decay_length, ("rollout", "segment"))
    if not 0.0 <= gamma <= 1.0:
        raise UsageError(f"expected 0 <= gamma <= 1, got {gamma!r}")
    if not math.isfinite(bootstrap):
        raise UsageError(f"expected a finite bootstrap, got {bootstrap!r}")
    trainable = [np.asarray(mask, dtype=bool) for mask in masks]
    r, v = _compressed(rewards, values, trainable)
    counts = [int(mask.sum()) for mask in trainable]
    adaptive_to_chain = across == "stitch" or (across == "decay" and decay_length == "rollout")
    lengths = [len(r) if adaptive_to_chain else count for count in counts]

    def local(chosen: Lambda) -> Array:
        """Advantages over the chain's trainable tokens, before any decay."""
        if across == "stitch":
            return _backward(r, v, bootstrap, gamma, _lambda(chosen, len(r)))
        pieces = []
        for stop, count, length in zip(np.cumsum(counts), counts, lengths, strict=True):
            own, after = r[stop - count : stop].copy(), bootstrap
            if count and stop < len(r):  # not the last one: what came later is paid at its end, without V
                own[-1] += r[stop:].sum() + bootstrap
                after = 0.0
            pieces.append(_backward(own, v[stop - count : stop], after, gamma, _lambda(chosen, length)))
        return np.concatenate(pieces) if pieces else r

    advantages = local(lam)
    targets = v + (advantages if returns_lam is None else local(returns_lam))
    if across == "decay":
        after_segment = len(r) - np.cumsum(counts)  # trainable tokens of later segments
        lams = np.array([_lambda(lam, length) for length in lengths])
        advantages = advantages * np.repeat((gamma * lams) ** after_segment, counts)
    return Credit(scatter(advantages, trainable), scatter(targets, trainable))


def scatter(compressed: Array, masks: Sequence[Mask]) -> list[Array]:
    """Numbers of trainable tokens, segment after segment, at their places; 0 elsewhere."""
    placed = [np.zeros(len(mask)) for mask in masks]
    start = 0
    for array, mask in zip(placed, masks, strict=True):
        stop = start + int(mask.sum())
        array[mask] = compressed[start:stop]
        start = stop
    return placed


def choice(name: str, value: object, known: Sequence[str]) -> None:
    """Raise `UsageError` unless `value` is one of `known`."""
    if value not in known:
        raise UsageError(
            f"expected {name} to be one of {', '.join(known)}; got {value!r}.{nearest(value, known)}"
        )


def _compressed(
    rewards: Sequence[ArrayLike], values: Sequence[ArrayLike], masks: Sequence[Mask]
) -> tuple[Array, Array]:
    """Rewards and values of the chain's trainable tokens; rewards at masked tokens move to the trainable one before."""
    if not len(rewards) == len(values) == len(masks):
        raise UsageError(
            "expected rewards, values and masks of as many segments, "
            f"got {len(rewards)}, {len(values)} and {len(masks)}"
        )
    for k, rows in enumerate(zip(rewards, values, masks, strict=True)):
        of_rewards, of_values, of_mask = map(np.shape, rows)
        if not of_rewards == of_values == of_mask or len(of_mask) != 1:
            raise UsageError(
                f"expected rewards, values and mask of one length; in segment {k} they are {of_rewards}, {of_values} "
                f"and {of_mask}"
            )
    empty = np.zeros(0)
    every_reward = np.concatenate([empty, *(np.asarray(r, dtype=np.float64) for r in rewards)])
    mask = np.concatenate([empty.astype(bool), *masks])
    v = np.concatenate([empty, *(np.asarray(v, dtype=np.float64) for v in values)])[mask]
    owner = np.cumsum(mask) - 1  # the trainable token at or before each token; -1 where there is none
    paid = np.flatnonzero(every_reward)  # NaN counts as not 0
    if not np.isfinite(every_reward[paid]).all() or not np.isfinite(v).all():
        raise UsageError(
            "expected finite rewards, and finite values at trainable tokens; got NaN or infinity"
        )
    if (owner[paid] < 0).any():
        raise UsageError(
            f"expected rewards at or after the first trainable token; token {paid[0]} of the chain has "
            f"{every_reward[paid[0]]} and nothing the policy did before it"
        )
    r = np.zeros(len(v))
    np.add.at(r, owner[paid], every_reward[paid])
    return r, v


def _backward(rewards: Array, values: Array, after: float, gamma: float, lam: float) -> Array:
    """Plain GAE; `after` is V of the state that follows the last token."""
    deltas = rewards + gamma * np.append(values[1:], after)[: len(values)] - values
    advantages, running, keep = deltas.tolist(), 0.0, gamma * lam
    for t in range(len(advantages) - 1, -1, -1):
        running = advantages[t] + keep * running
        advantages[t] = running
    return np.array(advantages, dtype=np.float64)


def _lambda(lam: Lambda, length: int) -> float:
    chosen = lam(length) if callable(lam) else float(lam)
    if not 0.0 <= chosen <= 1.0:
        raise UsageError(f"expected 0 <= lambda <= 1, got {lam!r}")
    return chosen
