"""Probes: the same seed is the same episode, whatever else goes on in the process."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
import threading
from collections.abc import Iterator, KeysView
from typing import Any

import gymnasium
import numpy as np

from agentgym.check.subject import (
    DoesNotApply,
    Env,
    Player,
    Step,
    Subject,
    actions_of,
    advance,
    expect,
    first_difference,
    go_on,
    play,
    replay,
    same,
    short,
    start,
)
from agentgym.core import AgentEnv
from agentgym.errors import UsageError

_USE_NP_RANDOM = "use self.np_random, seeded by super().reset(seed=seed), and no other generator"


def same_seed(subject: Subject) -> str:
    """The same seed gives the same episode, and the same resets after it, with the global generators disturbed."""
    rounds = subject.times(4, resets=6, ends=2)
    for seed in range(subject.seed, subject.seed + rounds):
        with subject.make() as env:
            first = _seeded_run(env, subject.lively(seed), seed)
        with _global_state_kept(), subject.make() as env:
            again = _seeded_run(env, _disturbed(replay(actions_of(first))), seed)
        difference = first_difference(first, again)
        expect(
            difference is None,
            f"seed {seed}, played twice with random and numpy.random disturbed: {difference}; {_USE_NP_RANDOM}",
        )
    return f"{rounds} seeds, each an episode and two resets without a seed, played twice and compared"


def global_random_state(subject: Subject) -> str:
    """Making, playing and closing leave the generators of `random` and `numpy.random` alone."""
    with _global_state_kept():
        random.seed(1)
        np.random.seed(1)
        for moment, act in (("constructor", None), ("reset", 0), ("step", 3)):
            before = random.getstate(), _numpy_state()
            with subject.make() as env:
                if act is not None:
                    play(env, subject.random(subject.seed), seed=subject.seed, steps=act)
            for name, old, new in zip(
                ("random", "numpy.random"), before, (random.getstate(), _numpy_state()), strict=True
            ):
                expect(
                    old == new,
                    f"{moment} changed the state of the global generator of {name}; {_USE_NP_RANDOM}",
                )
    return "unchanged by constructor, reset, step and close"


def instances(subject: Subject) -> str:
    """Two instances stepped in turn behave as each alone, and no class attribute changes."""
    before = _class_state(subject.env_class)
    seeds = (subject.seed, subject.seed + 1)
    steps = 4 if subject.expensive else 40
    alone = []
    for seed in seeds:
        with subject.make() as env:
            alone.append(play(env, subject.lively(seed), seed=seed, steps=steps))
    with subject.make() as one, subject.make() as other:
        envs = (one, other)
        together: list[list[Step]] = [[start(env, seed=seed)] for env, seed in zip(envs, seeds, strict=True)]
        for number in range(1, max(map(len, alone))):
            for env, expected, trace in zip(envs, alone, together, strict=True):
                if number < len(expected) and not trace[-1].ended:
                    trace.append(advance(env, expected[number].action))
    for name, expected, trace in zip(("first", "second"), alone, together, strict=True):
        difference = first_difference(expected, trace)
        expect(
            difference is None,
            f"the {name} of two instances stepped in turn differs from the same episode alone: {difference}; "
            "state belongs on self, not on the class or module",
        )
    after = _class_state(subject.env_class)
    for name, value in before.items():
        expect(
            same(value, after.get(name)),
            f"class attribute {name} changed from {short(value)} to {short(after.get(name))} while playing; "
            "state belongs on self",
        )
    return f"two instances, up to {steps} steps, alone and in turn"


def handed_out(subject: Subject) -> str:
    """Observations and infos never change after they were handed out."""
    kept: list[tuple[str, Any, Any]] = []  # what, the object itself, its copy at that moment

    def keep(when: str, observation: Any, info: dict[str, Any]) -> None:
        kept.append((f"the observation of {when}", observation, copy.deepcopy(observation)))
        kept.extend((f"info[{key!r}] of {when}", value, copy.deepcopy(value)) for key, value in info.items())
        kept.append((f"the keys of the info of {when}", info.keys(), list(info)))  # a live view

    with subject.make() as env:
        for episode in range(2):
            observation, info = env.reset(seed=subject.seed + episode)
            keep(f"reset {episode}", observation, info)
            for number, action in zip(range(1, 7), subject.random(episode)(env), strict=False):
                observation, _, terminated, truncated, info = env.step(action)
                keep(f"step {number}", observation, info)
                if terminated or truncated:
                    break
    for what, value, copied in kept:
        expect(
            list(value) == copied if isinstance(value, KeysView) else same(value, copied),
            f"{what} changed later from {short(copied)} to {short(value)}; return new, frozen values",
        )
    return f"{len(kept)} values compared with copies after two episodes"


def threads(subject: Subject) -> str:
    """Four threads, each with an instance of its own, give what one after the other gives."""
    count = 4
    steps = 6 if subject.expensive else 30
    episodes = subject.times(5, resets=2 * count, ends=2 * count)
    sequential = []
    for number in range(count):
        with subject.make() as env:
            sequential.append(_episodes(env, subject, number, episodes, steps))

    results: list[list[Step] | BaseException] = [[] for _ in range(count)]
    ready = threading.Barrier(count)

    def work(number: int) -> None:
        try:
            env = subject.make()
        except BaseException as error:
            ready.abort()
            results[number] = error
            return
        with env:
            try:
                ready.wait()
                results[number] = _episodes(env, subject, number, episodes, steps)
            except BaseException as error:
                results[number] = error

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that short steps interleave, too
    try:
        workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)

    errors = [
        r for r in results if isinstance(r, BaseException) and not isinstance(r, threading.BrokenBarrierError)
    ]
    if len(errors) == count and all(isinstance(error, UsageError) for error in errors):
        raise DoesNotApply(f"the environment refuses threads: {errors[0]}")
    if errors:
        raise errors[0]
    for number, (expected, result) in enumerate(zip(sequential, results, strict=True)):
        assert isinstance(result, list)
        difference = first_difference(expected, result)
        expect(difference is None, f"thread {number} differs from the same episodes alone: {difference}")
    return f"{count} threads, {episodes} episodes each, up to {steps} steps"


# -- inside --------------------------------------------------------------------------------------------------------


def _seeded_run(env: Env, player: Player, seed: int) -> list[Step]:
    """An episode from a seed, then two resets without one, each with its first steps."""
    trace = play(env, player, seed=seed)
    for _ in range(2):
        trace.append(start(env))
        trace += go_on(env, replay(actions_of(trace)[:2]))
    return trace


def _disturbed(player: Player) -> Player:
    """The same actions, with both global generators seeded anew and drawn from before each."""

    def disturbed(env: Env) -> Iterator[Any]:
        for number, action in enumerate(player(env)):
            random.seed(number)
            np.random.seed(number)
            random.random()
            yield action

    return disturbed


def _episodes(env: Env, subject: Subject, seed: int, episodes: int, steps: int) -> list[Step]:
    trace: list[Step] = []
    for episode in range(episodes):
        trace += play(env, subject.lively(episode), seed=subject.seed + 100 * seed + episode, steps=steps)
    return trace


@contextlib.contextmanager
def _global_state_kept() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _numpy_state() -> tuple[Any, ...]:
    state = np.random.get_state(legacy=True)
    assert isinstance(state, tuple)
    return (state[0], state[1].tobytes(), *state[2:])


def _class_state(cls: type) -> dict[str, Any]:
    """The data on a class and its bases below `AgentEnv`, copied."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base in (AgentEnv, gymnasium.Env, object):
            break
        for name, value in vars(base).items():
            if isinstance(value, bool | int | float | str | list | dict | set | bytearray | np.ndarray):
                found.setdefault(f"{base.__name__}.{name}", copy.deepcopy(value))
    return found
