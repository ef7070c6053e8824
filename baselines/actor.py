"""The model that is trained: it samples with exact tokens, and scores them again with gradients.

Sampling is `agentgym.policies.hf.HFPolicy` over the same weights. Scoring runs over packs (`packs.py`): no padding,
shared beginnings once, and logits over the vocabulary for a few hundred tokens at a time, forward and backward.

Shapes: P packed tokens, M trainable ones among them, R rows, H the hidden size, V the vocabulary.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agentgym.errors import MissingDependency, UsageError
from agentgym.policies import models
from agentgym.policies.attention import head, hidden_states, install
from agentgym.policies.hf import HFPolicy
from baselines.packs import Pack, Row, packs, rows_of

__all__ = ["Actor", "Critic", "Pack", "Row", "logprobs", "packs", "rows_of", "states"]

Array = NDArray[np.float64]


def states(model: Any, pack: Pack, at: Tensor | None = None) -> Tensor:
    """The last hidden state before every trainable token, with gradient.

    Args:
        model: made ready by `agentgym.policies.attention.install`, as an `Actor`'s is.
        pack: what to run.
        at: which packed tokens' states to return instead, for example ``pack.end``.

    Returns:
        (M, H), or one state for each entry of `at`.
    """
    device = model.device
    hidden = hidden_states(model, pack.ids.to(device), pack.positions.to(device), pack.attention)  # (P, H)
    return hidden[(pack.before if at is None else at).to(device)]


def logprobs(
    model: Any, hidden: Tensor, pack: Pack, *, chunk: int = 512, entropy: bool = True
) -> tuple[Tensor, Tensor]:
    """Log-prob of every trainable token and the entropy where it was sampled, at its row's temperature.

    Args:
        model: its head is used.
        hidden: (M, H), of `states`.
        pack: whose tokens.
        chunk: logits over the vocabulary exist for so many tokens at a time. With more than one chunk they are computed
            again on the way back.
        entropy: False leaves it out: zeros, and less memory.

    Returns:
        (M,) and (M,), float32, both with gradient.
    """
    targets, temperature = pack.targets.to(hidden.device), pack.temperature.to(hidden.device)
    again = hidden.requires_grad and len(hidden) > chunk
    scored = []
    for start in range(0, len(hidden), chunk):
        part = slice(start, start + chunk)
        arguments = (head(model), hidden[part], targets[part], temperature[part], entropy)
        scored.append(checkpoint(_score, *arguments, use_reentrant=False) if again else _score(*arguments))
    if not scored:
        return hidden.new_zeros(0), hidden.new_zeros(0)
    scores, entropies = zip(*scored, strict=True)
    return torch.cat(scores), torch.cat(entropies)


def _score(
    layer: nn.Module, hidden: Tensor, targets: Tensor, temperature: Tensor, entropy: bool
) -> tuple[Tensor, Tensor]:
    """Of one chunk of C tokens: log-probs (C,), entropies (C,)."""
    logits = layer(hidden).float() / temperature[:, None]  # (C, V)
    normaliser = logits.logsumexp(-1)  # (C,)
    scores = logits.gather(1, targets[:, None])[:, 0] - normaliser
    if not entropy:
        return scores, torch.zeros_like(scores)
    probabilities = (logits - normaliser[:, None]).exp()
    return scores, normaliser - torch.linalg.vecdot(probabilities, logits)


class Actor:
    """A model with its tokenizer, the policy that samples from it, and its scores.

    The model is in eval mode: dropout would make the probabilities that are trained others than those that were
    sampled.

    Args:
        name: as in `HFPolicy`; with `model`, only what to call it.
        model, tokenizer: both, to take a model in memory.
        dtype: "float32" or "bfloat16".
        autocast: float32 weights, computing in bfloat16, in sampling and in scoring.
        device: "auto" (cuda where there is one), or as torch names it.
        lora_rank: above 0, train low-rank updates of all linear layers, by peft, and nothing else.
        reference: keep the weights of the beginning for `score`. With LoRA they are there anyway; else it is a copy.
        recompute_layers: keep only the input of each layer for the way back and compute the rest again: more time in
            training, far less memory. It pays where `max_tokens` alone does not bound memory enough.
        max_tokens: most tokens of one pass; see `packs`.
        chunk: see `logprobs`.
        seed: of LoRA's weights and, without seeds in `act`, of sampling.
        **sampling: further keywords of `HFPolicy`: temperature, max_new_tokens, max_batch, stop, cache_tokens.

    Attributes:
        model: what is trained; a peft model with LoRA.
        tokenizer: of the model.
        policy: samples from the same weights. After a change of the weights call ``policy.weights_changed(version)``.

    Raises:
        MissingDependency: torch, transformers or, with LoRA, peft is not installed.
        UsageError: no such model, or one that `attention.install` refuses.
    """

    def __init__(
        self,
        name: str | Path = models.SMOLLM2,
        *,
        model: Any = None,
        tokenizer: Any = None,
        dtype: str = "float32",
        autocast: bool = False,
        device: str = "auto",
        lora_rank: int = 0,
        reference: bool = False,
        recompute_layers: bool = False,
        max_tokens: int = 4096,
        chunk: int = 512,
        seed: int = 0,
        **sampling: Any,
    ) -> None:
        if (model is None) != (tokenizer is None):
            raise UsageError("expected a model with its tokenizer or neither, got one of them")
        if model is None:
            model, tokenizer = models.load(name, dtype, device)
        install(model)
        self._frozen = copy.deepcopy(model).requires_grad_(False) if reference and not lora_rank else None
        self._lora = bool(lora_rank)
        self.model = _with_lora(model, lora_rank, seed) if lora_rank else model
        self.tokenizer = tokenizer
        self.autocast = autocast
        self.max_tokens = max_tokens
        self.chunk = chunk
        self.model.eval()
        if recompute_layers:
            _recompute_layers(self.model)
        self.policy = HFPolicy(
            name, model=self.model, tokenizer=tokenizer, autocast=autocast, seed=seed, **sampling
        )

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer shall change."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def packs(self, rows: Sequence[Row]) -> list[Pack]:
        """The packs of a batch, of at most `max_tokens` each."""
        return packs(rows, max_tokens=self.max_tokens)

    def computing(self) -> AbstractContextManager[Any]:
        """Autocast, if it is on: for forward passes of your own."""
        autocast: AbstractContextManager[Any] = torch.autocast(
            self.model.device.type, torch.bfloat16, enabled=self.autocast
        )
        return autocast

    def states(self, pack: Pack, at: Tensor | None = None) -> Tensor:
        """See the function `states`."""
        with self.computing():
            return states(self.model, pack, at)

    def logprobs(
        self, pack: Pack, *, hidden: Tensor | None = None, entropy: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of a pack, (M,) each, with gradient.

        Args:
            pack: what to run.
            hidden: its states, where they are there already.
            entropy: whether it is wanted; else it is 0.
        """
        hidden = self.states(pack) if hidden is None else hidden
        with self.computing():
            return logprobs(self.model, hidden, pack, chunk=self.chunk, entropy=entropy)

    def score(
        self, rows: Sequence[Row], *, reference: bool = False, entropy: bool = True, grad: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-prob and entropy of every trainable token of a batch, in flat order: see ``Pack.flat``.

        Args:
            rows: the batch.
            reference: under the weights of the beginning.
            entropy: whether it is wanted; else it is 0.
            grad: keep what a gradient needs, of all packs at once. To train, go through the packs one by one.

        Returns:
            (M,) and (M,), on the model's device.

        Raises:
            UsageError: no reference was kept.
        """
        count = sum(int(row.mask.sum()) for row in rows)
        scored = torch.zeros(2, count, device=self.model.device)
        with torch.set_grad_enabled(grad), self._weights(reference) as model, self.computing():
            for pack in self.packs(rows):
                both = logprobs(model, states(model, pack), pack, chunk=self.chunk, entropy=entropy)
                scored = scored.index_copy(1, pack.flat.to(scored.device), torch.stack(both))
        return scored[0], scored[1]

    @contextmanager
    def _weights(self, reference: bool) -> Iterator[Any]:
        """The model with its present weights, or with those of the beginning."""
        if reference and self._frozen is None and not self._lora:
            raise UsageError("expected Actor(reference=True) or lora_rank to score with the first weights")
        disabled = self.model.disable_adapter() if reference and self._lora else nullcontext()
        with disabled:
            yield self._frozen if reference and self._frozen is not None else self.model


class Critic:
    """A value for the state before every trainable token: one number from its last hidden state.

    The head begins at zero, so that the first values are 0 whatever the trunk says.

    Args:
        actor: whose model is the trunk.
        trunk: "copy" begins as a copy of it and learns by itself; "shared" is the actor's own, which the loss of the
            values trains too.

    Attributes:
        modules: what it learns with, for optimizers and checkpoints: "head" and, if it has its own, "trunk".
    """

    def __init__(self, actor: Actor, trunk: Literal["copy", "shared"] = "copy") -> None:
        if trunk not in ("copy", "shared"):
            raise UsageError(f"expected the critic's trunk to be 'copy' or 'shared', got {trunk!r}")
        self._actor = actor
        device = actor.model.device
        layer = nn.Linear(actor.model.config.get_text_config().hidden_size, 1, device=device)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        self.modules = nn.ModuleDict({"head": layer})
        if trunk == "copy":
            self.modules["trunk"] = copy.deepcopy(actor.model)
        self._trunk = self.modules["trunk"] if trunk == "copy" else actor.model

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer shall change; not the actor's weights, also where the trunk is shared."""
        return [parameter for parameter in self.modules.parameters() if parameter.requires_grad]

    def values(self, pack: Pack, *, hidden: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Values of the states before a pack's trainable tokens, (M,), with gradient.

        Args:
            pack: what to run.
            hidden: its states, where they are there already: with a shared trunk the actor has computed them.
            at: which packed tokens' states to value instead.
        """
        if hidden is None:
            with self._actor.computing():
                hidden = states(self._trunk, pack, at)
        valued: Tensor = self.modules["head"](hidden.float())[:, 0]
        return valued

    def score(self, rows: Sequence[Row]) -> tuple[list[Array], Array]:
        """Values of a batch, as `agentgym.credit` takes them.

        Returns:
            For each row (T,), the value of the state before each token, NaN at tokens that are not trainable; and for
            all rows together the value of the state after the last token: what a truncated episode is bootstrapped
            from.
        """
        before = [np.full(len(row.ids), np.nan) for row in rows]
        after = np.full(len(rows), np.nan)
        for pack in self._actor.packs(rows):
            with torch.no_grad():
                valued = self.values(pack, at=torch.cat([pack.before, pack.end])).double().cpu().numpy()
            count = len(pack.before)
            for row, token, value in zip(pack.row.tolist(), pack.token.tolist(), valued[:count], strict=True):
                before[row][token] = value
            after[pack.rows.numpy()] = valued[count:]
        return before, after


def _recompute_layers(model: Any) -> None:
    """Let a model keep only the input of each layer for the way back.

    transformers' own switch works in training mode alone, and there dropout is on: in modules, and in attention and
    residuals as functions that no module tells of.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UsageError(
            f"--recompute-layers: transformers knows no layer of {type(model).__name__} to recompute"
        )
    for layer in layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)


def _with_lora(model: Any, rank: int, seed: int) -> Any:
    try:
        import peft
    except ImportError:
        raise MissingDependency("LoRA needs peft: pip install 'agentgym-suite[train]'") from None
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return peft.get_peft_model(model, config)
