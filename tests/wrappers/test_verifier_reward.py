"""`VerifierReward`: whose verdict is paid, told and recorded, on one agent and on an agent's seat."""

import functools

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit

from agentgym import InfrastructureError, UsageError, Verdict
from agentgym.envs.team import TeamEnv
from agentgym.policies.scripted import Scripted
from agentgym.rollout import collect
from agentgym.wrappers import AntiHack, ChatContext, VerifierReward, wrap_agents
from tests.toys import Moves
from tests.wrappers.crews import call
from tests.wrappers.desk import SECRET

LOOK, SUBMIT = call("view", room="shelf"), call("submit")
PUT = call("put", room="hall", thing="key")


def by_length(episode) -> Verdict:
    """A tenth for each turn; the environment's own verdict is whether the key is in the hall."""
    return Verdict(
        len(episode.turns) / 10, held_out={"looked": float("dust" in episode.turns[0].observation)}
    )


def broken(episode):
    raise InfrastructureError("the judge is gone")


def ended(verifier, *actions, wrap=lambda env: env):
    env = wrap(VerifierReward(gymnasium.make("test/Store-v0"), verifier))
    env.reset(seed=0)
    return [env.step(action) for action in actions]


def test_the_verifier_pays_and_is_told():
    first, last = ended(by_length, LOOK, PUT + SUBMIT)
    assert first[1] == 0.0
    assert "verdict" not in first[-1]
    assert last[1] == pytest.approx(0.2)
    assert last[-1]["verdict"].score == 0.2
    assert last[-1]["verdict"].held_out == {"looked": 1.0}
    assert last[-1]["resolved"] is False  # the key is in the hall, but that is not what is asked


def test_what_other_wrappers_take_off_stays_off():
    crossing = call("bash", command=f"cat {SECRET}")
    env = VerifierReward(AntiHack(gymnasium.make("test/Desk-v0"), penalty=0.5), by_length)
    env.reset(seed=0)
    assert env.step(crossing + SUBMIT)[1] == pytest.approx(0.1 - 0.5)


def test_a_limit_of_somebody_elses_is_judged_too():
    env = VerifierReward(TimeLimit(gymnasium.make("test/Store-v0"), 1), by_length)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(LOOK)  # the environment pays 0 and gives no verdict
    assert (reward, terminated, truncated, info["verdict"].score, info["resolved"]) == (
        0.1,
        False,
        True,
        0.1,
        False,
    )


def test_a_limit_is_judged_too():
    env = VerifierReward(gymnasium.make("test/Store-v0", max_turns=1), by_length)
    env.reset(seed=0)
    assert env.step(LOOK)[1:4] == (0.1, False, True)


def test_a_broken_verifier_is_no_reward():
    ((_, reward, terminated, truncated, info),) = ended(broken, PUT + SUBMIT)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["infrastructure_error"] == "the judge is gone"
    assert not {"verdict", "resolved"} & info.keys()


def test_an_episode_that_broke_is_not_judged():
    env = VerifierReward(Moves(), by_length)
    env.reset(seed=0)
    assert env.step("broken")[-1]["infrastructure_error"] == "the server died"


def test_it_is_recorded_and_rebuilt_by_name():
    name = f"{__name__}:by_length"
    env = ChatContext(VerifierReward(gymnasium.make("test/Store-v0"), name))
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    (t,) = collect(lambda: again, Scripted([LOOK, SUBMIT]), episodes=1)
    assert (t.reward, t.verdict["score"], t.resolved) == (0.2, 0.2, False)


def test_one_agent_of_a_team_is_paid_by_a_verifier_of_its_own():
    seat = [functools.partial(VerifierReward, verifier=by_length), ChatContext]
    env = wrap_agents(TeamEnv(base="test/Store-v0", workers=1), {"worker_0": seat})
    env.reset(seed=0)
    env.step({"lead_0": call("delegate", task="look", role="tester")})
    env.step({"lead_0": call("wait"), "worker_0": LOOK})
    env.step({"worker_0": call("report", text="dust")})
    assert env.step({"lead_0": PUT + SUBMIT})[1] == {"lead_0": 1.0, "worker_0": 0.2}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: VerifierReward(Moves(), 3), "expected verifier to be a function"),
        (lambda: VerifierReward(Moves(), "nowhere:x"), "nowhere"),
        (lambda: VerifierReward(gymnasium.make("CartPole-v1"), by_length), "CartPoleEnv keeps none"),
    ],
)
def test_bad_use_is_told(make, says):
    with pytest.raises(UsageError, match=says):
        make()


def test_something_else_than_a_verdict_is_a_mistake():
    with pytest.raises(TypeError, match=r"expected the verifier to return a Verdict, got 0\.5"):
        ended(lambda episode: 0.5, SUBMIT)
