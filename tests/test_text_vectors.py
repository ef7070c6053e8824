"""The text worlds in gymnasium's vector environments, compared with single ones observation by observation.

`tests/test_vectors.py` does this for the spaces; here it is the worlds' own state that must not be shared.
"""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import agentgym  # noqa: F401  # registers the ids
from agentgym.core import AgentEnv
from agentgym.registration import ENTRIES
from agentgym.wrappers import IndexAction, PublishedPrompts, TextFeatures
from tests.side_by_side import play

pytestmark = pytest.mark.filterwarnings("error")

MODES = list(AutoresetMode)
WORLDS: dict[str, dict[str, Any]] = {
    "agentgym/Relay-v0": {"hops": 2},
    "agentgym/ALFWorld-v0": {},
    "agentgym/WebShop-v0": {"num_products": 100},
    "agentgym/SearchQA-v0": {},
    "agentgym/TextWorld-v0": {"rooms": 2, "objects": 4, "quest_length": 2},
}
# TextWorld makes a game when it is first played, which takes seconds.
EACH = [pytest.param(i, marks=pytest.mark.slow) if i == "agentgym/TextWorld-v0" else i for i in WORLDS]


@functools.cache
def keywords(env_id: str) -> dict[str, Any]:
    """Of the environment; few games, so that few need to be made."""
    kwargs = WORLDS[env_id]
    if env_id != "agentgym/TextWorld-v0":
        return kwargs
    inner: Any = gymnasium.make(env_id, **kwargs).unwrapped
    return {"tasks": list(inner.task_pool)[:2]}


def make(env_id: str) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(env_id, max_turns=5, **keywords(env_id))


def solver_or_not(env: gymnasium.Env[Any, Any], plan: np.random.Generator) -> str:
    """Mostly what leads to the end, now and then something else, or nothing that can be done."""
    inner: Any = env.unwrapped
    kind = plan.random()
    if kind < 0.1:
        return "no such thing"
    lists = type(inner).admissible_actions is not AgentEnv.admissible_actions
    if kind < 0.4 and lists and inner.admissible_actions():
        return str(plan.choice(inner.admissible_actions()))
    return str(inner.gold()) if not inner._over else ""


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("env_id", EACH)
def test_sync(env_id, mode):
    single = functools.partial(make, env_id)
    vector = SyncVectorEnv([single] * 3, autoreset_mode=mode)
    assert play(vector, [single() for _ in range(3)], mode, solver_or_not) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("env_id", WORLDS)
def test_async(env_id):
    single = functools.partial(make, env_id)
    vector = AsyncVectorEnv([single] * 2)
    assert play(vector, [single(), single()], AutoresetMode.NEXT_STEP, solver_or_not) >= 3


@pytest.mark.parametrize("env_id", EACH)
def test_make_vec(env_id):
    vector = gymnasium.make_vec(env_id, 2, **keywords(env_id))
    single: Any = gymnasium.make(env_id, **keywords(env_id))
    try:
        observations, _ = vector.reset(seed=4)
        assert observations[1] == single.reset(seed=5)[0]
        action = single.unwrapped.gold()
        assert vector.step((action, action))[0][1] == single.step(action)[0]
    finally:
        vector.close()


def prompts() -> gymnasium.Env[Any, Any]:
    return PublishedPrompts(make("agentgym/ALFWorld-v0"), "alfworld")


def features() -> gymnasium.Env[Any, Any]:
    return TextFeatures(IndexAction(make("agentgym/ALFWorld-v0"), 80), size=32)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_prompts(mode):
    def reply(env: gymnasium.Env[Any, Any], plan: np.random.Generator) -> str:
        action = solver_or_not(env, plan)
        return action if plan.random() < 0.2 else f"<think></think><action>{action}</action>"

    vector = SyncVectorEnv([prompts] * 2, autoreset_mode=mode)
    assert play(vector, [prompts(), prompts()], mode, reply) >= 3


def test_features():
    vector, singles = SyncVectorEnv([features] * 2), [features(), features()]
    try:
        observations, _ = vector.reset(seed=0)
        assert np.array_equal(observations, [env.reset(seed=i)[0] for i, env in enumerate(singles)])
        for indices in ((0, 3), (79, 1), (2, 2)):
            observations, *_ = vector.step(np.array(indices))
            expected = [env.step(index)[0] for env, index in zip(singles, indices, strict=True)]
            assert np.array_equal(observations, expected)
    finally:
        vector.close()


def test_every_text_world_is_here():
    text_worlds = {
        entry.id
        for entry in ENTRIES
        if not entry.sandbox and entry.registry == "gymnasium" and ("playwright", "web") not in entry.packages
    }
    assert text_worlds == WORLDS.keys()
