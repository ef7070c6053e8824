"""Four experts into one student: on-policy distillation with the right teachers and, for comparison, the wrong ones.

    python -m benchmarks.distill [--seeds 3] [--arms student wrong] [--out runs/distill] [--json FILE]

The families are four task types of ALFWorld-v0's invented houses, five games each (the split eval_in_distribution, the
smallest). For each seed:

1. A model from scratch imitates the solver on all four families for a little while: the base, which solves some games.
2. From the base an expert for each family, which imitates the solver on its family alone (`baselines.cloning`).
3. From the base a student, which plays all four families itself and is told by each task's expert (`baselines.distill`,
   `--route task_type`). It never sees the solver.

| arm | teachers | form |
|---|---|---|
| student | each task's own expert | full |
| wrong | shifted by one: each task is taught by another family's expert | full |
| forward | each task's own expert | full, KL(teacher, student) |
| sampled | each task's own expert | sampled |

Everybody is then played on every game of every family, at temperature 1. What is asked is what each family's expert
has left in the student: the student's share of solved episodes over the expert's. The games are those that all of them
saw in training: how well anybody does on others is no question here.

What has been run to its end in --out is read, not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.policies.hf import HFPolicy
from agentgym.rollout import collect
from agentgym.trajectory.stats import bootstrap_interval
from baselines import cloning, distill
from baselines.flags import arguments
from baselines.run import train
from baselines.tiny import make_model, texts_of

ENV, SPLIT = "agentgym/ALFWorld-v0", "eval_in_distribution"
FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
)
EXPERTS = ("place", "look", "clean", "heat")
SHIFTED = (*EXPERTS[1:], EXPERTS[0])
ARMS: dict[str, tuple[Sequence[str], str]] = {
    "student": (EXPERTS, "--form full --lr 7e-4"),
    "wrong": (SHIFTED, "--form full --lr 7e-4"),
    "forward": (EXPERTS, "--form full --divergence forward --lr 7e-4"),
    "sampled": (EXPERTS, "--form sampled --lr 3e-4"),
}
TURNS, REPLY = 10, 12  # most turns of an episode, most tokens of a reply
COMMON = (
    f"--env {ENV} --split {SPLIT} --max-turns {TURNS} --max-new-tokens {REPLY} --eval-every 0 --keep-rollouts 0 "
    "--checkpoint-every 0 --device cpu"
)


def main(words: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=["student", "wrong"])
    parser.add_argument("--base", type=int, default=50, help="updates of the base, 10 demonstrations each")
    parser.add_argument("--cloning", type=int, default=25, help="updates of an expert, 5 demonstrations each")
    parser.add_argument("--distilling", type=int, default=150, help="updates of a student, 10 episodes each")
    parser.add_argument("--repeats", type=int, default=16, help="episodes on each game in the evaluation")
    parser.add_argument("--out", type=Path, default=Path("runs/distill"), help="folder of the runs")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args(words)
    import torch

    torch.set_num_threads(1)  # models of this size gain nothing by more
    began = time.process_time()
    seeds = [study(seed, args.out / f"seed-{seed}", args) for seed in range(args.seeds)]
    report = summary(seeds) | {"cpu_minutes": (time.process_time() - began) / 60}
    show(report)
    if args.json:
        args.json.write_text(json.dumps({"seeds": seeds, **report}, indent=1) + "\n")


def study(seed: int, folder: Path, sizes: argparse.Namespace) -> dict[str, list[float]]:
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

    clone("base", blank, FAMILIES, f"--groups 10 --lr 5e-3 --steps {sizes.base}")
    for family, name in zip(FAMILIES, EXPERTS, strict=True):
        clone(name, base, [family], f"--groups 5 --lr 3e-3 --steps {sizes.cloning}")
    for name in sizes.arms:
        experts, form = ARMS[name]
        distilled(name, experts, f"{form} --groups 10 --group-size 1 --steps {sizes.distilling}")
    own = [success(folder / name / "model", [n], sizes.repeats)[0] for n, name in enumerate(EXPERTS)]
    players = ["base", *sizes.arms]
    return {"expert": own} | {
        name: success(folder / name / "model", range(4), sizes.repeats) for name in players
    }


def vocabulary() -> list[str]:
    """What is read and written in these games, mistakes included."""
    games: list[tuple[str, int | None]] = [("gold", None), ("random", 60), ("null", 1)]
    return [
        text
        for policy, episodes in games
        for text in texts_of(collect(ENV, policy, episodes=episodes, env_kwargs=keywords(FAMILIES)))
    ]


def keywords(families: Sequence[str]) -> dict[str, Any]:
    """Of the environment, for these families."""
    return {"task_types": list(families), "split": SPLIT, "max_turns": TURNS}


def types(families: Sequence[str]) -> str:
    """The keyword of a command line for these families."""
    return "task_types=" + json.dumps(list(families))


def run(args: Any, build: Callable[..., Any]) -> None:
    """What a trainer's command does, unless it has been done to its end."""
    if not (Path(args.out) / "model" / "config.json").exists():
        train(args, build.__name__.lower(), build)


def success(model: Path, families: Sequence[int], repeats: int) -> list[float]:
    """Share of solved episodes in each of these families, over all of its games."""
    policy = HFPolicy(model, max_new_tokens=REPLY, max_batch=64)
    how: dict[str, Any] = {"group_size": repeats, "seed": 7, "lockstep": True, "workers": 64}
    found = []
    for family in families:
        played = collect(ENV, policy, episodes=None, env_kwargs=keywords([FAMILIES[family]]), **how)
        found.append(float(np.mean([bool(t.resolved) for t in played])))
    return found


def summary(seeds: Sequence[dict[str, list[float]]]) -> dict[str, Any]:
    """Means over seeds, by player and family, and what of the experts is kept.

    Kept is the mean over seeds of the share of the experts' mean success, with a 95 % interval that resamples seeds;
    and the share in the worst family, seeds together.
    """
    means = {name: np.mean([seed[name] for seed in seeds], axis=0).tolist() for name in seeds[0]}
    kept: dict[str, dict[str, Any]] = {}
    for name in means.keys() - {"expert"}:
        shares = [sum(seed[name]) / sum(seed["expert"]) for seed in seeds]
        worst = min(s / e for s, e in zip(means[name], means["expert"], strict=True))
        kept[name] = {"mean": float(np.mean(shares)), "interval": bootstrap_interval(shares), "worst": worst}
    return {"solved": means, "kept": kept}


def show(report: dict[str, Any]) -> None:
    """The table, in Markdown."""
    print("| player | " + " | ".join(EXPERTS) + " | kept of the experts | worst family |\n|---|" + "---|" * 6)
    for name, solved in report["solved"].items():
        kept, last = report["kept"].get(name), " | |"
        if kept is not None:
            interval = kept["interval"]
            span = "" if interval is None else f" ({interval[0]:.2f} to {interval[1]:.2f})"
            last = f"{kept['mean']:.2f}{span} | {kept['worst']:.2f} |"
        print(f"| {name} | " + " | ".join(f"{of:.2f}" for of in solved) + f" | {last}")
    print(f"\n{report['cpu_minutes']:.1f} CPU minutes")


if __name__ == "__main__":
    main()
