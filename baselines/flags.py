"""The flags that every trainer has, and how they are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import tyro

from agentgym.cli.arguments import parse
from agentgym.cli.stack import Stack
from agentgym.errors import UsageError, whole_number

A = TypeVar("A", bound="RunArgs")
_AT_LEAST_0 = "steps eval_every checkpoint_every keep_rollouts lora_rank".split()
_AT_LEAST_1 = """
groups group_size max_new_tokens batch workers epochs minibatches pack_tokens keep_checkpoints eval_episodes
""".split()


@dataclass(frozen=True)
class RunArgs:
    """Flags that every trainer has."""

    env: str
    """The environment's id, or module:id."""
    out: str
    """Folder of the run. The same command goes on from the last checkpoint in it."""
    model: str = "smollm2"
    """What is trained: smollm2 (packaged), a directory, or a name in the local Hugging Face cache."""
    steps: int = 100
    """Updates of the policy; a run that ended goes on with more."""
    groups: int = 8
    """Groups played for each update; each has a task of its own, which all its episodes share."""
    group_size: int = 8
    """Episodes of a group."""
    seed: int = 0
    """Of everything drawn at random."""
    stack: tyro.conf.OmitArgPrefixes[Stack] = field(default_factory=Stack)

    temperature: float = 1.0
    """Of the sampling, in training."""
    max_new_tokens: int = 64
    """Most tokens of one reply."""
    stop: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A text that ends a reply, besides the model's own token; may be given several times."""
    batch: int = 32
    """Most replies generated at a time."""
    workers: int = 64
    """Most episodes at a time."""
    episode_timeout: float | None = None
    """Seconds after which an episode that hangs is given up."""

    lr: float = 1e-5
    """Step size of AdamW for the policy."""
    weight_decay: float = 0.0
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    epochs: int = 1
    """Passes over a batch of rollouts."""
    minibatches: int = 1
    """Optimizer steps in each pass; trajectories are never divided between them."""
    lora_rank: int = 0
    """Train adapters of this rank instead of all weights; 0: all weights."""
    pack_tokens: int = 4096
    """Most tokens in one forward pass; gradients of several passes add up. Bounds the memory."""
    autocast: bool = False
    """Compute in bfloat16 with float32 weights; pays where the hardware is made for it, and costs where it is not."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; with torchrun each process has a GPU, or a share of the CPU."""
    shard: bool = False
    """With torchrun: divide weights, gradients and optimizer among the processes (FSDP2): for large models."""

    eval_every: int = 10
    """Evaluate after each so many updates, and at the end; 0: never."""
    eval_episodes: int = 64
    """Episodes of an evaluation, on the tasks of --eval-split in their order."""
    eval_split: str = "test"
    """Tasks to evaluate on; no others than these should decide whether something was learnt."""
    eval_temperature: float = 1.0
    """Of the sampling in evaluations; 0 takes the likeliest token."""
    checkpoint_every: int = 10
    """Write a checkpoint after each so many updates, and at the end; 0: only at the end."""
    keep_checkpoints: int = 2
    """So many of the latest checkpoints stay."""
    keep_rollouts: int = 10
    """Keep the trajectories of every so-manieth training step; 0: of none."""
    wandb: str | None = None
    """Log to this project of Weights & Biases, too."""
    trackio: str | None = None
    """Log to this project of trackio, too."""


def arguments(kind: type[A], name: str, text: str | None, words: Sequence[str] | None) -> A:
    """Read the flags of a trainer.

    Args:
        kind: its dataclass.
        name: of its module.
        text: the module's docstring, which --help begins with.
        words: of the command line; those of the process where None.
    """
    given = sys.argv[1:] if words is None else words
    args = parse(kind, name, text, given, prefix="python -m baselines.")
    for flag, least in [*((flag, 0) for flag in _AT_LEAST_0), *((flag, 1) for flag in _AT_LEAST_1)]:
        whole_number("--" + flag.replace("_", "-"), getattr(args, flag), least=least)
    if args.temperature <= 0 or args.eval_temperature < 0:
        raise UsageError(
            f"expected --temperature > 0 (at 0 nothing is sampled) and --eval-temperature >= 0, "
            f"got {args.temperature} and {args.eval_temperature}"
        )
    return args
