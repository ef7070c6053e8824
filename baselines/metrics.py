"""Numbers of every run, out of its trajectories. `docs/training.md` has them in one table; a test compares the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentgym.credit import degenerate
from agentgym.credit.groups import differ
from agentgym.errors import UsageError
from agentgym.trajectory.records import Trajectory
from agentgym.trajectory.stats import bootstrap_interval, details, wilson_interval

__all__ = ["Costs", "check_truncation", "evaluation_metrics", "rollout_metrics"]

WARN_TRUNCATED = 0.9  # share of a batch from which on the run says so


@dataclass
class Costs:
    """What training has cost so far, evaluation not counted.

    Attributes:
        environment_steps: turns of all episodes.
        generated_tokens: sampled by the policy.
        trained_tokens: tokens that went through a pass with gradients of the policy, context included.
        critic_tokens: the same of a critic, its passes without gradients included.
        solved: resolved episodes.
    """

    environment_steps: int = 0
    generated_tokens: int = 0
    trained_tokens: int = 0
    critic_tokens: int = 0
    solved: int = 0

    def add_rollouts(self, trajectories: Sequence[Trajectory]) -> None:
        """Count a batch that was played; what broke or was thrown away has cost its part too."""
        self.environment_steps += sum(t.turns for t in trajectories)
        self.generated_tokens += sum(step.sampled_tokens for t in trajectories for step in t.steps)
        self.solved += sum(bool(t.resolved) for t in trajectories)

    def metrics(self) -> dict[str, float]:
        """Totals, and each of them per solved task once there is one."""
        totals = {name: float(value) for name, value in vars(self).items()}
        solved = totals.pop("solved")
        per = {f"cost/{name}_per_solved": value / solved for name, value in totals.items() if solved}
        return {f"cost/{name}": value for name, value in totals.items()} | {"cost/solved": solved} | per


def rollout_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """What a batch of episodes looked like. Episodes that broke count in `rollout/broken` only."""
    valid = _valid(trajectories)
    turns = [step for t in valid for step in t.steps if step.kind == "turn"]
    report = details(valid)
    boundaries = report["boundaries"]
    known = sum(boundaries[kind] for kind in ("append", "realign", "fork", "compaction", "delegation"))
    numbers = {
        "rollout/episodes": float(len(trajectories)),
        "rollout/broken": 1.0 - len(valid) / len(trajectories),
        "rollout/return": _mean([t.reward or 0.0 for t in valid]),
        "rollout/resolved": _mean([bool(t.resolved) for t in valid]),
        "rollout/clean_resolved": _mean([t.outcome == "clean_resolved" for t in valid]),
        "rollout/hacked_resolved": _mean([t.outcome == "hacked_resolved" for t in valid]),
        "rollout/turns": _mean([t.turns for t in valid]),
        "rollout/tokens": _mean([sum(step.sampled_tokens for step in t.steps) for t in valid]),
        "rollout/prompt_tokens": _mean([sum(step.prompt_tokens for step in t.steps) for t in valid]),
        "rollout/segments": _mean([sum(s.cause != "retry" for s in t.segments) for t in valid]),
        "rollout/truncated": _mean([t.truncated for t in valid]),
        "rollout/cut_replies": _mean(_cut(valid)),
        "rollout/invalid_actions": _mean(["invalid_action" in step.info for step in turns]),
        "rollout/blocked_calls": _mean(
            [call.blocked for t in valid for step in t.steps for call in step.calls]
        ),
        "drift/realign": boundaries["realign"] / known if known else 0.0,
        "drift/fork": boundaries["fork"] / known if known else 0.0,
        "drift/append": boundaries["append"] / known if known else 0.0,
    }
    groups = [t.extra["group"] for t in trajectories]
    if len(set(groups)) < len(groups):  # single rollouts have no siblings to differ from
        returns = [np.nan if t.reward is None else t.reward for t in trajectories]
        numbers["rollout/degenerate_groups"] = degenerate(returns, groups)
    if report["hack_gap"] is not None:
        numbers["rollout/hack_gap"] = report["hack_gap"]
    return numbers


def evaluation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """How good the policy is on tasks it does not train on, with 95 % intervals.

    The interval of the return resamples whole tasks, told apart by their environment and id; that of a share is
    Wilson's. Where every episode broke nothing is known of the policy, so nothing but that is told.
    """
    valid = _valid(trajectories)
    counts = {
        "eval/episodes": float(len(trajectories)),
        "eval/broken": 1.0 - len(valid) / len(trajectories),
    }
    if not valid:
        return counts
    returns = [t.reward or 0.0 for t in valid]
    resolved = sum(bool(t.resolved) for t in valid)
    numbers = counts | {
        "eval/return": _mean(returns),
        "eval/resolved": resolved / len(valid),
        "eval/clean_resolved": _mean([t.outcome == "clean_resolved" for t in valid]),
        "eval/turns": _mean([t.turns for t in valid]),
        "eval/tokens": _mean([sum(step.sampled_tokens for step in t.steps) for t in valid]),
    }
    for name, interval in (
        ("return", bootstrap_interval(returns, groups=[(t.extra.get("env"), t.task_id) for t in valid])),
        ("resolved", wilson_interval(resolved, len(valid))),
    ):
        if interval is not None:
            numbers |= {f"eval/{name}_low": interval[0], f"eval/{name}_high": interval[1]}
    return numbers


def check_truncation(trajectories: Sequence[Trajectory], max_new_tokens: int) -> str | None:
    """What looks wrong with how episodes and replies ended; None if nothing does.

    Raises:
        UsageError: not one reply came to its own end, all returns are equal and nothing was resolved: there is
            nothing to learn from. Not where most episodes broke: then the few others may be the odd ones.
    """
    valid = _valid(trajectories)
    replies = _cut(valid)
    cut = _mean(replies)
    returns = np.array([t.reward for t in valid], dtype=np.float64)
    stuck = len(returns) > 0 and not differ(returns) and not any(t.resolved for t in valid)
    if replies and cut == 1.0 and stuck and 2 * len(valid) >= len(trajectories):
        raise UsageError(
            f"expected replies that end, but all {len(replies)} were cut off at --max-new-tokens {max_new_tokens} and "
            f"all returns are {returns[0]:g}; give more tokens, or a --stop text"
        )
    truncated = _mean([t.truncated for t in valid])
    for share, what in ((cut, f"replies were cut off at --max-new-tokens {max_new_tokens}"),
                        (truncated, "episodes ran into a limit")):  # fmt: skip
        if share > WARN_TRUNCATED:
            return f"{share:.0%} of the {what}"
    return None


def _cut(trajectories: Sequence[Trajectory]) -> list[bool]:
    """Of each reply that is trained on, whether it was cut off; how workers of another policy end says nothing here."""
    replies = (reply for t in trajectories for segment in t.segments for reply in segment.sampled)
    return [reply.finish_reason == "length" for reply in replies if reply.trained]


def _valid(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    return [t for t in trajectories if t.reward is not None and not t.infrastructure_error]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
