"""The audit of PettingZoo's parallel environments: the probes that mean something for several agents at a time."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import pettingzoo  # type: ignore[import-untyped, unused-ignore]
from pettingzoo.test import (  # type: ignore[import-untyped, unused-ignore]
    api_test,
    parallel_api_test,
    parallel_seed_test,
)
from pettingzoo.utils import parallel_to_aec  # type: ignore[import-untyped, unused-ignore]

from agentgym.check import contract, determinism, leaks, resources
from agentgym.check.subject import (
    DoesNotApply,
    Env,
    Player,
    Subject,
    actions_of,
    expect,
    first_difference,
    go_on,
    play,
    replay,
    start,
)
from agentgym.errors import UsageError
from agentgym.parallel import TextParallelEnv
from agentgym.policies.scripted import random_call
from agentgym.protocols import Hermes

_CYCLES = 50
_HERMES = Hermes()
# Text is neither an array nor a box, and PettingZoo's tests warn of that.
_TEXT_WARNINGS = ("not a NumPy array", "probably should be")


class Joint(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """A parallel environment as one agent that reads and writes for all: so the probes for one agent can play it.

    Observations and actions are dictionaries by agent, the reward is the mean, info keys are "agent/key".
    """

    def __init__(self, team: Any) -> None:
        self.team = team
        agents = list(team.possible_agents)
        self.observation_space = gymnasium.spaces.Dict({a: team.observation_space(a) for a in agents})
        self.action_space = gymnasium.spaces.Dict({a: team.action_space(a) for a in agents})
        self.infos: dict[str, dict[str, Any]] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reset the environment."""
        observations, self.infos = self.team.reset(seed=seed, options=options)
        return observations, self._info()

    def step(self, action: Mapping[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """A round."""
        result = self.team.step({agent: action[agent] for agent in self.team.agents})
        observations, rewards, terminated, truncated, self.infos = result
        ends = all(terminated.values()), all(truncated.values())
        return observations, float(np.mean(list(rewards.values()))), *ends, self._info()

    def close(self) -> None:
        """Close the environment."""
        self.team.close()

    def _info(self) -> dict[str, Any]:
        broken = [i["infrastructure_error"] for i in self.infos.values() if "infrastructure_error" in i]
        told = {f"{agent}/{key}": value for agent, info in self.infos.items() for key, value in info.items()}
        return told | ({"infrastructure_error": broken[0]} if broken else {})


class TeamSubject(Subject):
    """A parallel environment under audit, played as a `Joint`."""

    def __init__(self, env_id: str, kwargs: Mapping[str, Any], resets: int, seed: int) -> None:
        def make(**keywords: Any) -> Env:
            return Joint(pettingzoo.make("parallel", env_id, **keywords))

        super().__init__(make, kwargs, resets, seed)
        self.name = self.env_id = env_id
        with self.make() as env:
            self.is_ours = isinstance(_team(env), TextParallelEnv)

    def random(self, seed: int) -> Player:
        """Each agent does what its info says it may: a sensible move or a random call; now and then random text."""

        def player(env: Env) -> Iterator[Any]:
            rng = np.random.default_rng((seed, 7))
            space: Any = env.action_space
            for agent, texts in space.items():
                texts.seed(int(rng.integers(1 << 31)) + len(agent))
            while True:
                infos = env.infos  # type: ignore[attr-defined]
                yield {a: _random_action(infos.get(a, {}), texts, rng) for a, texts in space.items()}

        return player

    def null(self) -> Player:
        """Nobody says anything."""

        def player(env: Env) -> Iterator[Any]:
            while True:
                yield dict.fromkeys(env.action_space, "")  # type: ignore[call-overload]

        return player if self.is_ours else self.random(0)


def _random_action(info: Mapping[str, Any], space: Any, rng: np.random.Generator) -> Any:
    if rng.random() < 0.1 or not ({"admissible_actions", "tools"} & info.keys()):
        return space.sample()
    if info.get("admissible_actions") and (not info.get("tools") or rng.random() < 0.7):
        return str(rng.choice(info["admissible_actions"]))
    tools = info.get("tools") or ()
    if not tools:
        return space.sample()
    chosen = tools[int(rng.integers(len(tools)))]
    return _HERMES.render_call(random_call(chosen.name, json.loads(chosen.schema), rng))


def _team(env: Env) -> Any:
    return env.team  # type: ignore[attr-defined]


def _require_ours(subject: TeamSubject) -> None:
    if not subject.is_ours:
        raise DoesNotApply("only for environments built on agentgym.parallel.TextParallelEnv")


# -- probes ------------------------------------------------------------------------------------------------------------


def pettingzoo_tests(subject: TeamSubject) -> str:
    """PettingZoo's tests of both forms and of seeds pass, their warnings taken as errors."""
    make = functools.partial(pettingzoo.make, "parallel", subject.env_id, **subject.kwargs)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("error", UserWarning)
        for text in _TEXT_WARNINGS:
            warnings.filterwarnings("ignore", f"(?s).*{text}")
        parallel_api_test(make(), num_cycles=_CYCLES)
        parallel_seed_test(make, num_cycles=_CYCLES)
        api_test(parallel_to_aec(make()), num_cycles=_CYCLES)
    return f"parallel_api_test, parallel_seed_test, api_test, {_CYCLES} cycles"


def info(subject: TeamSubject) -> str:
    """Every info key of every agent is documented, of its one type and frozen; nothing is None."""
    _require_ours(subject)
    seen: set[str] = set()
    with subject.make() as env:
        for number in range(4):
            player = subject.random(number) if number else subject.null()
            for index, step in enumerate(play(env, player, seed=subject.seed + number)):
                for agent in _team(env).possible_agents:
                    prefix = f"{agent}/"
                    mine = {k.removeprefix(prefix): v for k, v in step.info.items() if k.startswith(prefix)}
                    seen |= mine.keys()
                    contract.check_info(f"episode {number}, round {index}, {agent}", step._replace(info=mine))
    return "keys seen: " + ", ".join(sorted(seen))


def reset_options(subject: TeamSubject) -> str:
    """``options={"task": ...}`` chooses the task; one that does not exist is an error."""
    _require_ours(subject)
    with subject.make() as env:
        tasks = [task.id for task in _team(env).task_set][:3]
        for task in tasks:
            found = {v for k, v in start(env, task=task).info.items() if k.endswith("/task_id")}
            expect(found == {task}, f"expected every agent's task_id to be {task!r}, got {sorted(found)}")
        try:
            env.reset(options={"task": "no such task"})
        except UsageError:
            return f"{len(tasks)} tasks by id"
    raise AssertionError("expected a UsageError for a task that does not exist, got an episode")


def snapshot(subject: TeamSubject) -> str:
    """Play, snapshot, play on, restore, play on again: identical, also after another episode in between."""
    _require_ours(subject)
    with subject.make() as env:
        whole = actions_of(play(env, subject.random(subject.seed), seed=subject.seed, steps=24))
        for at in sorted({0, len(whole) // 2}):
            play(env, replay(whole[:at]), seed=subject.seed)
            saved = _team(env).snapshot()
            expected = go_on(env, replay(whole[at:]))
            for again in ("restored", "restored after another episode"):
                if again != "restored":
                    play(env, subject.random(1), seed=subject.seed + 1, steps=3)
                _team(env).restore(saved)
                difference = first_difference(expected, go_on(env, replay(whole[at:])))
                expect(difference is None, f"snapshot after {at} rounds, {again}: {difference}")
    return f"{len(whole)} rounds, snapshots at the start and half-way, each restored twice"


def turn_limit(subject: TeamSubject) -> str:
    """After `max_cycles` rounds everybody is truncated, not terminated, and the next round is refused."""
    _require_ours(subject)
    with subject.make(max_cycles=2) as env:
        trace = play(env, subject.null(), seed=subject.seed)
        last = trace[-1]
        expect(len(trace) == 3, f"expected 2 rounds with max_cycles=2, got {len(trace) - 1}")
        expect(last.truncated and not last.terminated, f"expected truncation, got {last[3:5]}")
        try:
            _team(env).step({})
        except gymnasium.error.ResetNeeded:
            return "max_cycles=2"
    raise AssertionError("expected ResetNeeded after the end, got another round")


PROBES: dict[str, Callable[[TeamSubject], str]] = {
    "start": contract.start_up,
    "spaces": contract.spaces,
    "info": info,
    "reset_options": reset_options,
    "same_seed": determinism.same_seed,
    "global_random_state": determinism.global_random_state,
    "instances": determinism.instances,
    "handed_out": determinism.handed_out,
    "fresh_reset": leaks.fresh_reset,
    "snapshot": snapshot,
    "turn_limit": turn_limit,
    "threads": determinism.threads,
    "resources": resources.resources,
    "pettingzoo": pettingzoo_tests,
}
