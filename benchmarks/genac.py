"""How good critics are whose actors' true values are known: words, a value head and a constant on the same rollouts.

    python -m benchmarks.genac [--seeds 0 1 2 3 4] [--quick] [--json FILE]

Two worlds in which the value of every state is exact, for actors of several skill levels (`genac_worlds.py`):

- `walk`: a line from 0 to a goal and a number of turns; an actor of level p goes up with probability p, else down. The
  score is 1 at the goal. Backward induction gives V.
- `relay`: `agentgym/Relay-v0`; an actor of a level errs at each hop with one probability and recalls the word with
  another. `RelayEnv.value` gives V.

All critics are random transformers of the same size (`baselines/tiny.py`), asked the same questions about the same
states, in the same order. First they imitate a teacher that knows V of the training levels and sizes (words imitate its
rationale, the value head its number), half of the questions with the actor's score of late and half without. From there
they learn from outcomes, once `told` of the actor and once `untold`, and are judged on fresh rollouts: of the same
levels and sizes, of sizes they never saw, of levels they never saw; and, learning on, while the actor drifts from the
worst level to the best.

- mse: squared error against the exact V, malformed answers left out; `penalised`: against outcomes, these counting 1.
- tau: Kendall's tau-b with the exact V. ece: calibration error against outcomes, ten bins. parse: well-formed answers.

Rows `against ...` begin with the critic in words half way through its lessons, when its answers still differ, and show
a few steps of REINFORCE with and without a leave-one-out baseline: `pulled` is the share of judgements that earned less
than the mean of their state and were made more probable all the same.

Figures are means over seeds with 95 % t intervals.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from agentgym.credit import value_metrics
from agentgym.verifiers.agreement import kendall_tau
from baselines.actor import Actor
from baselines.critic import (
    Baseline,
    GenerativeCritic,
    Judged,
    ModelCritic,
    ValueCritic,
    judgement_rewards,
    smoothed,
)
from baselines.critic_prompt import ANSWER_END
from baselines.logs import read_lines
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.plain_critics import ConstantCritic, ScalarCritic
from benchmarks.arms import mean_and_half
from benchmarks.genac_worlds import WORLDS, Example, Sampler, World, asked, model_of

KINDS = ("generative", "scalar", "constant")
BASELINES: tuple[Baseline, ...] = ("state", "batch", "none")
LESSON_LR, OUTCOME_LR = 1.5e-3, 3e-4  # outcomes are noisier than lessons, and take smaller steps
COLUMNS = ("mse", "tau", "ece", "penalised", "parse", "pulled", "critic_tokens")

Figures: TypeAlias = dict[tuple[str, str], dict[str, float]]  # by how a critic learnt, and set


@dataclass(frozen=True)
class Budget:
    """How much of everything.

    Attributes:
        imitated: steps towards the teacher's words, of `few` states each.
        learnt, drifting, pulled: steps towards outcomes, of `states` each.
        judged: states of each set that a critic is judged on.
    """

    imitated: int = 300
    few: int = 16
    learnt: int = 4
    drifting: int = 5
    pulled: int = 3
    states: int = 32
    judged: int = 64


QUICK = Budget(imitated=12, learnt=1, drifting=2, pulled=1, states=8, judged=12)


def study(world: World, kind: str, folder: Path, budget: Budget, seed: int) -> Figures:
    """Teach one kind of critic, then let it learn and judge it, told and untold."""
    costs, sampler = Costs(), Sampler(world, seed)
    trained, held = range(0, len(world.levels), 2), range(1, len(world.levels), 2)
    critic = make_critic(kind, folder, seed)
    restart(critic, critic.state(), LESSON_LR)
    for step in range(budget.imitated):
        if step == budget.imitated // 2:
            half = critic.state()
        examples = sampler.draw(budget.few, trained, world.sizes)
        told = [n % 2 == 0 for n in range(len(examples))]
        critic.imitate(asked(examples, told), [example.rationale for example in examples], costs)
    taught = critic.state()
    sets = {
        "seen": (trained, world.sizes),
        "new sizes": (trained, world.unseen),
        "new levels": (held, world.sizes),
    }
    figures: Figures = {}
    for how in ("told", "untold"):
        restart(critic, taught, OUTCOME_LR)
        sampler, own, is_told = Sampler(world, seed + 1000), replace(costs), how == "told"
        for step in range(budget.learnt):
            learn(critic, sampler.draw(budget.states, trained, world.sizes), is_told, (seed, 1, step), own)
        for number, (part, (levels, sizes)) in enumerate(sets.items()):
            examples = sampler.draw(budget.judged, levels, sizes)
            judged = critic.judge(asked(examples, [is_told] * len(examples)), (seed, 2, number), own)
            figures[how, part] = scores(judged, examples)
        figures[how, "drift"] = drift(critic, sampler, is_told, budget, seed, own)
        figures[how, "cost"] = {"critic_tokens": float(own.critic_tokens)}
    if isinstance(critic, GenerativeCritic):
        for baseline in BASELINES:
            restart(critic, half, OUTCOME_LR)
            critic.baseline = baseline
            figures[f"against {baseline}", "half taught"] = pull(critic, world, budget, seed)
    return figures


def make_critic(kind: str, folder: Path, seed: int) -> ValueCritic:
    """A critic of a kind."""
    ranks = Ranks("cpu")
    if kind == "constant":
        return ConstantCritic(ranks)
    actor = Actor(
        folder, device="cpu", seed=seed, max_tokens=8192, max_batch=256, max_new_tokens=40, stop=(ANSWER_END,)
    )
    return ScalarCritic(actor, ranks) if kind == "scalar" else GenerativeCritic(actor, ranks, judgements=4)


def restart(critic: ValueCritic, state: Mapping[str, Any], lr: float) -> None:
    """Put a critic into a state, with a fresh optimizer."""
    from torch.optim import AdamW

    critic.load(state)
    if isinstance(critic, ModelCritic):
        critic.optimizer = AdamW(critic.parameters(), lr, weight_decay=0.0)


def learn(
    critic: ValueCritic, examples: Sequence[Example], told: bool, seed: Sequence[int], costs: Costs
) -> Judged:
    """Judge states, then learn what came of them; what was said before that."""
    judged = critic.judge(asked(examples, [told] * len(examples)), seed, costs)
    critic.learn(judged, np.array([example.outcome for example in examples]), costs)
    return judged


def drift(
    critic: ValueCritic, sampler: Sampler, told: bool, budget: Budget, seed: int, costs: Costs
) -> dict[str, float]:
    """The actor gets better with each batch, from the worst level to the best; the critic is judged, then learns."""
    world, agent, rows = sampler.world, sampler.agents[0], []
    for step in range(budget.drifting):
        level = round(step / max(budget.drifting - 1, 1) * (len(world.levels) - 1))
        drawn = sampler.draw(budget.states, [level], world.sizes)
        examples = [example._replace(agent=agent) for example in drawn]
        rows.append(scores(learn(critic, examples, told, (seed, 3, step), costs), examples))
        success = smoothed(agent.success, float(np.mean([example.outcome for example in examples])))
        agent = replace(agent, success=success)
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in rows[0]}


def pull(critic: GenerativeCritic, world: World, budget: Budget, seed: int) -> dict[str, float]:
    """A few steps of REINFORCE; which way they move the judgements that earned less than their siblings."""
    costs, sampler = Costs(), Sampler(world, seed + 2000)
    levels, worse_up = range(len(world.levels)), []
    for step in range(budget.pulled):
        examples = sampler.draw(budget.states, levels, world.sizes)
        before = critic.judge(asked(examples, [True] * len(examples)), (seed, 4, step), costs)
        said = _logprobs(critic, before)
        came = np.array([example.outcome for example in examples])
        critic.learn(before, came, costs)
        rewards = judgement_rewards(before.answers, came)  # (S, J)
        worse = (rewards < rewards.mean(axis=1, keepdims=True) - 1e-9).ravel()
        worse_up += (_logprobs(critic, before) > said)[worse].tolist()
    examples = sampler.draw(budget.judged, levels, world.sizes)
    judged = critic.judge(asked(examples, [True] * len(examples)), (seed, 5), costs)
    pulled = {"pulled": float(np.mean(worse_up))} if worse_up else {}
    return pulled | scores(judged, examples)


def _logprobs(critic: GenerativeCritic, judged: Judged) -> np.ndarray[Any, Any]:
    """Of each judgement's text under the present weights."""
    scored, _ = critic.actor.score(judged.rows, entropy=False)
    sizes = [int(row.mask.sum()) for row in judged.rows]
    return np.array([float(part.sum()) for part in scored.split(sizes)])


