"""Actors of several skill levels in two worlds whose values are exact, for `benchmarks/genac.py`.

python -m benchmarks.genac_worlds FOLDER    writes a random transformer that knows the words of both, and of critics
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentgym.envs.relay import RelayEnv
from agentgym.messages import Conversation, Message, assistant, user
from agentgym.policies.scripted import ScriptedPolicy
from agentgym.rollout import collect
from baselines.critic_prompt import INSTRUCTIONS, Agent, State, answer, value_prompt
from baselines.rationales import rate, relay_rationale
from baselines.tiny import make_model, texts_of


class Example(NamedTuple):
    """One state of a rollout.

    Attributes:
        state: as the critic is asked about it.
        agent: who acts.
        exact: V of this state for this actor.
        outcome: what came.
        rationale: what a teacher that knows V says.
    """

    state: State
    agent: Agent
    exact: float
    outcome: float
    rationale: str


@dataclass(frozen=True)
class World:
    """Where actors play.

    Attributes:
        play: one rollout of an actor at a level on a size.
        levels: of skill, from worst to best; those at even places are trained on, the others are held out.
        sizes: trained on.
        unseen: held out.
    """

    play: Callable[[Any, int, Agent, np.random.Generator], list[Example]]
    levels: Sequence[Any]
    sizes: tuple[int, ...]
    unseen: tuple[int, ...]


def walk_value(goal: int, position: int, left: int, p: float) -> float:
    """Probability of reaching `goal` within `left` turns, going up with probability `p`, else down, not below 0."""
    values = [0.0] * goal + [1.0]
    for _ in range(left):
        values = [p * values[n + 1] + (1 - p) * values[max(n - 1, 0)] for n in range(goal)] + [1.0]
    return values[position]


def play_walk(p: float, goal: int, agent: Agent, rng: np.random.Generator) -> list[Example]:
    """One walk of at most ``2 * goal`` turns, from 0 or 1."""
    turns, position = 2 * goal, int(rng.integers(2))
    messages: list[Message] = [user(f"Reach {goal}. You are at {position}. Say up or down.")]
    seen = []
    for turn in range(turns):
        left = turns - turn
        exact = walk_value(goal, position, left, p)
        words = f"{goal - position} to go, {left} left. {answer(exact)}"
        seen.append((State(tuple(messages), turns=turn, turns_left=left), exact, words))
        up = rng.random() < p
        position = position + 1 if up else max(position - 1, 0)
        messages += [assistant("up" if up else "down"), user(f"You are at {position}.")]
        if position == goal:
            break
    return [Example(state, agent, exact, float(position == goal), words) for state, exact, words in seen]


def play_relay(
    level: tuple[float, float], hops: int, agent: Agent, rng: np.random.Generator
) -> list[Example]:
    """One run of Relay-v0 by an actor that errs and recalls with the probabilities of its level."""
    error, recall = level
    env = RelayEnv(hops=hops, choices=4)
    text, _ = env.reset(seed=int(rng.integers(2**31)))
    messages: list[Message] = [user(str(text))]
    seen, reward, turn, ended = [], 0.0, 0, False
    while not ended:
        state = State(tuple(messages), turns=turn, turns_left=env.max_turns - turn)
        words = relay_rationale(state, recall=recall, error=error)
        assert words is not None
        seen.append((state, env.value(recall=recall, error=error), words))
        action = env.gold()
        if env.taken and rng.random() < (error if env.hop < env.hops else 1 - recall):
            action = str(rng.choice([other for other in env.admissible_actions() if other != action]))
        text, reward, ended, _, _ = env.step(action)
        messages += [assistant(action), user(str(text))]
        turn += 1
    return [Example(state, agent, exact, float(reward), words) for state, exact, words in seen]


WORLDS = {
    "walk": World(play_walk, (0.4, 0.5, 0.6, 0.7, 0.8), (3, 5), (4,)),
    "relay": World(play_relay, ((0.6, 0.2), (0.4, 0.4), (0.3, 0.6), (0.2, 0.8), (0.0, 1.0)), (2, 4), (3,)),
}


class Sampler:
    """Draws states of rollouts, the same for every critic of a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = np.random.default_rng(seed)
        self.agents = [self._met(level) for level in world.levels]

    def _met(self, level: Any) -> Agent:
        """What is known of an actor: its mean score over 32 runs of the training sizes."""
        plays = [
            self.world.play(level, size, Agent("tiny", 10**5), self.rng) for size in self.world.sizes * 16
        ]
        return Agent("tiny", 10**5, float(np.mean([run[0].outcome for run in plays])))

    def draw(self, count: int, levels: Sequence[int], sizes: Sequence[int]) -> list[Example]:
        """`count` states, few of each rollout, levels and sizes in turn."""
        drawn: list[Example] = []
        while len(drawn) < count:
            level, size = self.rng.choice(levels), self.rng.choice(sizes)
            run = self.world.play(self.world.levels[level], int(size), self.agents[level], self.rng)
            drawn += [run[n] for n in sorted(self.rng.permutation(len(run))[:4])]
        return drawn[:count]


def asked(examples: Sequence[Example], told: Sequence[bool]) -> list[Conversation]:
    """The questions about some states; `told` says which name the actor and its score of late."""
    return [
        value_prompt(example.state, example.agent if name else None)
        for example, name in zip(examples, told, strict=True)
    ]


def model_of(folder: Path, seed: int) -> Path:
    """A random transformer that knows the words of both worlds."""
    numbers = " ".join(f"{n}" for n in range(33))
    texts = [
        INSTRUCTIONS,
        "user: assistant: ",
        numbers,
        f"{numbers.replace(' ', '.')}",
        f" {numbers}",
        "ok wrong",
    ]
    for world in WORLDS.values():
        sampler = Sampler(world, 1)
        examples = sampler.draw(400, range(len(world.levels)), [*world.sizes, *world.unseen])
        texts += [m.content for p in asked(examples, [True] * len(examples)) for m in p] + [
            e.rationale for e in examples
        ]
        texts += [rate(examples[0].state, examples[0].agent)]
    for player in ("random", "null"):
        played = collect("agentgym/Relay-v0", player, episodes=32, env_kwargs={"hops": 3, "choices": 4})
        texts += texts_of(played, written=False)
    return make_model(folder, texts, hidden=64, layers=2, context=640, seed=seed)


class Courier(ScriptedPolicy):
    """A player of Relay-v0 that errs at three hops in ten and recalls the word two times in three."""

    name = "courier"

    def next_action(self, conversation: Conversation) -> str:
        """The right move, or another one."""
        env = self.agent_env
        right, moves = env.gold(), env.admissible_actions()
        wrong = 0.3 if right.startswith("go") else 1 / 3
        if len(moves) > 1 and self.rng.random() < wrong:
            return str(self.rng.choice([move for move in moves if move != right]))
        return right


if __name__ == "__main__":
    print(f"wrote {model_of(Path(sys.argv[1]), 0)}")
