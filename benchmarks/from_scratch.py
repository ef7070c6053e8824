"""A transformer from scratch learns a world with a key and a door under compaction: cloned, then GRPO and PPO.

    python -m benchmarks.from_scratch [--seeds 3] [--updates 45] [--out runs/from_scratch] [--json FILE]

The world is `agentgym/Relay-v0`: a word (the key) is learnt at the first turn and needed at the last one (the door), 8
signposts later. The context does not hold the way: on it the policy has to write a summary, and what that leaves out is
gone. A wrong turn costs 1/8 of the return.

A Llama of two layers and width 64 with random weights first imitates `Courier`, which makes the moves, errs at one
signpost in ten, and writes the word into the summary only every other time: first on a way of 4 hops, which its context
holds, where it learns to copy a word; then on the long one. Then it trains on the reward, with the trainers and flags
that anybody has: 64 episodes an update, on the CPU.

- grpo: 8 groups of 8.
- ppo: 64 single episodes, a critic of its own; `--across stitch`, lambda 0.95 (`docs/credit.md`).

Reported: mean return of the training episodes at the start and over the last three updates, and on held-out tasks
before and after, with the share of words delivered there; means over seeds (of tasks, sampling and critic; the cloned
model is the same) with 95 % t intervals. The curves are in the JSON and, as a line of digits (tenths of the return, an
update each), under the table.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.messages import Conversation
from agentgym.policies.scripted import ScriptedPolicy
from agentgym.rollout import collect
from agentgym.trajectory.store import TrajectoryStore
from baselines.tiny import make_model, texts_of
from benchmarks.arms import shown, train

HOPS, SHORT, CHOICES, ERROR, KEEP = 8, 4, 8, 0.1, 0.5
EVERY = 15  # updates between evaluations
CONTEXT: dict[str, Any] = {
    "compact": 320,
    "reply_tokens": 8,
    "keep_last": 1,
    "summarizer": "policy",
    "tokens": "chars",
}
CLONING = "--groups 16 --lr 3e-3 --eval-every 0 --checkpoint-every 0 --keep-rollouts 0"
RL = "--keep-rollouts 0 --checkpoint-every 0 --eval-episodes 24 --pack-tokens 8192"
PPO = "--groups 64 --lr 3e-4 --across stitch --lam 0.95 --returns-lam 1 --critic-lr 3e-3 --warmup 2 --whiten"
ARMS: dict[str, tuple[str, str]] = {
    "grpo": ("grpo", "--groups 8 --group-size 8 --lr 1e-3"),
    "ppo": ("ppo", PPO),
}


class Courier(ScriptedPolicy):
    """Makes the moves, mostly; forgets the word in every other summary, and then guesses."""

    name = "courier"

    def start(self) -> None:
        """Nothing is known."""
        self._word = ""

    def next_action(self, conversation: Conversation) -> str:
        """The right move, or a wrong turn; in the end the word, as far as the conversation holds it."""
        env: Any = self.agent_env
        if not env.taken:
            self._word = env.word
            return "take"
        if env.hop < env.hops:
            wrong = self.rng.random() < ERROR
            return str(self.rng.choice(env.admissible_actions()) if wrong else env.gold())
        return f"deliver {self._word or self.rng.choice(env.words)}"

    def summary(self, conversation: Conversation) -> str:
        """With luck, the word."""
        if self.rng.random() > KEEP:
            self._word = ""
        return f"The word is {self._word}." if self._word else "I walk on."


def world(hops: int) -> dict[str, Any]:
    """Keywords of the environment."""
    return {"hops": hops, "choices": CHOICES, "slip": 1 / hops}


def flags(model: Path, hops: int = HOPS) -> str:
    """Of the environment, the context and the model."""
    sets = " ".join(f"--set {key}={value}" for key, value in world(hops).items())
    context = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in CONTEXT.items())
    return f"--env agentgym/Relay-v0 {sets} {context} --device cpu --model {model} --max-new-tokens 8"


def beginner(folder: Path, updates: int) -> Path:
    """The model that all arms begin from, which imitates the courier: first on a short way, then on the long one."""
    words = folder / "words"
    if not words.exists():
        texts: list[str] = []
        for hops in (SHORT, HOPS):
            played = collect("agentgym/Relay-v0", Courier(), episodes=64, env_kwargs=world(hops), **CONTEXT)
            mistaken = collect("agentgym/Relay-v0", "random", episodes=16, env_kwargs=world(hops))
            texts += [*texts_of(played), *texts_of(mistaken, written=False)]
        make_model(words, texts, context=1024)
    who = "--demonstrator benchmarks.from_scratch:Courier"
    short, cloned = folder / "short", folder / "cloned"
    train("cloning", short, flags(words, SHORT), CLONING, who, f"--steps {updates}")
    train("cloning", cloned, flags(short / "model"), CLONING, who, f"--steps {updates}")
    return cloned / "model"


def measure(arm: str, seed: int, model: Path, folder: Path, updates: int) -> dict[str, Any]:
    """One run's row."""
    trainer, options = ARMS[arm]
    out = folder / f"{arm}-{seed}"
    steps = f"--steps {updates} --eval-every {EVERY} --seed {seed}"
    lines = train(trainer, out, flags(model), RL, options, steps)
    curve = [line["rollout/return"] for line in lines if "rollout/return" in line]
    row = {
        "arm": arm,
        "seed": seed,
        "start": curve[0],
        "end": float(np.mean(curve[-3:])),
        # Absent where every episode of the evaluation broke.
        "held_out_start": lines[0].get("eval/return", math.nan),
        "held_out": lines[-1].get("eval/return", math.nan),
        "delivered_start": delivered(out / "eval" / "step-000000"),
        "delivered": delivered(out / "eval" / f"step-{updates:06}"),
        "segments": lines[0]["rollout/segments"],
        "environment_steps": lines[-2]["cost/environment_steps"],
        "cpu_seconds": sum(line.get("time/step_cpu_seconds", 0.0) for line in lines),
        "curve": curve,
    }
    print(f"  {arm}, seed {seed}: {row['start']:.2f} to {row['end']:.2f}", file=sys.stderr, flush=True)
    return row


