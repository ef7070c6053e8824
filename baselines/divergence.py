"""How far two models' next-token distributions are apart, token by token, without all logits at once.

Both models are given by their head and their states before M tokens; logits over the vocabulary exist for `chunk`
tokens at a time, and are computed again on the way back where there are more. Where one model's head is wider than
the other's (padding rows), the words that both have are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agentgym.credit.gae import choice

# A head, and the states before M tokens, (M, H); H may differ between two models.
States: TypeAlias = tuple[nn.Module, Tensor]


def divergence(
    student: States,
    teacher: States,
    temperature: Tensor,
    *,
    kind: Literal["reverse", "forward"] = "reverse",
    chunk: int = 512,
) -> Tensor:
    """The exact divergence of the whole distributions.

    Args:
        student: gets a gradient.
        teacher: does not.
        temperature: (M,), of both.
        kind: "reverse" is KL(student, teacher), "forward" KL(teacher, student).
        chunk: see above.

    Returns:
        (M,), float32, with gradient.
    """
    choice("kind", kind, ("reverse", "forward"))

    def of_chunk(own: Tensor, other: Tensor) -> Tensor:
        p, q = (own, other) if kind == "reverse" else (other, own)
        return (p.exp() * (p - q)).sum(-1)

    return _by_chunks(of_chunk, student, teacher, temperature, chunk)


def drawn_divergence(
    student: States, teacher: States, temperature: Tensor, uniforms: Tensor, *, chunk: int = 512
) -> Tensor:
    """An estimate of KL(student, teacher) from tokens drawn from the student at each position.

    Its gradient is an unbiased estimate of the divergence's: for each draw the gap of log-probs, less the mean gap of
    the position's other draws, times the gradient of the student's log-prob.

    Args:
        student: gets a gradient.
        teacher: does not.
        temperature: (M,), of both.
        uniforms: (M, D), D at least 2: what each draw is made with, uniform in [0, 1).
        chunk: see above.

    Returns:
        (M,), float32: the mean gap of the draws, with that gradient.
    """
    draws = uniforms.shape[1]

    def of_chunk(own: Tensor, other: Tensor, uniform: Tensor) -> Tensor:
        cumulated = own.detach().double().exp().cumsum(-1)  # float32 is too coarse over V
        drawn = torch.searchsorted(cumulated, uniform.double() * cumulated[:, -1:], right=True)  # (C, D)
        logp = own.gather(1, drawn)
        gap = (logp - other.gather(1, drawn)).detach()  # (C, D)
        centred = (gap - gap.mean(1, keepdim=True)) * (draws / (draws - 1))  # less the others' mean
        pull = (centred * logp).mean(1)
        return gap.mean(1) + pull - pull.detach()

    return _by_chunks(of_chunk, student, teacher, temperature, chunk, uniforms)


def _by_chunks(
    of_chunk: Callable[..., Tensor],
    student: States,
    teacher: States,
    temperature: Tensor,
    chunk: int,
    *more: Tensor,
) -> Tensor:
    """`of_chunk` of both models' log-probs, (C, V) each, and of `more`, (C, ...) each, for all tokens in turn."""
    (own_head, own), (other_head, other) = student, teacher

    def run(own: Tensor, other: Tensor, temperature: Tensor, *rest: Tensor) -> Tensor:
        logits = [layer(states).float() for layer, states in ((own_head, own), (other_head, other.detach()))]
        size = min(of.shape[1] for of in logits)
        own_scores, other_scores = ((of[:, :size] / temperature[:, None]).log_softmax(-1) for of in logits)
        return of_chunk(own_scores, other_scores.detach(), *rest)

    again = own.requires_grad and len(own) > chunk
    found: list[Tensor] = []
    for start in range(0, len(own), chunk):
        parts: list[Any] = [of[start : start + chunk] for of in (own, other, temperature, *more)]
        found.append(checkpoint(run, *parts, use_reentrant=False) if again else run(*parts))
    return torch.cat(found) if found else own.new_zeros(0)
