"""What hindsight skills do: sign and size of their advantage, what truncation makes of it, and training with them.

    python -m benchmarks.opid [--seeds 0 1 2] [--quick] [--out DIR] [--json FILE]

The world is `benchmarks.opid_world:Advised-v0`, small generated games of TextWorld. A random transformer of 0.2 million
parameters first imitates a player who sometimes gets advice and follows it; one such model for each seed. Then:

- **Signs.** One batch is played and scored with the skills of the solver (oracle), of wrong actions (inverted), of
  random ones and of none. Mean A_skill per token, of replies that are the solver's action and of all others; and the
  share of replies on which its sum has the sign it should have. Each kind of skill by itself, step skills at each step.
- **The truncation trap.** The oracle's episode skills, where a history fits without them and not with them: scored
  whole, and cut from the left to the limit, as in a trainer that cuts prompts; and advice that says nothing, as long,
  for control. `baselines.opid` drops these replies.
- **Training.** GRPO and OPID from the same cloned models, on the same tasks, with the same number of episodes: weights,
  analysers, routing, and 60, 80 and 100 % of the tasks. Success and turns in the last quarter of the environment steps
  that every run had; and when all is done, on the games that were trained on, each once. (On games that it never saw
  this model solves next to nothing, before and after: it knows its games by heart.)

Figures are means over seeds, with 95 % t intervals. Runs that are in DIR already are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from agentgym.rollout import collect
from agentgym.trajectory.records import Sampled
from baselines import cloning, opid
from baselines.flags import arguments
from baselines.histories import positions
from baselines.logs import read_lines
from baselines.opid import OPID, Reading
from baselines.packs import Row
from baselines.parallel import Ranks
from baselines.rollouts import Batch, Rollouts, batch_of
from baselines.run import train
from baselines.skill_rules import SolverAnalyser, advice, workflow
from baselines.skills import Skills, said
from baselines.tiny import make_model, texts_of

WORLD = "benchmarks.opid_world:Advised-v0"
TABLES = ("signs", "trap", "training")
NOTHING = workflow(["look"] * 8)  # about as long as a real one


@dataclass(frozen=True)
class Budget:
    """How much of everything.

    Attributes:
        games, held_out: of the training split and of the test split.
        cloned: updates of imitation, of `shown` episodes each.
        updates: of each run, of `groups` games played four times, in at most 4 turns.
        scored: games of the batch that is scored.
    """

    games: int = 48
    held_out: int = 24
    cloned: int = 60
    shown: int = 32
    updates: int = 24
    groups: int = 8
    scored: int = 24


QUICK = Budget(games=3, held_out=2, cloned=25, shown=4, updates=2, groups=1, scored=3)

# Of each arm its flags; what is trained with nothing is GRPO.
SKILLED = "--episode-skill {0} --step-skill {0} --analyser oracle"
ARMS = {
    "GRPO": "--episode-skill 0 --step-skill 0",
    "oracle 0.001": SKILLED.format(0.001),
    "oracle 0.1": SKILLED.format(0.1),
    "oracle 1": SKILLED.format(1),
    "rules 0.1": "--episode-skill 0.1 --step-skill 0.1 --analyser rules",
    "inverted 1": "--episode-skill 1 --step-skill 1 --analyser inverted",
    "oracle 0.1 additive": SKILLED.format(0.1) + " --routing additive",
    "GRPO, 60 % of tasks": "--episode-skill 0 --step-skill 0",
    "oracle 0.1, 60 % of tasks": SKILLED.format(0.1),
    "GRPO, 80 % of tasks": "--episode-skill 0 --step-skill 0",
    "oracle 0.1, 80 % of tasks": SKILLED.format(0.1),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.out or Path(scratch)
        report = study(folder, QUICK if args.quick else Budget(), args.seeds, args.only, args.arms)
    show(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def study(
    folder: Path, budget: Budget, seeds: Sequence[int], only: Sequence[str], arms: Sequence[str]
) -> dict[str, Any]:
    """All tables: by name, rows of figures by seed."""
    report: dict[str, Any] = {name: {} for name in only}
    for seed in seeds:
        model = cloned(folder / str(seed), budget, seed)
        for name, table in (("signs", signs), ("trap", trap)):
            if name in only:
                for row, figures in table(model, budget, seed).items():
                    report[name].setdefault(row, {})[str(seed)] = figures
    if "training" in only:
        for arm in arms:
            for seed in seeds:
                trained(folder / str(seed), arm, budget, seed)
        report["training"] = compared(folder, seeds, arms)
    return report


# -- models ------------------------------------------------------------------------------------------------------------


def cloned(folder: Path, budget: Budget, seed: int) -> Path:
    """A model that has imitated a player who follows advice."""
    out = folder / "cloned"
    if not (out / "model").exists():
        texts = []
        for split, games in (("train", budget.games), ("test", budget.held_out)):
            for policy in ("gold", "random"):
                kwargs = {"split": split, "count": games, "advised": 0.6}
                played = collect(WORLD, policy, episodes=4 * games, group_size=4, tasks=list(range(games)),
                                 env_kwargs=kwargs)  # fmt: skip
                texts += texts_of(played)
        start = make_model(folder / "start", texts, context=1024, seed=seed)
        flags = f"--env {WORLD} --set count={budget.games} --set advised=0.5 --model {start} --lr 3e-3 --eval-every 0"
        run(
            cloning,
            cloning.Cloning,
            f"{flags} --steps {budget.cloned} --groups {budget.shown} --seed {seed} --out {out}",
        )
    return out / "model"


def run(module: Any, algorithm: Any, flags: str) -> None:
    """One training run, in this process."""
    name = module.__name__.rpartition(".")[2]
    common = "--device cpu --checkpoint-every 0 --keep-rollouts 0"
    train(arguments(module.Args, name, "", [*flags.split(), *common.split()]), name, algorithm)


def learner_of(model: Path, budget: Budget, seed: int, *flags: str) -> OPID:
    """A policy with its skills, which trains on nothing."""
    words = f"--env {WORLD} --set count={budget.games} --model {model} --max-new-tokens 16 --device cpu --out unused"
    return OPID(arguments(opid.Args, "opid", "", [*words.split(), "--seed", str(seed), *flags]), Ranks("cpu"))


def played(learner: OPID, budget: Budget, **stack: Any) -> Batch:
    """A batch of its episodes, four of each game."""
    stack = {"env_kwargs": {"count": budget.games}} | stack
    rollouts = Rollouts(
        WORLD, stack, learner.actor.policy, learner.ranks, seed=learner.args.seed, group_size=4
    )
    return batch_of(rollouts.play(budget.scored))


# -- signs -------------------------------------------------------------------------------------------------------------


def signs(model: Path, budget: Budget, seed: int) -> dict[str, dict[str, float]]:
    """Of each analyser and kind of skill: mean A_skill of right and wrong replies, share of right signs."""
    learner = learner_of(model, budget, seed)
    batch = played(learner, budget)
    golds = solved_steps(learner, batch)
    table: dict[str, dict[str, float]] = {}
    for name in ("oracle", "inverted", "random", "none"):
        for kind in ("step", "episode"):
            found = skills_of(learner, batch, name, kind, seed)
            readings, lost = learner.readings(batch, found)
            table[f"{name}, {kind} skills"] = (
                judged(batch, readings, gains(learner, batch, readings), golds) | lost
            )
    return table


def solved_steps(learner: OPID, batch: Batch) -> dict[tuple[int, int], str]:
    """By trajectory and step, what the solver would have done."""
    return {step: gold for step, (gold, _) in answers(learner, batch, "oracle", 0).items()}


def answers(learner: OPID, batch: Batch, name: Any, seed: int) -> dict[tuple[int, int], tuple[str, str]]:
    """By trajectory and step, the solver's action and what an analyser says in its place."""
    analyser = SolverAnalyser(solver_env(learner), name, seed=seed)
    rng = np.random.default_rng(seed)
    return {
        (n, index): pair
        for n, trajectory in enumerate(batch.trajectories)
        for index, pair in analyser.answers(trajectory, rng).items()
    }


