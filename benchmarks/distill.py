"""Four experts into one student: on-policy distillation with the right teachers and, for comparison, the wrong ones.

    python -m benchmarks.distill [--seeds 3] [--out runs/distill] [--json FILE]

The families are four task types of ALFWorld-v0's invented houses, twenty games each. For each seed:

1. A model from scratch imitates the solver on all four families for a little while: the base, which solves some games.
2. From the base an expert for each family, which imitates the solver on its family alone (`baselines.cloning`).
3. From the base a student, which plays all four families itself and is told by each task's expert (`baselines.distill`,
   `--route task_type`): of the whole vocabulary, or of the sampled tokens alone. It never sees the solver.
4. The same student with the experts shifted by one: each task is taught by another family's expert.

Everybody is then played on every game of every family, at temperature 1. What is asked is what each family's expert
has left in the student: the student's share of solved episodes over the expert's. The games are those that all of them
saw in training: how well the experts do on others is no question here.

`--quick` is the size of the test. A folder that holds a finished run is read, not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentgym.policies.hf import HFPolicy
from agentgym.rollout import collect
from agentgym.trajectory.stats import bootstrap_interval
from baselines import cloning, distill
from baselines.flags import arguments
from baselines.run import train
from baselines.tiny import make_model, texts_of

ENV = "agentgym/ALFWorld-v0"
FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
)
SHORT = ("place", "look", "clean", "heat")
TURNS, REPLY = 12, 12  # most turns of an episode, most tokens of a reply


class Sizes(NamedTuple):
    """How much of everything.

    Attributes:
        base: updates of the base, of 16 demonstrations each.
        cloning: updates of each expert, of 10 demonstrations each.
        distilling: updates of a student, of `episodes` episodes each.
        sampled: updates of the student that hears of the sampled tokens alone.
        repeats: episodes on each game in the evaluation.
    """

    base: int
    cloning: int
    distilling: int
    episodes: int
    sampled: int
    repeats: int


FULL = Sizes(base=70, cloning=40, distilling=50, episodes=16, sampled=60, repeats=2)
QUICK = Sizes(base=60, cloning=20, distilling=20, episodes=16, sampled=0, repeats=1)


def main(words: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--out", type=Path, default=Path("runs/distill"), help="folder of the runs")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args(words)
    import torch

    torch.set_num_threads(1)  # models of this size gain nothing by more
    began = time.process_time()
    sizes = QUICK if args.quick else FULL
    seeds = [study(seed, args.out / f"seed-{seed}", sizes) for seed in range(args.seeds)]
    report = summary(seeds) | {"cpu_minutes": (time.process_time() - began) / 60}
    show(report)
    if args.json:
        args.json.write_text(json.dumps({"seeds": seeds, **report}, indent=1) + "\n")


COMMON = (
    f"--env {ENV} --max-turns {TURNS} --max-new-tokens {REPLY} --eval-every 0 --keep-rollouts 0 "
    "--checkpoint-every 0 --device cpu"
)


def study(seed: int, folder: Path, sizes: Sizes) -> dict[str, list[float]]:
    """One seed: by name of the player, its share of solved episodes in each family. An expert plays its own alone."""
    blank, base = folder / "blank", folder / "base" / "model"
    if not blank.exists():
        make_model(blank, vocabulary(), hidden=64, heads=2, context=1024, seed=seed)

    def words(name: str, model: Path, families: Sequence[str], flags: str) -> list[str]:
        paths = ["--model", str(model), "--out", str(folder / name)]
        return [*f"{COMMON} --seed {seed} {flags}".split(), *paths, "--set", types(families)]

    def clone(name: str, model: Path, families: Sequence[str], flags: str) -> None:
        run(arguments(cloning.Args, "cloning", "", words(name, model, families, flags)), cloning.Cloning)

    def distilled(name: str, experts: Sequence[str], flags: str) -> None:
        teachers: list[str] = []
        for family, expert in zip(FAMILIES, experts, strict=True):
            teachers += ["--teacher", f"{family}={folder / expert / 'model'}"]
        given = [*words(name, base, FAMILIES, f"--route task_type {flags}"), *teachers]
        run(arguments(distill.Args, "distill", "", given), distill.Distill)

    clone("base", blank, FAMILIES, f"--groups 16 --lr 5e-3 --steps {sizes.base}")
    for family, name in zip(FAMILIES, SHORT, strict=True):
        clone(name, base, [family], f"--groups 10 --lr 3e-3 --steps {sizes.cloning}")
    full = f"--form full --groups {sizes.episodes} --group-size 1 --lr 3e-3 --steps {sizes.distilling}"
    distilled("student", SHORT, full)
    distilled("wrong", (*SHORT[1:], SHORT[0]), full)
    players = ["base", "student", "wrong"]
    if sizes.sampled:
        flags = f"--form sampled --groups {sizes.episodes} --group-size 1 --lr 1e-3 --steps {sizes.sampled}"
        distilled("sampled", SHORT, flags)
        players.append("sampled")
    experts = [success(folder / name / "model", [n], sizes)[0] for n, name in enumerate(SHORT)]
    return {"expert": experts} | {name: success(folder / name / "model", range(4), sizes) for name in players}


def vocabulary() -> list[str]:
    """What is read and written in these games, mistakes included."""
    games: list[tuple[str, int | None]] = [("gold", None), ("random", 120), ("null", 1)]
    return [
        text
        for policy, episodes in games
        for text in texts_of(collect(ENV, policy, episodes=episodes, env_kwargs={"max_turns": TURNS}))
    ]


def types(families: Sequence[str]) -> str:
    """The keyword of the environment for these families."""
    return "task_types=" + json.dumps(list(families))


def run(args: Any, build: Callable[..., Any]) -> None:
    """What a trainer's command does, unless it has been done to its end."""
    if not (Path(args.out) / "model" / "config.json").exists():
        train(args, build.__name__.lower(), build)


