"""Which credit learns over how long a horizon: PPO across compactions in three forms, and GRPO, on Relay-v0's rules.

    python -m benchmarks.horizon [--hops 32 256] [--compactions 3] [--shared] [--seeds 8] [--json FILE]

A courier learns a word, follows `hops` signposts, and delivers the word; its history is rewritten `compactions` times
at equal distances, and each time it writes a summary that keeps the word or loses it. Without the word it guesses (1 in
8). The return is 0 if the wrong word is delivered, and else 1 less 1/hops for each wrong turn.

The policy is a softmax over what it sees: the signpost (4 x 4 logits) and, at a summary, the word (2 logits). Every hop
and every summary has logits of its own, so nothing that is learnt at one step helps another: credit has to find each
of them. (With --shared all hops share theirs, and so do all summaries.) It begins with 30 % wrong turns, and with
summaries such that all of them keep the word in one episode of ten. The critic is linear in what the *context*
shows, fitted by least squares to the returns of the latest batches: whether the word is in it, how much of the walk is
left, wrong turns since the last rewrite (those before it are forgotten), and products of these. So many thousand
episodes take seconds; the rules are those of `RelayEnv`, which a test replays. Losses and estimators are the
trainers' own.

Every arm plays 32 episodes an update (GRPO: 4 groups of 8), so as many environment steps:

- stitch, independent: PPO, lambda 0.95 per action. decay: PPO, lambda 1 - 1 / (1.5 actions of the chain), as published.
- return - V: PPO with lambda 1, where the three are the same.
- grpo: no critic.

All have the same step size of Adam (--rate). An arm has solved a setting if
its mean return over ten updates in a row is at least 0.8. Reported: the return of the last ten
updates, the probability that a summary keeps the word and that a turn is right at the end, means over seeds with 95 % t
intervals, and how many seeds solved it, after how many updates.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agentgym.credit import LengthAdaptive, broadcast, group_advantages, segment_gae, whiten
from baselines.losses import policy_loss
from benchmarks.arms import mean_and_half, shown

Array = NDArray[np.float64]

DIRECTIONS, CHOICES, GOAL = 4, 8, 0.8
RIGHT, ALL_KEPT = 0.7, 0.1  # at the start: of a turn, and of all summaries together
EPISODES, GROUP, WINDOW, MEMORY = 32, 8, 10, 10
ARMS: dict[str, dict[str, Any] | None] = {
    "stitch": {"across": "stitch", "lam": 0.95},
    "decay": {"across": "decay", "lam": LengthAdaptive(1.5)},
    "independent": {"across": "independent", "lam": 0.95},
    "return - V": {"across": "stitch", "lam": 1.0},
    "grpo": None,
}


@dataclass
class Walks:
    """N episodes of T actions each: hops and summaries in order, the last action delivers.

    Attributes:
        signs: (N, T) what the signpost says, 0 to 3; 0 where there is none.
        actions: (N, T) the direction taken, or 1 for a summary that keeps the word and 0 for one that does not.
        features: (N, T, F) what the critic sees before each action.
        known: (N, T) whether the context holds the word before each action.
        returns: (N,).
        logprobs: (N, T) of the actions; 0 for deliveries, which are no choice.
    """

    signs: NDArray[np.int64]
    actions: NDArray[np.int64]
    features: Array
    known: NDArray[np.bool_]
    returns: Array = field(default_factory=lambda: np.zeros(0))


class World:
    """The rules, for many episodes at a time.

    Args:
        hops: signposts.
        compactions: rewrites, fewer than hops.

    Attributes:
        summaries: (T,) where the action is a summary.
        number: (T,) which hop, or which summary it is.
        chosen: (T,) where there is a choice: everywhere but at the delivery.
        segments: where each segment's actions lie.
    """

    def __init__(self, hops: int, compactions: int) -> None:
        self.hops = hops
        # After so many hops
        rewrites = [round(hops * k / (compactions + 1)) for k in range(1, compactions + 1)]
        if len({0, hops, *rewrites}) != compactions + 2:
            raise SystemExit(f"expected fewer compactions than hops, got {compactions} and {hops}")
        kinds = [kind for hop in range(hops) for kind in (["summary", "hop"] if hop in rewrites else ["hop"])]
        self.summaries = np.array([kind == "summary" for kind in kinds] + [False])
        self.number = np.where(self.summaries, self.summaries.cumsum() - 1, (~self.summaries).cumsum() - 1)
        self.chosen = np.arange(len(kinds) + 1) < len(kinds)
        ends = [*np.flatnonzero(self.summaries) + 1, len(kinds) + 1]
        self.segments = [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]

    def play(self, turn: Array, keep: Array, rng: np.random.Generator) -> Walks:
        """A batch of episodes.

        Args:
            turn: (T, 4, 4), probability of each direction at each sign.
            keep: (T,), probability that a summary keeps the word, where it is known.
            rng: of the tasks and the policy.
        """
        size = (EPISODES, len(self.chosen))
        signs = rng.integers(DIRECTIONS, size=size) * (self.chosen & ~self.summaries)
        actions = np.zeros(size, np.int64)
        known, features = np.zeros(size, bool), []
        word, wrong, forgotten = np.ones(EPISODES, bool), np.zeros(EPISODES), np.zeros(EPISODES)
        left = self.hops
        for t, is_summary in enumerate(self.summaries):
            known[:, t] = word
            features.append(self._features(word, left / self.hops, wrong / self.hops, float(is_summary)))
            if is_summary:
                actions[:, t] = (rng.random(EPISODES) < keep[t]) & word
                word = actions[:, t] == 1
                forgotten, wrong = forgotten + wrong, np.zeros(EPISODES)
            elif self.chosen[t]:
                drawn = rng.random((EPISODES, 1)) > turn[t, signs[:, t]].cumsum(axis=1)
                actions[:, t] = drawn[:, :-1].sum(axis=1)
                wrong += actions[:, t] != signs[:, t]
                left -= 1
        delivered = word | (rng.random(EPISODES) < 1 / CHOICES)
        returns = delivered * (1 - (forgotten + wrong) / self.hops)
        return Walks(signs, actions, np.stack(features, axis=1), known, returns)

    @staticmethod
    def _features(known: NDArray[np.bool_], left: float, wrong: Array, summary: float) -> Array:
        """(N, 8)."""
        one = np.ones(len(known))
        seen = [one, left * one, wrong, summary * one]
        return np.stack([*seen, *(known * feature for feature in seen)], axis=1)


class Learner:
    """Policy and critic of one arm.

    Args:
        world: what is played.
        credit: keywords of `segment_gae`; None for GRPO.
        own: every hop and every summary has logits of its own; else all share.
        rate: step size of the policy.
        seed: of tasks and actions.
    """

    def __init__(
        self, world: World, credit: dict[str, Any] | None, own: bool, rate: float, seed: int
    ) -> None:
        self.world, self.credit = world, credit
        hops, summaries = (world.hops, max(1, int(world.summaries.sum()))) if own else (1, 1)
        # (T,), which logits an action is drawn from
        self.hop = torch.from_numpy(np.where(world.summaries | ~world.chosen, 0, world.number) % hops)
        self.summary = torch.from_numpy(np.where(world.summaries, world.number, 0) % summaries)
        self.rng = np.random.default_rng(seed)
        right = float(np.log(RIGHT / ((1 - RIGHT) / (DIRECTIONS - 1))))
        # (hops or 1, 4, 4) logits
        self.turn = nn.Parameter((right * torch.eye(DIRECTIONS)).repeat(hops, 1, 1))
        kept = ALL_KEPT ** (1 / max(1, int(world.summaries.sum())))
        keep = torch.tensor([0.0, float(np.log(kept / (1 - kept)))])
        self.keep = nn.Parameter(keep.repeat(summaries, 1))  # (summaries or 1, 2) logits
        self.optimizer = torch.optim.Adam([self.turn, self.keep], rate)
        self.critic = np.zeros(8)
        self.seen: deque[tuple[Array, Array]] = deque(maxlen=MEMORY)  # of each batch: X'X (8, 8) and X'y (8,)

    def update(self) -> Walks:
        """Play and learn."""
        with torch.no_grad():
            turn = self.turn.softmax(-1)[self.hop].double().numpy()
            walks = self.world.play(turn, self.keep.softmax(-1)[self.summary, 1].numpy(), self.rng)
        # What was decided: turns, and summaries while the word was there to be kept.
        decided = self.world.chosen & (~self.world.summaries | walks.known)  # (N, T)
        advantages = torch.from_numpy(self._advantages(walks, decided)[decided]).float()  # (M,)
        logprobs = self._logprobs(walks)[torch.from_numpy(decided)]  # (M,)
        weights = torch.full((len(advantages),), 1 / len(advantages))
        loss, _ = policy_loss(logprobs, logprobs.detach(), advantages, weights)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return walks

    def _logprobs(self, walks: Walks) -> Tensor:
        """(N, T)."""
        signs, actions = torch.from_numpy(walks.signs), torch.from_numpy(walks.actions)
        turned = self.turn.log_softmax(-1)[self.hop, signs, actions]
        kept = self.keep.log_softmax(-1)[self.summary, actions.clamp(max=1)]
        return torch.where(torch.from_numpy(self.world.summaries), kept, turned)

    def _advantages(self, walks: Walks, decided: NDArray[np.bool_]) -> Array:
        """(N, T), whitened over what was decided for PPO, and by group for GRPO."""
        if self.credit is None:
            groups = [n // GROUP for n in range(EPISODES)]
            of = group_advantages(walks.returns, groups)
            return np.array(broadcast(of, list(decided), range(EPISODES)))
        values = walks.features @ self.critic  # (N, T), of a critic that has not seen this batch
        rewards = np.zeros(values.shape)
        rewards[:, -1] = walks.returns
        ones = np.ones(values.shape)
        parts = self.world.segments
        estimated = [
            segment_gae(*([row[part] for part in parts] for row in rows), returns_lam=1.0, **self.credit)
            for rows in zip(rewards, values, ones, strict=True)
        ]
        self._fit(walks.features, np.array([np.concatenate(e.returns) for e in estimated]))
        advantages = np.array([np.concatenate(e.advantages) for e in estimated])
        return np.array(whiten(list(advantages), list(decided)))

    def _fit(self, features: Array, targets: Array) -> None:
        """Least squares over the latest batches."""
        x, y = features.reshape(-1, 8), targets.ravel()
        self.seen.append((x.T @ x, x.T @ y))
        squares, products = (sum(parts) for parts in zip(*self.seen, strict=True))
        self.critic = np.linalg.solve(squares + 1e-6 * np.eye(8), products)


def run(world: World, arm: str, own: bool, rate: float, seed: int, updates: int) -> dict[str, Any]:
    """Train one arm."""
    learner = Learner(world, ARMS[arm], own, rate, seed)
    curve = [float(learner.update().returns.mean()) for _ in range(updates)]
    means = np.convolve(curve, np.ones(WINDOW) / WINDOW, "valid")  # of updates n to n + 9
    solved = [n + WINDOW for n, mean in enumerate(means) if mean >= GOAL]
    return {
        "return": float(means[-1]),
        "kept": float(learner.keep.softmax(-1)[:, 1].mean().detach()),
        "right": float(learner.turn.softmax(-1).diagonal(dim1=-2, dim2=-1).mean().detach()),
        "solved": solved[0] if solved else None,
        "curve": curve,
    }


def measure(
    hops: int, compactions: int, arms: Sequence[str], own: bool, rate: float, seeds: int, updates: int
) -> list[dict[str, Any]]:
    """A row for each arm and seed."""
    world = World(hops, compactions)
    rows = []
    for arm in arms:
        setting = {"hops": hops, "compactions": compactions, "own": own, "arm": arm, "rate": rate}
        rows += [setting | {"seed": s} | run(world, arm, own, rate, s, updates) for s in range(seeds)]
        print(f"  {hops} hops, {compactions} compactions, {arm}: done", file=sys.stderr, flush=True)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """A line for each horizon and arm."""
    print("| hops | compactions | arm | return at the end | summaries kept | turns right | solved, after |")
    print("|---" * 7 + "|")
    for hops, compactions in sorted({(row["hops"], row["compactions"]) for row in rows}):
        for arm in dict.fromkeys(row["arm"] for row in rows):
            here = [r for r in rows if (r["hops"], r["compactions"], r["arm"]) == (hops, compactions, arm)]
            cells = [shown([row[name] for row in here]) for name in ("return", "kept", "right")]
            solved = [row["solved"] for row in here if row["solved"] is not None]
            after = f", {mean_and_half(solved)[0]:.0f} updates" if solved else ""
            print(
                f"| {hops} | {compactions} | {arm} | {' | '.join(cells)} | "
                f"{len(solved)} of {len(here)}{after} |"
            )


def main() -> None:
    """Train all arms at all horizons and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hops", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--compactions", type=int, nargs="+", default=[3])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument(
        "--shared", action="store_true", help="all hops share their logits, and all summaries"
    )
    parser.add_argument("--rate", type=float, default=0.3, help="step size of the policy, of Adam")
    parser.add_argument("--json", type=Path, help="also write all rows here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for hops in args.hops:
        for compactions in args.compactions:
            rows += measure(
                hops, compactions, args.arms, not args.shared, args.rate, args.seeds, args.updates
            )
    print_table(rows)
    if args.json:
        args.json.write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
