"""What the probes share: making the environment under audit, playing it, and saying where two runs differ."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from agentgym.core import AgentEnv, AgentWrapper, Verdict
from agentgym.errors import InfrastructureError
from agentgym.policies.base import Policy
from agentgym.policies.scripted import Gold, Null, Random
from agentgym.registration import require

Env: TypeAlias = gymnasium.Env[Any, Any]
Player: TypeAlias = Callable[[Env], Iterator[Any]]  # called after reset: the actions, one by one

LONGEST = 200  # steps of an environment that never ends by itself


class Failed(Exception):
    """A probe found a fault: the text says what was expected and what came."""


class DoesNotApply(Exception):
    """A probe means nothing for this environment: the text says why."""


def expect(holds: bool, otherwise: str) -> None:
    """Fail the probe with `otherwise` unless `holds`."""
    if not holds:
        raise Failed(otherwise)


class Subject:
    """The environment under audit.

    Args:
        source: a Gymnasium id ("module:Id-v0" too), an environment class, or a function that returns an environment.
        kwargs: passed each time one is made.
        resets: most resets in the probe of resources.
        seed: of everything random.
    """

    def __init__(
        self, source: str | Callable[..., Env], kwargs: Mapping[str, Any], resets: int, seed: int
    ) -> None:
        self.source = source
        self.kwargs = dict(kwargs)
        self.resets = resets
        self.seed = seed
        self.name = source if isinstance(source, str) else getattr(source, "__qualname__", repr(source))
        if isinstance(source, str):
            require(source)
        with self.make() as env:
            self.is_agent_env = isinstance(env.unwrapped, AgentEnv)
            self.env_class = type(env.unwrapped)
        self.reset_s = self.step_s = self.verdict_s = 0.0

    def make(self, *, max_turns: int | None = None, **more: Any) -> Env:
        """A new instance. `max_turns` is set on the instance, so that functions without keywords can be audited."""
        kwargs = self.kwargs | more
        env = gymnasium.make(self.source, **kwargs) if isinstance(self.source, str) else self.source(**kwargs)
        if max_turns is not None and isinstance(env.unwrapped, AgentEnv):
            env.unwrapped.max_turns = max_turns
        return env

    def overrides(self, method: str) -> bool:
        """Whether the environment defines an optional method of `AgentEnv`."""
        return self.is_agent_env and getattr(self.env_class, method) is not getattr(AgentEnv, method)

    def require_agent_env(self) -> None:
        """Skip the probe for environments that are not built on `AgentEnv`."""
        if not self.is_agent_env:
            raise DoesNotApply("only for environments built on agentgym.AgentEnv")

    # -- cost ------------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """What a reset, a step and an end (with its verdict) cost here, in seconds."""
        with self.make(max_turns=2) as env:
            start(env, seed=self.seed)  # the first may prepare what later ones only use
            clock = time.perf_counter()
            start(env, seed=self.seed)
            self.reset_s = time.perf_counter() - clock
            for action in itertools.islice(self.null()(env), 2):
                clock = time.perf_counter()
                step = advance(env, action)
                seconds = time.perf_counter() - clock
                if step.ended:
                    self.verdict_s = seconds
                    break
                self.step_s = seconds
        if self.overrides("gold"):  # what was done well may cost far more to judge than nothing
            with self.make() as env, contextlib.suppress(Exception):  # the probe `gold` reports it
                start(env, seed=self.seed)
                for action in itertools.islice(self.gold()(env), LONGEST):
                    clock = time.perf_counter()
                    if advance(env, action).ended:
                        self.verdict_s = max(self.verdict_s, time.perf_counter() - clock)
                        break

    def times(self, most: int, *, resets: float = 0, ends: float = 0, budget_s: float = 4.0) -> int:
        """How often to repeat something that costs so many resets and ends: at least once, at most `most` times."""
        cost = resets * self.reset_s + ends * self.verdict_s
        return max(1, min(most, int(budget_s / cost) if cost else most))

    @property
    def expensive(self) -> bool:
        """Verdicts cost so much that probes leave repetitions out."""
        return self.verdict_s > 0.3

    # -- players ---------------------------------------------------------------------------------------------------

    def random(self, seed: int) -> Player:
        """Random actions: what the tools or the admissible actions allow, else samples of the action space."""
        return policy_player(Random(), seed) if self.is_agent_env else _sampled(seed)

    def null(self) -> Player:
        """Actions that do nothing."""
        return policy_player(Null(), 0) if self.is_agent_env else _sampled(0)

    def lively(self, seed: int) -> Player:
        """Random actions; for odd seeds the solver's, where there is one: what only success reaches is reached."""
        return self.gold() if seed % 2 and self.overrides("gold") else self.random(seed)

    def gold(self) -> Player:
        """The environment's own solver."""
        return policy_player(Gold(), 0)


