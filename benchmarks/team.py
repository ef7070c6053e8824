"""What teams reach on the multi-agent tasks, against what is the most they can.

    python -m benchmarks.team [--seeds 5] [--episodes 40000] [--every 1] [--json FILE]

HiddenNumber-v0: tabular Q-learning over texts, once by the lead alone (scouts say what they saw) and once by all agents
at the same time, each for itself. What is learned is evaluated exactly, on everything that chance can do, and compared
with the optimum.

ResearchTeam-v0: a scripted team and a scripted loner on every bundled task (`benchmarks.team_research`).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pettingzoo  # type: ignore[import-untyped, unused-ignore]

import agentgym
from agentgym.core import Task
from agentgym.envs.seat import SeatEnv
from benchmarks import team_research
from benchmarks.team_research import research

ID, LEAD = "agentgym/HiddenNumber-v0", "lead_0"

# The lead's seat, for trainers: ``--env benchmarks.team:HiddenNumberLead-v0``.
gymnasium.register("HiddenNumberLead-v0", lambda **keywords: SeatEnv(ID, LEAD, **keywords))


class Learner:
    """Q-learning on a table from text to text.

    Args:
        rng: explores.
        epsilon: share of actions at random.
        power: step sizes are ``visits ** -power``; between 1/2 and 1.
    """

    def __init__(self, rng: np.random.Generator, epsilon: float = 0.6, power: float = 0.8) -> None:
        self.rng, self.epsilon, self.power = rng, epsilon, power
        self.values: dict[str, dict[str, float]] = defaultdict(dict)
        self.visits: dict[tuple[str, str], int] = defaultdict(int)

    def act(self, state: str, actions: Sequence[str], explore: float = 1.0) -> str:
        """The action worth the most so far, or one at random; what was never tried is worth 0."""
        if self.rng.random() < self.epsilon * explore:
            return actions[int(self.rng.integers(len(actions)))]
        known = self.values[state]
        return max(actions, key=lambda action: known.get(action, 0.0))

    def learn(self, state: str, action: str, target: float) -> None:
        """Move the value of the action towards the target."""
        self.visits[state, action] += 1
        step = self.visits[state, action] ** -self.power
        old = self.values[state].get(action, 0.0)
        self.values[state][action] = old + step * (target - old)

    def best(self, state: str) -> float:
        """What the state is worth."""
        return max(self.values[state].values(), default=0.0)


def train(env: Any, learners: Mapping[str, Learner], episodes: int, seed: int) -> None:
    """Let the learners play; the other agents play gold.

    The state is the anchor: what an agent knows, in any order of asking. The lead explores to the end, which its values
    do not suffer from; scouts less and less, since what they say at random the lead cannot learn to read.
    """
    env.reset(seed=seed)
    for episode in range(episodes):
        _, infos = env.reset()
        explore = dict.fromkeys(learners, max(0.0, 1 - 2 * episode / episodes)) | {LEAD: 1.0}
        while env.agents:
            states = {agent: infos[agent]["anchor"] for agent in learners}
            actions = {agent: env.gold(agent) for agent in env.agents if agent not in learners}
            for agent, learner in learners.items():
                options = infos[agent]["admissible_actions"]
                actions[agent] = learner.act(states[agent], options, explore[agent])
            _, rewards, _, _, infos = env.step(actions)
            for agent, learner in learners.items():
                later = learner.best(infos[agent]["anchor"]) if env.agents else rewards[agent]
                learner.learn(states[agent], actions[agent], later)


def expected(env: Any, choose: Callable[[str, Mapping[str, Any]], str]) -> Fraction:
    """The exact expected score of a team without chance of its own: the sum over everything that chance can do.

    Args:
        env: a HiddenNumber environment.
        choose: agent and its info -> action.
    """
    total = Fraction(0)
    for chance, number, sightings in env.game.outcomes():
        task = Task("outcome", data={"number": number, "sightings": sightings})
        _, infos = env.reset(options={"task": task})
        while env.agents:
            _, _, _, _, infos = env.step({agent: choose(agent, infos[agent]) for agent in env.agents})
        verdict = infos[LEAD]["verdict"]
        total += (
            chance
            * int(verdict.components["right"])
            * (1 - env.game.cost * int(verdict.components["questions"]))
        )
    return total


def greedy(env: Any, learners: Mapping[str, Learner]) -> Callable[[str, Mapping[str, Any]], str]:
    """The learners without exploration, the others gold; for `expected`."""

    def choose(agent: str, info: Mapping[str, Any]) -> str:
        if agent not in learners:
            return str(env.gold(agent))
        return learners[agent].act(info["anchor"], info["admissible_actions"], explore=0.0)

    return choose


def hidden_number(episodes: int, seeds: int, everybody: bool, **kwargs: Any) -> dict[str, Any]:
    """Train on several seeds; what each reached, and the optimum."""
    env = pettingzoo.make("parallel", ID, **kwargs)
    learning = env.possible_agents if everybody else [LEAD]
    reached = []
    for seed in range(seeds):
        learners = {
            agent: Learner(np.random.default_rng([seed, number])) for number, agent in enumerate(learning)
        }
        train(env, learners, episodes, seed)
        reached.append(expected(env, greedy(env, learners)))
    optimum = env.game.value()
    return {
        "learning": list(learning),
        "episodes": episodes,
        "optimum": float(optimum),
        "reached": [float(each) for each in reached],
        "optimal": sum(each == optimum for each in reached),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--episodes", type=int, default=40_000, help="of the lead alone; all together get twice as many"
    )
    parser.add_argument("--every", type=int, default=1, help="which share of the questions: each N-th")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    games = {
        "the lead learns": hidden_number(args.episodes, args.seeds, everybody=False),
        "everybody learns": hidden_number(2 * args.episodes, args.seeds, everybody=True),
    }
    print(f"agentgym {agentgym.__version__}, {ID}")
    for name, row in games.items():
        reached = ", ".join(f"{each:.4f}" for each in row["reached"])
        print(
            f"{name:<18} optimum {row['optimum']:.5f}, reached on {row['optimal']} of {args.seeds} seeds: {reached}"
        )
    questions = research(args.every)
    print(f"{team_research.ID}: " + ", ".join(f"{name} {value:g}" for name, value in questions.items()))
    if args.json:
        figures = {"hidden number": games, "research team": questions}
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
