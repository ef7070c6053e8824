"""Probes: vector environments and PettingZoo's own tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pettingzoo  # type: ignore[import-untyped, unused-ignore]
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from agentgym.check.subject import (
    DoesNotApply,
    Subject,
    actions_of,
    advance,
    contrast,
    expect,
    play,
    same,
    start,
)
from agentgym.spaces import Conversation, UnicodeText

_COUNT = 2
_TURNS = 3


class Row(NamedTuple):
    """What one environment of a vector gave at one moment."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    final_observation: Any = None  # of the episode that ended here, where the vector has reset it at once
    resolved: Any = None


def vectors(subject: Subject) -> str:
    """Sync and Async vectors give what single environments give, in every autoreset mode, the last observation kept."""
    make = functools.partial(subject.make, max_turns=_TURNS)
    pairs: list[tuple[type[Any], AutoresetMode]] = [
        (kind, mode) for kind in (SyncVectorEnv, AsyncVectorEnv) for mode in AutoresetMode
    ]
    steps = 8
    if subject.expensive:  # each mode once
        pairs = [
            (SyncVectorEnv, AutoresetMode.SAME_STEP),
            (AsyncVectorEnv, AutoresetMode.NEXT_STEP),
            (AsyncVectorEnv, AutoresetMode.DISABLED),
        ]
        steps = _TURNS + 1
    actions = _actions(subject, make, steps)
    for kind, mode in pairs:
        single = [_single_rows(make, actions[i], subject.seed + i, mode) for i in range(_COUNT)]
        vector = _vector_rows(kind, mode, make, actions, subject.seed)
        for i in range(_COUNT):
            _compare(f"{kind.__name__}, autoreset {mode.value}, environment {i}", single[i], vector[i])
    return f"{len(pairs)} combinations of vector and autoreset mode, {_COUNT} environments, {steps} steps"


def _actions(subject: Subject, make: Callable[[], Any], steps: int) -> list[list[Any]]:
    """Random actions for each environment, recorded over several episodes."""
    recorded: list[list[Any]] = []
    with make() as env:
        for i in range(_COUNT):
            actions: list[Any] = []
            while len(actions) < steps:
                actions += actions_of(
                    play(env, subject.random(len(actions)), seed=subject.seed + i, steps=_TURNS - 1)
                )
            recorded.append(actions[:steps])
    return recorded


def _single_rows(make: Callable[[], Any], actions: list[Any], seed: int, mode: AutoresetMode) -> list[Row]:
    """What a vector must give for this environment."""
    with make() as env:
        rows = [Row(start(env, seed=seed).observation, 0.0, False, False)]
        over = False
        for action in actions:
            if over and mode == AutoresetMode.NEXT_STEP:
                rows.append(Row(start(env).observation, 0.0, False, False))
                over = False
                continue
            step = advance(env, action)
            over = step.ended
            row = Row(step.observation, float(step.reward), bool(step.terminated), bool(step.truncated))
            if over:
                row = row._replace(resolved=step.info.get("resolved"))
            if over and mode == AutoresetMode.SAME_STEP:
                row = row._replace(observation=start(env).observation, final_observation=step.observation)
            rows.append(row)
            if over and mode == AutoresetMode.DISABLED:
                rows.append(Row(start(env).observation, 0.0, False, False))
    return rows


def _vector_rows(
    kind: type[Any], mode: AutoresetMode, make: Callable[[], Any], actions: list[list[Any]], seed: int
) -> list[list[Row]]:
    kwargs = {"autoreset_mode": mode}
    vector = kind([make] * _COUNT, **kwargs)
    try:
        observations = _each(vector, vector.reset(seed=seed)[0])
        rows = [[Row(observations[i], 0.0, False, False)] for i in range(_COUNT)]
        for moment in range(len(actions[0])):
            batch = _batch(vector, [actions[i][moment] for i in range(_COUNT)])
            batched, rewards, terminated, truncated, infos = vector.step(batch)
            observations = _each(vector, batched)
            over = terminated | truncated
            for i in range(_COUNT):
                row = Row(observations[i], float(rewards[i]), bool(terminated[i]), bool(truncated[i]))
                if over[i]:
                    found = infos.get("final_info", {}) if mode == AutoresetMode.SAME_STEP else infos
                    row = row._replace(resolved=_of(found, "resolved", i))
                if over[i] and mode == AutoresetMode.SAME_STEP:
                    row = row._replace(final_observation=infos["final_obs"][i])
                rows[i].append(row)
            if mode == AutoresetMode.DISABLED and over.any():
                batched, _ = vector.reset(options={"reset_mask": np.asarray(over, dtype=np.bool_)})
                observations = _each(vector, batched)
                for i in range(_COUNT):
                    if over[i]:
                        rows[i].append(Row(observations[i], 0.0, False, False))
        return rows
    finally:
        vector.close()


def _batch(vector: Any, actions: list[Any]) -> Any:
    empty: Any = gymnasium.vector.utils.create_empty_array(vector.single_action_space, n=len(actions))
    return gymnasium.vector.utils.concatenate(vector.single_action_space, actions, empty)


def _each(vector: Any, observations: Any) -> list[Any]:
    """The observation of each environment. Batches of text are tuples; other batches have forms of their own."""
    if isinstance(vector.single_observation_space, UnicodeText | Conversation):
        return list(observations)
    return list(gymnasium.vector.utils.iterate(vector.observation_space, observations))


def _plain(value: Any) -> Any:
    """Arrays and their scalars as Python values: a vector may turn one into the other."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _of(infos: dict[str, Any], key: str, index: int) -> Any:
    """One environment's value of an info key; None where it has none."""
    present = infos.get(f"_{key}")
    return bool(infos[key][index]) if present is not None and present[index] else None


def _compare(where: str, single: list[Row], vector: list[Row]) -> None:
    for number, (one, other) in enumerate(zip(single, vector, strict=False)):
        for field in Row._fields:
            a, b = getattr(one, field), getattr(other, field)
            expect(
                same(a, b) or same(_plain(a), _plain(b)),
                f"{where}, row {number}: {field} alone {contrast(a, b)} in the vector",
            )
    expect(len(single) == len(vector), f"{where}: {len(single)} rows alone, {len(vector)} in the vector")


# -- PettingZoo ----------------------------------------------------------------------------------------------------


def in_pettingzoo_only(env_id: str) -> bool:
    """Whether the id is one of PettingZoo's parallel environments and not Gymnasium's."""
    return env_id in pettingzoo.parallel_registry and env_id not in gymnasium.registry


def pettingzoo_tests(subject: Subject) -> str:
    """PettingZoo's parallel API and seed tests pass, their warnings taken as errors."""
    raise DoesNotApply("not a PettingZoo environment")
