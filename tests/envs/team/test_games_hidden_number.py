"""HiddenNumber-v0: its solution against arithmetic by hand and against brute force, its rules, and a learner on it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pettingzoo
import pytest

from agentgym.core import Task
from agentgym.envs.team_tasks.exact import HiddenNumberGame
from benchmarks.team import expected, hidden_number

ID = "agentgym/HiddenNumber-v0"


def make(**keywords):
    return pettingzoo.make("parallel", ID, **keywords)


def fixed(number: int, *sightings: int) -> dict[str, Task]:
    return {"task": Task("fixed", data={"number": number, "sightings": sightings})}


class TestTheSolution:
    def test_one_scout_by_hand(self):
        # Without a question one of two is right. The scout costs 1/10 and is right 8 times of 10: 9/10 * 8/10.
        game = HiddenNumberGame(2, (0.8,), 0.1)
        assert game.value() == Fraction(72, 100)
        assert game.best(game.start) == ("ask scout_0",)
        assert game.worth_of("answer 1", game.start) == Fraction(1, 2)
        assert game.value((2,)) == Fraction(72, 100)
        assert game.best((2,)) == ("answer 2",)

    def test_a_question_that_does_not_pay(self):
        game = HiddenNumberGame(2, (0.6,), 0.2)  # 8/10 * 6/10 is less than 1/2
        assert game.value() == Fraction(1, 2)
        assert game.best(game.start) == ("answer 1", "answer 2")

    def test_the_default_game_by_hand(self):
        # Two scouts agree on the number: 9/16, for 90/100. They agree on another: worth nothing. They differ: ask the
        # third, for 85/100. Two of the three are right, the first two not both: 2 * 3/4 * 1/4 * 3/4 = 9/32. All three
        # differ, one of them right: 3 * 3/4 * 1/4 * 1/8 = 9/128; then any of the three, a third of that.
        by_hand = Fraction(9, 16) * Fraction(90, 100) + (Fraction(9, 32) + Fraction(3, 128)) * Fraction(
            85, 100
        )
        game = HiddenNumberGame()
        assert game.value() == by_hand == Fraction("0.765234375")
        assert game.best((1, 1, None)) == ("answer 1",)
        assert game.best((1, 2, None)) == ("ask scout_2",)

    def test_outcomes_are_all_there_is(self):
        game = HiddenNumberGame(2, (0.8, 0.7), 0.05)
        assert sum(chance for chance, _, _ in game.outcomes()) == 1
        assert {(number, *seen) for _, number, seen in game.outcomes()} == set(
            itertools.product((1, 2), repeat=3)
        )

    def test_a_word_that_is_no_number_tells_nothing(self):
        game = HiddenNumberGame(2, (0.8, 0.7), 0.05)
        assert game.best((0, None)) == ("ask scout_1",)
        assert game.value((0, None)) == Fraction(9, 10) * Fraction(7, 10)  # two questions, one of use

    def test_what_cannot_have_been_seen_is_worth_nothing(self):
        game = HiddenNumberGame(3, (1.0, 1.0), 0.0)
        assert game.value((1, 2)) == 0
        assert game.value((0, None)) == 1  # the other is sure

    def test_no_team_of_any_code_does_better(self):
        """Every lead and every code of both scouts, played on everything that can happen."""
        game = HiddenNumberGame(2, (0.8, 0.7), 0.05)
        words, numbers = ("a", "b"), (1, 2)
        codes = list(itertools.product(words, repeat=2))  # by sighting

        def leads():
            """Plans as (first move, {words heard: next move})."""
            for answer in numbers:
                yield answer, {}
            for first, second in ((0, 1), (1, 0)):
                for replies in itertools.product((*numbers, "ask"), repeat=2):
                    asking = [word for word, reply in zip(words, replies, strict=True) if reply == "ask"]
                    for finals in itertools.product(numbers, repeat=2 * len(asking)):
                        plan = dict(zip(itertools.product(asking, words), finals, strict=True))
                        yield (first, second), {**dict(zip(words, replies, strict=True)), **plan}

        def score(lead, code, number, seen):
            first, plan = lead
            if first in numbers:
                return int(first == number)
            said = [code[scout][seen[scout] - 1] for scout in first]
            if plan[said[0]] != "ask":
                return (1 - game.cost) * int(plan[said[0]] == number)
            return (1 - 2 * game.cost) * int(plan[said[0], said[1]] == number)

        outcomes = list(game.outcomes())
        best = max(
            sum(chance * score(lead, code, number, seen) for chance, number, seen in outcomes)
            for lead in leads()
            for code in itertools.product(codes, repeat=2)
        )
        assert best == game.value()

    def test_a_leads_worth_is_that_of_its_moves(self):
        game = HiddenNumberGame(2, (0.8, 0.7), 0.05)
        assert game.worth(lambda heard: game.best(heard)[0]) == game.value()
        assert game.worth(lambda heard: "answer 1") == Fraction(1, 2)

        def trusts_the_worse(heard):
            return "ask scout_1" if heard[1] is None else f"answer {heard[1]}"

        assert game.worth(trusts_the_worse) == Fraction(95, 100) * Fraction(7, 10)


class TestTheEnvironment:
    def test_gold_is_worth_the_optimum(self):
        env = make()
        assert expected(env, lambda agent, info: env.gold(agent)) == env.game.value()

    def test_an_episode(self):
        env = make()
        observations, infos = env.reset(options=fixed(2, 2, 3, 2))
        assert "You saw 3" in observations["scout_1"]["text"]
        assert "You saw" not in observations["lead_0"]["text"]
        assert infos["lead_0"]["admissible_actions"][:3] == ("ask scout_0", "ask scout_1", "ask scout_2")
        talk = {"scout_0": "two", "scout_1": " it is  3\n", "scout_2": "x" * 50}
        observations, rewards, *_, infos = env.step({"lead_0": "Ask  scout_1"} | talk)
        assert observations["lead_0"] == {"text": "scout_1 says: it is 3"}
        assert observations["scout_1"] == {"text": "You were asked."}
        assert observations["scout_0"] == {"text": "Nobody asked you."}
        assert rewards["lead_0"] == 0.0
        observations, *_, infos = env.step({"lead_0": "ask scout_1"} | talk)  # again
        assert infos["lead_0"]["invalid_action"]
        assert "ask scout_0 or ask scout_2 or answer 1" in observations["lead_0"]["text"]
        observations, *_ = env.step({"lead_0": "ask scout_2"} | talk)
        assert observations["lead_0"] == {"text": "scout_2 says: " + "x" * 20}
        _, rewards, terminated, truncated, infos = env.step({"lead_0": "answer 2"} | talk)
        assert rewards == pytest.approx(dict.fromkeys(env.possible_agents, 0.9))  # two questions
        assert all(terminated.values())
        assert not any(truncated.values())
        assert infos["scout_0"]["resolved"]
        assert env.agents == []

    def test_a_wrong_answer_is_worth_nothing(self):
        env = make()
        env.reset(options=fixed(2, 2, 2, 2))
        _, rewards, *_, infos = env.step({"lead_0": "answer 1", "scout_0": "", "scout_1": "", "scout_2": ""})
        assert set(rewards.values()) == {0.0}
        assert not infos["lead_0"]["resolved"]

    def test_a_scout_may_say_nothing(self):
        env = make()
        env.reset(seed=0)
        observations, *_ = env.step({"lead_0": "ask scout_0", "scout_0": " ", "scout_1": "", "scout_2": ""})
        assert observations["lead_0"] == {"text": "scout_0 says nothing."}

    def test_chance_is_the_seeds(self):
        """Over many seeds the scouts are right as often as they are said to be: within four standard deviations."""
        env = make()
        env.reset(seed=0)
        right = 0
        for _ in range(1500):
            env.reset()
            right += sum(seen == env.number for seen in env.sightings)
        assert abs(right / 4500 - 0.75) < 4 * (0.75 * 0.25 / 4500) ** 0.5


def test_a_simple_learner_reaches_the_optimum():
    # One question to the good scout: 8/10 * 9/10. The next best, no question: 1/2.
    figures = hidden_number(1000, 2, everybody=False, numbers=2, accuracies=(0.9, 0.6), cost=0.2)
    assert figures["optimum"] == pytest.approx(0.8 * 0.9)
    assert figures["optimal"] == 2


@pytest.mark.slow
def test_a_simple_learner_learns_when_to_ask_a_third_scout():
    figures = hidden_number(25_000, 1, everybody=False)
    assert figures["reached"] == [0.765234375]
