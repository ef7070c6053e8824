"""On-policy distillation: the student plays, and teachers say of every token how likely it is to them.

What is minimised is the divergence of the student from the teacher, in the contexts that the student itself comes to.
Each task has one teacher (`--route`), so several experts merge into one student; the outcome can be weighed in.

    | --form  | at every position, compared are                 | gradient                                        |
    |---------|-------------------------------------------------|-------------------------------------------------|
    | sampled | the token that was sampled                      | the advantage is lowered by c (log pi - log q)  |
    | drawn   | --draws more tokens, drawn from the student     | of KL(student, teacher), estimated with these   |
    | full    | all tokens of the vocabulary                    | of KL(student, teacher), or --divergence        |
    |         |                                                 | forward: KL(teacher, student)                   |

pi is the student, q the teacher, both at the temperature of the rollouts; c is --coef. `sampled` is the published form:
slime has the term beside GRPO's advantage, "On-Policy Distillation" (Thinking Machines, 2025) has it alone. It is the
only one in which a server can be the teacher. --outcome-weight says how much of GRPO's advantage there is beside it.

With `--hint` the teacher reads more than the student: a field of the task, a text from a file, or how a sibling solved
it. The ids that are scored are the same. The teacher may then be the student itself: `--teacher self`.

Deviations, and why:

- The log-probs of the student in the term are the trainer's, at the weights that are trained; those recorded in
  sampling with --old sampled. They differ by rounding, unless --data is old: there only the first are right.
- `drawn` and `full` have no place in the published form; they minimise the same divergence without waiting for the
  environment to show its tokens one by one. Both are losses beside the policy's, not advantages: no ratio, no clip.
- A hint stands at the end of the first message, without the published instructions around it.
- What a teacher cannot read with its hint is left out and counted (teacher/unread_segments), never cut to fit.

Example:
    python -m baselines.distill --env agentgym/Relay-v0 --teacher runs/expert/model --out runs/student
    python -m baselines.distill --env agentgym/Relay-v0 --also agentgym/ALFWorld-v0 --form full --out runs/merged
        --teacher agentgym/Relay-v0=runs/a/model --teacher agentgym/ALFWorld-v0=runs/b/model
    python -m baselines.distill --env agentgym/Relay-v0 --teacher http://127.0.0.1:8000/v1#big --out runs/served
    python -m baselines.distill --env agentgym/Relay-v0 --teacher self --hint sibling --outcome-weight 1 --out runs/own
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import tyro
from torch import Tensor

from agentgym.cli import guarded
from agentgym.errors import UsageError
from agentgym.policies.attention import head
from agentgym.trajectory.records import Segment, Trajectory
from baselines import grpo
from baselines.actor import Pack, Row
from baselines.divergence import divergence, drawn_divergence
from baselines.flags import arguments, check_numbers, check_whole
from baselines.histories import Histories
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.policy import Beside, Tokens
from baselines.rollouts import Array, Batch, Rollouts
from baselines.routing import Hints, Routes
from baselines.run import train
from baselines.teachers import SELF, LocalTeacher, is_served, open_teachers, places_of


@dataclass(frozen=True)
class Args(grpo.Args):
    """Flags of ``python -m baselines.distill``."""

    teacher: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Who teaches: a model as --model takes it, URL#MODEL for a server that scores prompts, or self. KEY=WHERE where
    there are several: the tasks of KEY are WHERE's (see --route)."""
    route: str = "env"
    """What a task's KEY is: env (its environment), a field of its data, or a JSON file {task id: KEY} with "*" for all
    others."""
    form: Literal["sampled", "drawn", "full"] = "sampled"
    """Which tokens student and teacher are compared at; see the table above."""
    draws: int = 4
    """With --form drawn: tokens at each position, at least 2."""
    divergence: Literal["reverse", "forward"] = "reverse"
    """With --form full: KL(student, teacher) or KL(teacher, student)."""
    coef: float = 1.0
    """Weight of what the teacher says: of the term in the advantage, or of the divergence (see the table above)."""
    outcome_weight: float = 0.0
    """Weight of the outcome's advantage (--estimator); 0: the teacher alone."""
    hint: str | None = None
    """What only the teacher reads, at the end of the first message: a field of the task's data, a JSON file
    {task id: text}, or sibling (what a rollout of the same group wrote that solved it)."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        check_numbers(self, "coef outcome_weight")
        if not self.coef and not self.outcome_weight:
            raise UsageError(
                "with --coef 0 and --outcome-weight 0 there is nothing to learn from; give one of them"
            )
        check_whole(self, "draws", least=2)  # each is the others' baseline
        if self.divergence == "forward" and self.form != "full":
            raise UsageError("--divergence forward needs the teacher's whole distribution: --form full")
        places = places_of(self.teacher).values()
        if self.temperature != 1 and any(map(is_served, places)):
            raise UsageError(
                f"a served teacher scores at 1: expected --temperature 1, got {self.temperature:g}"
            )
        own = SELF in places
        if own and self.hint is None:
            raise UsageError("--teacher self knows no more than the student; give it something with --hint")
        if own and self.form != "sampled" and self.shard:
            raise UsageError("--teacher self with --shard can only score what was sampled: --form sampled")

    def compares_siblings(self) -> bool:
        """See `grpo.Args`: a teacher needs none."""
        return self.outcome_weight > 0 and super().compares_siblings()


class Distill(grpo.GRPO):
    """A student and its teachers.

    Args:
        args: see `Args`.
        ranks: the processes of the run.

    Attributes:
        teachers: by key.
    """

    args: Args

    def __init__(self, args: Args, ranks: Ranks) -> None:
        super().__init__(args, ranks)
        # A divergence at given contexts can be minimised whoever came to them; the other terms are policy gradients.
        self.any_data = args.form != "sampled" and args.outcome_weight == 0
        self.teachers = open_teachers(args.teacher, self.actor, scores_only=args.form == "sampled")
        self.histories = Histories(self.actor.tokenizer, self.actor.policy.end_ids)
        self._routes: Routes | None = None
        self._hints: Hints | None = None

    def sample(self, rollouts: Rollouts) -> list[Trajectory]:
        """Play a batch; before the first one, find out whether every task has its teacher."""
        if self._routes is None:
            self._routes = Routes(list(self.teachers), self.args.route, rollouts)
            self._hints = None if self.args.hint is None else Hints(self.args.hint, rollouts)
        return super().sample(rollouts)

    def token_advantages(self, batch: Batch, costs: Costs) -> tuple[list[Array], dict[str, float]]:
        """The outcome's advantages and, with --form sampled, the teachers' term; per segment (T_k,)."""
        args = self.args
        outcome, numbers = super().token_advantages(batch, costs)
        advantages = [args.outcome_weight * row for row in outcome]
        if args.form != "sampled":
            return advantages, numbers
        terms, more = self._terms(batch)
        return [a + args.coef * t for a, t in zip(advantages, terms, strict=True)], numbers | more

    def update(self, batch: Batch, costs: Costs) -> dict[str, float]:
        """Learn from a batch; the numbers to log. Shapes: K segments, M_k trainable tokens of segment k."""
        args = self.args
        if args.form == "sampled":
            return super().update(batch, costs)
        advantages, numbers = self.token_advantages(batch, costs)
        keys, rows, more = self._readings(batch)
        columns = {"segment": [torch.full((int(row.mask.sum()),), k) for k, row in enumerate(batch.rows)]}
        if args.form == "drawn":
            rng = np.random.default_rng((args.seed, 6, self.updates))
            sizes = [(len(of), args.draws) for of in columns["segment"]]
            columns["uniform"] = [torch.from_numpy(rng.random(size)) for size in sizes]
        measured: list[tuple[float, int]] = []
        beside = self._divergence(keys, rows, measured)
        numbers |= more | self.learn(batch, advantages, costs, beside=beside, **columns)
        everybody = self.ranks.gather(measured)
        if everybody:
            numbers["teacher/divergence"] = sum(of for of, _ in everybody) / sum(n for _, n in everybody)
        return numbers

    def _readings(self, batch: Batch) -> tuple[list[str], list[Row | None], dict[str, float]]:
        """Of each segment (K,) its teacher's key, and what that reads: the same tokens, or more; and numbers.

        None where the teacher has no hint or no room for it.
        """
        assert self._routes is not None
        keys = [self._routes.of(batch.trajectories[n]) for n in batch.rollouts]
        rows: list[Row | None] = list(batch.rows)
        if self._hints is not None:
            hints = [self.histories.without_control_tokens(t) for t in self._hints.of(batch.trajectories)]
            for k, (key, n) in enumerate(zip(keys, batch.rollouts, strict=True)):
                told = self._told(batch.segments[k], batch.rows[k], hints[n])
                rows[k] = told if told is not None and self.teachers[key].fits(told) else None
        numbers = {
            "teacher/tokens": float(sum(len(row.ids) for row in rows if row is not None)),
            "teacher/unread_segments": sum(row is None for row in rows) / len(rows),
        }
        return keys, rows, numbers

    def _told(self, segment: Segment, row: Row, hint: str) -> Row | None:
        """A segment with a hint at the end of its first message to the policy; None where it has no place."""
        first = segment.sampled[0].message
        asked = [m for m, message in enumerate(segment.messages[:first]) if message.role == "user"]
        if not asked or not hint.strip():
            return None

        def add(text: str) -> str:
            return f"{text}\n\n{hint}"

        return self.histories.edited(segment, row, asked[0], add, segment.sampled)

    # -- the sampled tokens --------------------------------------------------------------------------------------------

    def _terms(self, batch: Batch) -> tuple[list[Array], dict[str, float]]:
        """Per segment (T_k,): log q - log pi at each trainable token, 0 where no teacher read it; and numbers."""
        keys, rows, numbers = self._readings(batch)
        recorded = self.args.old == "sampled" and self.args.data is None
        own = batch.on_tokens(batch.sampled) if recorded else self.rescore(batch.rows)
        mine = self.ranks.part([len(row.ids) for row in batch.rows])
        scored: list[tuple[int, Tensor]] = []
        with self.whole():
            for key, teacher in self.teachers.items():
                read = {k: rows[k] for k in range(mine.start, mine.stop) if keys[k] == key}
                asked = {k: row for k, row in read.items() if row is not None}
                if asked:
                    scored += zip(asked, teacher.score(list(asked.values())), strict=True)
        terms = [np.zeros(len(row.ids)) for row in batch.rows]
        gaps: dict[str, list[Array]] = {key: [] for key in self.teachers}
        for k, score in self.ranks.gather(scored):
            gap = (own[k].double() - score.double()).numpy()  # (M_k,)
            terms[k][batch.masks[k]] = -gap
            gaps[keys[k]].append(gap)
        together = np.concatenate([gap for of in gaps.values() for gap in of] or [np.zeros(0)])
        if len(together):
            numbers["teacher/gap"] = float(together.mean())
        named = {f"teacher/gap_{key}": of for key, of in gaps.items() if key and of}
        return terms, numbers | {name: float(np.concatenate(of).mean()) for name, of in named.items()}

    # -- whole distributions -------------------------------------------------------------------------------------------

    def _divergence(
        self, keys: Sequence[str], rows: Sequence[Row | None], measured: list[tuple[float, int]]
    ) -> Beside:
        """The loss of a pack of m trainable tokens; adds its sum of divergences and their number to `measured`."""

        def beside(pack: Pack, hidden: Tensor, tokens: Tokens) -> Tensor:
            segments = tokens["segment"]  # (m,)
            token = pack.token.to(segments.device)
            order = (segments * (token.max() + 1) + token).argsort()  # as the teachers' states come
            loss = hidden.new_zeros(())
            for key, teacher in self.teachers.items():
                read = {k: rows[k] for k in segments.unique().tolist() if keys[k] == key}
                asked = {k: row for k, row in read.items() if row is not None}
                if not asked:
                    continue
                assert isinstance(teacher, LocalTeacher)  # as `open_teachers` was told
                at = order[torch.isin(segments[order], torch.tensor(list(asked), device=segments.device))]
                states = teacher.states(list(asked.values()))  # (n, H'), before the tokens `at`
                apart = self._apart(teacher, hidden, states, pack, tokens, at)  # (n,)
                measured.append((apart.sum().item(), len(apart)))
                loss = loss + (tokens["weight"][at] * apart).sum()
            return self.args.coef * loss

        return beside

    def _apart(
        self, teacher: LocalTeacher, hidden: Tensor, states: Tensor, pack: Pack, tokens: Tokens, at: Tensor
    ) -> Tensor:
        """(n,), how far student and teacher are apart at n tokens of a pack; hidden (m, H), states (n, H')."""
        own = (head(self.actor.model), hidden[at])
        other = (head(teacher.actor.model), states)
        temperature = pack.temperature.to(hidden.device)[at]
        with self.actor.computing():
            if self.args.form == "drawn":
                return drawn_divergence(
                    own, other, temperature, tokens["uniform"][at], chunk=self.actor.chunk
                )
            kind = self.args.divergence
            return divergence(own, other, temperature, kind=kind, chunk=self.actor.chunk)


def main(words: Sequence[str] | None = None) -> int:
    """Run ``python -m baselines.distill``."""
    return train(arguments(Args, "distill", __doc__, words), "distill", Distill)


if __name__ == "__main__":
    sys.exit(guarded(main))