def solver_env(learner: OPID) -> Any:
    """The environment of a learner, without wrappers."""
    import gymnasium

    return gymnasium.make(WORLD, **learner.args.stack.environment())


def skills_of(learner: OPID, batch: Batch, name: Any, kind: str, seed: int) -> dict[int, Skills]:
    """An analyser's skills of one kind; those of steps not only where the policy did otherwise, but at each."""
    numbers = range(len(batch.trajectories))
    if name == "none":
        return dict.fromkeys(numbers, Skills())
    if kind == "episode":
        found = SolverAnalyser(solver_env(learner), name, seed=seed).analyse(batch.trajectories, numbers)
        return {n: Skills(skills.episode) for n, skills in enumerate(found)}
    steps: dict[int, dict[int, str]] = {n: {} for n in numbers}
    for (n, index), (_, told) in answers(learner, batch, name, seed).items():
        if told:
            steps[n][index] = advice(told)
    return {n: Skills("", of_steps) for n, of_steps in steps.items()}


def gains(learner: OPID, batch: Batch, readings: Sequence[Reading]) -> dict[int, np.ndarray]:
    """A_skill by segment, (T_k,)."""
    terms, _ = learner.skill_advantages(batch, readings)
    return terms["episode"] | terms["step"]


def judged(
    batch: Batch,
    readings: Sequence[Reading],
    gained: dict[int, np.ndarray],
    golds: dict[tuple[int, int], str],
) -> dict[str, float]:
    """Means over the tokens of replies that are the solver's action and of others, and how often the sign is right."""
    right: list[np.ndarray] = []
    wrong: list[np.ndarray] = []
    for reading in readings:
        n, segment = batch.rollouts[reading.segment], batch.segments[reading.segment]
        for reply in segment.sampled:
            at = np.intersect1d(reading.at, positions(batch.rows[reading.segment], [reply]))
            if len(at):
                row = gained[reading.segment][at]
                (right if is_right(batch, n, reply, golds) else wrong).append(row)
    signs = [row.sum() > 0 for row in right] + [row.sum() < 0 for row in wrong]
    return {
        "replies": float(len(right) + len(wrong)),
        "right": float(np.concatenate(right).mean()) if right else 0.0,
        "wrong": float(np.concatenate(wrong).mean()) if wrong else 0.0,
        "signs": float(np.mean(signs)) if signs else float("nan"),
    }


