"""PPO with a critic over tokens, and credit that crosses compactions.

The critic values the state before every token that the policy sampled. A trajectory is a chain of segments for each
agent in it: a compaction ends one and begins the next. Advantages are estimated over the chain (`--across`), and every
rollout can stand alone: no group is needed.

    | what          | published in     | flags                                                                        |
    |---------------|------------------|------------------------------------------------------------------------------|
    | PPO           | arXiv 1707.06347 | (the default, with lambda 1)                                                 |
    | CompactionRL  | arXiv 2607.05378 | --across decay --adaptive-lam 1.5 --critic-epochs 2 --warmup 50              |
    | VC-PPO        | arXiv 2503.01491 | --lam 0.95 --returns-lam 1 --warmup 50                                       |
    | VAPO          | arXiv 2504.05118 | --adaptive-lam 0.05 --returns-lam 1 --clip-high 0.28 --warmup 50             |
    | SAO           | arXiv 2607.07508 | --loss sao --old sampled --clip-low 0.8 --clip-high 3 --critic-epochs 2      |

Left out: asynchronous sampling; a critic of another size than the policy; VAPO's imitation loss on solved trajectories;
SAO's freezing of the critic's attention.

Example:
    python -m baselines.ppo --env agentgym/Relay-v0 --compact 400 --summarizer policy --out runs/relay
    python -m baselines.ppo --env baselines.toys:Box-v0 --max-new-tokens 16 --steps 20 --out runs/box
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from agentgym.cli import guarded
from agentgym.credit import LengthAdaptive, segment_gae, value_metrics, whiten
from agentgym.errors import UsageError
from baselines import checkpoints, sharding
from baselines.actor import Critic, Pack
from baselines.flags import arguments, check_numbers, check_whole
from baselines.losses import value_loss
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.policy import PolicyArgs, PolicyLearner, Tokens
from baselines.rollouts import Array, Batch
from baselines.run import optimizer_step, train


@dataclass(frozen=True)
class Args(PolicyArgs):
    """Flags of ``python -m baselines.ppo``."""

    groups: int = 64
    """Tasks played for each update."""
    group_size: int = 1
    """Episodes of each task: the critic is the baseline, so one is enough."""

    across: Literal["decay", "stitch", "independent"] = "decay"
    """How what comes after a compaction counts before it. decay: less, the more tokens lie between; stitch: by the
    critic's value of what comes next; independent: in full (see docs/credit.md)."""
    gamma: float = 1.0
    """What a reward counts for one sampled token earlier, from 0 to 1; at 1 it counts in full, however late."""
    lam: float = 1.0
    """Lambda of the advantages (GAE): at 1 what came less the value; below, later values replace some of what came."""
    adaptive_lam: float | None = None
    """In place of --lam: 1 - 1 / (this * trainable tokens): credit reaches as far in a long chain as in a short one."""
    decay_length: Literal["rollout", "segment"] = "rollout"
    """With --across decay and --adaptive-lam: tokens of the whole chain, or of each segment."""
    returns_lam: float | None = None
    """The same for what the critic is trained towards. Default: that of the advantages."""
    bootstrap: Literal["truncated", "never"] = "truncated"
    """Where a limit cut an episode off, count the value of its last state, or nothing: never says that running out
    of turns is a failure like any other."""
    sub_agents: Literal["team", "own", "both"] = "team"
    """What a sub-agent's chain is paid: the trajectory's return, only what it earned by itself, or both, added up."""
    whiten: bool = False
    """Bring the batch's advantages to mean 0 and deviation 1."""

    critic: Literal["copy", "shared"] = "copy"
    """A model of its own that begins as a copy of the policy, or a head on the policy, trained in the same pass."""
    critic_lr: float = 1e-5
    """Step size of AdamW for the critic; for its head alone where the trunk is shared."""
    critic_epochs: int = 1
    """Passes of the critic over a batch; its own trunk only."""
    value_clip: float | None = None
    """How far the critic's training may move a value, in units of the return, before it stops. Default: no bound."""
    value_coef: float = 0.5
    """With --critic shared: weight of the critic's loss beside the policy's."""
    warmup: int = 0
    """Train the critic alone in the first N updates."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        check_whole(self, "warmup", least=0)
        check_whole(self, "critic_epochs", least=1)
        check_numbers(self, "critic_lr value_coef")
        check_numbers(self, "adaptive_lam value_clip", above=0)
        check_numbers(self, "gamma lam returns_lam", most=1)
        if self.critic == "shared" and (self.critic_epochs > 1 or self.warmup):
            raise UsageError(
                "--critic-epochs and --warmup need a critic that can be trained alone: --critic copy"
            )


class PPO(PolicyLearner):
    """A policy and its critic.

    Args:
        args: see `Args`.
        ranks: the processes of the run.

    Attributes:
        critic: values of states.
        critic_optimizer: of the critic's own trunk and head, or None where the policy's optimizer trains it.
    """

    def __init__(self, args: Args, ranks: Ranks) -> None:
        self.args = args
        super().__init__(args, ranks)
        self.lam = args.lam if args.adaptive_lam is None else LengthAdaptive(args.adaptive_lam)
        own = self.critic.parameters()
        self.critic_optimizer = self._adamw(own, args.critic_lr) if args.critic == "copy" else None
        if args.critic == "shared":
            self.optimizer.add_param_group({"params": own, "lr": args.critic_lr})

    def more_models(self) -> Sequence[Any]:
        """The critic's trunk, where it has its own."""
        self.critic = Critic(self.actor, self.args.critic)
        return [self.critic.modules["trunk"]] if self.args.critic == "copy" else []

    def update(self, batch: Batch, costs: Costs) -> dict[str, float]:
        """Values, advantages, then the policy and the critic; the numbers to log.

        Shapes: K segments, T_k tokens of segment k, M_k of them trainable.
        """
        args = self.args
        # Per segment (T_k,), NaN at masked tokens; (K,) after the last
        values, after = self._values(batch, costs)
        advantages, returns = self._estimate(batch, values, after)  # per segment (T_k,), 0 at masked tokens
        numbers = self._quality(batch, values)
        if args.whiten:
            advantages = whiten(advantages, batch.masks)
        targets, old = batch.on_tokens(returns), batch.on_tokens(values)  # per segment (M_k,)
        if self.critic_optimizer is None:
            return numbers | self._learn_together(batch, advantages, targets, old, costs)
        if self.updates >= args.warmup:
            numbers |= self.learn(batch, advantages, costs)
        else:
            self.updates += 1
        return numbers | self._learn_values(batch, targets, old, costs)

    # -- credit --------------------------------------------------------------------------------------------------------

    def _estimate(self, batch: Batch, values: list[Array], after: Array) -> tuple[list[Array], list[Array]]:
        """Advantages and value targets, per segment (T_k,)."""
        args, masks, rewards = self.args, batch.masks, batch.paid(self.args.sub_agents)
        advantages: list[Array] = [np.zeros(0)] * len(masks)
        returns: list[Array] = [np.zeros(0)] * len(masks)
        ends = self._ends(batch, after)
        for chain, rollout, leads in batch.chains:
            credit = segment_gae(
                [rewards[k] for k in chain],
                [values[k] for k in chain],
                [masks[k] for k in chain],
                across=args.across,
                gamma=args.gamma,
                lam=self.lam,
                returns_lam=args.returns_lam,
                # A sub-agent was done before the end; what its pay, the team's return, lacks is what the lead's lacks.
                bootstrap=ends.get(rollout, 0.0) if leads or args.sub_agents != "own" else 0.0,
                decay_length=args.decay_length,
            )
            for k, advantage, target in zip(chain, *credit, strict=True):
                advantages[k], returns[k] = advantage, target
        return advantages, returns

    def _ends(self, batch: Batch, after: Array) -> dict[int, float]:
        """By trajectory that a limit cut off: V of its last state, read after its leading agent's last token."""
        if self.args.bootstrap == "never":
            return {}
        leading = [(chain, n) for chain, n, leads in batch.chains if leads]
        return {n: float(after[chain[-1]]) for chain, n in leading if batch.trajectories[n].truncated}

    # -- the critic ----------------------------------------------------------------------------------------------------

    def _values(self, batch: Batch, costs: Costs) -> tuple[list[Array], Array]:
        """V before each trainable token, per segment (T_k,), NaN elsewhere; V after each segment's last token, (K,)."""
        mine = batch.rows[self.ranks.part([len(row.ids) for row in batch.rows])]
        with self.whole():
            before, after = self.critic.score(mine)
        tokens = [sum(len(pack.ids) for pack in self.actor.packs(mine))]
        costs.critic_tokens += sum(self.ranks.gather(tokens))
        return self.ranks.gather(before), np.array(self.ranks.gather(after.tolist()))

    def _learn_together(
        self, batch: Batch, credit: list[Array], targets: list[Tensor], old: list[Tensor], costs: Costs
    ) -> dict[str, float]:
        """Train policy and critic in the same passes, on the same trunk; arguments as for `_learn_values`."""
        losses: list[float] = []

        def beside(pack: Pack, hidden: Tensor, tokens: Tokens) -> Tensor:
            values = self.critic.values(pack, hidden=hidden)  # (m,)
            loss = self._value_loss(values, tokens["target"], tokens["weight"], tokens["value"])
            losses.append(loss.item())
            return self.args.value_coef * loss

        numbers = self.learn(batch, credit, costs, beside=beside, target=targets, value=old)
        # Fewer steps than asked for where there are fewer trajectories than minibatches.
        steps = self.args.epochs * len(batch.minibatches(self.args.minibatches, (self.args.seed,)))
        return numbers | {"value/loss": sum(self.ranks.gather(losses)) / steps}

    def _learn_values(
        self, batch: Batch, targets: list[Tensor], old: list[Tensor], costs: Costs
    ) -> dict[str, float]:
        """Train the critic's own trunk: `--critic-epochs` passes, each of `--minibatches` steps.

        Args:
            batch: what was played.
            targets: per segment, (M_k,).
            old: per segment, (M_k,), the values before.
            costs: the tokens of these passes are added.
        """
        assert self.critic_optimizer is not None
        args = self.args
        losses: list[tuple[float, int]] = []  # of each pack: loss, packed tokens
        norms = []
        for epoch in range(args.critic_epochs):
            for part in batch.minibatches(args.minibatches, (args.seed, 4, self.updates, epoch)):
                weights = batch.weights(part, args.reduce, args.reduce_constant)
                mine = part[self.ranks.part([len(batch.rows[k].ids) for k in part])]
                columns = [torch.cat([of[k] for k in mine]) for of in (targets, weights, old) if mine]  # (M,)
                step = 0.0
                packs = self.actor.packs([batch.rows[k] for k in mine])
                for pack, factor in self.ranks.even(packs, lambda: self.actor.packs(batch.rows[:1])[0]):
                    values = self.critic.values(pack)  # (m,)
                    if not factor:  # other processes are not done yet
                        (0.0 * values.sum()).backward()
                        continue
                    loss = self._value_loss(values, *(of[pack.flat].to(values.device) for of in columns))
                    loss.backward()
                    losses.append((loss.item(), len(pack.ids)))
                    step += loss.item()
                norms.append(optimizer_step(self.critic_optimizer, self.ranks, step, args.max_grad_norm))
        everybody = self.ranks.gather(losses)
        costs.critic_tokens += sum(tokens for _, tokens in everybody)
        return {
            "value/loss": sum(loss for loss, _ in everybody) / len(norms),
            "value/grad_norm": float(np.mean(norms)),
        }

    def _value_loss(self, values: Tensor, targets: Tensor, weights: Tensor, old: Tensor) -> Tensor:
        """All (m,)."""
        clip = self.args.value_clip
        return value_loss(values, targets, weights, old_values=None if clip is None else old, clip=clip)

    def _quality(self, batch: Batch, values: list[Array]) -> dict[str, float]:
        """How good the values were, before this batch taught them anything, beside what came of the states."""
        came: list[Array] = [np.zeros(0)] * len(values)
        rewards = batch.paid(self.args.sub_agents)
        for chain, *_ in batch.chains:
            parts = [[of[k] for k in chain] for of in (rewards, values, batch.masks)]
            # With lambda 1 and no bootstrap: discounted sums of rewards, whatever the values.
            for k, row in zip(
                chain, segment_gae(*parts, across="stitch", gamma=self.args.gamma).returns, strict=True
            ):
                came[k] = row
        v, g = (
            np.concatenate([row[m] for row, m in zip(of, batch.masks, strict=True)]) for of in (values, came)
        )
        report = value_metrics(v, g, low=min(0.0, g.min()), high=max(1.0, g.max()))
        return {f"value/{name.removeprefix('value_')}": number for name, number in report.items()}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Weights and optimizers of both, number of updates."""
        own = {"critic": checkpoints.weights(self.critic.modules)}
        if self.critic_optimizer is not None:
            own["critic_optimizer"] = sharding.optimizer_state(self.critic_optimizer)
        return super().state() | own

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        super().load(state)
        checkpoints.load_weights(self.critic.modules, state["critic"])
        if self.critic_optimizer is not None:
            sharding.load_optimizer(self.critic_optimizer, state["critic_optimizer"])


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.ppo``."""
    return train(arguments(Args, "ppo", __doc__, words), "ppo", PPO)


if __name__ == "__main__":
    sys.exit(guarded(main))
