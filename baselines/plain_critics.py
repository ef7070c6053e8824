"""Critics to compare a generative one with: the same questions, the same outcomes, another answer.

- `ScalarCritic` is the same model with a value head, read after the question's last token, and a squared error.
- `ConstantCritic` says the smoothed mean of the outcomes, whatever the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentgym.errors import UsageError
from agentgym.messages import Conversation
from baselines import checkpoints
from baselines.actor import Actor, Critic, Pack, Row
from baselines.critic import Columns, Judged, ModelCritic, ValueCritic, joined, smoothed
from baselines.critic_prompt import parse
from baselines.losses import value_loss
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Array

__all__ = ["ConstantCritic", "ScalarCritic"]


class ScalarCritic(ModelCritic):
    """A value head on the state after the question's last token.

    Args:
        actor: its model.
        ranks: as in `ValueCritic`.
        max_grad_norm: of a step.
    """

    def __init__(self, actor: Actor, ranks: Ranks, *, max_grad_norm: float = 1.0) -> None:
        super().__init__(actor, ranks, max_grad_norm=max_grad_norm)
        self._critic = Critic(actor, "shared")

    def parameters(self) -> list[nn.Parameter]:
        """The model's and the head's; the language head learns nothing here."""
        return [*self.actor.parameters(), *self._critic.parameters()]

    def judge(self, prompts: Sequence[Conversation], seed: Sequence[int], costs: Costs) -> Judged:
        """See `ValueCritic.judge`; nothing is sampled."""
        rows = self._rows(prompts)
        mine = rows[self.ranks.part([len(row.ids) for row in rows])]
        _, values = self._critic.score(mine)
        costs.critic_tokens += sum(self.ranks.gather([sum(len(pack.ids) for pack in self.actor.packs(mine))]))
        answers = np.array(self.ranks.gather(values.tolist()))[:, None]
        return Judged(list(prompts), answers, self.version)

    def learn(self, judged: Judged, outcomes: Array, costs: Costs) -> dict[str, float]:
        """Squared error."""
        return self._regress(judged.prompts, outcomes, costs)

    def imitate(
        self, prompts: Sequence[Conversation], rationales: Sequence[str], costs: Costs
    ) -> dict[str, float]:
        """Squared error from the numbers that the teacher's words end with."""
        said = [value for text in rationales if (value := parse(text)) is not None]
        if len(said) < len(rationales):
            raise UsageError("expected every rationale to hold a well-formed answer")
        return self._regress(prompts, np.array(said), costs)

    def state(self) -> dict[str, Any]:
        """The head, too."""
        return super().state() | {"head": checkpoints.weights(self._critic.modules)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        super().load(state)
        checkpoints.load_weights(self._critic.modules, state["head"])

    def _regress(self, prompts: Sequence[Conversation], targets: Array, costs: Costs) -> dict[str, float]:
        rows = self._rows(prompts)
        columns = {"target": list(torch.from_numpy(targets).float()[:, None])}

        def loss_of(values: Tensor, of: Columns) -> Tensor:
            return value_loss(values, of["target"], torch.full_like(values, 1 / len(rows)))

        return self.step(rows, columns, loss_of, costs)

    def _rows(self, prompts: Sequence[Conversation]) -> list[Row]:
        return [joined(self.actor.policy.prompt_ids(prompt), []) for prompt in prompts]

    def outputs(self, pack: Pack) -> tuple[Tensor, Tensor]:
        return self._critic.values(pack, at=pack.end), pack.rows


class ConstantCritic(ValueCritic):
    """The smoothed mean of the outcomes of earlier updates; before any, one half."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(ranks)
        self.value: float | None = None

    def judge(self, prompts: Sequence[Conversation], seed: Sequence[int], costs: Costs) -> Judged:
        """The same for all."""
        return Judged(
            list(prompts), np.full((len(prompts), 1), 0.5 if self.value is None else self.value), self.version
        )

    def learn(self, judged: Judged, outcomes: Array, costs: Costs) -> dict[str, float]:
        """Move towards the mean."""
        self.value = smoothed(self.value, float(outcomes.mean()))
        self.version += 1
        return {}

    def imitate(
        self, prompts: Sequence[Conversation], rationales: Sequence[str], costs: Costs
    ) -> dict[str, float]:
        """A teacher says nothing that a constant could learn."""
        return {}

    def state(self) -> dict[str, Any]:
        """The mean, too."""
        return super().state() | {"value": self.value}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        super().load(state)
        self.value = state["value"]
