"""Attention over packed tokens: no padding anywhere, and whoever calls the model says who attends to whom.

Tokens of many sequences stand one behind the other in a single row of N tokens. All of a decoder but its attention
treats tokens one by one, so only attention must know what belongs together: a `Plan` says it. `install` registers
one attention function with transformers; with a plan it asks the plan, without one it is the ordinary "sdpa".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from agentgym.errors import UsageError

_NAME = "agentgym"


@dataclass(frozen=True, slots=True)
class Options:
    """What a layer asks of its attention.

    Attributes:
        scale: of the scores; None for one over the root of d.
        window: a token attends to so many, itself included; None for all before it.
        dropout: share of the attention weights.
    """

    scale: float | None
    window: int | None
    dropout: float


class Plan(Protocol):
    """Who attends to whom among the N packed tokens of one forward pass."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        """The result of one layer's attention, like `query`: (1, heads, N, d); key and value (1, kv heads, N, d)."""


def causal(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    """Causal attention of the last Q tokens of a sequence of K; query is (1, heads, Q, d), key (1, kv heads, K, d)."""
    queries, keys = query.shape[2], key.shape[2]
    windowed = options.window is not None and options.window < keys
    mask: Any = None
    if windowed or queries not in (1, keys):
        mask = _lower_right(queries, keys, options.window if windowed else None, query.device)
    attended: Tensor = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None and queries > 1,
        dropout_p=options.dropout,
        scale=options.scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended


def _lower_right(queries: int, keys: int, window: int | None, device: torch.device) -> Any:
    """Which keys the last `queries` tokens of a sequence attend to: up to themselves, the last `window` of these."""
    if window is None and device.type == "cuda":  # a form that fast kernels take without a mask in memory
        from torch.nn.attention.bias import causal_lower_right  # imports the compiler, which takes seconds

        return causal_lower_right(queries, keys)
    behind = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
    return (behind >= 0) if window is None else (behind >= 0) & (behind < window)  # (Q, K)


class Tree:
    """Sequences that share beginnings, each beginning once: a tree of tokens.

    Args:
        spans: for each run of packed tokens where it lies, and where the beginning of its sequence lies, in order.
            Together the runs cover the packed tokens from left to right. A run attends to its beginning and, causally,
            to itself.
    """

    def __init__(self, spans: Sequence[tuple[slice, Sequence[slice]]]) -> None:
        self.spans = spans

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        """See `Plan`."""
        attended = []
        for own, before in self.spans:
            keys, values = key[:, :, own], value[:, :, own]
            if before:
                keys = torch.cat([*(key[:, :, part] for part in before), keys], dim=2)
                values = torch.cat([*(value[:, :, part] for part in before), values], dim=2)
            attended.append(causal(query[:, :, own], keys, values, options))
        return torch.cat(attended, dim=2)


def install(model: Any) -> None:
    """Make a transformers model take plans. For everybody else its attention is then transformers' "sdpa".

    Raises:
        UsageError: the model computes something that packed tokens can't have, so it would not be exact.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model = unwrapped(model)
    before = model.config._attn_implementation
    if before == _NAME:
        return
    model.set_attn_implementation(_NAME)
    try:
        _try(model)
    except UsageError:
        model.set_attn_implementation(before)
        raise


def unwrapped(model: Any) -> Any:
    """The causal language model inside a peft model; any other model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def hidden_states(model: Any, ids: Tensor, positions: Tensor, plan: Plan) -> Tensor:
    """The last hidden state of every packed token.

    Args:
        model: `install` was called with it.
        ids: (N,) of the tokens.
        positions: (N,) of each within its own sequence.
        plan: who attends to whom.

    Returns:
        (N, hidden size).
    """
    # Four dimensions tell transformers that the mask is ready, so it builds none; the plan takes its place.
    ready = torch.empty(1, 1, 1, 1, device=ids.device)
    output = unwrapped(model).base_model(
        input_ids=ids[None], position_ids=positions[None], attention_mask=ready, use_cache=False, plan=plan
    )
    states: Tensor = output.last_hidden_state[0]
    return states


def head(model: Any) -> Any:
    """The layer from hidden states to logits over the vocabulary."""
    return unwrapped(model).get_output_embeddings()


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    plan: Plan | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls in each attention layer; returns (1, N, heads, d)."""
    if plan is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **others
        )
        return result
    # Under autocast rotary embeddings leave query and key in float32, beside a value in bfloat16.
    query, key = query.to(value.dtype), key.to(value.dtype)
    options = Options(scaling, sliding_window, dropout)
    return plan.attend(module.layer_idx, query, key, value, options).transpose(1, 2).contiguous(), None


def _try(model: Any) -> None:
    """Compare packed tokens with a plain forward pass, since models may cap logits or keep states of other kinds."""
    ids = torch.arange(8, device=model.device) % model.config.get_text_config().vocab_size
    # Two sequences that share four tokens: 0 1 2 3 4 5 6 7 and, after the same 0 1 2 3, another 4 5 6 7.
    tree = Tree([(slice(0, 8), ()), (slice(8, 12), (slice(0, 4),))])
    order = torch.tensor([*range(8), *range(4, 8)], device=model.device)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            wanted = model(input_ids=ids[None], use_cache=False).logits[0].float()  # (8, V)
            got = head(model)(hidden_states(model, ids[order], order, tree)).float()  # (12, V)
    except Exception as error:  # whatever an unknown architecture makes of it
        raise UsageError(f"{type(model).__name__} does not take packed tokens: {error!r:.200}") from error
    finally:
        model.train(training)
    off = float((got - wanted[order]).abs().max() / wanted.std())
    if not off < (1e-3 if model.dtype == torch.float32 else 0.1):
        raise UsageError(
            f"{type(model).__name__}: expected logits that depend on attention to earlier tokens alone, but packed "
            f"tokens give others than a plain forward pass (off by {off:.2g} of their spread)"
        )