def success(model: Path, families: Sequence[int], sizes: Sizes) -> list[float]:
    """Share of solved episodes in each of these families, over all of its games."""
    policy = HFPolicy(model, max_new_tokens=REPLY, max_batch=64)
    found = []
    for family in families:
        kwargs = {"task_types": [FAMILIES[family]], "max_turns": TURNS}
        played = collect(ENV, policy, episodes=None, group_size=sizes.repeats, seed=7, lockstep=True, workers=64,
                         env_kwargs=kwargs)  # fmt: skip
        found.append(float(np.mean([bool(t.resolved) for t in played])))
    return found


def summary(seeds: Sequence[dict[str, list[float]]]) -> dict[str, Any]:
    """Means over seeds by player and family; of each student what is kept, with an interval over seeds and families."""
    means = {name: np.mean([seed[name] for seed in seeds], axis=0).tolist() for name in seeds[0]}
    kept: dict[str, dict[str, Any]] = {}
    for name in means.keys() - {"expert"}:
        shares = [[s / e for s, e in zip(seed[name], seed["expert"], strict=True)] for seed in seeds]
        flat, groups = (
            [share for of in shares for share in of],
            [n for n, of in enumerate(shares) for _ in of],
        )
        kept[name] = {
            "mean": float(np.mean(flat)),
            "worst": min(flat),
            "interval": bootstrap_interval(flat, groups=groups),
        }
    return {"solved": means, "kept": kept}


def show(report: dict[str, Any]) -> None:
    """The table, in Markdown."""
    print("| player | " + " | ".join(SHORT) + " | kept of the expert | worst |\n|---|" + "---|" * 6)
    for name, solved in report["solved"].items():
        kept = report["kept"].get(name)
        interval = (
            "" if kept is None or kept["interval"] is None else "{:.2f} to {:.2f}".format(*kept["interval"])
        )
        share = "" if kept is None else f"{kept['mean']:.2f} ({interval})"
        worst = "" if kept is None else f"{kept['worst']:.2f}"
        print(f"| {name} | " + " | ".join(f"{of:.2f}" for of in solved) + f" | {share} | {worst} |")
    print(f"\n{report['cpu_minutes']:.1f} CPU minutes")


if __name__ == "__main__":
    main()
