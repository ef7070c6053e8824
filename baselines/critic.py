"""A critic that keeps its language head: asked about a state in words, it reasons and answers in words.

It writes a whole number from 0 to 10 in a tag at the end. It learns by REINFORCE: an answer earns 1 - (outcome - V)^2,
a malformed one 0. `plain_critics.py` has the critics to compare it with.

Shapes: S states, J judgements of each.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor, nn

from agentgym.credit import group_advantages, token_weights, value_metrics
from agentgym.credit.gae import choice
from agentgym.errors import ContextOverflow, UsageError
from agentgym.messages import Conversation
from agentgym.policies.base import Reply
from agentgym.verifiers.agreement import kendall_tau
from baselines import checkpoints
from baselines.actor import Actor, Pack, Row
from baselines.critic_prompt import parse
from baselines.losses import policy_loss
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Array
from baselines.run import optimizer_step

# What the reward of a judgement is compared with: the others of the same state; all others that were made together;
# those of them whose outcome was the same; nothing.
Baseline: TypeAlias = Literal["state", "batch", "outcome", "none"]
Columns: TypeAlias = Mapping[str, Tensor]
EMA = 0.9  # what is kept of a smoothed mean at each update


@dataclass(frozen=True, eq=False)
class Judged:
    """What a critic said of S states.

    Attributes:
        prompts: (S,), the questions.
        answers: (S, J), V as each judgement has it, NaN where that was malformed.
        version: of the critic that said it; none but this one may learn from `rows`.
        rows: (S * J,), question and reply of each judgement; empty if nothing was sampled.
        texts: (S * J,), the replies.
    """

    prompts: list[Conversation]
    answers: Array
    version: int
    rows: list[Row] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def values(self) -> Array:
        """(S,), the mean of a state's well-formed answers; NaN where there is none."""
        known = ~np.isnan(self.answers)
        total, count = np.where(known, self.answers, 0.0).sum(axis=1), known.sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def part(self, states: Sequence[int]) -> Judged:
        """What was said of some of the states."""
        count = self.answers.shape[1]
        own = [n * count + k for n in states for k in range(count)] if self.rows else []
        return Judged(
            [self.prompts[n] for n in states],
            self.answers[list(states)],
            self.version,
            [self.rows[k] for k in own],
            [self.texts[k] for k in own],
        )


class ValueCritic(abc.ABC):
    """Answers questions about states, and learns.

    Args:
        ranks: the processes of the run; each judges and trains on its part.

    Attributes:
        samples: `learn` needs judgements of the present version.
        version: updates made so far.
    """

    samples = False

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.version = 0

    @abc.abstractmethod
    def judge(self, prompts: Sequence[Conversation], seed: Sequence[int], costs: Costs) -> Judged:
        """Judge states.

        Args:
            prompts: (S,), one for each.
            seed: of what is sampled.
            costs: the critic's tokens are added.

        Raises:
            UsageError: a question leaves no room for an answer in the model's context.
        """

    @abc.abstractmethod
    def learn(self, judged: Judged, outcomes: Array, costs: Costs) -> dict[str, float]:
        """One step towards what came; numbers to log.

        Args:
            judged: S states.
            outcomes: (S,), what each brought, in [0, 1].
            costs: as in `judge`.
        """

    @abc.abstractmethod
    def imitate(
        self, prompts: Sequence[Conversation], rationales: Sequence[str], costs: Costs
    ) -> dict[str, float]:
        """One step towards a teacher's words, each of which ends with an answer; numbers to log."""

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer shall change."""
        return []

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on, but for the optimizer."""
        return {"version": self.version}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        self.version = state["version"]


