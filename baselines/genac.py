"""GenAC: an actor that learns by PPO and a critic that reasons in words before it says what a state is worth.

The critic (arXiv 2604.10701) is a language model of its own. It is told who acts, how that agent did of late, the run
so far and the budget that is left; it writes reasons and answers with a whole number from 0 to 10: ten times the score
that it expects from there on. It is asked before the first token of each reply and before tokens that the policy
itself found unlikely; the tokens from one such state to the next share one advantage. Training has three stages, each
so many updates long:

    --sft N       the critic imitates the rationales of a teacher (`--teacher`, see rationales.py); the actor rests
    --warmup N    the critic learns from outcomes by REINFORCE; the actor rests
    the rest      both learn from each batch, the actor by PPO with advantages from the critic's values

`--critic scalar` puts a value head in place of the words, `--critic constant` the smoothed mean of the outcomes: same
questions, same states, same outcomes.

What is not as published, and why:
    A state is judged `--judgements` times and valued with the mean, where the paper asks once: the same samples then
    give the leave-one-out baseline, without which every well-formed answer is pushed up (its reward is never below 0).
    Values come from the samples the critic learns from, at temperature 1, not from a second, greedy pass.
    A malformed answer earns 0 and counts in `value/parse_rate`; a state without any well-formed one takes the agent's
    mean return of late (`value/fallback` counts these), not 0, which would push up whatever was done there.
    Numbers above 10 and fractions are malformed; derivative code clamps them. The critic is asked for whole numbers.
    Running out of turns is not bootstrapped: the budget is in the question, so it is part of the task.
    Limits on the critic's reply default to 128 tokens, not 1024: for models of this size.
    Left out: replaying final states, holding out prompts for calibration (the metrics are computed on each batch before
    the critic learns from it).

Example:
    python -m baselines.genac --env baselines.toys:Box-v0 --max-new-tokens 16 --sft 3 --warmup 3 --out runs/box
    python -m baselines.genac --env agentgym/Relay-v0 --sft 5 --teacher baselines.rationales:relay --out runs/relay
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from agentgym.cli import guarded
from agentgym.cli.arguments import constructor_errors
from agentgym.credit import span_gae, whiten
from agentgym.errors import UsageError
from agentgym.messages import Conversation
from agentgym.rollout import make_env
from baselines import sharding
from baselines.actor import Actor
from baselines.critic import Baseline, GenerativeCritic, Judged, ModelCritic, ValueCritic, quality, smoothed
from baselines.critic_prompt import ANSWER_END, Agent, State, span_starts, states_of, value_prompt
from baselines.flags import World, arguments, check_numbers, check_whole, worlds
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.plain_critics import ConstantCritic, ScalarCritic
from baselines.policy import PolicyArgs, PolicyLearner
from baselines.rationales import asked, teacher_of, usable
from baselines.rollouts import Array, Batch
from baselines.run import train


@dataclass(frozen=True)
class Args(PolicyArgs):
    """Flags of ``python -m baselines.genac``."""

    groups: int = 64
    """Tasks played for each update."""
    group_size: int = 1
    """Episodes of each task: the critic is the baseline, so one is enough."""

    sft: int = 0
    """Stage 1: in the first N updates the critic imitates a teacher's rationales, and the actor rests."""
    teacher: str = "rate"
    """Of stage 1: rate (the form alone, any environment), openai:MODEL, or module:attribute."""
    sft_batch: int = 16
    """Of stage 1: states of one optimizer step."""
    warmup: int = 0
    """Stage 2: in the next N updates the critic alone learns, from outcomes."""

    critic: Literal["generative", "scalar", "constant"] = "generative"
    """What values states: words, a value head on the same question, or the smoothed mean of the outcomes."""
    critic_model: str | None = None
    """As --model, for the critic. Default: the one that --model names."""
    critic_lr: float = 1e-5
    """Step size of AdamW for the critic."""
    critic_epochs: int = 1
    """Passes of the critic over a batch, in every stage."""
    critic_minibatches: int = 1
    """Its steps on outcomes in each pass. Before each but the first it is asked anew."""
    critic_tokens: int = 128
    """Most tokens of one answer; the paper has 1024."""
    critic_temperature: float = 1.0
    """Of the sampling of answers; above 0, since the critic learns from what it samples."""
    judgements: int = 4
    """Answers to each question."""
    baseline: Baseline = "state"
    """What an answer's reward is compared with, itself left out: the state's other answers; all of the batch; those
    whose outcome was the same; nothing."""
    condition: bool = True
    """Tell the critic who acts and how that agent did of late."""

    span_probability: float = 0.2
    """Judge the state before each token that was less probable than this, besides that before each reply."""
    span_tokens: int = 0
    """Above 0, in place of --span-probability: judge the state before every Nth token."""
    max_spans: int = 16
    """Most states judged in a segment; more are thinned evenly, those before a reply last."""
    lam: float = 1.0
    """Lambda of the advantages (GAE), which counts judged states: at 1 what came less the value; below, later values
    replace some of what came."""
    across: Literal["stitch", "decay", "independent"] = "stitch"
    """How credit crosses a compaction where lambda is not 1 (see docs/credit.md)."""
    whiten: bool = False
    """Bring the batch's advantages to mean 0 and deviation 1."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        check_whole(self, "sft warmup span_tokens", least=0)
        check_whole(
            self, "sft_batch critic_epochs critic_minibatches critic_tokens judgements max_spans", least=1
        )
        check_numbers(self, "critic_lr")
        check_numbers(self, "critic_temperature", above=0)
        check_numbers(self, "lam span_probability", most=1)
        if self.judgements < 2 and self.critic == "generative" and self.baseline == "state":
            raise UsageError(
                "--baseline state compares a state's answers, and --judgements 1 has no others: take --baseline batch"
            )


@dataclass(frozen=True)
class Spans:
    """The states of a batch that are judged, S of them, in the order of the segments.

    Attributes:
        starts: per segment, where its spans begin.
        states: (S,).
        prompts: (S,), the questions.
    """

    starts: list[list[int]]
    states: list[State]
    prompts: list[Conversation]

    def by_segment(self, numbers: Array) -> list[Array]:
        """(S,) as one array for each segment."""
        return np.split(numbers, np.cumsum([len(row) for row in self.starts])[:-1])


class GenAC(PolicyLearner):
    """A policy and the critic that judges it.

    Args:
        args: see `Args`.
        ranks: the processes of the run.

    Attributes:
        critic: of states.
        agent: the policy as the critic is told of it.
        max_turns: of each environment by its name in the run; None where it does not tell.
    """

    def __init__(self, args: Args, ranks: Ranks) -> None:
        self.args = args
        self.teacher = teacher_of(args.teacher)
        super().__init__(args, ranks)
        if isinstance(self.critic, ModelCritic):
            self.critic.optimizer = self._adamw(self.critic.parameters(), args.critic_lr)
        parameters = sum(parameter.numel() for parameter in self.actor.model.parameters())
        self.agent = Agent(Path(args.model).name, parameters)
        self.max_turns = {world.name: _max_turns(world) for world in worlds(args)}

    def more_models(self) -> Sequence[Any]:
        """The critic's, where it has one."""
        args = self.args
        if args.critic == "constant":
            self.critic: ValueCritic = ConstantCritic(self.ranks)
            return []
        model = Actor(
            args.critic_model or args.model,
            device=str(self.ranks.device),
            autocast=args.autocast,
            lora_rank=args.lora_rank,
            recompute_layers=args.recompute_layers,
            max_tokens=args.pack_tokens,
            seed=args.seed + 1,
            max_batch=args.batch,
            temperature=args.critic_temperature,
            max_new_tokens=args.critic_tokens,
            stop=(ANSWER_END,),
        )
        if args.critic == "scalar":
            self.critic = ScalarCritic(model, self.ranks, max_grad_norm=args.max_grad_norm)
        else:
            self.critic = GenerativeCritic(
                model,
                self.ranks,
                judgements=args.judgements,
                baseline=args.baseline,
                max_grad_norm=args.max_grad_norm,
            )
        return [model.model]

    def update(self, batch: Batch, costs: Costs) -> dict[str, float]:
        """Judge the batch's states, then teach critic and actor what the stage says; the numbers to log."""
        args = self.args
        spans = self._spans(batch)
        rewards = batch.paid()
        nothing = np.zeros(len(spans.states))
        came, _ = self._credit(batch, rewards, spans, nothing, lam=1.0)
        outcomes = np.round(came, 9)  # (S,); sums of rewards that differ by rounding are the same outcome
        if outcomes.min() < 0 or outcomes.max() > 1:
            raise UsageError(
                f"expected returns in [0, 1], which answers from 0 to 10 stand for; got {outcomes.min():g} to "
                f"{outcomes.max():g}"
            )
        if self.updates < args.sft:
            numbers = self._imitate(spans, costs)
            self.updates += 1
        else:
            with self.whole():
                judged = self.critic.judge(spans.prompts, (args.seed, 5, self.updates), costs)
            numbers = quality(judged, outcomes)
            if self.critic.samples and numbers["value/fallback"] == 1.0:
                warnings.warn(
                    f"step {self.updates}: the critic wrote no well-formed answer for any of {len(outcomes)} states, "
                    "which all take the mean return of late; teach it the form with a larger --sft or --critic-lr, or "
                    "take a --critic-model whose tokenizer knows the words of <answer>7</answer>",
                    stacklevel=1,
                )
            fallback = float(np.nanmean(batch.returns)) if self.agent.success is None else self.agent.success
            values = np.where(np.isnan(judged.values), fallback, judged.values)
            if self.updates >= args.sft + args.warmup:
                _, advantages = self._credit(batch, rewards, spans, values, lam=args.lam)
                numbers |= self.learn(
                    batch, whiten(advantages, batch.masks) if args.whiten else advantages, costs
                )
            else:
                self.updates += 1
            numbers |= self._learn_values(judged, outcomes, costs)
        self.agent = replace(
            self.agent, success=smoothed(self.agent.success, float(np.nanmean(batch.returns)))
        )
        return numbers

    # -- states and credit ---------------------------------------------------------------------------------------------

    def _spans(self, batch: Batch) -> Spans:
        """Which states are judged, and the questions about them."""
        args = self.args
        starts = [
            span_starts(
                segment.mask,
                segment.logprobs,
                probability=args.span_probability,
                every=args.span_tokens,
                most=args.max_spans,
            )
            for segment in batch.segments
        ]
        states = [
            state
            for segment, n, row in zip(batch.segments, batch.rollouts, starts, strict=True)
            for state in states_of(
                batch.trajectories[n],
                segment,
                row,
                self._decode,
                max_turns=self.max_turns.get(batch.trajectories[n].extra.get("env", args.env)),
                max_new_tokens=args.max_new_tokens,
            )
        ]
        agent = self.agent if args.condition else None
        return Spans(starts, states, [value_prompt(state, agent) for state in states])

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.actor.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _credit(
        self, batch: Batch, rewards: list[Array], spans: Spans, values: Array, *, lam: float
    ) -> tuple[Array, list[Array]]:
        """Returns of spans, (S,), and advantages of tokens, per segment (T_k,), 0 at masked ones.

        With `lam` 1 the returns are what came after each state, whatever the values.
        """
        by_segment = spans.by_segment(values)
        returns: list[Array] = [np.zeros(0)] * len(batch.segments)
        advantages: list[Array] = [np.zeros(0)] * len(batch.segments)
        for chain, *_ in batch.chains:
            credit = span_gae(
                [rewards[k] for k in chain],
                [by_segment[k] for k in chain],
                [batch.masks[k] for k in chain],
                [spans.starts[k] for k in chain],
                across=self.args.across,
                lam=lam,
            )
            for k, advantage, target in zip(chain, *credit, strict=True):
                advantages[k], returns[k] = advantage, target[spans.starts[k]]
        return np.concatenate(returns), advantages

    # -- the critic ----------------------------------------------------------------------------------------------------

    def _imitate(self, spans: Spans, costs: Costs) -> dict[str, float]:
        """Stage 1: teach the critic what a teacher says of these states."""
        # Each process asks about its part: a teacher that samples would tell each of them something else.
        mine = self.ranks.part([1] * len(spans.states))
        rationales = usable(self.ranks.gather(asked(self.teacher, spans.states[mine], self.agent)))
        if not rationales.states:
            raise UsageError(
                f"--teacher {self.args.teacher}: expected words with a well-formed answer, got none for "
                f"{len(spans.states)} states"
            )
        numbers = {
            "sft/dropped": rationales.dropped,
            "sft/failed": rationales.failed,
            "sft/states": float(len(rationales.states)),
        }
        steps = []
        count = len(rationales.states)
        for part, _ in self._parts(count, -(-count // self.args.sft_batch)):
            prompts = [spans.prompts[rationales.states[n]] for n in part]
            steps.append(self.critic.imitate(prompts, [rationales.texts[n] for n in part], costs))
        return numbers | _means("sft", steps)

    def _learn_values(self, judged: Judged, outcomes: Array, costs: Costs) -> dict[str, float]:
        """Teach the critic what came: `--critic-epochs` passes, each of `--critic-minibatches` steps."""
        steps = []
        for part, seed in self._parts(len(outcomes), self.args.critic_minibatches):
            asked = judged.part(part)
            if self.critic.samples and judged.version != self.critic.version:
                with self.whole():
                    asked = self.critic.judge(asked.prompts, seed, costs)
            steps.append(self.critic.learn(asked, outcomes[part], costs))
        return _means("value", steps)

    def _parts(self, count: int, pieces: int) -> list[tuple[list[int], tuple[int, ...]]]:
        """The states in `pieces` parts in each pass, a step of the critic each; and a seed for each step."""
        args = self.args
        parts: list[tuple[list[int], tuple[int, ...]]] = []
        for epoch in range(args.critic_epochs):
            order = np.random.default_rng((args.seed, 6, self.updates, epoch)).permutation(count)
            split = np.array_split(order, min(pieces, count))
            parts += [
                (sorted(piece.tolist()), (args.seed, 7, self.updates, epoch, n))
                for n, piece in enumerate(split)
            ]
        return parts

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Weights and optimizers of both, number of updates, how the agent did of late."""
        own = {"critic": self.critic.state(), "success": self.agent.success}
        if isinstance(self.critic, ModelCritic):
            own["critic_optimizer"] = sharding.optimizer_state(self.critic.optimizer)
        return super().state() | own

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        super().load(state)
        self.critic.load(state["critic"])
        self.agent = replace(self.agent, success=state["success"])
        if isinstance(self.critic, ModelCritic):
            sharding.load_optimizer(self.critic.optimizer, state["critic_optimizer"])


def _max_turns(world: World) -> int | None:
    with constructor_errors():
        env = make_env(world.id, env_kwargs=world.stack.environment())
    with contextlib.closing(env):
        turns: int | None = getattr(env.unwrapped, "max_turns", None)
    return turns


def _means(prefix: str, steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Numbers of several steps as one line to log."""
    names = {name for step in steps for name in step}
    return {
        f"{prefix}/{name}": float(np.mean([step[name] for step in steps if name in step]))
        for name in sorted(names)
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.genac``."""
    return train(arguments(Args, "genac", __doc__, words), "genac", GenAC)


if __name__ == "__main__":
    sys.exit(guarded(main))