def scores(judged: Judged, examples: Sequence[Example]) -> dict[str, float]:
    """How good judgements are; see the top of this file."""
    known = ~np.isnan(judged.values)
    exact, came = (np.array([getattr(e, name) for e in examples]) for name in ("exact", "outcome"))
    values = judged.values[known]
    numbers = {
        "penalised": 1 - float(judgement_rewards(judged.values[:, None], came).mean()),
        "parse": float(np.mean(~np.isnan(judged.answers))),
    }
    if known.any():
        numbers["mse"] = float(np.mean((values - exact[known]) ** 2))
        numbers["tau"] = kendall_tau(values.tolist(), exact[known].tolist()) or 0.0
        numbers["ece"] = value_metrics(values, came[known])["value_ece"]
    return numbers


def run(
    seeds: Sequence[int], budget: Budget, known: Sequence[dict[str, Any]] = ()
) -> Iterator[dict[str, Any]]:
    """A row for each world, critic, set and seed that is not known yet."""
    done = {(row["seed"], row["world"], row["critic"].partition(",")[0]) for row in known}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            model = model_of(Path(folder), seed)
            for (name, world), kind in itertools.product(WORLDS.items(), KINDS):
                if (seed, name, kind) not in done:
                    for (how, part), numbers in study(world, kind, model, budget, seed).items():
                        yield {"world": name, "critic": f"{kind}, {how}", "set": part, "seed": seed} | numbers


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["world"], row["set"], row["critic"]), []).append(row)
    lines = ["| world | set | critic | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 3) + "|"]
    for key, members in sorted(groups.items()):
        cells = [[row[name] for row in members if name in row] for name in COLUMNS]
        lines.append(f"| {' | '.join(key)} | " + " | ".join(cell(c) if c else "" for c in cells) + " |")
    return "\n".join(lines)


def cell(numbers: Sequence[float]) -> str:
    """Mean and half width of its interval, as far as there are several."""
    mean, half = mean_and_half(numbers)
    return f"{mean:.3f}" if math.isnan(half) else f"{mean:.3f}±{half:.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--quick", action="store_true", help="a minute, to see that everything runs")
    parser.add_argument("--json", type=Path, help="figures, a line each; what is there is not run again")
    arguments = parser.parse_args()
    rows = read_lines(arguments.json) if arguments.json else []
    for row in run(arguments.seeds, QUICK if arguments.quick else Budget(), rows):
        rows.append(row)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(tables(rows))


if __name__ == "__main__":
    main()
