"""Advantages without a critic: a rollout beside its siblings, a step beside others from the same state.

Everything here is over **trajectories** (or their steps), never over segments: one that was compacted five times
counts once. `broadcast` and `spread_steps` (in `chains`) then bring the numbers to tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from agentgym.credit.gae import Array, Mask, choice
from agentgym.errors import UsageError

# Numbers whose spread is below this share of the largest one differ by rounding only (a float32 holds 7 digits).
_ROUNDING = 1e-6


def group_advantages(
    returns: ArrayLike,
    groups: Sequence[Hashable],
    *,
    baseline: Literal["mean", "leave_one_out", "none"] = "mean",
    scale: Literal["std", "none"] = "std",
    valid: ArrayLike | None = None,
    epsilon: float = 1e-6,
) -> Array:
    """One advantage for each trajectory, against the others of its group.

    | estimator | baseline | scale |
    |---|---|---|
    | GRPO (arXiv 2402.03300) | mean | std |
    | Dr. GRPO (arXiv 2503.20783) | mean | none |
    | RLOO (arXiv 2402.14740) | leave_one_out | none |
    | REINFORCE++ with baseline (arXiv 2501.03262) | mean | none, then `broadcast` and `whiten` |
    | REINFORCE | none | none |

    A group whose valid returns are equal up to rounding (a millionth) gets exactly 0, and so does one with a single
    valid member. A trajectory that infrastructure ended says nothing: it gets 0, and its siblings are treated as if it
    were not there.

    Args:
        returns: (N,), one a trajectory; NaN is the same as not valid.
        groups: (N,), trajectories with equal entries are siblings.
        baseline: the mean of the group, the mean of the others, or nothing.
        scale: divide by the group's standard deviation (with n - 1, as the published code has it) or not.
        valid: (N,), False where infrastructure failed.
        epsilon: added to the standard deviation; TRL has 1e-4, verl and slime 1e-6.

    Returns:
        (N,), 0 where not valid.

    Raises:
        UsageError: lengths differ; an infinite return; `scale` without a baseline.
    """
    choice("baseline", baseline, ("mean", "leave_one_out", "none"))
    choice("scale", scale, ("std", "none"))
    if baseline == "none" and scale != "none":
        raise UsageError(
            "expected scale='none' with baseline='none': a group's spread says nothing without its mean"
        )
    r, usable = _checked(returns, groups, valid)
    if baseline == "none":
        return np.where(usable, r, 0.0)
    advantages = np.zeros(len(r))
    for members in _groups(groups, usable):
        if not differ(r[members]):
            continue
        centred = r[members] - r[members].mean()
        if baseline == "leave_one_out":  # r_i - mean of the others
            centred *= len(members) / (len(members) - 1)
        if scale == "std":
            centred /= r[members].std(ddof=1) + epsilon
        advantages[members] = centred
    return advantages


def informative(returns: ArrayLike, groups: Sequence[Hashable], valid: ArrayLike | None = None) -> Mask:
    """Which trajectories are valid and in a group whose returns differ: those that DAPO's dynamic sampling keeps.

    Args:
        returns: (N,), one a trajectory; NaN is the same as not valid.
        groups: (N,), trajectories with equal entries are siblings.
        valid: (N,), False where infrastructure failed.

    Returns:
        (N,).
    """
    r, usable = _checked(returns, groups, valid)
    keep = np.zeros(len(r), dtype=bool)
    for members in _groups(groups, usable):
        keep[members] = differ(r[members])
    return keep


def degenerate(returns: ArrayLike, groups: Sequence[Hashable], valid: ArrayLike | None = None) -> float:
    """Share of groups that teach nothing: equal returns, or fewer than two valid ones.

    Args:
        returns: (N,), one a trajectory; NaN is the same as not valid.
        groups: (N,), trajectories with equal entries are siblings.
        valid: (N,), False where infrastructure failed.

    Raises:
        UsageError: no group at all.
    """
    if not len(groups):
        raise UsageError("expected at least one group, got none")
    keep = informative(returns, groups, valid)
    teaching = {group for group, kept in zip(groups, keep, strict=True) if kept}
    return 1.0 - len(teaching) / len(set(groups))


def step_advantages(
    rewards: Sequence[ArrayLike],
    anchors: Sequence[Sequence[Hashable | None]],
    groups: Sequence[Hashable],
    *,
    gamma: float = 0.95,
    scale: Literal["std", "none"] = "std",
    valid: ArrayLike | None = None,
    epsilon: float = 1e-6,
) -> list[Array]:
    """GiGPO's advantage of each step against the group's other steps from the same state (arXiv 2505.10978).

    A step's return is the discounted sum of the rewards from it on. The full advantage is
    ``A = group_advantages(...)[trajectory] + w * step_advantages(...)[trajectory][step]``; the paper has w = 1.

    Args:
        rewards: per trajectory, (steps,).
        anchors: per trajectory and step, the state the step was taken in (`step_anchors`); None for a step that is
            compared with nothing, such as a summary.
        groups: (N,), trajectories with equal entries are siblings; anchors are compared within a group only.
        gamma: discount per step.
        scale: as for `group_advantages`. A step whose state nobody else of the group was in gets 0.
        valid: (N,), False for trajectories that infrastructure ended.
        epsilon: as for `group_advantages`.

    Returns:
        Per trajectory, (steps,).

    Raises:
        UsageError: lengths differ.
    """
    counts = [len(row) for row in anchors]
    if [np.shape(row) for row in rewards] != [(count,) for count in counts] or len(counts) != len(groups):
        raise UsageError(
            f"expected as many rewards as anchors in each of {len(groups)} trajectories, got "
            f"{[np.shape(row) for row in rewards]} and {counts}"
        )
    flat = np.concatenate([np.zeros(0), *(_returns_to_go(row, gamma) for row in rewards)])
    states = [(group, anchor) for group, row in zip(groups, anchors, strict=True) for anchor in row]
    usable = np.ones(len(groups), dtype=bool) if valid is None else np.asarray(valid, dtype=bool)
    compared = np.repeat(usable, counts) & np.array([anchor is not None for _, anchor in states], dtype=bool)
    advantages = group_advantages(flat, states, scale=scale, valid=compared, epsilon=epsilon)
    return np.split(advantages, np.cumsum(counts)[:-1]) if counts else []


def overlong_penalty(lengths: ArrayLike, limit: int, cache: int) -> Array:
    """DAPO's soft punishment of overlong replies, to be added to the reward (arXiv 2503.14476, equation 13).

    0 up to ``limit - cache`` tokens, then linear down to -1 at `limit`, and -1 beyond.

    Args:
        lengths: (N,), tokens.
        limit: the most tokens there may be.
        cache: width of the slope; 0 < cache <= limit.

    Raises:
        UsageError: `cache` is out of range.
    """
    if not 0 < cache <= limit:
        raise UsageError(f"expected 0 < cache <= limit, got cache={cache!r}, limit={limit!r}")
    over = np.asarray(lengths, dtype=np.float64) - (limit - cache)
    return -np.clip(over / cache, 0.0, 1.0)


def _checked(returns: ArrayLike, groups: Sequence[Hashable], valid: ArrayLike | None) -> tuple[Array, Mask]:
    r = np.asarray(returns, dtype=np.float64)
    usable = np.ones(len(r), dtype=bool) if valid is None else np.asarray(valid, dtype=bool)
    if not r.shape == usable.shape == (len(groups),):
        raise UsageError(
            f"expected one return and one valid flag for each of {len(groups)} entries of groups, got {r.shape} and "
            f"{usable.shape}"
        )
    if np.isinf(r[usable]).any():
        raise UsageError("expected finite returns (or NaN where infrastructure failed), got infinity")
    return r, usable & ~np.isnan(r)


def _groups(groups: Sequence[Hashable], usable: Mask) -> Iterator[list[int]]:
    """Indices of the valid members of each group."""
    members: dict[Hashable, list[int]] = {}
    for index, (group, counts) in enumerate(zip(groups, usable, strict=True)):
        if counts:
            members.setdefault(group, []).append(index)
    yield from members.values()


def differ(numbers: Array) -> bool:
    """Whether there is a difference that is more than rounding."""
    return bool(np.ptp(numbers) > _ROUNDING * np.abs(numbers).max())


def _returns_to_go(rewards: ArrayLike, gamma: float) -> Array:
    running, backwards = 0.0, []
    for reward in np.asarray(rewards, dtype=np.float64)[::-1].tolist():
        running = reward + gamma * running
        backwards.append(running)
    return np.array(backwards[::-1])
