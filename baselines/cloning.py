"""Behaviour cloning: imitate a scripted player, so that a model from scratch has something to improve on.

Random weights write no valid move in most environments, so no reward tells them anything. Here another policy plays
(the environment's own solver, or any `module:attribute`), its messages are written in the model's tokens, in the
contexts that the model itself would have read (compactions included), and the model learns to write the same.

What is minimised is the mean negative log-probability of the demonstrator's tokens at temperature 1 (with --data at
--temperature), end of turn included: `imitation/loss`, in nats. Every update plays new demonstrations and takes one
step of the optimizer; tasks come again once all have come. `rollout/...` is about the demonstrator, `eval/...` about
the model.

Left out: querying the demonstrator in states that the model comes to (DAgger).

Example:
    python -m baselines.tiny --env agentgym/Relay-v0 --out runs/tiny
    python -m baselines.cloning --env agentgym/Relay-v0 --model runs/tiny --max-new-tokens 8 --lr 3e-3 --out runs/cloned
    python -m baselines.grpo --env agentgym/Relay-v0 --model runs/cloned/model --max-new-tokens 8 --out runs/grpo
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch

from agentgym.cli import guarded
from agentgym.credit import token_weights
from agentgym.errors import UsageError
from agentgym.messages import Conversation
from agentgym.policies import Policy, Reply, make_policy
from agentgym.policies.bridge import Bridge
from agentgym.policies.hf import HFPolicy
from agentgym.trajectory.records import Trajectory
from baselines.flags import RunArgs, arguments
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.policy import Learner
from baselines.rollouts import Batch, Rollouts
from baselines.run import optimizer_step, train


@dataclass(frozen=True)
class Args(RunArgs):
    """Flags of ``python -m baselines.cloning``."""

    groups: int = 32
    """Tasks played for each update."""
    group_size: int = 1
    """Demonstrations of each task; more than one where the demonstrator draws at random."""
    demonstrator: str = "gold"
    """Who is imitated: gold (the environment's own solver), or any policy without a model, such as module:attribute."""
    solved_only: bool = False
    """Learn from demonstrations that the verifier passed, without a hack, and from no other."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        if self.epochs > 1 or self.minibatches > 1:
            raise UsageError(
                "each update is one step on new demonstrations: give --steps, not --epochs or --minibatches"
            )


class Demonstrator(Policy):
    """A scripted policy whose replies say which tokens the model would have read and written.

    Args:
        inner: who plays; a policy that needs no model.
        student: whose tokenizer and chat template count.

    Raises:
        UsageError: from `act`, a message that the student's tokenizer has no words for.
    """

    def __init__(self, inner: Policy, student: HFPolicy) -> None:
        self.name = inner.name
        self.settings = inner.settings
        self._inner = inner
        self._student = student
        self._bridge = Bridge(student.tokenizer, student.end_ids)  # of one episode, which one thread plays

    def for_episode(self, env: gymnasium.Env[Any, Any], rng: np.random.Generator) -> Demonstrator:
        """A demonstrator for one episode."""
        return Demonstrator(self._inner.for_episode(env, rng), self._student)

    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """What the inner policy answers, in the student's tokens."""
        replies = self._inner.act(conversations)
        return [self._written(*pair) for pair in zip(conversations, replies, strict=True)]

    def _written(self, conversation: Conversation, reply: Reply) -> Reply:
        student, bridge = self._student, self._bridge
        ids = student.tokenizer.encode(reply.text, add_special_tokens=False)
        if bridge.decode(ids) != reply.text:
            raise UsageError(
                f"expected a demonstrator that writes what {student.name} has tokens for, got {reply.text[:60]!r}, "
                f"which becomes {bridge.decode(ids)[:60]!r}"
            )
        ids.append(student.tokenizer.eos_token_id)
        prompt = bridge.prompt(conversation)
        if len(prompt.ids) + len(ids) > student.context:
            raise UsageError(
                f"expected demonstrations that fit {student.name}'s context of {student.context} tokens, got one of "
                f"{len(prompt.ids) + len(ids)}; see --compact"
            )
        bridge.hold(prompt, ids, reply.text)
        return Reply(
            reply.text,
            prompt_ids=prompt.ids,
            sampled_ids=tuple(ids),
            temperature=1.0,  # of the probabilities that are to become likely
            finish_reason="stop",
            end_of_turn=tuple(sorted(student.end_ids)),
        )


class Cloning(Learner):
    """A model that imitates.

    Args:
        args: see `Args`.
        ranks: the processes of the run.
    """

    any_data = True

    def __init__(self, args: Args, ranks: Ranks) -> None:
        super().__init__(args, ranks)
        self.args = args
        self.demonstrator = Demonstrator(make_policy(args.demonstrator), self.actor.policy)

    def sample(self, rollouts: Rollouts) -> list[Trajectory]:
        """Play demonstrations."""
        if self.args.data is None:
            rollouts.policy = self.demonstrator
        played = rollouts.play(self.args.groups)
        if not self.args.solved_only:
            return played
        solved = [t for t in played if t.outcome == "clean_resolved"]
        if not solved:
            raise UsageError(
                f"expected demonstrations that solve their tasks, got none in {len(played)} episodes"
            )
        return solved

    def update(self, batch: Batch, costs: Costs) -> dict[str, float]:
        """One step towards what was written; the numbers to log. Every token weighs the same.

        Shapes: K segments, M_k demonstrated tokens of segment k, M of all that this process runs, m of one pack.
        """
        weights = batch.on_tokens(token_weights(batch.masks, batch.rollouts))  # per segment (M_k,)
        mine = self.ranks.part([len(row.ids) for row in batch.rows])
        column = torch.cat([*weights[mine], torch.zeros(0)])  # (M,)
        total, tokens = 0.0, 0
        packs = self.actor.packs(batch.rows[mine])
        for pack, factor in self.ranks.even(packs, lambda: self.actor.packs(batch.rows[:1])[0]):
            logp, _ = self.actor.logprobs(pack, entropy=False)  # (m,)
            if not factor:  # other processes are not done yet
                (0.0 * logp.sum()).backward()
                continue
            loss = -(column[pack.flat].to(logp.device) * logp).sum()
            loss.backward()
            total, tokens = total + loss.item(), tokens + len(pack.ids)
        norm = optimizer_step(self.optimizer, self.ranks, total, self.args.max_grad_norm)
        self.updates += 1
        costs.trained_tokens += sum(self.ranks.gather([tokens]))
        return {"imitation/loss": sum(self.ranks.gather([total])), "imitation/grad_norm": norm}


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.cloning``."""
    return train(arguments(Args, "cloning", __doc__, words), "cloning", Cloning)


if __name__ == "__main__":
    sys.exit(guarded(main))
