"""Does PPO of stable-baselines3, unchanged, learn a small TextWorld through `IndexAction` and `TextFeatures`?

    OMP_NUM_THREADS=1 python benchmarks/sb3_textworld.py [--seeds 5] [--steps 6144] [--games 4] [--json FILE]

For each seed a policy is trained and then plays `--episodes` episodes, its actions sampled. A random policy, which
draws among the admissible actions only, plays as many episodes of the same games. The games of both are those of the
training: what is asked is whether a learner for arrays gets through to the game, not whether it generalises.
Prints the share of wins, with 95% bootstrap intervals over seeds, and CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

import agentgym  # noqa: F401  # registers the id
from agentgym.core import Task
from agentgym.trajectory.stats import bootstrap_interval
from agentgym.wrappers import IndexAction, TextFeatures

ID = "agentgym/TextWorld-v0"
WORLD = {"rooms": 2, "objects": 4, "quest_length": 2}
MAX_TURNS = 10
MAX_ACTIONS = 20
Env = gymnasium.Env[Any, Any]
Choose = Callable[[Env, Any], int]  # environment, features -> index


def main() -> None:
    """Train and compare, seed by seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6144, help="of training, for each seed")
    parser.add_argument("--games", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=100, help="of each policy, for each seed")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    make = functools.partial(make_env, games(args.games))
    rows = []
    for seed in range(args.seeds):
        row = compare(make, seed, args.steps, args.episodes)
        rows.append(row)
        print(
            f"seed {seed}: PPO wins {np.mean(row['ppo']):.2f}, random {np.mean(row['random']):.2f}, "
            f"{row['cpu_seconds']:.0f} CPU seconds",
            flush=True,
        )
    report = summary(rows)
    for name in ("ppo", "random", "difference"):
        low, high = report[name]["ci95"]
        print(f"{name}: {report[name]['mean']:.3f}, 95% interval {low:.3f} to {high:.3f}")
    if args.json:
        args.json.write_text(json.dumps(vars(args) | report, indent=2, default=str) + "\n", encoding="utf-8")


def games(count: int) -> list[Task]:
    """The first training games of the small world."""
    return list(gymnasium.make(ID, **WORLD).unwrapped.task_pool)[:count]  # type: ignore[attr-defined]


def make_env(tasks: Sequence[Task]) -> Env:
    """The game as arrays and indices."""
    game = gymnasium.make(ID, tasks=tasks, max_turns=MAX_TURNS)
    return TextFeatures(IndexAction(game, max_actions=MAX_ACTIONS), size=128)


def train(make: Callable[[], Env], seed: int, steps: int) -> PPO:
    """PPO with its own MLP, on the features as they come."""
    model = PPO(
        "MlpPolicy",
        DummyVecEnv([make] * 4),
        n_steps=128,
        batch_size=128,
        n_epochs=8,
        gamma=0.95,
        ent_coef=0.01,
        learning_rate=1e-3,
        seed=seed,
        device="cpu",
    )
    return model.learn(steps)


def compare(make: Callable[[], Env], seed: int, steps: int, episodes: int) -> dict[str, Any]:
    """Train with this seed; the rewards of both policies, episode by episode, the games and their order the same."""
    start = time.process_time()
    model = train(make, seed, steps)
    rng = np.random.default_rng(seed)
    return {
        "seed": seed,
        "ppo": play(make, lambda env, features: int(model.predict(features)[0]), episodes),
        "random": play(make, lambda env, features: any_action(env, rng), episodes),
        "cpu_seconds": time.process_time() - start,
    }


def any_action(env: Env, rng: np.random.Generator) -> int:
    """An index that stands for an action."""
    return int(rng.choice(np.flatnonzero(env.get_wrapper_attr("action_masks")())))


def play(make: Callable[[], Env], choose: Choose, episodes: int) -> list[float]:
    """The reward of each episode; the episode's number is its seed."""
    rewards = []
    with make() as env:
        for episode in range(episodes):
            features, _ = env.reset(seed=episode)
            over = False
            while not over:
                features, reward, terminated, truncated, _ = env.step(choose(env, features))
                over = terminated or truncated
            rewards.append(float(reward))
    return rewards


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means and intervals; episodes of one seed share a policy, so seeds are drawn whole."""
    seeds = [row["seed"] for row in rows for _ in row["ppo"]]
    values = {name: [reward for row in rows for reward in row[name]] for name in ("ppo", "random")}
    values["difference"] = [a - b for a, b in zip(values["ppo"], values["random"], strict=True)]
    return {
        name: {"mean": float(np.mean(rewards)), "ci95": bootstrap_interval(rewards, groups=seeds)}
        for name, rewards in values.items()
    } | {"rows": list(rows)}


if __name__ == "__main__":
    main()
