"""Numbers about a run, out of its trajectories. Plain JSON values, so that they can be printed and kept.

An episode that infrastructure ended is counted and otherwise left out: it says nothing about the policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from agentgym.trajectory.records import Step, Trajectory

RESAMPLES = 2000


def summary(trajectories: Iterable[Trajectory], *, seed: int = 0) -> dict[str, Any]:
    """What ``agentgym run --json`` prints of its episodes.

    Args:
        trajectories: one run's.
        seed: of the bootstrap.

    Returns:
        `episodes`, `resolved`, `clean_resolved`, `hacked_resolved`, `infrastructure_errors`, `segments`: counts;
        `mean_reward` with `ci95`, its 95 % bootstrap interval, both None where no episode is valid; `turns`: mean per
        episode; `tokens`: totals of `prompt` and `sampled`; `seconds`: total wall time of the episodes.
    """
    runs = list(trajectories)
    valid = [t for t in runs if t.reward is not None and not t.infrastructure_error]
    rewards = [t.reward for t in valid if t.reward is not None]
    # Episodes of a group share their task: several tries at few tasks say less than as many tasks.
    groups = [t.extra.get("group", f"alone {number}") for number, t in enumerate(valid)]
    outcomes = Counter(t.outcome for t in runs)
    return {
        "episodes": len(runs),
        "mean_reward": _mean(rewards),
        "ci95": bootstrap_interval(rewards, groups=groups, seed=seed),
        "resolved": outcomes["clean_resolved"] + outcomes["hacked_resolved"],
        "clean_resolved": outcomes["clean_resolved"],
        "hacked_resolved": outcomes["hacked_resolved"],
        "infrastructure_errors": sum(bool(t.infrastructure_error) for t in runs),
        "turns": _mean([t.turns for t in runs]) or 0.0,
        "segments": sum(len(t.segments) for t in runs),
        "tokens": {
            "prompt": sum(step.prompt_tokens for t in runs for step in t.steps),
            "sampled": sum(step.sampled_tokens for t in runs for step in t.steps),
        },
        "seconds": float(sum(t.seconds for t in runs)),
    }


def details(trajectories: Iterable[Trajectory]) -> dict[str, Any]:
    """What ``agentgym report --json`` adds to `summary`.

    Returns:
        `hack_gap`: mean of visible score minus mean held-out component, over episodes that have one; else None.
        `monitor`: `calls`, `blocked`, and `block_rate`, blocked calls per call. `recall` and `false_alarms` are None:
            trajectories carry no labels.
        `value`: None; trajectories carry no values.
        `cost`: `environment_steps` and `sampled_tokens` per resolved episode, all episodes' costs counted; None where
            none is resolved. `critic_tokens` is None.
        `effective_horizon`: see `effective_horizon`, means over valid episodes.
        `segments_per_episode`: number of segments -> number of episodes; retries kept aside do not count.
        `compaction`: `count`, `tokens` and `messages` that rewrites dropped, `by_strategy`.
        `boundaries`: how often a prompt was an append, a realignment, a fork, a compaction, a delegation, and how
            many replies were empty or superseded.
        `context_overflows`: episodes that ended because the model's context was full.
        `symptoms`: texts about what looks wrong.
    """
    runs = list(trajectories)
    valid = [t for t in runs if not t.infrastructure_error]
    events = Counter(event.kind for t in runs for event in t.events)
    kinds = ("append", "realign", "fork", "compaction", "delegation", "empty_reply", "superseded")
    result: dict[str, Any] = {
        "hack_gap": _mean([gap for t in valid if (gap := _hack_gap(t)) is not None]),
        "monitor": _monitor(runs),
        "value": None,
        "cost": _cost(runs),
        "effective_horizon": _mean_of_dicts([effective_horizon(t) for t in valid if t.steps]),
        "segments_per_episode": _histogram(
            sum(segment.cause != "retry" for segment in t.segments) for t in runs
        ),
        "compaction": _compaction(runs),
        "boundaries": {kind: events[kind] for kind in kinds},
        "context_overflows": events["context_overflow"],
    }
    result["symptoms"] = _symptoms(runs, valid, events)
    return result


def effective_horizon(trajectory: Trajectory) -> dict[str, float]:
    """How far a decision lies from the reward it is credited with.

    The reward is the last one that is not zero; where all are, the whole episode counts.

    Returns:
        `turns`: from the first decision to the one that was rewarded, both included.
        `tokens`: tokens sampled in these replies, summaries included: how long a chain an estimator without segments
            has to carry the reward over.
        `tokens_after`: mean over the segments, weighted by their sampled tokens, of the tokens that the same agent
            sampled in later segments: the exponent by which credit across compaction decays. 0 with one segment.
    """
    steps = trajectory.steps
    rewarded = [index for index, step in enumerate(steps) if step.reward]
    until = steps[: rewarded[-1] + 1] if rewarded else steps
    return {
        "turns": float(sum(step.kind == "turn" for step in until)),
        "tokens": float(sum(step.sampled_tokens for step in until)),
        "tokens_after": _tokens_after(steps),
    }


def bootstrap_interval(
    values: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[float] | None:
    """Percentile bootstrap interval of the mean; None without values. The same values and seed give the same interval.

    Where all values (or the means of all groups) are equal, so is every resample, and the interval is one point. That
    is no certainty: ten successes out of ten leave a success rate of 0.7 possible.

    Args:
        values: in any order.
        groups: the group of each value. Groups are drawn whole, since values of one group depend on each other; by
            default each value is its own.
        seed: of the resampling.
        level: share of the resampled means that lie inside.
        resamples: how many.
    """
    if not values:
        return None
    rng = np.random.default_rng(seed)
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, range(len(values)) if groups is None else groups, strict=True):
        members.setdefault(group, []).append(value)
    # Sorted, so that the order in which episodes were finished does not matter.
    units = np.array(sorted((sum(sorted(unit)), len(unit)) for unit in members.values()), dtype=float)
    rows = max(1, 1_000_000 // len(units))  # at a time: a bound on memory
    means = []
    for start in range(0, resamples, rows):
        drawn = units[rng.integers(len(units), size=(min(rows, resamples - start), len(units)))]
        means.append(drawn[..., 0].sum(axis=1) / drawn[..., 1].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return [float(low), float(high)]


def _tokens_after(steps: Sequence[Step]) -> float:
    sampled: Counter[tuple[str, int]] = Counter()
    for step in steps:
        if step.segment is not None:
            sampled[step.agent, step.segment] += step.sampled_tokens
    total = sum(sampled.values())
    later = sum(
        tokens * more
        for (agent, segment), tokens in sampled.items()
        for (other, after), more in sampled.items()
        if other == agent and after > segment
    )
    return later / total if total else 0.0


def _hack_gap(trajectory: Trajectory) -> float | None:
    held_out = trajectory.verdict.get("held_out")
    if not held_out:
        return None
    return float(trajectory.verdict["score"] - np.mean(list(held_out.values())))


def _monitor(runs: Sequence[Trajectory]) -> dict[str, Any]:
    calls = [call.blocked for t in runs for step in t.steps for call in step.calls]
    return {
        "calls": len(calls),
        "blocked": sum(calls),
        "block_rate": _mean(calls),
        "recall": None,
        "false_alarms": None,
    }


def _cost(runs: Sequence[Trajectory]) -> dict[str, float | None]:
    resolved = sum(t.outcome in ("clean_resolved", "hacked_resolved") for t in runs)
    steps = sum(t.turns for t in runs)
    tokens = sum(step.sampled_tokens for t in runs for step in t.steps)
    return {
        "environment_steps": steps / resolved if resolved else None,
        "sampled_tokens": tokens / resolved if resolved else None,
        "critic_tokens": None,
    }


def _compaction(runs: Sequence[Trajectory]) -> dict[str, Any]:
    data = [event.data for t in runs for event in t.events if event.kind == "compaction"]
    return {
        "count": len(data),
        "tokens": sum(d.get("before_tokens", 0) - d.get("after_tokens", 0) for d in data),
        "messages": sum(
            len(d["dropped_messages"]) if "dropped_messages" in d else d.get("dropped", 0) for d in data
        ),
        "by_strategy": dict(Counter(str(d.get("strategy", "unknown")) for d in data)),
    }


def _symptoms(runs: Sequence[Trajectory], valid: Sequence[Trajectory], events: Counter[str]) -> list[str]:
    """What a careful reader of the run would ask about."""
    turns = [step for t in valid for step in t.steps if step.kind == "turn"]
    replies = [sampled for t in valid for segment in t.segments for sampled in segment.sampled]
    rewards = {t.reward for t in valid if t.reward is not None}
    hacked = sum(bool(t.hacked) for t in valid)
    repeats = sum(_repeats(t) for t in valid)
    shares = [
        (len(runs) - len(valid), len(runs), 0.05, "episodes were ended by infrastructure"),
        (sum("invalid_action" in s.info for s in turns), len(turns), 0.2, "turns held no valid action"),
        (
            sum(r.finish_reason == "length" for r in replies),
            len(replies),
            0.1,
            "replies were cut off at their limit",
        ),
        (events["empty_reply"], len(turns), 0.05, "replies were empty"),
        (
            repeats,
            len(valid),
            0.2,
            "episodes repeat one action five times in a row, to no effect",
        ),
        (sum(t.truncated for t in valid), len(valid), 0.5, "episodes ran into a limit"),
        (
            events["context_overflow"],
            len(valid),
            0.0,
            "episodes ended because the model's context was full; the events say which --compact avoids it",
        ),
        (hacked, len(valid), 0.0, "episodes crossed a forbidden line with effect"),
        (events["fork"], len(turns), 0.0, "replies answered a rewritten history that nobody announced"),
    ]
    found = [f"{count} of {of} {what}" for count, of, limit, what in shares if of and count / of > limit]
    if len(valid) >= 4 and len(rewards) == 1:  # fewer say little
        found.append(f"all {len(valid)} episodes have reward {rewards.pop():.3f}")
    return found


def _repeats(trajectory: Trajectory) -> bool:
    """Walking on repeats an action, too; nothing happens only where answer and state are the same as well."""
    turns = [
        (step.action, step.observation, step.info.get("anchor"))
        for step in trajectory.steps
        if step.kind == "turn"
    ]
    return any(len(set(turns[k : k + 5])) == 1 for k in range(len(turns) - 4))


def _histogram(values: Iterable[int]) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean_of_dicts(rows: Sequence[dict[str, float]]) -> dict[str, float] | None:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]} if rows else None
