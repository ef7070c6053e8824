"""The part of an update that all policy gradients share: from advantages of tokens to a step of the optimizer.

An algorithm subclasses `PolicyLearner` and says in `update` where the advantages come from; `learn` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from agentgym.errors import UsageError
from agentgym.trajectory.records import Trajectory
from baselines import checkpoints, sharding
from baselines.actor import Actor, Pack, Row
from baselines.flags import RunArgs, check_numbers
from baselines.losses import importance_weights, kl, merge_stats, policy_loss
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Array, Batch, Rollouts
from baselines.run import optimizer_step

# Numbers of a pack's trainable tokens by name, (m,) each: "advantage", "weight" (so that a sum over all packs is the
# batch's loss), "sampled" (log-probs of the sampling), "old" and "first" (those of older weights), if there are any.
Tokens: TypeAlias = Mapping[str, Tensor]
# Another loss on the same hidden states, (m, H).
Beside: TypeAlias = Callable[[Pack, Tensor, Tokens], Tensor]


@dataclass(frozen=True)
class PolicyArgs(RunArgs):
    """Flags of every policy gradient."""

    loss: Literal["ppo", "gspo", "sao"] = "ppo"
    """What keeps an update small. ppo: each token's ratio of new to old probability is clipped; gspo: that of a whole
    segment; sao: a token outside the range does not count at all."""
    clip_low: float = 0.2
    """How far below 1 the ratio of new to old probability may fall before a token is pushed no further."""
    clip_high: float = 0.2
    """How far above 1 it may rise; DAPO has 0.28."""
    dual_clip: float | None = None
    """Where an advantage is negative, bound a token's loss at this times it; above 1, usually 3. Default: no bound."""
    reduce: Literal["token", "rollout", "sequence", "constant"] = "token"
    """What a token weighs. token: all the same; rollout: each trajectory the same, however long; sequence: each segment
    the same; constant: one over --reduce-constant, so that long trajectories count for more."""
    reduce_constant: float | None = None
    """With --reduce constant: a number of tokens, such as the most that a trajectory may have."""
    kl_coef: float = 0.0
    """Weight of a penalty on leaving the first model (KL divergence); 0: none, and no copy of that model is held."""
    kl_kind: Literal["k2", "k3"] = "k3"
    """How that divergence is estimated: k3 as in GRPO; k2, whose gradient is the divergence's own."""
    entropy_coef: float = 0.0
    """Weight of a bonus for entropy: it keeps the policy from always writing the same."""
    old: Literal["rescored", "sampled"] = "rescored"
    """Old probabilities, in the ratios: as the trainer computes them again, or as recorded in sampling."""
    mismatch: Literal["none", "truncate", "mask", "sequence_mask"] = "none"
    """With --old rescored: weigh tokens by rescored over recorded probability, where sampler and trainer compute
    differently. Above --mismatch-high it is cut there, or the token (mask) or segment (sequence_mask) left out."""
    mismatch_high: float = 2.0
    """With --mismatch: the largest weight, 1 or more."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        # A clip of 0 still trains on a ratio of 1; a gate of 0 is shut.
        check_numbers(self, "clip_low clip_high", above=0 if self.loss == "sao" else None)
        check_numbers(self, "dual_clip", above=1)
        check_numbers(self, "reduce_constant", above=0)
        check_numbers(self, "kl_coef entropy_coef")
        # Below 1, tokens on which sampler and trainer agree would lose weight.
        check_numbers(self, "mismatch_high", least=1)
        if self.dual_clip is not None and self.loss == "sao":
            raise UsageError(
                "--loss sao has a gate, and no bound for --dual-clip to set; leave one of them out"
            )
        if (self.reduce_constant is not None) != (self.reduce == "constant"):
            raise UsageError("expected --reduce-constant TOKENS with --reduce constant, and only there")
        if self.old == "sampled" and self.mismatch != "none":
            raise UsageError("--mismatch weighs rescored log-probs, and --old sampled takes none")
        if self.data is not None and self.mismatch != "none":
            raise UsageError(
                "--mismatch is for weights that play; with --data, ratios are to the recorded log-probs"
            )


class Learner:
    """A model that samples and learns, with its optimizer, divided among processes where that is asked for.

    Args:
        args: see `RunArgs`.
        ranks: the processes of the run.
        reference: the weights of the beginning are needed later.

    Attributes:
        any_data: with `--data`, it learns also from what other weights sampled, whatever their age.
        actor: the model.
        models: every model there is, the actor's first.
        optimizer: of its weights.
        updates: batches learnt from.
    """

    any_data = False

    def __init__(self, args: RunArgs, ranks: Ranks, *, reference: bool = False) -> None:
        self.ranks = ranks
        self.run_args = args
        self.actor = Actor(
            args.model,
            device=str(ranks.device),
            autocast=args.autocast,
            lora_rank=args.lora_rank,
            reference=reference,
            recompute_layers=args.recompute_layers,
            max_tokens=args.pack_tokens,
            seed=args.seed,
            max_batch=args.batch,
            temperature=args.temperature,
            max_new_tokens=args.max_new_tokens,
            stop=args.stop,
        )
        self.models = [self.actor.model, *self.more_models()]
        if ranks.sharded:  # after copies of models were made, and before any optimizer
            for model in self.models:
                sharding.shard(model, ranks.device.type, ranks.size)
        self.optimizer = self._adamw(self.actor.parameters(), args.lr)
        self.updates = 0

    def more_models(self) -> Sequence[Any]:
        """Make what an algorithm has beside the actor; called before any weights are divided."""
        return ()

    def _adamw(self, parameters: Sequence[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
        groups = sharding.groups(parameters)
        return torch.optim.AdamW(groups, lr, weight_decay=self.run_args.weight_decay, fused=True)

    def whole(self) -> AbstractContextManager[None]:
        """All weights in every process, where they are divided."""
        return sharding.whole(self.models)

    def sample(self, rollouts: Rollouts) -> list[Trajectory]:
        """Play a batch."""
        return rollouts.play(self.run_args.groups)

    def state(self) -> dict[str, Any]:
        """Weights, optimizer, number of updates."""
        return {
            "model": checkpoints.weights(self.actor.model),
            "optimizer": sharding.optimizer_state(self.optimizer),
            "updates": self.updates,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        checkpoints.load_weights(self.actor.model, state["model"])
        sharding.load_optimizer(self.optimizer, state["optimizer"])
        self.updates = state["updates"]


class PolicyLearner(Learner):
    """What policy gradients have in common.

    Args:
        args: see `PolicyArgs`.
        ranks: the processes of the run.
    """

    def __init__(self, args: PolicyArgs, ranks: Ranks) -> None:
        self.settings = args
        super().__init__(args, ranks, reference=args.kl_coef > 0)

    def learn(
        self,
        batch: Batch,
        credit: Sequence[Array],
        costs: Costs,
        *,
        beside: Beside | None = None,
        **more: list[Tensor],
    ) -> dict[str, float]:
        """Train the policy on a batch: `--epochs` passes, each of `--minibatches` steps of the optimizer.

        Shapes: K segments, M_k trainable tokens of segment k, M of all that one step runs, m of one pack.

        Args:
            batch: what was played.
            credit: per segment, (T_k,), the advantages.
            costs: the tokens that are trained on are added.
            beside: a loss to be added to the policy's, such as that of a critic on the same trunk.
            **more: numbers that `beside` needs, per segment (M_k,).

        Returns:
            Numbers to log.
        """
        args = self.settings
        advantages = batch.on_tokens(credit)
        numbers: dict[str, Any] = {"advantage": advantages, **more}  # by segment, (M_k,)
        # Others wrote, and may not have told how likely that was
        imitates = args.data is not None and self.any_data
        if not imitates:
            numbers["sampled"] = batch.on_tokens(batch.sampled)
        if not imitates and (args.old == "sampled" or args.data is not None):
            numbers["old"] = numbers["sampled"]
        # With a single step the weights in training are those that sampled
        elif args.epochs * args.minibatches > 1:
            numbers["old"] = self.rescore(batch.rows)
        if args.kl_coef:
            numbers["first"] = self.rescore(batch.rows, reference=True)
        # A segment whose advantages are all 0 has no gradient, so it is not run; the weights below count it still.
        run_all = bool(args.kl_coef or args.entropy_coef or beside)
        useful = {k for k, advantage in enumerate(advantages) if run_all or advantage.any()}
        done: list[tuple[float, int, dict[str, float]]] = []  # of each pack: loss, packed tokens, statistics
        norms = []
        for epoch in range(args.epochs):
            for part in batch.minibatches(args.minibatches, (args.seed, 3, self.updates, epoch)):
                run = [k for k in part if k in useful]
                if not run:
                    continue
                # Over the whole minibatch, whatever is run where. Tokens that were not sampled (prompts, tool results,
                # copied context) and those left out on purpose (blocked calls, with --mask-blocked) have mask 0: they
                # are in no tensor from here on.
                numbers["weight"] = batch.weights(part, args.reduce, args.reduce_constant)
                mine = run[self.ranks.part([len(batch.rows[k].ids) for k in run])]
                # (M,)
                columns = {name: torch.cat([of[k] for k in mine]) for name, of in numbers.items() if mine}
                step = 0.0
                packs = self.actor.packs([batch.rows[k] for k in mine])
                for pack, factor in self.ranks.even(packs, lambda: self.actor.packs(batch.rows[:1])[0]):
                    hidden = self.actor.states(pack)  # (m, H), before each token
                    if not factor:  # other processes are not done yet
                        (0.0 * hidden.sum()).backward()
                        continue
                    tokens = {name: of[pack.flat].to(hidden.device) for name, of in columns.items()}  # (m,)
                    loss, stats = self._policy_loss(pack, hidden, tokens)
                    done.append((loss.item(), len(pack.ids), stats))
                    if beside is not None:
                        loss = loss + beside(pack, hidden, tokens)
                    loss.backward()
                    step += loss.item()
                norms.append(optimizer_step(self.optimizer, self.ranks, step, args.max_grad_norm))
        self.updates += 1
        everybody = self.ranks.gather(done)
        costs.trained_tokens += sum(tokens for _, tokens, _ in everybody)
        report = {"useful_segments": len(useful) / len(batch.segments)}
        if norms:
            report["loss"] = sum(loss for loss, _, _ in everybody) / len(norms)
            report["grad_norm"] = float(np.mean(norms))
            report |= merge_stats([stats for *_, stats in everybody])
        return {f"policy/{name}": number for name, number in report.items()}

    def _policy_loss(self, pack: Pack, hidden: Tensor, tokens: Tokens) -> tuple[Tensor, dict[str, float]]:
        """Loss and statistics of one pack; hidden is (m, H)."""
        args, rows = self.settings, pack.row.to(hidden.device)  # (m,), which segment a token belongs to
        logp, entropy = self.actor.logprobs(pack, hidden=hidden)  # (m,), (m,)
        old = tokens["old"] if "old" in tokens else logp.detach()
        importance = None  # (m,), what corrects for a sampler whose arithmetic is not the trainer's
        if args.mismatch != "none":
            of_rows = rows if args.mismatch == "sequence_mask" else None
            importance = importance_weights(
                old, tokens["sampled"], mode=args.mismatch, high=args.mismatch_high, rows=of_rows
            )
        loss, stats = policy_loss(
            logp,
            old,
            tokens["advantage"],
            tokens["weight"],
            clip_low=args.clip_low,
            clip_high=args.clip_high,
            dual_clip=args.dual_clip,
            importance=importance,
            kind=args.loss,
            rows=rows if args.loss == "gspo" else None,
        )
        stats["entropy"] = entropy.mean().item()
        if "sampled" in tokens:
            stats["mismatch"] = (old - tokens["sampled"]).abs().mean().item()
        if args.entropy_coef:
            loss = loss - args.entropy_coef * (tokens["weight"] * entropy).sum()
        if "first" in tokens:
            apart = kl(logp, tokens["first"], args.kl_kind, old_logprobs=old)  # (m,)
            loss = loss + args.kl_coef * (tokens["weight"] * apart).sum()
            measured = kl(logp.detach(), tokens["first"], "k3", old_logprobs=old)
            stats["kl_reference"] = measured.mean().item()
        return loss, stats

    def rescore(self, rows: Sequence[Row], *, reference: bool = False) -> list[Tensor]:
        """Per row (M_k,), log-probs of its trainable tokens under the present weights, or those of the beginning."""
        mine = rows[self.ranks.part([len(row.ids) for row in rows])]
        with self.whole():
            scored, _ = self.actor.score(mine, reference=reference, entropy=False)
        sizes = [int(row.mask.sum()) for row in mine]
        return self.ranks.gather(scored.cpu().split(sizes) if sizes else ())