def delivered(folder: Path) -> float:
    """Share of an evaluation's episodes in which the right word was delivered."""
    played = list(TrajectoryStore(folder / "trajectories.jsonl"))
    return float(np.mean([(t.verdict or {}).get("components", {}).get("delivered", 0.0) for t in played]))


def print_table(rows: list[dict[str, Any]]) -> None:
    """A line for each arm, then the curves."""
    columns = ("start", "end", "held_out_start", "held_out", "delivered_start", "delivered")
    print(
        "| arm | start | last three | held-out before | after | delivered before | after | env steps | CPU s |"
    )
    print("|---" * 9 + "|")
    for arm in ARMS:
        here = [row for row in rows if row["arm"] == arm]
        cells = [shown([row[name] for row in here]) for name in columns]
        costs = [
            f"{np.mean([row[name] for row in here]):.0f}" for name in ("environment_steps", "cpu_seconds")
        ]
        print(f"| {arm} | {' | '.join([*cells, *costs])} |")
    print()
    for row in rows:
        digits = "".join(str(min(9, int(10 * value))) for value in row["curve"])
        print(f"{row['arm']:4} seed {row['seed']}: {digits}")


def main() -> None:
    """Clone, train all arms, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cloning", type=int, default=240, help="updates of the imitation, on each way")
    parser.add_argument("--updates", type=int, default=45, help=f"of each arm, a multiple of {EVERY}")
    parser.add_argument("--out", type=Path, default=Path("runs/from_scratch"))
    parser.add_argument("--json", type=Path, help="also write all rows here")
    args = parser.parse_args()
    if args.updates < EVERY or args.updates % EVERY:
        raise SystemExit(f"expected --updates to be a multiple of {EVERY}, got {args.updates}")
    model = beginner(args.out, args.cloning)
    rows = [measure(arm, seed, model, args.out, args.updates) for arm in ARMS for seed in range(args.seeds)]
    print_table(rows)
    if args.json:
        args.json.write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
