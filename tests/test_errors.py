"""The checks of numbers that come from outside."""

import math

import pytest

from agentgym.core import AgentEnv, Task, Verdict
from agentgym.endpoint import _fits
from agentgym.errors import (
    InfrastructureError,
    MissingDependency,
    SandboxError,
    UnusableAnswer,
    UsageError,
    finite,
    flag,
    real_number,
)
from agentgym.rollout import collect
from agentgym.wrappers import RecordTrajectory

HUGE = 10**400  # a whole number, and of JSON; floats end near 1.8e308


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (-0.5, -0.5),
        (10**308, 1e308),
        (HUGE, None),
        (-HUGE, None),
        (math.inf, None),
        (math.nan, None),
    ],
)
def test_finite(value, number):
    assert finite(value) == number
    assert _fits(value, float) is (number is not None)  # an answer of a judge


def test_a_number_beyond_floats_is_refused_where_numbers_come_from_outside():
    with pytest.raises(UsageError, match="expected x to be a finite number, got 1000"):
        real_number("x", HUGE, least=0)
    with pytest.raises(InfrastructureError, match=r"a score in \[0, 1\], got 1000"):
        Verdict(HUGE)
    with pytest.raises(InfrastructureError, match=r"components\['a'\] to be a finite number, got 1000"):
        Verdict(1.0, components={"a": HUGE})


class Paid(AgentEnv):
    tasks = (Task("t"),)

    def begin(self, task):
        return "go"

    def respond(self, action):
        return "on"

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, HUGE, *rest

    def verify(self, episode):
        return Verdict(0.0)


def test_a_reward_beyond_floats_breaks_the_episode():
    env = RecordTrajectory(Paid())
    env.reset()
    with pytest.raises(InfrastructureError, match="finite reward from the environment, got 1000"):
        env.step("a")


def test_a_flag_is_no_text():
    assert flag("hints", True) is True
    assert flag("hints", False) is False
    for wrong in ("no", "", 0, 1, None):
        with pytest.raises(UsageError, match=f"expected hints to be True or False, got {wrong!r}"):
            flag("hints", wrong)


@pytest.mark.parametrize("kind", [InfrastructureError, SandboxError, MissingDependency, UnusableAnswer])
def test_what_broke_has_a_name_where_nobody_said_a_word(kind):
    assert str(kind()) == str(kind("")) == str(kind(" \n")) == kind.__name__
    assert str(kind("no room\non the disk")) == "no room\non the disk"


class Broken(Paid):
    def step(self, action):
        return AgentEnv.step(self, action)

    def respond(self, action):
        raise SandboxError


def test_an_episode_that_broke_without_a_word_is_marked():
    (t,) = collect(Broken, "null", episodes=1)
    assert (t.infrastructure_error, t.reward, t.outcome) == ("SandboxError", None, None)