def is_right(batch: Batch, n: int, reply: Sampled, golds: dict[tuple[int, int], str]) -> bool:
    """Whether a reply is what the solver would have done."""
    assert reply.step is not None
    return said(batch.trajectories[n].steps[reply.step]) == golds[n, reply.step]


# -- the truncation trap -----------------------------------------------------------------------------------------------


def trap(model: Path, budget: Budget, seed: int) -> dict[str, dict[str, float]]:
    """Episode skills, of the oracle and with nothing in them, whole and cut from the left."""
    learner = learner_of(model, budget, seed)
    batch = played(learner, budget)
    golds = solved_steps(learner, batch)
    oracle = skills_of(learner, batch, "oracle", "episode", seed)
    nothing = dict.fromkeys(oracle, Skills(NOTHING))
    table = {}
    for name, skills in (("oracle", oracle), ("advice that says nothing", nothing)):
        whole, _ = learner.readings(batch, skills)
        for how, readings in (("whole", whole), ("cut", [cut(reading) for reading in whole])):
            table[f"{name}, {how}"] = judged(batch, readings, gains(learner, batch, readings), golds)
    return table


def cut(reading: Reading) -> Reading:
    """Its row with as many tokens as the history without the skill had, the last ones."""
    row, most = reading.row, int(reading.at[-1]) + 1
    return reading._replace(row=Row(row.ids[-most:], row.mask[-most:], row.temperature))


# -- training ----------------------------------------------------------------------------------------------------------


def trained(folder: Path, arm: str, budget: Budget, seed: int) -> None:
    """One run, unless it is there."""
    out, model = folder / slug(arm), folder / "cloned" / "model"
    if (out / "model").exists():
        return
    share = 0.6 if "60 %" in arm else 0.8 if "80 %" in arm else 1.0
    run(
        opid,
        OPID,
        f"--env {WORLD} --set count={round(share * budget.games)} --model {model} --max-turns 4 "
        f"--max-new-tokens 12 --batch 64 --lr 3e-4 --groups {budget.groups} --group-size 4 --steps {budget.updates} "
        f"--eval-every {budget.updates} --eval-split train --eval-episodes {budget.games} "
        f"--seed {seed} --out {out} {ARMS[arm]}",
    )


def slug(arm: str) -> str:
    """A name for a folder."""
    return "".join(c if c.isalnum() or c == "." else "-" for c in arm)


def compared(
    folder: Path, seeds: Sequence[int], arms: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """By arm and seed, figures at equal environment steps."""
    runs = {
        (arm, seed): read_lines(folder / str(seed) / slug(arm) / "metrics.jsonl")
        for arm in arms
        for seed in seeds
    }
    steps = min(lines[-2]["cost/environment_steps"] for lines in runs.values())
    table: dict[str, dict[str, dict[str, float]]] = {arm: {} for arm in arms}
    for (arm, seed), lines in runs.items():
        late = [
            line for line in lines[:-1] if 0.75 * steps < line["cost/environment_steps"] <= steps
        ] or lines[-2:-1]
        table[arm][str(seed)] = {
            "resolved": float(np.mean([line["rollout/resolved"] for line in late])),
            "turns": float(np.mean([line["rollout/turns"] for line in late])),
            # Absent where every episode of the evaluation broke: then so are the means over seeds.
            "after": lines[-1].get("eval/resolved", math.nan),
            "turns after": lines[-1].get("eval/turns", math.nan),
            "began at": lines[0].get("eval/resolved", math.nan),
            "A_skill": float(np.mean([line.get("skill/absolute_advantage", 0.0) for line in lines[:-1]])),
            "steps": steps,
        }
    return table


# -- tables ------------------------------------------------------------------------------------------------------------


def show(report: dict[str, Any]) -> None:
    """Print every table: means over seeds with 95 % intervals."""
    for name, rows in report.items():
        columns = [
            key for key in next(iter(next(iter(rows.values())).values())) if not key.startswith("skill/")
        ]
        print(f"\n{name:30}" + "".join(f"{column:>17}" for column in columns))
        for row, by_seed in rows.items():
            cells = [interval([figures[column] for figures in by_seed.values()]) for column in columns]
            print(f"{row:30}" + "".join(f"{cell:>17}" for cell in cells))


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of the 95 % t interval; the mean alone for one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.3f}"
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{mean:.3f} +- {half:.3f}"


if __name__ == "__main__":
    raise SystemExit(main())
