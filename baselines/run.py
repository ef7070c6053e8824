"""What all trainers share: the loop of rollouts and updates, evaluation, checkpoints, the run's folder.

An algorithm is a class with the methods of `Algorithm`; `train` does the rest. A run is its folder:

    config.json               every flag; the same command goes on where it stopped, another one is refused
    metrics.jsonl             one line a step; line k is about the weights after k updates
    tensorboard/              the same
    checkpoints/step-....pt   weights, optimizers, random state, position among the tasks
    eval/step-..../           trajectories of an evaluation, for `agentgym report` and `agentgym view`
    rollouts/step-..../       trajectories of some training steps
    model/                    the trained model in Hugging Face's form, at the end
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import resource
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from agentgym.cli import console
from agentgym.errors import InfrastructureError, UsageError
from agentgym.policies.hf import HFPolicy
from agentgym.registration import require
from agentgym.rollout import with_models
from agentgym.trajectory.records import Trajectory
from agentgym.trajectory.salvage import append_or_mark
from agentgym.trajectory.store import TrajectoryStore
from agentgym.version import __version__
from baselines import checkpoints
from baselines.actor import Actor
from baselines.flags import RunArgs, worlds
from baselines.logs import Logs
from baselines.metrics import Costs, check_truncation, evaluation_metrics, rollout_metrics
from baselines.parallel import Ranks
from baselines.recorded import open_data
from baselines.rollouts import Batch, Mixture, Rollouts, batch_of

A = TypeVar("A", bound=RunArgs)
# What may differ between a run and its continuation: nothing that an update depends on.
_MAY_CHANGE = {"out", "steps", "checkpoint_every", "keep_checkpoints", "keep_rollouts", "wandb", "trackio"}


class Algorithm(Protocol):
    """What `train` needs of an algorithm."""

    actor: Actor
    any_data: bool  # learns also from tokens that other weights sampled, whatever their age

    def whole(self) -> AbstractContextManager[None]:
        """All weights in every process, where they are divided: for sampling."""

    def sample(self, rollouts: Rollouts) -> list[Trajectory]:
        """Play a batch."""

    def update(self, batch: Batch, costs: Costs) -> dict[str, float]:
        """Learn from a batch; the numbers to log. Counts the tokens that went through a model."""

    def state(self) -> dict[str, Any]:
        """Everything that the next update depends on, for `torch.save`."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""