class ModelCritic(ValueCritic):
    """A critic with weights.

    Args:
        actor: its model, with tokenizer and sampling.
        ranks: as in `ValueCritic`.
        max_grad_norm: of a step.

    Attributes:
        optimizer: of `parameters`; whoever makes the critic sets it.
    """

    optimizer: torch.optim.Optimizer

    def __init__(self, actor: Actor, ranks: Ranks, *, max_grad_norm: float = 1.0) -> None:
        super().__init__(ranks)
        self.actor = actor
        self._max_grad_norm = max_grad_norm

    @abc.abstractmethod
    def outputs(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """What a pack is trained on, (m,), and where it stands in the columns of `step`, (m,)."""

    def step(
        self,
        rows: Sequence[Row],
        columns: Mapping[str, list[Tensor]],
        loss_of: Callable[[Tensor, Columns], Tensor],
        costs: Costs,
    ) -> dict[str, float]:
        """One step of the optimizer over rows, pack by pack.

        Args:
            rows: of the whole batch.
            columns: by name, a tensor for each row.
            loss_of: the loss of a pack's outputs and their part of the columns; losses of packs add up.
            costs: as in `judge`.
        """
        mine = self.ranks.part([len(row.ids) for row in rows])
        own = {name: torch.cat(of[mine]) for name, of in columns.items() if of[mine]}
        total, tokens = 0.0, 0
        packs = self.actor.packs(rows[mine])
        for pack, factor in self.ranks.even(packs, lambda: self.actor.packs(rows[:1])[0]):
            outputs, at = self.outputs(pack)
            if not factor:  # other processes are not done yet
                (0.0 * outputs.sum()).backward()
                continue
            loss = loss_of(outputs, {name: of[at].to(outputs.device) for name, of in own.items()})
            loss.backward()
            total, tokens = total + loss.item(), tokens + len(pack.ids)
        norm = optimizer_step(self.optimizer, self.ranks, total, self._max_grad_norm)
        everybody = self.ranks.gather([(total, tokens)])
        costs.critic_tokens += sum(tokens for _, tokens in everybody)
        self.version += 1
        return {"loss": sum(loss for loss, _ in everybody), "grad_norm": norm}

    def state(self) -> dict[str, Any]:
        """The weights, too."""
        return super().state() | {"model": checkpoints.weights(self.actor.model)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        super().load(state)
        checkpoints.load_weights(self.actor.model, state["model"])


class GenerativeCritic(ModelCritic):
    """Reasons, then answers.

    Args:
        actor: its model; its replies should stop at `critic_prompt.ANSWER_END`.
        ranks: as in `ValueCritic`.
        judgements: of each state.
        baseline: see `Baseline`.
        max_grad_norm: of a step.

    Attributes:
        baseline: see `Baseline`.

    Raises:
        UsageError: no such baseline; with one judgement a state has no others.
    """

    samples = True

    def __init__(
        self,
        actor: Actor,
        ranks: Ranks,
        *,
        judgements: int = 4,
        baseline: Baseline = "state",
        max_grad_norm: float = 1.0,
    ) -> None:
        choice("baseline", baseline, get_args(Baseline))
        if judgements < 2 and baseline == "state":
            raise UsageError(
                f"expected 2 judgements of a state or more to leave one out, got {judgements}; with one, compare it "
                "with the batch's"
            )
        super().__init__(actor, ranks, max_grad_norm=max_grad_norm)
        self._judgements = judgements
        self.baseline = baseline

    def parameters(self) -> list[nn.Parameter]:
        """The model's."""
        return self.actor.parameters()

    def judge(self, prompts: Sequence[Conversation], seed: Sequence[int], costs: Costs) -> Judged:
        """See `ValueCritic.judge`."""
        # Nothing is kept from one call to the next: the weights may be others, and a resumed run has kept nothing.
        self.actor.policy.forget()
        asked = [prompt for prompt in prompts for _ in range(self._judgements)]
        seeds = np.random.default_rng(seed).integers(1 << 63, size=len(asked)).tolist()
        mine = self.ranks.part([1] * len(asked))
        counts = self.actor.policy.counts
        before = counts.computed + counts.generated
        try:
            replies = self.actor.policy.act(asked[mine], seeds=seeds[mine])
        except ContextOverflow as error:
            raise UsageError(f"expected a state that the critic can be asked about, but {error}") from None
        costs.critic_tokens += sum(self.ranks.gather([counts.computed + counts.generated - before]))
        replies = self.ranks.gather(replies)
        parsed = [parse(reply.text) for reply in replies]
        answers = np.array([np.nan if value is None else value for value in parsed])
        return Judged(
            list(prompts),
            answers.reshape(len(prompts), self._judgements),
            self.version,
            [_row(reply) for reply in replies],
            [reply.text for reply in replies],
        )

    def learn(self, judged: Judged, outcomes: Array, costs: Costs) -> dict[str, float]:
        """REINFORCE over every token that the critic wrote."""
        assert judged.version == self.version, "samples of another version of the critic"
        rewards = judgement_rewards(judged.answers, outcomes)  # (S, J)
        advantages = self._advantages(rewards, outcomes)  # (S * J,)
        weights = token_weights([row.mask for row in judged.rows], range(len(judged.rows)))
        numbers = {"reward": float(rewards.mean())}
        useful = np.flatnonzero(advantages)
        if not len(useful):
            return numbers
        columns = {
            "advantage": [torch.full((int(judged.rows[k].mask.sum()),), advantages[k]) for k in useful],
            "weight": [torch.from_numpy(weights[k][judged.rows[k].mask]) for k in useful],
        }

        def loss_of(logprobs: Tensor, of: Columns) -> Tensor:
            loss, _ = policy_loss(logprobs, logprobs.detach(), of["advantage"].float(), of["weight"].float())
            return loss

        return numbers | self.step([judged.rows[k] for k in useful], columns, loss_of, costs)

    def imitate(
        self, prompts: Sequence[Conversation], rationales: Sequence[str], costs: Costs
    ) -> dict[str, float]:
        """Make the teacher's words more probable."""
        rows = [
            joined(
                self.actor.policy.prompt_ids(prompt),
                self.actor.tokenizer.encode(text, add_special_tokens=False),
            )
            for prompt, text in zip(prompts, rationales, strict=True)
        ]
        weights = token_weights([row.mask for row in rows], range(len(rows)))
        columns = {"weight": [torch.from_numpy(w[row.mask]) for w, row in zip(weights, rows, strict=True)]}
        return self.step(rows, columns, lambda logp, of: -(logp * of["weight"].float()).sum(), costs)

    def _advantages(self, rewards: Array, outcomes: Array) -> Array:
        """(S * J,), each judgement's reward less what the others earned."""
        count = rewards.shape[1]
        groups = {
            "state": np.arange(len(outcomes)),
            "batch": np.zeros(len(outcomes)),
            "outcome": outcomes,
            "none": np.zeros(len(outcomes)),
        }[self.baseline]
        return group_advantages(
            rewards.ravel(),
            np.repeat(groups, count).tolist(),
            baseline="none" if self.baseline == "none" else "leave_one_out",
            scale="none",
        )

    def outputs(self, pack: Pack) -> tuple[Tensor, Tensor]:
        return self.actor.logprobs(pack, entropy=False)[0], pack.flat


def judgement_rewards(answers: Array, outcomes: Array) -> Array:
    """What judgements earn, (S, J): 1 - (outcome - V)^2, and 0 for a malformed one.

    Args:
        answers: (S, J), NaN where malformed.
        outcomes: (S,), in [0, 1].
    """
    return np.nan_to_num(1.0 - (outcomes[:, None] - answers) ** 2, nan=0.0)


def quality(judged: Judged, outcomes: Array) -> dict[str, float]:
    """How good judgements are, against what came; before the critic learnt from it.

    Args:
        judged: S states.
        outcomes: (S,), what each brought.
    """
    known = ~np.isnan(judged.values)  # (S,)
    values, came = judged.values[known], outcomes[known]
    numbers = {
        "parse_rate": float(np.mean(~np.isnan(judged.answers))),
        "fallback": float(np.mean(~known)),
        "penalised_mse": 1.0 - float(judgement_rewards(judged.values[:, None], outcomes).mean()),
        "states": float(len(outcomes)),
    }
    if len(values):
        report = value_metrics(values, came)
        numbers |= {name.removeprefix("value_"): number for name, number in report.items()}
        rank = kendall_tau(values.tolist(), came.tolist())
        numbers |= {} if rank is None else {"kendall_tau": rank}
    for name, which in (("success", came >= 1.0), ("failure", came <= 0.0)):
        if which.any():
            numbers[f"mean_{name}"] = float(values[which].mean())
    return {f"value/{name}": number for name, number in numbers.items()}


def smoothed(before: float | None, new: float) -> float:
    """A mean that forgets: `new` where there was none."""
    return new if before is None else EMA * before + (1 - EMA) * new


def _row(reply: Reply) -> Row:
    assert reply.prompt_ids is not None
    assert reply.sampled_ids is not None
    assert reply.temperature is not None
    return joined(reply.prompt_ids, reply.sampled_ids, reply.temperature)


def joined(prompt: Sequence[int], written: Sequence[int], temperature: float = 1.0) -> Row:
    """What was asked, and what was or should be written: that alone is trainable."""
    ids = np.array([*prompt, *written], np.int64)
    return Row(ids, np.arange(len(ids)) >= len(prompt), temperature)
