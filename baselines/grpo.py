"""GRPO and its relatives: policy gradients against a group of siblings, without a critic.

Each update plays `--groups` tasks `--group-size` times. A trajectory's advantage is what it got, beside its siblings;
every token that the policy sampled in it carries that number, in all its segments (before and after a compaction, in
sub-agents), and no other token does. Groups are over trajectories, never over segments.

    | what                      | published in     | flags                                                          |
    |---------------------------|------------------|----------------------------------------------------------------|
    | GRPO                      | arXiv 2402.03300 | --reduce sequence --kl-coef 0.04                               |
    | Dr. GRPO                  | arXiv 2503.20783 | --estimator dr_grpo --reduce constant --reduce-constant TOKENS |
    | RLOO                      | arXiv 2402.14740 | --estimator rloo --reduce constant --reduce-constant 1         |
    | REINFORCE++ with baseline | arXiv 2501.03262 | --estimator reinforce++                                        |
    | DAPO                      | arXiv 2503.14476 | --clip-high 0.28 --resample 4 --overlong-limit TOKENS          |
    |                           |                  | --overlong-cache TOKENS                                        |
    | GiGPO                     | arXiv 2505.10978 | --step-weight 1                                                |
    | GSPO                      | arXiv 2507.18071 | --loss gspo --reduce sequence --clip-low 3e-4 --clip-high 4e-4 |

Without flags: GRPO's advantages, all tokens of the batch weighing the same, as in DAPO, and no divergence.

What is not as published: with several steps a batch, or with --data, the divergence (--kl-coef) counts each token by
the ratio of its present to its old probability. GRPO leaves that out, so from the second step on its estimate and
gradient are those of tokens that the present policy would not sample so often.

Left out: asynchronous sampling (episodes of one update are played by the weights before it), and GiGPO's similarity
clusters (states are equal or they are not).

Example:
    python -m baselines.grpo --env agentgym/Relay-v0 --out runs/relay
    python -m baselines.grpo --env baselines.toys:Box-v0 --max-new-tokens 16 --steps 12 --out runs/box
    torchrun --nproc-per-node 2 -m baselines.grpo --env agentgym/WebShop-v0 --compact 4000 --out runs/shop
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentgym.cli import guarded
from agentgym.credit import (
    broadcast,
    group_advantages,
    informative,
    overlong_penalty,
    spread_steps,
    step_advantages,
    step_anchors,
    step_rewards,
    whiten,
)
from agentgym.errors import UsageError
from agentgym.trajectory.records import Trajectory
from baselines.flags import arguments, check_numbers, check_whole
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.policy import PolicyArgs, PolicyLearner
from baselines.rollouts import Array, Batch, Rollouts
from baselines.run import train

# estimator: what is subtracted from a return, what it is divided by (see `agentgym.credit.group_advantages`)
ESTIMATORS: dict[str, tuple[Any, Any]] = {
    "grpo": ("mean", "std"),
    "dr_grpo": ("mean", "none"),
    "rloo": ("leave_one_out", "none"),
    "reinforce++": ("mean", "none"),  # then divided by the deviation over all tokens of the batch
    "reinforce": ("none", "none"),
}


@dataclass(frozen=True)
class Args(PolicyArgs):
    """Flags of ``python -m baselines.grpo``."""

    estimator: Literal["grpo", "dr_grpo", "rloo", "reinforce++", "reinforce"] = "grpo"
    """How a trajectory's return, beside those of its group, becomes its advantage; see the table above."""
    step_weight: float = 0.0
    """GiGPO: compare each step, too, with the group's other steps from the same state, and add it with this weight."""
    step_gamma: float = 0.95
    """With --step-weight: what a reward counts for one step earlier, from 0 to 1."""
    resample: int = 0
    """DAPO: play new groups in place of those whose returns are all equal, which teach nothing; at most N times."""
    overlong_limit: int = 0
    """DAPO: a trajectory in which N tokens or more were sampled loses 1 of its return; 0: none does."""
    overlong_cache: int = 0
    """With --overlong-limit: the return falls little by little over the last N tokens before it."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        check_whole(self, "resample overlong_limit overlong_cache", least=0)
        check_numbers(self, "step_weight")
        check_numbers(self, "step_gamma", most=1)
        if (self.overlong_limit > 0) != (self.overlong_cache > 0):
            raise UsageError("expected --overlong-limit and --overlong-cache together, got one of them")
        if self.overlong_cache > self.overlong_limit:
            raise UsageError(
                f"expected --overlong-cache <= --overlong-limit, got {self.overlong_cache} and {self.overlong_limit}"
            )
        if self.group_size == 1 and self.compares_siblings():
            raise UsageError(
                f"--estimator {self.estimator} compares siblings, and --group-size 1 has none: every advantage "
                "would be 0; give a larger group, or --estimator reinforce"
            )

    def compares_siblings(self) -> bool:
        """Whether there is nothing to learn from a group of one."""
        return self.estimator != "reinforce" and not self.step_weight


class GRPO(PolicyLearner):
    """Policy gradients against siblings.

    Args:
        args: see `Args`.
        ranks: the processes of the run.
    """

    def __init__(self, args: Args, ranks: Ranks) -> None:
        super().__init__(args, ranks)
        self.args = args

    def sample(self, rollouts: Rollouts) -> list[Trajectory]:
        """Play groups; with --resample, until enough of them have siblings that differ."""
        chosen: list[Trajectory] = []
        for _ in range(1 + self.args.resample):
            missing = self.args.groups - len({t.extra["group"] for t in chosen})
            if not missing:
                break
            played = rollouts.play(missing)
            if not self.args.resample:
                return played
            keep = informative(
                [np.nan if t.reward is None else t.reward for t in played], [t.extra["group"] for t in played]
            )
            teaching = {t.extra["group"] for t, kept in zip(played, keep, strict=True) if kept}
            chosen += [t for t in played if t.extra["group"] in teaching]
        return chosen or played

    def credit(self, batch: Batch) -> list[Array]:
        """Per segment, (T_k,): the advantage of each trainable token; 0 at all others."""
        args = self.args
        baseline, scale = ESTIMATORS[args.estimator]
        returns = batch.returns  # (N,), NaN where infrastructure failed: no sibling of anybody
        if args.overlong_limit:
            lengths = [sum(sum(segment.mask) for segment in t.segments) for t in batch.trajectories]
            returns = returns + overlong_penalty(lengths, args.overlong_limit, args.overlong_cache)
        of_trajectory = self.compare(returns, batch, baseline=baseline, scale=scale)  # (N,)
        advantages = broadcast(of_trajectory, batch.masks, batch.rollouts)
        if args.estimator == "reinforce++":
            advantages = whiten(advantages, batch.masks)
        if args.step_weight:
            rewards = [step_rewards(t) for t in batch.trajectories]
            anchors = [step_anchors(t) for t in batch.trajectories]
            of_steps = step_advantages(
                rewards, anchors, batch.groups, gamma=args.step_gamma, scale=scale, valid=~np.isnan(returns)
            )
            for k, (segment, n) in enumerate(zip(batch.segments, batch.rollouts, strict=True)):
                advantages[k] = advantages[k] + args.step_weight * spread_steps([segment], of_steps[n])[0]
        return advantages

    def compare(self, returns: Array, batch: Batch, **how: Any) -> Array:
        """Each trajectory beside its siblings, (N,); `how` is for `agentgym.credit.group_advantages`."""
        return group_advantages(returns, batch.groups, **how)

    def token_advantages(self, batch: Batch, costs: Costs) -> tuple[list[Array], dict[str, float]]:
        """What to learn from, per segment (T_k,), and numbers to log.

        An algorithm that knows more of single tokens than what became of the trajectory adds it here, after everything
        that `credit` scales: terms then keep their size relative to each other.
        """
        return self.credit(batch), {}

    def update(self, batch: Batch, costs: Costs) -> dict[str, float]:
        """Learn from a batch; the numbers to log."""
        advantages, numbers = self.token_advantages(batch, costs)
        return numbers | self.learn(batch, advantages, costs)


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.grpo``."""
    return train(arguments(Args, "grpo", __doc__, words), "grpo", GRPO)


if __name__ == "__main__":
    sys.exit(guarded(main))
