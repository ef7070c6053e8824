"""FSDP2: each process holds a part of every layer's weights, of their gradients and of the optimizer's state.

Only the decoder's layers are divided; embeddings, norms and heads, a small part of a large model, stay whole. While the
policy samples or scores, all layers are put together: processes then need no step in common, and generate as if they
were alone. In passes with gradients a layer is put together when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from agentgym.policies.attention import unwrapped

__all__ = ["full", "groups", "like", "load_optimizer", "optimizer_state", "shard", "whole"]


def shard(model: Any, device_type: str, size: int) -> None:
    """Divide a model's layers among `size` processes, in place; all call it at the same time."""
    mesh = init_device_mesh(device_type, (size,))
    for layer in _layers(model):
        fully_shard(layer, mesh=mesh)


@contextmanager
def whole(models: Sequence[Any]) -> Iterator[None]:
    """All weights in every process, for passes without gradients that the others do not take part in."""
    layers = [layer for model in models for layer in _layers(model) if hasattr(layer, "unshard")]
    for layer in layers:
        layer.set_reshard_after_forward(False)
        layer.unshard()
    try:
        yield
    finally:
        for layer in layers:
            layer.reshard()
            layer.set_reshard_after_forward(True)


def groups(parameters: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups for an optimizer, which cannot take divided and whole parameters in one."""
    divided = [p for p in parameters if isinstance(p, DTensor)]
    others = [p for p in parameters if not isinstance(p, DTensor)]
    return [{"params": group} for group in (divided, others) if group]


def full(tensor: Tensor) -> Tensor:
    """The whole of a divided tensor, in every process; all call it at the same time. Any other tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, model: Tensor) -> Tensor:
    """A whole tensor, divided as `model` is."""
    if not isinstance(model, DTensor):
        return tensor
    return distribute_tensor(tensor.to(model.device), model.device_mesh, model.placements)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """``optimizer.state_dict()`` without divided tensors."""
    state = optimizer.state_dict()
    whole_state = {
        number: {name: full(value) if isinstance(value, Tensor) else value for name, value in of.items()}
        for number, of in state["state"].items()
    }
    return {"state": whole_state, "param_groups": state["param_groups"]}


def load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Put back what `optimizer_state` gave."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {
            name: like(value, parameters[number])
            if isinstance(value, Tensor) and value.shape == parameters[number].shape
            else value
            for name, value in of.items()
        }
        for number, of in saved["state"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": saved["param_groups"]})


def _layers(model: Any) -> Sequence[Any]:
    layers: Sequence[Any] = unwrapped(model).base_model.layers
    return layers
