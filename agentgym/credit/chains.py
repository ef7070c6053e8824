"""Reading recorded trajectories: which segments form a chain, and what was paid and seen at each step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from agentgym.credit.gae import Array
from agentgym.errors import UsageError
from agentgym.trajectory.records import Segment, Trajectory


def chains(trajectory: Trajectory) -> list[list[Segment]]:
    """The chains of a trajectory: for each agent its first segment and the rewrites that followed, in order.

    A delegation begins a chain, also for an agent that acted before: it is another task with a conversation of its own.
    A rewrite (compaction or fork) continues the chain of the segment it branched off, or the latest one of its agent.
    Superseded replies (retries) are left out.
    """
    found: list[list[Segment]] = []
    chain_of: dict[int, list[Segment]] = {}  # by index of a segment in it
    latest: dict[str, list[Segment]] = {}  # by agent
    for segment in trajectory.segments:
        if segment.cause == "retry":
            continue
        chain = None
        if segment.cause in ("compaction", "fork"):
            parent = None if segment.parent is None else chain_of.get(segment.parent)
            own = parent is not None and parent[0].agent == segment.agent
            chain = parent if own else latest.get(segment.agent)
        if chain is None:
            chain = []
            found.append(chain)
        chain.append(segment)
        chain_of[segment.index] = latest[segment.agent] = chain
    return found


def add_reward(rewards: Sequence[ArrayLike], masks: Sequence[ArrayLike], amount: float) -> list[Array]:
    """The chain's rewards with `amount` more at its last trainable token.

    For what no step paid: the team's return for a sub-agent's chain, a penalty on length.

    Args:
        rewards: per segment of one chain, (T_k,).
        masks: per segment, (T_k,), True at trainable tokens.
        amount: what to add.

    Raises:
        UsageError: the chain has no trainable token.
    """
    paid = [np.array(row, dtype=np.float64) for row in rewards]
    for row, mask in reversed(list(zip(paid, masks, strict=True))):
        places = np.flatnonzero(mask)
        if len(places):
            row[places[-1]] += amount
            return paid
    raise UsageError(f"expected a chain with a trainable token to pay {amount} to, got none")


def step_rewards(trajectory: Trajectory) -> Array:
    """(steps,), what the environment paid at each step; for `step_advantages`."""
    return np.array([step.reward for step in trajectory.steps], dtype=np.float64)


def step_anchors(trajectory: Trajectory) -> list[str | None]:
    """Per step the state it was taken in, as ``info["anchor"]`` told it; for `step_advantages`.

    None for summaries, which are no step of the environment, and where the environment gives no anchors.
    """
    anchors: list[str | None] = []
    state = trajectory.extra.get("anchor")
    for step in trajectory.steps:
        anchors.append(state if step.kind == "turn" else None)
        if step.kind == "turn":
            state = step.info.get("anchor")  # of the state after it
    return anchors


def spread_steps(segments: Sequence[Segment], per_step: ArrayLike) -> list[Array]:
    """Numbers of steps on the trainable tokens that were sampled in them.

    Args:
        segments: of one trajectory.
        per_step: (steps,), as `step_advantages` gives them for it.

    Returns:
        Per segment, (T_k,), 0 at masked tokens.
    """
    numbers = np.asarray(per_step, dtype=np.float64)
    spread = []
    for segment in segments:
        row = np.zeros(len(segment.token_ids))
        for sampled in segment.sampled:
            if sampled.step is not None:
                row[sampled.start : sampled.stop] = numbers[sampled.step]
        spread.append(row * np.asarray(segment.mask, dtype=bool))
    return spread
