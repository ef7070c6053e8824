"""stable-baselines3, as it is, on the wrappers for learners that know arrays."""

from __future__ import annotations

import functools
import warnings

import gymnasium
import numpy as np
import pytest

import agentgym  # noqa: F401  # registers the ids
from agentgym.wrappers import IndexAction, TextFeatures


def relay() -> gymnasium.Env:
    return TextFeatures(IndexAction(gymnasium.make("agentgym/Relay-v0", hops=2), 16), size=16)


@pytest.mark.slow  # imports torch
def test_its_own_checks():
    from stable_baselines3.common.env_checker import check_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*unconventional shape")  # a matrix; its MLP flattens it
        check_env(relay())
    vector = DummyVecEnv([relay, relay])
    vector.reset()
    assert np.sum(vector.env_method("action_masks"), axis=1).tolist() == [1, 1]
    _, _, _, infos = vector.step(np.array([0, 5]))
    assert [info.get("invalid_action") for info in infos] == [None, True]
    assert np.sum(vector.env_method("action_masks"), axis=1).tolist() == [4, 1]


@pytest.mark.slow
def test_ppo_beats_random_on_textworld():
    from benchmarks import sb3_textworld

    make = functools.partial(sb3_textworld.make_env, sb3_textworld.games(2))
    row = sb3_textworld.compare(make, seed=0, steps=3072, episodes=50)
    assert np.mean(row["ppo"]) > np.mean(row["random"]) + 0.3
