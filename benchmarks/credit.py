"""How well credit crosses compactions: the advantages of each estimator beside the exact ones, on Relay-v0.

    python -m benchmarks.credit [--hops 8 32 128] [--compactions 1 3 7] [--lam 0.9] [--json FILE]

A scripted policy plays `agentgym/Relay-v0`: it errs at each hop with probability 0.1, and its history is rewritten at
equal distances; each time it writes a summary, which keeps the word with probability 0.8. Without the word it guesses
at the end. `RelayEnv.value` gives V of every state and so the exact advantage of every action. Each action, summaries
included, is one trainable token behind one of observation.

Figures are in units of the root mean square of the exact advantages, a mean over seeds with its 95 % t interval.

- bias: of the estimate's mean for an action in a state (position, word known) beside the other actions there. An error
  that all actions of a state share is a baseline and moves no policy, so it is taken off. Root mean square over actions
  as often as they were taken, less what sampling alone would give.
- noise: the estimate's root mean square deviation for the same action in the same state.
- first: how much of the difference between a good and a bad *first* summary the estimate holds: 1 is right, 0 none.

The critics: `exact`; `noisy`, off by a fixed error of deviation 0.1 in each state; `blind`, which after the first
rewrite does not look whether the summary holds the word.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.credit import LengthAdaptive, segment_gae
from agentgym.envs.relay import RelayEnv

ERROR, KEEP, CHOICES, CRITIC_NOISE = 0.1, 0.8, 16, 0.1
CRITICS = ("exact", "noisy", "blind")
ESTIMATORS: dict[str, dict[str, Any]] = {
    "stitch": {"across": "stitch"},
    "decay": {"across": "decay"},
    "decay, by segment": {"across": "decay", "decay_length": "segment"},
    "independent": {"across": "independent"},
    "return - V": {"across": "stitch", "lam": 1.0},
}


@dataclass
class Run:
    """One episode as a chain of segments; lists are per segment, entries per action.

    Attributes:
        rewards, exact: reward and exact advantage of each action.
        values: by critic.
        cells: position, whether the word was known, and what was done.
    """

    rewards: list[list[float]] = field(default_factory=list)
    exact: list[list[float]] = field(default_factory=list)
    values: dict[str, list[list[float]]] = field(default_factory=lambda: {name: [] for name in CRITICS})
    cells: list[tuple[int, bool, str]] = field(default_factory=list)


class Player:
    """The policy, with the critics' view of each state."""

    def __init__(self, hops: int, compactions: int, seed: int) -> None:
        self.env = RelayEnv(hops=hops, choices=CHOICES)
        # After so many hops
        self.rewrites = [round(hops * k / (compactions + 1)) for k in range(1, compactions + 1)]
        if len(set(self.rewrites)) != compactions or hops in self.rewrites or 0 in self.rewrites:
            raise SystemExit(f"expected fewer compactions than hops, got {compactions} and {hops}")
        self.rng = np.random.default_rng(seed)
        self.off: dict[Any, float] = defaultdict(lambda: CRITIC_NOISE * self.rng.normal())

    def play(self) -> Run:
        """One episode."""
        self.env.reset(seed=int(self.rng.integers(2**31)))
        self.known, self.left, self.segment = True, len(self.rewrites), 0
        run, due = Run(), list(self.rewrites)
        self._act(run, "take", "take")
        while self.env.hop < self.env.hops:
            if due and self.env.hop == due[0]:
                due.pop(0)
                self._summarise(run)
            sign = self.env.signs[self.env.hop]
            wrong = self.rng.random() < ERROR
            direction = next(d for d in ("north", "east") if d != sign) if wrong else sign
            self._act(run, f"go {direction}", "wrong" if wrong else "right")
        word = self.env.word if self.known else self.env.words[self.rng.integers(CHOICES)]
        self._act(run, f"deliver {word}", "deliver" if word == self.env.word else "fail")
        return run

    def _summarise(self, run: Run) -> None:
        self._look(run)
        known, before = self.known, self._value(self._recall())
        self.left -= 1
        self.known = bool(self.known and self.rng.random() < KEEP)
        self.segment += 1
        self._note(run, 0.0, self._value(self._recall()) - before, known, "keep" if self.known else "lose")

    def _act(self, run: Run, action: str, done: str) -> None:
        self._look(run)
        before = self._value(self._recall())
        reward = self.env.step(action)[1]
        self._note(run, reward, reward + self._value(self._recall()) - before, self.known, done)

    def _look(self, run: Run) -> None:
        """What each critic says before the action."""
        if len(run.rewards) <= self.segment:
            for rows in (run.rewards, run.exact, *run.values.values()):
                rows.append([])
        exact = self._value(self._recall())
        state = (self.env.taken, self.env.hop, self.env.mistakes, self.known, self.segment)
        unread = KEEP ** len(self.rewrites)
        blind = self._value(unread + (1 - unread) / CHOICES) if self.segment else exact
        for critic, value in (("exact", exact), ("noisy", exact + self.off[state]), ("blind", blind)):
            run.values[critic][self.segment].append(value)

    def _note(self, run: Run, reward: float, advantage: float, known: bool, done: str) -> None:
        run.rewards[-1].append(reward)
        run.exact[-1].append(advantage)
        run.cells.append((len(run.cells), known, done))

    def _recall(self) -> float:
        """Probability that the word will be delivered."""
        kept = KEEP**self.left if self.known else 0.0
        return kept + (1 - kept) / CHOICES

    def _value(self, recall: float) -> float:
        return self.env.value(recall=recall, error=ERROR)


