"""A vector environment beside single ones: the comparison behind the vector tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv


def play(
    vector: VectorEnv,
    singles: Sequence[gymnasium.Env],
    mode: AutoresetMode,
    choose: Callable[[gymnasium.Env, np.random.Generator], str],
    steps: int = 14,
    copied: bool = True,
) -> int:
    """Step a vector and single environments side by side and compare all they say.

    Args:
        vector: made in autoreset mode `mode`; closed here.
        singles: equal to the environments in it.
        mode: as above.
        choose: the next action for one of the singles.
        steps: of the vector.
        copied: the observations are tuples, and so in the batched space.

    Returns:
        How many episodes ended.
    """
    n = vector.num_envs
    plan = np.random.default_rng(0)
    ended = 0
    with contextlib.closing(vector):
        observations, infos = vector.reset(seed=11)
        expected = [env.reset(seed=11 + index) for index, env in enumerate(singles)]
        compare(vector, observations, infos, expected, copied)
        done = np.zeros(n, dtype=bool)
        for _ in range(steps):
            if mode is AutoresetMode.DISABLED and done.any():
                observations, infos = vector.reset(options={"reset_mask": done.copy()})
                expected = [singles[i].reset() if done[i] else (expected[i][0], {}) for i in range(n)]
                compare(vector, observations, infos, expected, copied)
                done[:] = False
            actions = tuple(choose(env, plan) for env in singles)
            observations, rewards, terminated, truncated, infos = vector.step(actions)
            for i, env in enumerate(singles):
                if mode is AutoresetMode.NEXT_STEP and done[i]:
                    expected[i] = env.reset()
                    assert (rewards[i], terminated[i], truncated[i]) == (0.0, False, False)
                    done[i] = False
                    continue
                observation, reward, end, limit, info = env.step(actions[i])
                assert (rewards[i], terminated[i], truncated[i]) == (reward, end, limit)
                done[i] = end or limit
                ended += done[i]
                expected[i] = observation, info
                if done[i] and mode is AutoresetMode.SAME_STEP:
                    assert infos["_final_obs"][i]
                    assert infos["final_obs"][i] == observation
                    compare_info(infos["final_info"], i, info)
                    expected[i] = env.reset()
            compare(vector, observations, infos, expected, copied)
    return ended


def compare(vector: Any, observations: Any, infos: dict[str, Any], expected: list[Any], copied: bool) -> None:
    assert len(observations) == len(expected)
    for index, (observation, info) in enumerate(expected):
        assert observations[index] == observation
        compare_info(infos, index, info)
    assert tuple(observations) in vector.observation_space
    assert (observations in vector.observation_space) == copied


def compare_info(infos: dict[str, Any], index: int, info: dict[str, Any]) -> None:
    present = {key for key in infos if not key.startswith(("_", "final_")) and infos[f"_{key}"][index]}
    assert present >= info.keys()
    for key, value in info.items():
        assert infos[key][index] == value, key
