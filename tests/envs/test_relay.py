"""Relay: its closed form against enumeration, its text, its rules."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest

from agentgym import Task
from agentgym.core import Verdict
from agentgym.envs.relay import DIRECTIONS, WORDS, RelayEnv
from agentgym.errors import TaskError, UsageError

pytestmark = pytest.mark.filterwarnings("error")


def play(env: RelayEnv, actions: list[str], **options) -> list[tuple]:
    env.reset(seed=0, options=options or None)
    return [env.step(action) for action in actions]


def average_return(env: RelayEnv, state: dict, recall: float, error: float) -> float:
    """Of a policy that errs and recalls with these probabilities: every action sequence, played and weighed."""
    env.restore(state)
    hops_left = env.hops - env.hop
    total = 0.0
    for directions in itertools.product(DIRECTIONS, repeat=hops_left):
        for word in env.words:
            env.restore(state)
            weight, reward = 1.0, 0.0
            actions = [] if env.taken else ["take"]
            actions += [f"go {direction}" for direction in directions] + [f"deliver {word}"]
            for action in actions:
                if action.startswith("go"):
                    weight *= 1 - error if action == env.gold() else error / 3
                elif action.startswith("deliver"):
                    weight *= recall if action == env.gold() else (1 - recall) / (len(env.words) - 1)
                _, reward, terminated, _, _ = env.step(action)
            assert terminated
            total += weight * reward
    return total


class TestValue:
    @pytest.mark.parametrize("hops", [0, 1, 2, 3])
    @pytest.mark.parametrize(
        ("recall", "error"), [(1.0, 0.0), (0.5, 0.0), (0.9, 0.25), (1 / 3, 0.75), (0.0, 1.0)]
    )
    def test_equals_enumeration(self, hops, recall, error):
        env = RelayEnv(hops=hops, choices=3, max_turns=50)
        env.reset(seed=1)
        start = env.snapshot()
        assert env.value(recall=recall, error=error) == pytest.approx(
            average_return(env, start, recall, error), abs=1e-12
        )

    def test_equals_enumeration_in_the_middle(self):
        env = RelayEnv(hops=3, choices=2, slip=0.3, max_turns=50)
        env.reset(seed=1)
        env.step("take")
        env.step("go " + next(d for d in DIRECTIONS if d != env.signs[0]))
        state = env.snapshot()
        value = env.value(recall=0.8, error=0.1)
        assert value == pytest.approx(average_return(env, state, 0.8, 0.1), abs=1e-12)
        # by hand: one mistake made, two hops left: 0.8 * (1 - 0.3 * (1 + 0.1 * 2)) = 0.8 * 0.64
        assert value == pytest.approx(0.512, abs=1e-12)

    def test_by_hand(self):
        env = RelayEnv(hops=8, choices=16)  # slip 1/16
        env.reset(seed=0)
        assert env.value() == 1.0
        assert env.value(recall=1 / 16) == 1 / 16
        assert env.value(error=0.5) == 0.75  # four mistakes of eight, each 1/16
        assert env.value(recall=0.5, error=1.0) == 0.25
        env.step("take")
        env.step(env.gold())
        assert env.value(error=0.5) == 1 - 3.5 / 16
        assert env.value() == 1.0

    def test_nothing_lies_ahead_after_the_end(self):
        env = RelayEnv(hops=0)
        play(env, ["take", "deliver amber"])
        assert env.value() == 0.0

    def test_the_optimal_value_never_falls_under_gold(self):
        env = RelayEnv(hops=4)
        env.reset(seed=2)
        done = False
        while not done:
            assert env.value() == 1.0
            _, reward, done, _, _ = env.step(env.gold())
        assert reward == 1.0


class TestFloorAndCeiling:
    @pytest.mark.parametrize("index", [0, 5, 255])
    def test_gold_gets_one(self, index):
        env = RelayEnv()
        env.reset(options={"task": index})
        rewards = []
        done = False
        while not done:
            _, reward, done, truncated, info = env.step(env.gold())
            rewards.append(reward)
        assert rewards == [0.0] * 9 + [1.0]
        assert not truncated
        assert info["verdict"] == Verdict(1.0, components={"delivered": 1.0, "mistakes": 0.0})

    @pytest.mark.parametrize("choices", [2, 5, 32])
    def test_guessing_the_word_gets_one_over_choices(self, choices):
        env = RelayEnv(hops=2, choices=choices)
        env.reset(seed=4)
        env.step("take")
        env.step(env.gold())
        env.step(env.gold())
        state = env.snapshot()
        rewards = []
        for action in env.admissible_actions():
            env.restore(state)
            rewards.append(env.step(action)[1])
        assert len(rewards) == choices
        assert sum(rewards) / choices == 1 / choices

    def test_uniform_play_by_enumeration(self):
        env = RelayEnv(hops=2, choices=4, slip=0.5, max_turns=9)
        env.reset(seed=4)
        # three of four directions are mistakes: (1/4) * (1 - 0.5 * 2 * 3/4) = 1/16
        assert average_return(env, env.snapshot(), 1 / 4, 3 / 4) == pytest.approx(1 / 16, abs=1e-12)

    @pytest.mark.parametrize("action", ["", "help", "deliver", "deliver x", "go", "go up", "take take"])
    def test_doing_nothing_sensible_gets_nothing(self, action):
        env = RelayEnv(hops=2)
        steps = play(env, [action] * 7)
        assert [step[1] for step in steps] == [0.0] * 7
        assert [step[2:4] for step in steps] == [(False, False)] * 6 + [(False, True)]
        assert all(step[4]["invalid_action"] for step in steps)

    @pytest.mark.parametrize("hops", [0, 1, 4])
    def test_cheats_do_not_pass(self, hops):
        env = RelayEnv(hops=hops)
        env.reset(seed=0)
        cheats = env.cheats()
        assert len(cheats) == 3
        for actions in cheats.values():
            env.reset(seed=0)
            for action in actions:
                _, reward, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    break
            assert reward < 1.0
            assert not info.get("resolved", False)

    def test_mistakes_cost_slip_and_the_wrong_word_everything(self):
        env = RelayEnv(hops=2, choices=2, slip=0.25)
        env.reset(seed=0)
        wrong = ["go " + next(d for d in DIRECTIONS if d != sign) for sign in env.signs]
        right = [f"go {sign}" for sign in env.signs]
        word, other = f"deliver {env.word}", "deliver " + next(w for w in env.words if w != env.word)

        def reward(*actions):
            return play(env, list(actions))[-1][1]

        assert reward("take", *right, word) == 1.0
        assert reward("take", wrong[0], right[1], word) == 0.75
        assert reward("take", *wrong, word) == 0.5
        assert reward("take", *right, other) == 0.0
        last = play(env, ["take", *wrong, word])[-1]
        assert last[4]["resolved"] is False

    def test_a_win_on_the_last_turn(self):
        env = RelayEnv(hops=1, max_turns=3)
        env.reset(seed=0)
        env.step("take")
        env.step(env.gold())
        assert env.step(env.gold())[1:4] == (1.0, True, False)

    def test_three_turns_to_spare(self):
        assert RelayEnv(hops=8).max_turns == 13
        assert RelayEnv(hops=8, max_turns=None).max_turns == 13
        assert RelayEnv(hops=8, max_turns=20).max_turns == 20


class TestText:
    def test_what_is_said(self):
        env = RelayEnv(hops=1, choices=2)
        prompt, info = env.reset(seed=0, options={"task": "relay-train-003"})
        assert "1 signposts" in prompt
        assert prompt.endswith("The word is one of: amber, anchor.")
        assert info["admissible_actions"] == ("take",)
        told, *_, info = env.step(" TAKE\n")
        assert told == f"The word you carry is {env.word}. Signpost 1 of 1 says {env.signs[0]}."
        assert info["admissible_actions"] == ("go north", "go east", "go south", "go west")
        assert info["anchor"] == "taken=True hop=0 mistakes=0"
        assert "invalid_action" not in info
        refused, *_, info = env.step("deliver amber")
        assert refused == "That is not possible here. Expected: go and one of north, east, south, west."
        assert info["invalid_action"] is True
        arrived, *_, info = env.step(f"Go  {env.signs[0].upper()}")
        assert arrived == "You walk on. You have arrived. Deliver the word."
        assert info["admissible_actions"] == ("deliver amber", "deliver anchor")
        last, *_ = env.step(f"deliver {env.word}")
        assert last == "Delivered."

    def test_the_word_is_said_once(self):
        env = RelayEnv(hops=5, choices=32, scenery=400)
        prompt, _ = env.reset(seed=0)
        observations = [env.step(env.gold())[0] for _ in range(6)]
        assert env.word in observations[0]
        assert not any(env.word in text for text in observations[1:])
        assert env.word in prompt  # among all 32: no information

    @pytest.mark.parametrize("scenery", [0, 1, 17, 106, 107, 5000])
    def test_scenery_is_exactly_as_long_as_asked(self, scenery):
        plain, long = RelayEnv(hops=2), RelayEnv(hops=2, scenery=scenery)
        for seed in range(5):
            plain.reset(seed=seed, options={"task": 0})
            long.reset(seed=seed, options={"task": 0})
            for _ in range(3):
                action = plain.gold()
                short, padded = plain.step(action)[0], long.step(action)[0]
                assert padded.startswith(short)
                assert len(padded) - len(short) == (scenery + 1 if scenery else 0)  # one space between

    def test_scenery_is_whole_sentences(self):
        env = RelayEnv(hops=0, scenery=1000)
        for seed in range(12):
            env.reset(seed=seed)
            text = env.step("take")[0]
            assert ". ." not in text
            assert "  " not in text
            assert "criesWet" not in text


class TestTasks:
    def test_the_task_fixes_word_and_signs(self):
        one, two = RelayEnv(hops=6), RelayEnv(hops=6)
        for index in range(20):
            one.reset(seed=index, options={"task": index})
            two.reset(seed=index + 100, options={"task": index})
            assert (one.word, one.signs) == (two.word, two.signs)

    def test_every_word_and_direction_occurs(self):
        env = RelayEnv(hops=4, choices=8)
        words, signs = [], []
        for index in range(256):
            env.reset(options={"task": index})
            words.append(env.word)
            signs += env.signs
        assert set(words) == set(WORDS[:8])
        # 32 on average with standard deviation 5.3, and 256 with 13.9: within six of them
        assert all(0 < words.count(word) < 64 for word in WORDS[:8])
        assert all(abs(signs.count(direction) - 256) < 84 for direction in DIRECTIONS)

    def test_splits_share_no_task(self):
        numbers = {
            split: {task.data["number"] for task in RelayEnv(split=split).task_pool}
            for split in ("train", "test")
        }
        assert (len(numbers["train"]), len(numbers["test"])) == (256, 64)
        assert not numbers["train"] & numbers["test"]

    @pytest.mark.parametrize("data", [{}, {"number": "1"}, {"number": -1}, {"number": 1.5}])
    def test_a_task_without_a_number_is_named(self, data):
        with pytest.raises(TaskError, match="'mine' has"):
            RelayEnv(tasks=[Task("mine", data=data)]).reset()

    def test_own_tasks(self):
        env = RelayEnv(tasks=[Task("mine", data={"number": 7})])
        assert env.reset()[1]["task_id"] == "mine"

    def test_words_are_distinct(self):
        assert len(set(WORDS)) == len(WORDS) == 32
        assert all(np.char.isalpha(word) for word in WORDS)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"hops": -1}, r"expected hops .* got -1"),
        ({"choices": 1}, r"expected choices .* got 1"),
        ({"choices": 33}, r"expected choices .* got 33"),
        ({"scenery": -1}, r"expected scenery .* got -1"),
        ({"hops": None}, "got None"),
        ({"hops": "3"}, "got '3'"),
        ({"hops": 2.5}, "got 2.5"),
        ({"max_turns": 1.5}, "expected max_turns .* got 1.5"),
        ({"tasks": 5}, "expected tasks .* got 5"),
        ({"hops": 4, "slip": 0.3}, "slip=0.3 with 4 hops"),
        ({"slip": -0.1}, "slip=-0.1"),
        ({"slip": float("nan")}, "slip=nan"),
    ],
)
def test_arguments_are_checked(keywords, said):
    with pytest.raises(UsageError, match=said):
        gymnasium.make("agentgym/Relay-v0", **keywords)
