from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from agentgym.core import AgentEnv, Task, Verdict
from agentgym.errors import InfrastructureError, ToolError, UsageError
from agentgym.trajectory.replay import replay
from agentgym.wrappers import ChatContext, IndexAction, RecordTrajectory, TextFeatures
from agentgym.wrappers.actions import hashed

ROOT = Path(__file__).resolve().parents[2]


class Doors(AgentEnv):
    """As many doors as turns so far, and one; the last one leads out after three turns."""

    tasks = [Task("t")]
    default_max_turns = 6

    def begin(self, task: Task) -> str:
        self.heard: list[str] = []
        return "A hall."

    def respond(self, action: str) -> str:
        self.heard.append(action)
        if action == "break":
            raise InfrastructureError("the hall fell in")
        if action not in self.admissible_actions():
            raise ToolError("No such door.")
        if action == "door 3":
            self.finish()
        return f"Through {action}."

    def anchor(self) -> str:
        return f"Hall of {len(self.heard)} doors."

    def admissible_actions(self) -> tuple[str, ...]:
        return tuple(f"door {n + 1}" for n in range(len(self.heard) + 1))

    def verify(self, episode: object) -> Verdict:
        return Verdict(float(self.episode.done))


class Dumb(AgentEnv):
    """No anchor, no list."""

    tasks = [Task("t")]

    def begin(self, task: Task) -> str:
        return "x"

    def respond(self, action: str) -> str:
        return "y"

    def verify(self, episode: object) -> Verdict:
        return Verdict(0.0)


gymnasium.register("test/Doors-v0", entry_point=f"{__name__}:Doors")


def both(**kwargs) -> TextFeatures:
    return TextFeatures(IndexAction(gymnasium.make("test/Doors-v0"), 8), size=32, **kwargs)


class TestIndexAction:
    def test_places(self):
        env = IndexAction(Doors(), 4)
        assert env.action_space == Discrete(4)
        _, info = env.reset(seed=0)
        assert info["admissible_actions"] == ("door 1",)
        assert env.action_masks().tolist() == [True, False, False, False]
        assert env.step(0)[0] == "Through door 1."
        assert env.action_masks().tolist() == [True, True, False, False]
        assert env.step(np.int64(1))[0] == "Through door 2."
        observation, reward, terminated, *_ = env.step(2)
        assert (observation, reward, terminated) == ("Through door 3.", 1.0, True)

    def test_beyond_the_list_costs_a_turn(self):
        env = IndexAction(Doors(), 4)
        env.reset(seed=0)
        observation, reward, terminated, truncated, info = env.step(3)
        assert (observation, reward, terminated, truncated) == ("No such door.", 0.0, False, False)
        assert info["invalid_action"]
        assert env.unwrapped.heard == [""]
        env.step(3)
        assert env.action_masks().tolist() == [True, True, True, False]  # a door more each turn
        assert env.step(1)[0] == "Through door 2."  # of the list that stands now

    def test_what_a_learner_asks_for(self):
        env = both()
        env.reset(seed=0)
        assert env.get_wrapper_attr("action_masks")().sum() == 1

    def test_lists_that_are_too_long(self):
        env = IndexAction(Doors(), 2)
        env.reset(seed=0)
        env.step(0)
        with pytest.raises(
            UsageError, match=r"expected max_actions >= 3, got 2: .* admissible in task 't' now"
        ):
            env.step(0)

    def test_the_last_list_may_be_longer(self):
        env = IndexAction(Doors(max_turns=2), 2)
        env.reset(seed=0)
        env.step(0)
        *_, truncated, info = env.step(0)
        assert (truncated, len(info["admissible_actions"])) == (True, 3)

    @pytest.mark.parametrize("action", [-1, 4, "door 1", 1.5, None])
    def test_no_index(self, action):
        env = IndexAction(Doors(), 4)
        env.reset(seed=0)
        with pytest.raises(UsageError, match=r"expected an index in Discrete\(4\), got "):
            env.step(action)
        assert env.unwrapped.heard == []

    def test_wants_a_list(self):
        with pytest.raises(
            UsageError, match="IndexAction needs a list of admissible actions; Dumb gives none"
        ):
            IndexAction(Dumb(), 4)
        with pytest.raises(UsageError, match="expected max_actions to be a whole number >= 1, got 0"):
            IndexAction(Doors(), 0)

    def test_around_a_recorder(self):
        recorder = RecordTrajectory(Doors())
        env = IndexAction(recorder, 4)
        env.reset(seed=0)
        for index in (0, 3, 2):
            env.step(index)
        assert [step.action for step in recorder.trajectory.steps] == ["door 1", "", "door 3"]
        assert recorder.trajectory.reward == 1.0
        assert replay(recorder.trajectory, Doors()) is None

    def test_infrastructure_failure(self):
        class Fragile(Doors):
            def respond(self, action: str) -> str:
                return super().respond("break")

        env = TextFeatures(IndexAction(Fragile(), 4), size=8)
        env.reset(seed=0)
        features, reward, _, truncated, info = env.step(0)
        assert (reward, truncated, info["infrastructure_error"]) == (0.0, True, "the hall fell in")
        assert not features[1:].any()  # neither anchor nor actions are known
        assert features in env.observation_space


