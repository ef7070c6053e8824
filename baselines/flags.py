"""The flags that every trainer has, and how they are read."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeVar

import tyro

from agentgym.cli.arguments import parse
from agentgym.cli.stack import Stack
from agentgym.errors import UsageError, whole_number

A = TypeVar("A", bound="RunArgs")
_AT_LEAST_0 = "steps seed eval_every checkpoint_every keep_rollouts lora_rank max_age"
_AT_LEAST_1 = """
groups group_size max_new_tokens batch workers epochs minibatches pack_tokens keep_checkpoints eval_episodes
"""


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
    also: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Another environment, played in turn with --env: 'ID key=value ...', with its own keywords in place of --set and
    --tasks, and eval_split=NAME in place of --eval-split. All other flags count for all."""
    data: str | None = None
    """Train on what `agentgym run` recorded in this folder, instead of playing; see docs/distill.md."""
    max_age: int = 4
    """With --data: most updates that may lie between the weights that recorded and those that are trained."""

    temperature: float = 1.0
    """Of the sampling in training: at 1 the model's own probabilities, below 1 the likeliest tokens more often."""
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
    """Of AdamW: the share of a weight, times --lr, that each step takes off it."""
    max_grad_norm: float = 1.0
    """A gradient of a larger norm is scaled down to this one."""
    epochs: int = 1
    """Passes over a batch of rollouts, before new ones are played."""
    minibatches: int = 1
    """Optimizer steps in each pass; trajectories are never divided between them."""
    lora_rank: int = 0
    """Train adapters of this rank instead of all weights; 0: all weights."""
    pack_tokens: int = 4096
    """Most tokens in one forward pass; gradients of several passes add up. Bounds the memory."""
    recompute_layers: bool = False
    """Keep only the input of each layer for the backward pass and compute the rest again: less memory, more time."""
    autocast: bool = False
    """Compute in bfloat16 with float32 weights; pays where the hardware is made for it, and costs where it is not."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; with torchrun each process has a GPU, or a share of the CPU."""
    shard: bool = False
    """With torchrun: divide weights, gradients and optimizer among the processes (FSDP2): for large models."""

    eval_every: int = 10
    """Evaluate before the first update, after every N, and at the end; 0: never."""
    eval_episodes: int = 64
    """Episodes of an evaluation, on the tasks of --eval-split in their order."""
    eval_split: str = "test"
    """Tasks to evaluate on; no others than these should decide whether something was learnt."""
    eval_temperature: float = 1.0
    """Of the sampling in evaluations; 0 takes the likeliest token."""
    checkpoint_every: int = 10
    """Write a checkpoint after every N updates, and at the end; 0: only at the end."""
    keep_checkpoints: int = 2
    """Keep the N latest checkpoints."""
    keep_rollouts: int = 10
    """Keep the trajectories of every Nth training step; 0: of none."""
    wandb: str | None = None
    """Log to this project of Weights & Biases, too."""
    trackio: str | None = None
    """Log to this project of trackio, too."""

    def check(self) -> None:
        """Tell what cannot be before a model is loaded. An algorithm with flags of its own adds to it.

        Raises:
            UsageError: a number out of range; a flag that means nothing without another.
        """
        self.stack.keywords(f"hf:{self.model}")
        check_whole(self, _AT_LEAST_0, least=0)
        check_whole(self, _AT_LEAST_1, least=1)
        check_numbers(self, "lr weight_decay")
        check_numbers(self, "episode_timeout", above=0)
        if not 0 < self.max_grad_norm < math.inf:
            raise UsageError(
                f"expected --max-grad-norm to be a finite number > 0, got {self.max_grad_norm}; to leave gradients as "
                "they are give a large one, such as 1e9"
            )
        if not 0 < self.temperature < math.inf or not 0 <= self.eval_temperature < math.inf:
            raise UsageError(
                f"expected --temperature > 0 (at 0 nothing is sampled) and --eval-temperature >= 0, "
                f"got {self.temperature} and {self.eval_temperature}"
            )


def check_whole(args: object, names: str, *, least: int) -> None:
    """Raise `UsageError` unless these flags are whole numbers of at least `least`."""
    for name in names.split():
        whole_number(_flag(name), getattr(args, name), least=least)


def check_numbers(
    args: object, names: str, *, least: float = 0, above: float | None = None, most: float = math.inf
) -> None:
    """Raise `UsageError` unless these flags are finite numbers in a range, or not given.

    Args:
        args: whose flags.
        names: of the flags.
        least: the smallest number that may be; without `above`.
        above: all numbers that may be are larger.
        most: the largest number that may be.
    """
    for name in names.split():
        value = getattr(args, name)
        if value is None:
            continue
        large_enough = value >= least if above is None else value > above
        if not (large_enough and value <= most and value < math.inf):
            bound = f">= {least:g}" if above is None else f"> {above:g}"
            wanted = (
                f"a finite number {bound}" if most == math.inf else f"a number from {least:g} to {most:g}"
            )
            raise UsageError(f"expected {_flag(name)} to be {wanted}, got {value}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class World(NamedTuple):
    """One of the environments of a run.

    Attributes:
        name: as the user wrote it.
        id: of the environment.
        stack: its keywords and wrappers.
        eval_split: tasks to evaluate on.
    """

    name: str
    id: str
    stack: Stack
    eval_split: str


def worlds(args: RunArgs) -> list[World]:
    """The environments of --env and --also.

    Raises:
        UsageError: one of them stands there twice, or without an id.
    """
    found = [World(args.env, args.env, args.stack, args.eval_split)]
    for text in args.also:
        id, *pairs = text.split() or [""]
        splits = [pair.partition("=")[2] for pair in pairs if pair.startswith("eval_split=")]
        own = tuple(pair for pair in pairs if not pair.startswith("eval_split="))
        if not id or "=" in id:
            raise UsageError(f"expected --also 'ID key=value ...', got {text!r}")
        stack = replace(args.stack, set=own, tasks=None)
        found.append(World(text, id, stack, splits[-1] if splits else args.eval_split))
    names = [world.name for world in found]
    if len(set(names)) < len(names):
        raise UsageError(f"expected environments that differ in --env and --also, got {names}")
    return found


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
    args.check()
    return args
