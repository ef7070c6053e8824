"""A seat at a multi-agent environment is an environment like any other: audited, played by policies."""

from __future__ import annotations

import gymnasium
import pettingzoo
import pytest

from agentgym import Task, UsageError
from agentgym.check import check
from agentgym.envs.seat import SeatEnv
from agentgym.policies import Policy, Reply, Scripted
from tests.envs.team.test_games_review import ACCEPT, BASE, SUBMIT, VETO, WRITE_BREAK, WRITE_FIX, registered

__all__ = ["registered"]  # a fixture

NUMBER, REVIEW = "agentgym/HiddenNumber-v0", "agentgym/Review-v0"
SURE = {"numbers": 20, "accuracies": (1.0,), "cost": 0.0}  # nobody errs, guessing hardly helps


class Says(Policy):
    """Says always the same, and remembers what it read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.read: list = []

    def act(self, conversations):
        self.read += conversations
        return [Reply(self.text) for _ in conversations]


@pytest.mark.parametrize("agent", ["lead_0", "scout_0"])
def test_a_seat_passes_the_audit(agent):
    probes = (
        "start spaces info invalid_actions same_seed snapshot pickle gold floor turn_limit last_turn".split()
    )
    report = check(lambda **keywords: SeatEnv(NUMBER, agent, env_kwargs=SURE, **keywords), only=probes)
    assert report.ok, report


def test_what_the_agent_is_told_is_the_environments():
    env = SeatEnv(NUMBER)
    team = pettingzoo.make("parallel", NUMBER)
    task = Task("fixed", data={"number": 1, "sightings": [2, 2, 3]})
    observation, info = env.reset(options={"task": task})
    observations, infos = team.reset(options={"task": task})
    assert observation == observations["lead_0"]["text"]
    assert info["admissible_actions"] == infos["lead_0"]["admissible_actions"]
    env.step("ask scout_1")
    *_, info = env.step("ask scout_2")
    assert info["anchor"] == "scout_1: 2; scout_2: 3"
    *_, info = env.step("ask scout_2")
    assert info["invalid_action"]
    _, reward, terminated, truncated, info = env.step("answer 1")
    assert (reward, terminated, truncated) == (pytest.approx(0.9), True, False)
    assert info["verdict"].components == {"right": 1.0, "questions": 2.0}


def test_others_may_be_policies():
    liar, mute = Says("3"), Says("")
    env = SeatEnv(NUMBER, others={"scout_0": liar, "scout_1": mute, "scout_2": "null"})
    env.reset(options={"task": Task("fixed", data={"number": 1, "sightings": [1, 1, 1]})})
    assert env.step("ask scout_0")[0] == "scout_0 says: 3"
    assert env.step("ask scout_1")[0] == "scout_1 says nothing."
    first, second = liar.read
    assert [message.role for message in second] == ["user", "assistant", "user"]
    assert "You saw 1" in first[0].content
    assert second[1:] == (second[1], second[2])
    assert (second[1].content, second[2].content) == ("3", "You were asked.")


def test_rounds_in_which_the_agent_waits_are_played():
    env = SeatEnv(REVIEW, "reviewer_0", env_kwargs={"base": BASE})
    observation, _ = env.reset(seed=0)  # the author has written and submitted
    assert "There is nothing to review yet" in observation
    assert "```diff\n+fix\n" in observation
    assert "You review changes" in env.system_prompt
    _, reward, terminated, *_ = env.step(ACCEPT)
    assert (reward, terminated) == (1.0, True)

    env = SeatEnv(REVIEW, "author_0", env_kwargs={"base": BASE})
    env.reset(seed=0)
    env.step(WRITE_BREAK)
    observation, *_ = env.step(SUBMIT)
    assert observation.endswith("The reviewer has refused the change: The hidden tests do not pass.")
    assert env.turns_left == env.max_turns - 2


def test_a_policy_that_needs_no_environment_reviews():
    env = SeatEnv(REVIEW, "author_0", others=Says(VETO), env_kwargs={"base": BASE, "submissions": 1})
    env.reset(seed=0)
    env.step(WRITE_FIX)
    _, reward, terminated, *_ = env.step(SUBMIT)
    assert (reward, terminated) == (0.0, True)


def test_what_breaks_ends_the_episode_without_a_reward():
    env = SeatEnv(REVIEW, "author_0", env_kwargs={"base": BASE})
    env.reset(seed=0)
    lost = WRITE_FIX.replace("fix", "lost")
    _, reward, terminated, truncated, info = env.step(lost)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["infrastructure_error"] == "the bench is gone"


def test_the_others_use_up_the_rounds():
    env = SeatEnv(
        REVIEW, "author_0", others=Says("hm"), env_kwargs={"base": BASE, "max_cycles": 4}, max_turns=3
    )
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = env.step(SUBMIT)  # three rounds of review, and none is left
    assert (reward, terminated, truncated) == (0.0, False, True)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(SUBMIT)


def test_a_seat_draws_from_the_tasks_of_the_environment():
    drawn = {"env_kwargs": {"split": "test"}}
    assert SeatEnv(NUMBER, **drawn).reset(seed=0)[1]["task_id"] == "hidden-number-test"
    assert SeatEnv(NUMBER, **drawn, split="train").reset(seed=0)[1]["task_id"] == "hidden-number-train"
    mine = SeatEnv(NUMBER, **drawn, tasks=[Task("mine")], max_turns=None)
    assert mine.reset(seed=0)[1]["task_id"] == "mine"
    assert mine.max_turns == 7  # the environment's max_cycles: three scouts and four


def test_an_episode_that_ends_before_the_agent_s_first_turn():
    env = SeatEnv("agentgym/Team-v0", "worker_0", env_kwargs={"base": "agentgym/Relay-v0"})
    with pytest.raises(
        UsageError, match="worker_0 had nothing to do: the others ended the episode of task 'relay"
    ):
        env.reset(seed=0)  # the lead does all of it
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("hello")


def test_others_with_a_list_of_actions_begin_anew():
    env = SeatEnv(NUMBER, others=Scripted(["3"]))
    for _ in range(2):
        env.reset(seed=0)
        assert env.step("ask scout_0")[0] == "scout_0 says: 3"


@pytest.mark.parametrize("agent", ["lead_0", "scout_0"])
def test_before_a_reset_there_is_no_next_action(agent):
    with pytest.raises(gymnasium.error.ResetNeeded, match="HiddenNumberEnv: call reset"):
        pettingzoo.make("parallel", NUMBER).gold(agent)
    with pytest.raises(gymnasium.error.ResetNeeded, match="SeatEnv: call reset"):
        SeatEnv(NUMBER, agent).gold()


@pytest.mark.parametrize(
    ("arguments", "keywords", "said"),
    [
        ((NUMBER,), {"tasks": []}, "SeatEnv has no tasks"),
        ((NUMBER,), {"others": "random"}, "expected others that need no environment: policy 'random'"),
        ((NUMBER,), {"others": "repeat"}, "expected others that need no environment: policy 'repeat'"),
        (("agentgym/HidenNumber-v0",), {}, "no environment 'agentgym/HidenNumber-v0' is registered"),
        (("agentgym/Relay-v0",), {}, "expected a multi-agent environment, got 'agentgym/Relay-v0'"),
        ((NUMBER, "leader"), {}, "has no agent 'leader'.* Did you mean 'lead_0'"),
        (
            (NUMBER,),
            {"others": {"scout_0": "gold"}},
            "expected others for scout_0, scout_1, scout_2; got scout_0",
        ),
        ((NUMBER,), {"others": "golden"}, "unknown policy 'golden'"),
        ((NUMBER,), {"others": 5}, "expected others to be policies or texts for them, got 5"),
    ],
)
def test_seats_that_there_are_not(arguments, keywords, said):
    with pytest.raises(UsageError, match=said):
        SeatEnv(*arguments, **keywords)