class TestRows:
    def test_a_row_by_hand(self):
        row = hashed("Key, key -- DOOR!", 1 << 16, 1)
        columns = np.flatnonzero(row)
        assert sorted(abs(row[columns])) == pytest.approx(
            [1 / 5**0.5, 2 / 5**0.5]
        )  # twice "key", once "door"
        assert row.dtype == np.float32

    def test_runs_of_words(self):
        assert np.count_nonzero(hashed("a b c", 1 << 16, 1)) == 3
        assert np.count_nonzero(hashed("a b c", 1 << 16, 2)) == 5
        assert np.count_nonzero(hashed("a b c", 1 << 16, 9)) == 6
        alike = hashed("a b c", 1 << 16, 1) @ hashed("c b a", 1 << 16, 1)
        assert alike == pytest.approx(1.0)
        assert hashed("a b c", 1 << 16, 2) @ hashed("c b a", 1 << 16, 2) == pytest.approx(3 / 5)

    def test_rows_are_shared_and_cannot_be_changed(self):
        with pytest.raises(ValueError, match="read-only"):
            hashed("a key", 16, 1)[0] = 1.0

    def test_other_scripts_and_nothing(self):
        assert np.count_nonzero(hashed("ключ 钥匙 é", 1 << 16, 1)) == 3
        assert not hashed("?!", 16, 2).any()
        assert np.linalg.norm(hashed("one two three four five", 2, 3)) == pytest.approx(1.0)

    def test_words_spread_evenly(self):
        words = [f"cabinet {n}" for n in range(2000)]
        rows = np.array([hashed(word.replace(" ", ""), 64, 1) for word in words])
        used = np.abs(rows).sum(axis=0)  # 31 a column on average; the deviation of a fair hash is 5.5
        assert used.min() > 31 - 5 * 5.5
        assert used.max() < 31 + 5 * 5.5
        assert abs(rows.sum()) < 5 * 2000**0.5

    def test_the_same_in_every_process(self):
        code = "from agentgym.wrappers.actions import hashed; print(hashed('a key and a door', 64, 2).tobytes().hex())"
        outputs = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for seed in ("1", "2")
        }
        assert outputs == {hashed("a key and a door", 64, 2).tobytes().hex()}


class TestTextFeatures:
    def test_rows(self):
        env = both()
        assert env.observation_space == Box(-1.0, 1.0, (10, 32), np.float32)
        features, _ = env.reset(seed=0)
        expected = np.zeros((10, 32), np.float32)
        expected[:3] = [hashed(text, 32, 2) for text in ("A hall.", "Hall of 0 doors.", "door 1")]
        assert np.array_equal(features, expected)
        features, *_ = env.step(0)
        expected[:4] = [
            hashed(text, 32, 2) for text in ("Through door 1.", "Hall of 1 doors.", "door 1", "door 2")
        ]
        assert np.array_equal(features, expected)
        assert features in env.observation_space

    def test_what_was_handed_out_stays(self):
        env = both()
        first, _ = env.reset(seed=0)
        first[:] = 7  # a learner's own
        assert abs(env.reset(seed=0)[0]).max() <= 1

    def test_without_anchor_and_indices(self):
        assert TextFeatures(Dumb(), size=16).observation_space.shape == (1, 16)
        env = TextFeatures(Doors(), size=16)
        assert env.reset(seed=0)[0].shape == (2, 16)
        assert env.step("door 1")[0].shape == (2, 16)

    def test_refusals(self):
        with pytest.raises(UsageError, match="TextFeatures reads text: expected observations in UnicodeText"):
            TextFeatures(ChatContext(Doors()))
        with pytest.raises(UsageError, match="expected size to be a whole number >= 1, got 0"):
            TextFeatures(Doors(), size=0)
        with pytest.raises(UsageError, match="expected ngrams to be a whole number >= 1, got '2'"):
            TextFeatures(Doors(), ngrams="2")

    def test_check_env(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*different from the unwrapped version")
            check_env(both())

    def test_spec_round_trip(self):
        env = both(ngrams=1)
        again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
        assert again.spec == env.spec
        assert np.array_equal(again.reset(seed=3)[0], env.reset(seed=3)[0])

    def test_snapshots_copies_and_pickles(self):
        env = both()
        env.reset(seed=1)
        env.step(0)
        saved = env.snapshot()
        twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]

        def play(env):
            steps = [env.step(index) for index in (1, 7, 0)]
            return [(step[0].tobytes(), *step[1:4], step[4].get("invalid_action")) for step in steps]

        expected = play(env)
        env.restore(saved)
        assert play(env) == expected
        assert all(play(twin) == expected for twin in twins)

    @pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
    @pytest.mark.parametrize("kind", [SyncVectorEnv, pytest.param(AsyncVectorEnv, marks=pytest.mark.slow)])
    def test_vectors(self, kind, mode):
        single = both()
        vector = kind([both, both], autoreset_mode=mode)
        try:
            observations, _ = vector.reset(seed=0)
            start, _ = single.reset(seed=0)
            assert np.array_equal(observations[1], start)
            for index in (0, 7, 2):
                observations, rewards, terminated, *_, infos = vector.step(np.array([0, index]))
                expected = single.step(index)
            assert (rewards[1], terminated[1]) == (1.0, True)
            last = infos["final_obs"][1] if mode is AutoresetMode.SAME_STEP else observations[1]
            assert np.array_equal(last, expected[0])
            if mode is AutoresetMode.SAME_STEP:
                assert np.array_equal(observations[1], start)
        finally:
            vector.close()