def figures(runs: list[Run], critic: str, options: dict[str, Any]) -> dict[str, float]:
    """Bias, noise and the first summary's share of one estimator."""
    states: dict[Any, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    first: dict[str, list[tuple[float, float]]] = {"keep": [], "lose": []}
    for run in runs:
        got, true = np.concatenate(estimate(run, critic, options)), np.concatenate(run.exact)
        for (position, known, done), error in zip(run.cells, got - true, strict=True):
            states[position, known][done].append(error)
        at = next(n for n, cell in enumerate(run.cells) if cell[2] in first)
        first[run.cells[at][2]].append((got[at], true[at]))
    parts = np.array([_bias_and_noise(list(map(np.array, cells.values()))) for cells in states.values()])
    exact = np.concatenate([np.concatenate(run.exact) for run in runs])
    seen, there = np.mean(first["keep"], axis=0) - np.mean(first["lose"], axis=0)
    bias, noise = np.sqrt(np.maximum(parts.sum(axis=0), 0.0) / (exact**2).sum())
    return {"bias": float(bias), "noise": float(noise), "first": float(seen / there)}


def _bias_and_noise(cells: list[np.ndarray[Any, Any]]) -> tuple[float, float]:
    """Sums of squares over the actions taken in one state; a cell holds the errors of one action."""
    n = np.array([len(cell) for cell in cells])
    means = np.array([cell.mean() for cell in cells])
    variances = np.array([cell.var(ddof=1) if len(cell) > 1 else 0.0 for cell in cells])
    share = n / n.sum()
    offsets = means - share @ means
    chance = variances / n * (1 - 2 * share) + share**2 @ (variances / n)  # variance of each offset
    return float(n @ (offsets**2 - chance)), float(n @ variances)


def estimate(run: Run, critic: str, options: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Advantages of the actions of each segment, each token of action standing behind one of observation."""
    zeros = [[0.0] * len(row) for row in run.rewards]
    masks = [[1.0] * len(row) for row in run.rewards]
    credit = segment_gae(
        *(
            [np.stack([observed, row], axis=1).ravel() for observed, row in zip(zeros, rows, strict=True)]
            for rows in (run.rewards, run.values[critic], masks)
        ),
        **options,
    )
    return [row[1::2] for row in credit.advantages]


def measure(
    hops: int, compactions: int, seeds: int, episodes: int, lam: float | LengthAdaptive
) -> list[dict[str, Any]]:
    """A row for each critic and estimator: means over seeds and half widths of their 95 % intervals."""
    from scipy import stats

    found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for seed in range(seeds):
        player = Player(hops, compactions, seed)
        runs = [player.play() for _ in range(episodes)]
        for critic in CRITICS:
            for name, options in ESTIMATORS.items():
                found[critic, name].append(figures(runs, critic, {"lam": lam} | options))
    rows = []
    for (critic, name), per_seed in found.items():
        row: dict[str, Any] = {"hops": hops, "compactions": compactions, "critic": critic, "estimator": name}
        for key in per_seed[0]:
            numbers = np.array([one[key] for one in per_seed])
            half = stats.t.ppf(0.975, len(numbers) - 1) * numbers.std(ddof=1) / np.sqrt(len(numbers))
            row |= {key: float(numbers.mean()), f"{key}_ci95": float(half)}
        rows.append(row)
    return rows


def print_table(rows: list[dict[str, Any]], critic: str) -> None:
    """Bias, noise and first share of one critic, a line for each setting."""
    print(f"\nCritic: {critic}. Each cell: bias / noise / first.\n")
    print("| hops | compactions | " + " | ".join(ESTIMATORS) + " |")
    print("|---" * (len(ESTIMATORS) + 2) + "|")
    settings = sorted({(row["hops"], row["compactions"]) for row in rows})
    for hops, compactions in settings:
        here = [r for r in rows if (r["hops"], r["compactions"], r["critic"]) == (hops, compactions, critic)]
        print(f"| {hops} | {compactions} | " + " | ".join(map(_cell, here)) + " |")


def _cell(row: dict[str, Any]) -> str:
    number: Callable[[str], str] = lambda key: f"{row[key]:.2f}±{row[key + '_ci95']:.2f}"  # noqa: E731
    return " / ".join(map(number, ("bias", "noise", "first")))


def main() -> None:
    """Measure all settings and print a table for each critic."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hops", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--compactions", type=int, nargs="+", default=[1, 3, 7])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=200, help="of each seed")
    parser.add_argument("--lam", type=float, help="lambda; by default 1 - 1 / (1.5 length), as published")
    parser.add_argument("--json", type=Path, help="also write all rows here")
    args = parser.parse_args()
    lam = LengthAdaptive(1.5) if args.lam is None else args.lam
    rows = [
        row
        for hops in args.hops
        for compactions in args.compactions
        for row in measure(hops, compactions, args.seeds, args.episodes, lam)
    ]
    for critic in CRITICS:
        print_table(rows, critic)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