class Run:
    """One training run in its folder, in one of its processes.

    Args:
        args: of the run.
        name: of the algorithm.
        build: makes the algorithm.

    Attributes:
        step: updates made so far.
        costs: of training so far.
    """

    def __init__(self, args: A, name: str, build: Callable[[A, Ranks], Algorithm]) -> None:
        self.args = args
        self.folder = Path(args.out)
        self.config = {"algorithm": name, "agentgym": __version__} | dataclasses.asdict(args)
        for world in worlds(args):
            require(world.id)  # what takes no time to find out is told before a model is loaded
        checkpoints.check_config(self.folder, self.config, _MAY_CHANGE)
        checkpoint = checkpoints.latest(self.folder)
        self._held = contextlib.ExitStack()
        self.ranks = Ranks(args.device, shard=args.shard)
        self._held.callback(self.ranks.close)
        torch.manual_seed(args.seed)
        self.algorithm = build(args, self.ranks)
        # One of each model that it names, for all environments, in training and in evaluation.
        self._stack = with_models(args.stack.keywords(f"hf:{args.model}"), self._held)
        self.rollouts = self._rollouts(self.algorithm.actor.policy, args.seed, group_size=args.group_size)
        if args.data is not None:
            self.rollouts = open_data(args, self.rollouts, self.algorithm)
        self.held_out = None
        if args.eval_every:
            actor = self.algorithm.actor
            self.judge = HFPolicy(
                args.model,
                model=actor.model,
                tokenizer=actor.tokenizer,
                temperature=args.eval_temperature,
                max_new_tokens=args.max_new_tokens,
                max_batch=args.batch,
                autocast=args.autocast,
                stop=args.stop,
            )
            self.held_out = self._rollouts(self.judge, args.seed + 1, evaluating=True, order="listed")
        self.costs = Costs()
        self.step = 0
        self._cpu_seconds = 0.0  # of the processes before this one
        if checkpoint is not None:
            self._resume(checkpoints.load(checkpoint))
        # Nothing is left behind by a command that could not begin.
        if self.ranks.first:
            self._held.callback(os.close, checkpoints.claim(self.folder, self.config))

    def _rollouts(self, policy: HFPolicy, seed: int, *, evaluating: bool = False, **how: Any) -> Rollouts:
        args = self.args
        how |= {"workers": args.workers, "episode_timeout": args.episode_timeout}
        parts = {}
        for world in worlds(args):
            kwargs = world.stack.environment() | ({"split": world.eval_split} if evaluating else {})
            stack = self._stack | {"env_kwargs": kwargs}
            parts[world.name] = Rollouts(world.id, stack, policy, self.ranks, seed=seed, **how)
        return Mixture(parts) if args.also else parts[args.env]

    def train(self) -> None:
        """Play, learn and evaluate until there were `args.steps` updates."""
        args = self.args
        logs = self._logs()
        said = ""
        with console.Progress("updates", args.steps) as progress:
            while self.step < args.steps:
                progress.show(said, self.step, args.steps)
                numbers = self._evaluate() if args.eval_every and self.step % args.eval_every == 0 else {}
                numbers |= self._learn()
                said = self._write(logs, numbers)
                self.step += 1
                if self.step == args.steps or (
                    args.checkpoint_every and self.step % args.checkpoint_every == 0
                ):
                    self._save()
            if args.eval_every:
                said = self._write(logs, self._evaluate())
            progress.show(said, self.step, args.steps)
        checkpoints.save_model(self.folder / "model", self.algorithm.actor, self.ranks)
        if logs is not None:
            logs.close()
        self.ranks.wait()

    def close(self) -> None:
        """Let others have the folder, close the models of the environments, and take leave of the other processes."""
        self._held.close()

    # -- one step ------------------------------------------------------------------------------------------------------

    def _learn(self) -> dict[str, float]:
        """Play a batch and learn from it."""
        args, began, cpu = self.args, time.perf_counter(), time.process_time()
        before = dataclasses.replace(self.costs)
        self._forget()
        self.algorithm.actor.policy.weights_changed(str(self.step))
        self.rollouts.played = []
        with self.algorithm.whole():
            batch = batch_of(self.algorithm.sample(self.rollouts))
        trajectories = self.rollouts.played  # also those that the algorithm does not train on
        self.costs.add_rollouts(trajectories)
        if args.keep_rollouts and self.step % args.keep_rollouts == 0:
            self._keep("rollouts", trajectories)
        warning = check_truncation(trajectories, args.max_new_tokens)
        if warning is not None:
            warnings.warn(f"step {self.step}: {warning}", stacklevel=1)
        played = time.perf_counter()
        numbers = self.algorithm.update(batch, self.costs)
        done = time.perf_counter()
        generated = self.costs.generated_tokens - before.generated_tokens
        trained = self.costs.trained_tokens - before.trained_tokens
        return {
            **rollout_metrics(trajectories),
            **numbers,
            **self.costs.metrics(),
            "time/rollout_seconds": played - began,
            "time/update_seconds": done - played,
            "time/step_cpu_seconds": time.process_time() - cpu,
            "speed/generated_per_second": generated / (played - began),
            "speed/trained_per_second": trained / (done - played),
            "memory/peak_mb": _peak_mb(self.ranks.device),
        }

    def _evaluate(self) -> dict[str, float]:
        """Play held-out tasks, always the same episodes."""
        assert self.held_out is not None
        self._forget()
        self.judge.weights_changed(str(self.step))
        self.held_out.position = 0
        with self.algorithm.whole():
            trajectories = self.held_out.play(self.args.eval_episodes)
        self.held_out.played = []  # they are on disk
        self._forget()  # memory that training can use
        self._keep("eval", trajectories)
        return evaluation_metrics(trajectories)

    def _forget(self) -> None:
        """Keep no conversation: a run that goes on from a checkpoint has none either, and must come to the same."""
        judges = [] if self.held_out is None else [self.judge]
        of_stack = (self._stack.get("summarizer"), self._stack.get("delegation", {}).get("worker_policy"))
        for policy in (self.algorithm.actor.policy, *judges, *of_stack):
            if isinstance(policy, HFPolicy):
                policy.forget()

    # -- the folder ----------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        state = {
            "step": self.step,
            "position": self.rollouts.position,
            "costs": vars(self.costs),
            "cpu_seconds": self._cpu_seconds + time.process_time(),
            "random": torch.get_rng_state(),
            "algorithm": self.algorithm.state(),
        }
        if self.ranks.first:
            checkpoints.save(self.folder, self.step, state, keep=self.args.keep_checkpoints)
        self.ranks.wait()

    def _resume(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        self.rollouts.position = state["position"]
        self.costs = Costs(**state["costs"])
        self._cpu_seconds = state["cpu_seconds"]
        torch.set_rng_state(state["random"])
        self.algorithm.load(state["algorithm"])
        if self.step > self.args.steps:
            raise UsageError(
                f"{self.folder} holds {self.step} updates already; give --steps {self.step} or more"
            )

    def _keep(self, kind: str, trajectories: Sequence[Trajectory]) -> None:
        """Write trajectories for `agentgym report` and `agentgym view`; what a killed run wrote of this step goes."""
        if not self.ranks.first:
            return
        file = self.folder / kind / f"step-{self.step:06}" / "trajectories.jsonl"
        file.unlink(missing_ok=True)
        with contextlib.closing(TrajectoryStore(file)) as store:
            for trajectory in trajectories:
                append_or_mark(store, trajectory)

    def _logs(self) -> Logs | None:
        """One process writes."""
        if not self.ranks.first:
            return None
        args = self.args
        return Logs(self.folder, self.config, self.step, wandb=args.wandb, trackio=args.trackio)

    def _write(self, logs: Logs | None, numbers: Mapping[str, float]) -> str:
        """Log the numbers of this step; the few that a person watches, as a text."""
        if logs is not None:
            logs.write(self.step, {**numbers, "time/cpu_seconds": self._cpu_seconds + time.process_time()})
        shown = {"return": "rollout/return", "resolved": "rollout/resolved", "held-out": "eval/resolved"}
        return ", ".join(f"{word} {numbers[name]:.2f}" for word, name in shown.items() if name in numbers)


def train(args: A, name: str, build: Callable[[A, Ranks], Algorithm]) -> int:
    """Train, from the last checkpoint in `args.out` on, and say where everything is.

    Returns:
        The exit code.

    Raises:
        UsageError: bad settings, or nothing to train on.
        InfrastructureError: the numbers diverged; all episodes broke.
    """
    try:
        run = Run(args, name, build)
        with contextlib.closing(run):
            run.train()
    except KeyboardInterrupt:
        path = checkpoints.latest(Path(args.out))
        kept = f"the same command goes on from {path}" if path else "there was no checkpoint yet"
        raise KeyboardInterrupt(f"interrupted; {kept}") from None
    if run.ranks.first:
        print(
            f"wrote {args.out}/model, {args.out}/metrics.jsonl\ntensorboard --logdir {args.out}/tensorboard"
        )
    return console.OK


def optimizer_step(
    optimizer: torch.optim.Optimizer, ranks: Ranks, loss: float, max_grad_norm: float
) -> float:
    """Take the step that the accumulated gradients say, and clear them.

    Args:
        optimizer: of parameters that hold this process's part of the gradients.
        ranks: the others, which hold the rest.
        loss: the value whose gradients these are, to be told where it is not finite.
        max_grad_norm: gradients are scaled down to this norm, taken over all of the optimizer's parameters.

    Returns:
        The norm before.

    Raises:
        InfrastructureError: loss or gradients are not finite; no parameter was changed.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = ranks.sum_gradients(parameters)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise InfrastructureError(
            f"the loss is {loss} and its gradient's norm {norm}: training diverged; try a smaller --lr"
        )
    if norm > max_grad_norm:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(max_grad_norm / norm)
    optimizer.step()
    optimizer.zero_grad()
    return norm


def _peak_mb(device: torch.device) -> float:
    """Most memory this process ever held: of the GPU if it computes there, else of the machine."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