def policy_player(policy: Policy, seed: int) -> Player:
    """A player out of a policy that looks at the environment instead of the conversation."""

    def player(env: Env) -> Iterator[str]:
        episode_policy = policy.for_episode(env, np.random.default_rng(seed))
        while True:
            yield episode_policy.act([()])[0].text

    return player


def replay(actions: Iterable[Any]) -> Player:
    """A player that repeats recorded actions and then stops."""
    recorded = list(actions)
    return lambda env: iter(recorded)


def _sampled(seed: int) -> Player:
    def player(env: Env) -> Iterator[Any]:
        space = copy.deepcopy(env.action_space)
        space.seed(seed)
        while True:
            yield space.sample()

    return player


# -- playing -------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """What one `reset` (action None) or `step` gave, copied at that moment."""

    action: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return bool(self.terminated or self.truncated)


def start(env: Env, *, seed: int | None = None, task: Any = None) -> Step:
    """Reset, to a task where one is given."""
    observation, info = env.reset(seed=seed, options=None if task is None else {"task": task})
    return Step(None, copy.deepcopy(observation), 0.0, False, False, copy.deepcopy(info))


def advance(env: Env, action: Any) -> Step:
    """One step.

    Raises:
        InfrastructureError: the environment says that what it depends on broke; no probe may judge that.
    """
    observation, reward, terminated, truncated, info = env.step(action)
    if "infrastructure_error" in info:
        raise InfrastructureError(info["infrastructure_error"])
    return Step(action, copy.deepcopy(observation), reward, terminated, truncated, copy.deepcopy(info))


def go_on(env: Env, player: Player, steps: int = LONGEST) -> list[Step]:
    """Play on in a running episode, to its end or for so many steps."""
    trace = []
    for action in itertools.islice(player(env), steps):
        trace.append(advance(env, action))
        if trace[-1].ended:
            break
    return trace


def play(
    env: Env, player: Player, *, seed: int | None = None, task: Any = None, steps: int = LONGEST
) -> list[Step]:
    """Reset and play, to the end or for so many steps."""
    return [start(env, seed=seed, task=task), *go_on(env, player, steps)]


def actions_of(trace: Iterable[Step]) -> list[Any]:
    """The actions of a trace, resets left out."""
    return [step.action for step in trace if step.action is not None]


# -- comparing and describing --------------------------------------------------------------------------------------


def first_difference(one: list[Step], other: list[Step]) -> str | None:
    """Where two traces part, in words; None if they are equal."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        where = f"step {index}" if a.action is None else f"step {index} (action {short(a.action, 40)})"
        for field in ("observation", "reward", "terminated", "truncated"):
            if not same(getattr(a, field), getattr(b, field)):
                return f"{where}: {field} {contrast(getattr(a, field), getattr(b, field))}"
        if a.info.keys() != b.info.keys():
            return f"{where}: info keys {contrast(sorted(a.info), sorted(b.info))}"
        for key in a.info:
            ours, theirs = _compared(a.info[key]), _compared(b.info[key])
            if not same(ours, theirs):
                return f"{where}: info[{key!r}] {contrast(ours, theirs)}"
    if len(one) != len(other):
        return f"one run has {len(one) - 1} steps, the other {len(other) - 1}"
    return None


def _compared(value: Any) -> Any:
    """What of a value must be equal in two runs: not a verdict's evidence, text for people that may hold times."""
    return dataclasses.replace(value, evidence={}) if isinstance(value, Verdict) else value


def same(a: Any, b: Any) -> bool:
    """Equality that understands arrays and takes NaN for equal to itself."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(data_equivalence(a, b, exact=True))


def contrast(a: Any, b: Any) -> str:
    """Two differing values side by side: the part that differs, long texts from the place where they part."""
    if type(a) is type(b) and dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            ours, theirs = getattr(a, field.name), getattr(b, field.name)
            if field.compare and not same(ours, theirs):
                return f"{field.name} {contrast(ours, theirs)}"
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if not same(x, y)), 0)
        return f"item {at} {contrast(a[at], b[at])}" if a else short(a)
    if isinstance(a, str) and isinstance(b, str):
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        begin = max(0, at - 12)
        return (
            f"was {short(a[begin:])}, then {short(b[begin:])} (from character {at} of {len(a)} and {len(b)})"
        )
    return f"was {short(a)}, then {short(b)}"


def short(value: Any, limit: int = 60) -> str:
    """A representation on one line, cut."""
    text = repr(value if not isinstance(value, str) else value[: limit + 1])
    return text if len(text) <= limit else text[: limit - 3] + "..."


def snapshotter(env: Env) -> AgentEnv | AgentWrapper:
    """The outermost layer that can take snapshots."""
    while not isinstance(env, AgentEnv | AgentWrapper):
        env = env.env  # type: ignore[attr-defined]  # a plain wrapper around one of ours
    return env
