"""OPID: GRPO with hindsight skills distilled into the tokens that they would have changed (arXiv 2606.26790).

After a batch is played an analyser writes down what each rollout teaches: one skill for the episode and some for single
decisions. The skill is put into the history of the replies it is about, and the weights that sampled score the *same*
sampled ids once with it and once without. What the skill makes likelier is encouraged, what it makes less likely is
discouraged:

    A_skill(token) = log p(token | history with the skill) - log p(token | history)
    A(token)       = A of GRPO + episode weight * A_skill of episode skills + step weight * A_skill of step skills

A reply gets its step skill where it has one, else the episode skill (`--routing critical_first`). The policy that acts,
the ratios and the divergence from the first model (`--kl-coef`) never see a skill.

    | what                              | flags                                                               |
    |-----------------------------------|---------------------------------------------------------------------|
    | the published settings            | --prompts alfworld --groups 16 --lr 1e-6 --dual-clip 3              |
    |                                   | --kl-coef 0.01 --entropy-coef 0.001 --statistics steps              |
    | its WebShop-7B and Qwen3 runs     | the same and --estimator dr_grpo                                    |
    | both skills summed (its ablation) | --routing additive                                                  |
    | GRPO, bit for bit                 | --episode-skill 0 --step-skill 0                                    |

What differs from the authors' code, and why:
- Groups are compared over trajectories. Theirs repeats a return for every step, so that long episodes weigh more:
  `--statistics steps`. A group of one step keeps its raw score there; here its advantage is 0.
- Nothing is cut from the left to fit. Their prompt with the skill has the same limit as the one without, and near it
  loses its head: A_skill then measures the cut. Here such replies have no A_skill, and are counted.
- Without `--prompts` a conversation is one row, and its episode skill stands once, in the task. Theirs has a row and a
  prompt for every turn, as `--prompts` makes them.
- Skills are about turns of the leading agent: no summaries, no sub-agents, whose tasks are others.
- The words around a skill and those that ask the analyser are ours. The default analyser needs no model.
- Left out: the penalty on invalid actions, which is an environment's to pay, and the reward of 10 for success, which
  changes nothing but the size of A with `--estimator dr_grpo`.

Example:
    python -m baselines.opid --env agentgym/TextWorld-v0 --max-turns 10 --out runs/opid
    python -m baselines.opid --env agentgym/ALFWorld-v0 --prompts alfworld --analyser openai:MODEL --out runs/opid
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import numpy as np

from agentgym.cli import guarded
from agentgym.cli.arguments import constructor_errors
from agentgym.credit import group_advantages
from agentgym.credit.groups import differ
from agentgym.endpoint import Endpoint
from agentgym.errors import UsageError, nearest
from agentgym.policies.hf import HFPolicy
from agentgym.trajectory.records import Sampled, Segment
from baselines import grpo
from baselines.flags import arguments, check_numbers, check_whole
from baselines.grpo import GRPO
from baselines.histories import Histories, positions
from baselines.metrics import Costs
from baselines.packs import Row
from baselines.parallel import Ranks
from baselines.rollouts import Array, Batch
from baselines.run import train
from baselines.skill_rules import RuleAnalyser, SolverAnalyser
from baselines.skills import Analyser, LanguageAnalyser, Skills, ask_endpoint, ask_policy, turns

Kind: TypeAlias = Literal["episode", "step"]
_SOLVER = ("oracle", "inverted", "random")
ANALYSERS = ("rules", "policy", "openai:MODEL", *_SOLVER, "none")

EPISODE, STEP = "Advice from an attempt at this task: ", "Advice for this decision only: "
# The line that says what the task is, and the one that asks for the next action: in our forms of --prompts, and in
# verl-agent's.
_TASK = re.compile(r"^.*\b(?:task is to|task|question|instruction) ?: *\S.*$", re.MULTILINE | re.IGNORECASE)
_ASKING = re.compile(
    r"^.*(?:now it's your turn|choose what to do now|say what to do now)", re.MULTILINE | re.IGNORECASE
)


@dataclass(frozen=True)
class Args(grpo.Args):
    """Flags of ``python -m baselines.opid``."""

    analyser: str = "rules"
    """Who finds skills: rules (no model), policy (the model in training), openai:MODEL; for studies oracle (the
    environment's solver), inverted, random, none."""
    analyser_tokens: int = 1024
    """Most tokens of a model's answer; the authors' have 4096."""
    analyser_workers: int = 16
    """With openai:MODEL: questions at a time."""
    step_skills: int = 5
    """Most step skills of a rollout; the authors have 2 on search tasks."""
    episode_skill: float = 0.001
    """Weight of A_skill (see above) in a token's advantage where it comes of an episode skill; 0: none."""
    step_skill: float = 0.001
    """The same where it comes of a step skill."""
    routing: Literal["critical_first", "additive"] = "critical_first"
    """A reply's step skill, else the episode skill; or both, summed."""
    skill_scale: Literal["none", "std"] = "none"
    """std: divide A_skill by its standard deviation over the batch."""
    skill_clip: float | None = None
    """Bound on the absolute value of A_skill, after --skill-scale."""
    skill_from: int = 0
    """Take no skills in the first N updates."""
    skill_until: int | None = None
    """Take none from update N on."""
    statistics: Literal["trajectories", "steps"] = "trajectories"
    """Compare returns over a group's trajectories, or repeat each for every step of it."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        check_whole(self, "step_skills skill_from", least=0)
        check_whole(self, "analyser_tokens analyser_workers", least=1)
        if self.skill_until is not None:
            check_whole(self, "skill_until", least=0)
        check_numbers(self, "episode_skill step_skill")
        check_numbers(self, "skill_clip", above=0)
        if self.analyser not in ANALYSERS and not re.fullmatch("openai:.+", self.analyser):
            raise UsageError(f"unknown analyser {self.analyser!r}.{nearest(self.analyser, ANALYSERS)}")
        if self.analyser in _SOLVER and self.also:
            raise UsageError(
                f"--analyser {self.analyser} plays episodes of one environment again, and --also gives more"
            )


class Reading(NamedTuple):
    """Replies of a segment under a history with a skill.

    Attributes:
        segment: index in the batch.
        kind: of the skill.
        row: the new history and the same sampled tokens.
        at: (m,), where these tokens stand in the segment.
    """

    segment: int
    kind: Kind
    row: Row
    at: np.ndarray


class OPID(GRPO):
    """Policy gradients against siblings and towards what hindsight advises.

    Args:
        args: see `Args`.
        ranks: the processes of the run.
    """

    def __init__(self, args: Args, ranks: Ranks) -> None:
        super().__init__(args, ranks)
        self.args: Args = args
        self.analyser = self._analyser()
        self.histories = Histories(self.actor.tokenizer, self.actor.policy.end_ids)

    def compare(self, returns: Array, batch: Batch, **how: Any) -> Array:
        """Each trajectory beside its siblings, (N,)."""
        if self.args.statistics == "trajectories":
            return super().compare(returns, batch, **how)
        counts = [max(1, t.turns) for t in batch.trajectories]
        of_steps = group_advantages(
            np.repeat(returns, counts), np.repeat(batch.groups, counts).tolist(), **how
        )
        first: Array = of_steps[np.cumsum([0, *counts[:-1]])]
        return first

    def token_advantages(self, batch: Batch, costs: Costs) -> tuple[list[Array], dict[str, float]]:
        """GRPO's, with what the skills say of each token."""
        args = self.args
        advantages, numbers = super().token_advantages(batch, costs)
        ended = args.skill_until is not None and self.updates >= args.skill_until
        if ended or self.updates < args.skill_from or not (args.episode_skill or args.step_skill):
            return advantages, numbers
        skills, told = self.skills(batch)
        readings, lost = self.readings(batch, skills)
        terms, measured = self.skill_advantages(batch, readings)
        weights: dict[Kind, float] = {"episode": args.episode_skill, "step": args.step_skill}
        for kind, of_segments in terms.items():
            for k, term in of_segments.items():
                advantages[k] = advantages[k] + weights[kind] * term
        return advantages, numbers | told | lost | measured

    # -- skills --------------------------------------------------------------------------------------------------------

    def skills(self, batch: Batch) -> tuple[dict[int, Skills], dict[str, float]]:
        """The skills of each trajectory that is trained on, and numbers on their finding."""
        chosen = sorted(set(batch.rollouts))
        mine = chosen[self.ranks.part([1] * len(chosen))]
        with self.whole():  # the policy may be asked
            found = self.ranks.gather(
                self.analyser.analyse(batch.trajectories, mine) if mine and self.analyser else ()
            )
        if not found:
            found = [Skills()] * len(chosen)
        count = len(found)
        return dict(zip(chosen, found, strict=True)), {
            "skill/episodes": sum(bool(skills.episode) for skills in found) / count,
            "skill/steps": sum(len(skills.steps) for skills in found) / count,
            "skill/failed": sum(bool(skills.failure) for skills in found) / count,
            "skill/second_tries": sum(skills.tries > 1 for skills in found) / count,
            "skill/stray": float(sum(skills.stray for skills in found)),
        }

    def readings(self, batch: Batch, skills: dict[int, Skills]) -> tuple[list[Reading], dict[str, float]]:
        """The replies under histories with their skills, and how many have none for what reason."""
        made: list[Reading] = []
        lost: Counter[str] = Counter()
        longest = min(self.actor.policy.context, self.args.pack_tokens)
        leading = [(k, chain.rollout) for chain in batch.chains if chain.leads for k in chain.segments]
        for k, n in leading:
            segment, plain = batch.segments[k], batch.rows[k]
            candidates = set(turns(batch.trajectories[n]))
            trained = [r for r in segment.sampled if r.step in candidates and len(positions(plain, [r]))]
            for kind, skill, replies in self._routed(skills[n], trained):
                row = self._read_again(segment, plain, kind, skill, replies)
                if row is None:
                    lost["unplaced"] += len(replies)
                    continue
                longer = len(row.ids) - replies[-1].stop
                fitting = [reply for reply in replies if reply.stop + longer <= longest]
                lost["too_long"] += len(replies) - len(fitting)
                if fitting:
                    at = positions(plain, fitting)
                    made.append(Reading(k, kind, row.first(fitting[-1].stop + longer), at))
        return made, {f"skill/{why}": float(lost[why]) for why in ("unplaced", "too_long")}

    def _routed(self, skills: Skills, replies: Sequence[Sampled]) -> list[tuple[Kind, str, list[Sampled]]]:
        """Which skill goes with which replies."""
        args = self.args
        steps = skills.steps if args.step_skill else {}  # else every reply has the episode skill
        own = [reply for reply in replies if reply.step in steps]
        rest = [reply for reply in replies if args.routing == "additive" or reply not in own]
        routed: list[tuple[Kind, str, list[Sampled]]] = []
        if args.episode_skill and skills.episode and rest:
            routed.append(("episode", skills.episode, rest))
        return [*routed, *(("step", steps[r.step], [r]) for r in own if r.step is not None)]

    def _read_again(
        self, segment: Segment, plain: Row, kind: Kind, skill: str, replies: Sequence[Sampled]
    ) -> Row | None:
        """Some replies after a history with the skill; None where it has no place."""
        asked = [i for i, m in enumerate(segment.messages[: replies[0].message]) if m.role == "user"]
        text = self.histories.without_control_tokens(skill)
        if not asked or not text.strip():
            return None
        if kind == "episode":
            return self.histories.edited(
                segment, plain, asked[0], lambda m: with_episode_skill(m, text), replies
            )
        return self.histories.edited(segment, plain, asked[-1], lambda m: with_step_skill(m, text), replies)

    # -- advantages ----------------------------------------------------------------------------------------------------

    def skill_advantages(
        self, batch: Batch, readings: Sequence[Reading]
    ) -> tuple[dict[Kind, dict[int, Array]], dict[str, float]]:
        """A_skill by kind and segment, (T_k,) each, 0 at tokens without a skill; and numbers on it."""
        wanted: dict[int, np.ndarray] = {}  # by segment, (T_k,), the tokens that have a skill
        for k, _, _, at in readings:
            wanted.setdefault(k, np.zeros(len(batch.rows[k].ids), bool))[at] = True
        plain = [
            Row(batch.rows[k].ids, mask, batch.rows[k].temperature).first(int(np.flatnonzero(mask)[-1]) + 1)
            for k, mask in wanted.items()
        ]
        rows = [*plain, *(reading.row for reading in readings)]
        # One call, before any step of the optimizer: the same weights, arithmetic and packing for both histories.
        scored = [score.double().numpy() for score in self.rescore(rows)]
        before = {k: np.zeros(len(mask)) for k, mask in wanted.items()}
        for (k, mask), score in zip(wanted.items(), scored, strict=False):
            before[k][mask] = score
        after = zip(readings, scored[len(plain) :], strict=True)
        gained = [score - before[reading.segment][reading.at] for reading, score in after]
        numbers = _measured(batch, readings, gained)
        numbers["skill/scored_tokens"] = float(sum(len(row.ids) for row in rows))
        terms: dict[Kind, dict[int, Array]] = {"episode": {}, "step": {}}
        for (k, kind, _, at), gain in zip(readings, self._tamed(gained), strict=True):
            terms[kind].setdefault(k, np.zeros(len(batch.rows[k].ids)))[at] += gain
        return terms, numbers

    def _tamed(self, gained: list[Array]) -> list[Array]:
        """Scaled and clipped, as the flags say."""
        if self.args.skill_scale == "std" and gained:
            together = np.concatenate(gained)
            gained = [gain / together.std() for gain in gained] if differ(together) else gained
        clip = self.args.skill_clip
        return gained if clip is None else [np.clip(gain, -clip, clip) for gain in gained]

    # -- the analyser --------------------------------------------------------------------------------------------------

    def _analyser(self) -> Analyser | None:
        """As --analyser names it; None for none."""
        args, name = self.args, self.args.analyser
        if name == "none":
            return None
        if name == "rules":
            return RuleAnalyser(args.step_skills)
        if name in _SOLVER:
            with constructor_errors():
                env = gymnasium.make(args.env, **args.stack.environment())
            return SolverAnalyser(env, name, most_steps=args.step_skills, seed=args.seed)  # type: ignore[arg-type]
        if name == "policy":
            policy = HFPolicy(
                args.model,
                model=self.actor.model,
                tokenizer=self.actor.tokenizer,
                temperature=0.0,
                max_new_tokens=args.analyser_tokens,
                max_batch=args.batch,
                autocast=args.autocast,
                cache_tokens=0,  # the weights change
            )
            return LanguageAnalyser(ask_policy(policy), args.step_skills)
        endpoint = Endpoint(name.removeprefix("openai:"))
        ask = ask_endpoint(endpoint, args.analyser_workers, max_completion_tokens=args.analyser_tokens)
        return LanguageAnalyser(ask, args.step_skills)


def with_episode_skill(text: str, skill: str) -> str:
    """A message with a skill after the line that says the task, else where a step skill would stand."""
    line = _TASK.search(text)
    if line is None:
        return with_step_skill(text, skill, EPISODE)
    return f"{text[: line.end()]}\n{EPISODE}{skill}{text[line.end() :]}"


def with_step_skill(text: str, skill: str, label: str = STEP) -> str:
    """A message with a skill before the line that asks for an action, else at its end."""
    line = _ASKING.search(text)
    return (
        f"{text}\n\n{label}{skill}"
        if line is None
        else f"{text[: line.start()]}{label}{skill}\n\n{text[line.start() :]}"
    )


def _measured(batch: Batch, readings: Sequence[Reading], gained: Sequence[Array]) -> dict[str, float]:
    """Share of trained tokens with an A_skill, and its mean: of each kind, in absolute value, by outcome."""
    numbers = {"skill/tokens": sum(map(len, gained)) / sum(int(row.mask.sum()) for row in batch.rows)}
    solved = [bool(batch.trajectories[batch.rollouts[reading.segment]].resolved) for reading in readings]
    parts = {
        "episode": [
            gain for gain, reading in zip(gained, readings, strict=True) if reading.kind == "episode"
        ],
        "step": [gain for gain, reading in zip(gained, readings, strict=True) if reading.kind == "step"],
        "absolute": [np.abs(gain) for gain in gained],
        "solved": [gain for gain, good in zip(gained, solved, strict=True) if good],
        "failed_episodes": [gain for gain, good in zip(gained, solved, strict=True) if not good],
    }
    return numbers | {
        f"skill/{name}_advantage": float(np.concatenate(p).mean()) for name, p in parts.items() if p
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.opid``."""
    return train(arguments(Args, "opid", __doc__, words), "opid", OPID)


if __name__ == "__main__":
    sys.exit(guarded(main))
