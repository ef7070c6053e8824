"""The processes of one training run, as torchrun starts them; without torchrun there is one.

Every process plays its share of the episodes; then all know all trajectories, so that every estimator sees the whole
batch, and each works on its share of the packs. Weights are normalised over the whole batch, so gradients are summed,
not averaged, and the update is that of one process up to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from agentgym.errors import UsageError

T = TypeVar("T")


class Ranks:
    """This process among all of them.

    Args:
        device: "cpu", "cuda" (each process its own GPU) or "auto".
        shard: divide models among the processes, see `sharding`.

    Attributes:
        rank: number of this process.
        size: how many there are.
        device: where this process computes.
        sharded: whether models are divided.

    Raises:
        UsageError: no GPU where one is asked for.
    """

    def __init__(self, device: str = "auto", *, shard: bool = False) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        kind = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        if kind == "cuda" and not torch.cuda.is_available():
            raise UsageError("expected a GPU for --device cuda, but torch sees none here; give --device cpu")
        if kind == "cuda" and self.size > 1:
            kind = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(kind)
        self.device = torch.device(kind)
        self.sharded = shard and self.size > 1
        if self.size > 1:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def part(self, sizes: Sequence[int]) -> slice:
        """This process's part of things in order: contiguous, and of about the same size as everybody's."""
        ends = np.cumsum([0, *sizes])
        bounds = np.searchsorted(ends, ends[-1] * np.arange(self.size + 1) / self.size)
        bounds[-1] = len(sizes)
        return slice(int(bounds[self.rank]), int(bounds[self.rank + 1]))

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all processes, in the order of the processes."""
        if self.size == 1:
            return list(items)
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, list(items))
        return [item for part in parts for item in part]

    def even(self, packs: Sequence[T], spare: Callable[[], T]) -> list[tuple[T, float]]:
        """Packs for passes with gradients, each with the factor of its loss.

        Where layers are divided every process must take part in every pass: one that has fewer packs than another runs
        some for nothing, with factor 0.

        Args:
            packs: of this process.
            spare: makes a pack to run for nothing.
        """
        real = [(pack, 1.0) for pack in packs]
        if not self.sharded:
            return real
        missing = max(self.gather([len(packs)])) - len(packs)
        return real + [(spare(), 0.0)] * missing

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> float:
        """Add up every parameter's gradient over the processes; one that saw no pack of a parameter adds 0.

        Returns:
            The norm of all gradients together.
        """
        # Of whole parameters, of divided ones
        squares = torch.zeros(2, dtype=torch.float64, device=self.device)
        for parameter in parameters:
            if isinstance(parameter.grad, DTensor):
                parameter.grad.mul_(self.size)  # FSDP has taken the mean
                squares[1] += parameter.grad.to_local().double().square().sum()
                continue
            if self.size > 1:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)
            if parameter.grad is not None:
                squares[0] += parameter.grad.double().square().sum()
        if self.sharded:
            dist.all_reduce(squares[1])
        return float(squares.sum().sqrt())

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        """Take leave of the others."""
        if self.size > 1:
            dist.destroy_process_group()
