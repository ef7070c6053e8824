"""What every registered environment must do. A new id is tested here without a line of its own."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from agentgym.core import INFO_KEYS, AgentEnv
from agentgym.errors import UsageError
from agentgym.registration import ENTRIES, Entry
from tests.side_by_side import play

pytestmark = pytest.mark.filterwarnings("error")

# A family that needs packages or programs starts sandboxes, browsers or games: seconds, not milliseconds.
GYM = [
    pytest.param(entry, id=entry.id, marks=[pytest.mark.slow] if entry.packages or entry.programs else [])
    for entry in ENTRIES
    if entry.registry == "gymnasium"
]
JUNK = ["", "I do not know what to do. 中🙂", "<tool_call>{]</tool_call>"]


@pytest.fixture
def entry(request) -> Entry:
    if reason := request.param.missing():
        pytest.skip(reason)
    return request.param


every = pytest.mark.parametrize("entry", GYM, indirect=True)


@contextlib.contextmanager
def made(entry: Entry, **keywords: Any):
    env = gymnasium.make(entry.id, **keywords)
    try:
        yield env
    finally:
        env.close()


@every
def test_no_tasks_are_refused_and_not_replaced(entry):
    with pytest.raises(UsageError, match="has no tasks; give some"), made(entry, tasks=[]):
        pass


@every
def test_before_a_reset_there_is_no_next_action(entry):
    with made(entry) as env, pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.unwrapped.gold()


def gold_of(env: AgentEnv) -> str:
    try:
        return env.unwrapped.gold()
    except (NotImplementedError, IndexError):
        return JUNK[0]


def rollout(env: AgentEnv, seed: int | None, actions: list[str]) -> list[Any]:
    """Everything an episode says."""
    said: list[Any] = [env.reset(seed=seed)]
    for action in actions:
        said.append(env.step(action))
        if said[-1][2] or said[-1][3]:
            break
    return said


def gold_episode(env: AgentEnv, seed: int, junk: int = 1) -> list[str]:
    """Actions of an episode: first nonsense, then the solution."""
    env.reset(seed=seed)
    actions = JUNK[:junk]
    for action in actions:
        env.step(action)
    done = False
    while not done:
        actions = [*actions, gold_of(env)]
        *_, terminated, truncated, _ = env.step(actions[-1])
        done = terminated or truncated
    return actions


@every
def test_gymnasium_checks(entry):
    with made(entry) as env:
        check_env(env)


@every
def test_the_gold_solver_gets_one_and_nonsense_nothing(entry):
    with made(entry) as env:
        actions = gold_episode(env, 3, junk=0)
        last = rollout(env, 3, actions)[-1]
        assert last[1:4] == (1.0, True, False)
        assert last[4]["resolved"] is True
    with made(entry, max_turns=2) as env:
        last = rollout(env, 3, JUNK)[-1]
        assert last[1:4] == (0.0, False, True)
        assert last[4]["resolved"] is False


@every
def test_the_same_seed_gives_the_same_episode(entry):
    """Also from the second reset on, also with global generators disturbed, which are left where they were."""

    def play_three(env: AgentEnv, disturbance: int) -> list[Any]:
        said = []
        for seed in (5, None, None):
            random.seed(disturbance)
            np.random.seed(disturbance)
            state = random.getstate(), str(np.random.get_state())
            said += rollout(env, seed, JUNK[:2])
            assert (random.getstate(), str(np.random.get_state())) == state
        return said

    with made(entry) as one, made(entry) as two:
        before = play_three(one, 1)
        assert before == play_three(two, 2)
        assert before == play_three(one, 3)
        actions = gold_episode(one, 7)
        assert rollout(one, 7, actions) == rollout(two, 7, actions)


@every
def test_seeds_reach_several_tasks(entry):
    with made(entry) as env:
        tasks = len(env.unwrapped.task_pool)
        rng = np.random.default_rng(0)
        assert len({env.unwrapped.task_pool.draw(rng).id for _ in range(200)}) >= min(tasks, 2)


@every
def test_infos_are_as_documented(entry):
    with made(entry) as env:
        for *_, info in rollout(env, 3, gold_episode(env, 3)):
            assert info.keys() <= INFO_KEYS.keys()
            assert None not in info.values()
            assert info.get("tools", ()) == env.unwrapped.tools


@every
def test_pickling(entry):
    with made(entry) as env:
        other = pickle.loads(pickle.dumps(env))
        try:
            assert rollout(env, 5, JUNK) == rollout(other, 5, JUNK)
        finally:
            other.close()


@every
def test_pickling_in_the_middle(entry):
    with made(entry) as env:
        actions = gold_episode(env, 5)
        env.reset(seed=5)
        if env.unwrapped.episode.workspace is not None:
            pytest.skip("holds a workspace that no pickle can carry")
        env.step(actions[0])
        others = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
        expected = [env.step(action) for action in actions[1:]]
        for other in others:
            assert [other.step(action) for action in actions[1:]] == expected


@every
def test_snapshots(entry):
    with made(entry) as env:
        actions = gold_episode(env, 5)
        env.reset(seed=5)
        env.step(actions[0])
        snapshot = env.unwrapped.snapshot()
        futures = []
        for _ in range(2):
            futures.append([env.step(action) for action in actions[1:]])
            env.unwrapped.restore(snapshot)
        assert futures[0] == futures[1]


@every
def test_the_spec_survives_json(entry):
    with made(entry, max_turns=3) as env:
        spec = EnvSpec.from_json(env.spec.to_json())
        again = gymnasium.make(spec)
        try:
            assert again.unwrapped.max_turns == 3
            assert type(again.unwrapped) is type(env.unwrapped)
            assert rollout(env, 5, JUNK) == rollout(again, 5, JUNK)
        finally:
            again.close()


@every
def test_splits_of_the_table_exist(entry):
    for split in entry.splits:
        with made(entry, split=split) as env:
            assert len(env.unwrapped.task_pool) > 0


@every
def test_unknown_keyword(entry):
    with pytest.raises(TypeError, match="'max_turns'"):
        gymnasium.make(entry.id, max_turn=5)


@every
def test_closing_twice(entry):
    with made(entry) as env:
        env.reset(seed=0)
        env.close()
        env.close()
        env.reset(seed=0)


@every
def test_class_docstring_is_a_page(entry):
    with made(entry) as env:
        text = type(env.unwrapped).__doc__
        for section in (
            "## Description",
            "## Actions",
            "## Observations",
            "## Reward",
            "## Episode end",
            "## Version",
        ):
            assert section in text


def now_and_then_gold(env: gymnasium.Env, plan: np.random.Generator) -> str:
    return gold_of(env) if plan.random() < 0.6 else str(plan.choice(JUNK))


@every
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=str)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vectors(entry, mode, kind):
    vector = gymnasium.make_vec(
        entry.id, 2, vectorization_mode=kind, vector_kwargs={"autoreset_mode": mode}, max_turns=2
    )
    with made(entry, max_turns=2) as one, made(entry, max_turns=2) as two:
        assert play(vector, [one, two], mode, now_and_then_gold, steps=3) >= 2
