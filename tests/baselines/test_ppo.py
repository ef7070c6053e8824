"""PPO: whose reward goes where, what is bootstrapped, and that values are learnt."""

import copy

import numpy as np
import pytest
import torch

from agentgym.trajectory.records import Segment, Trajectory
from baselines import ppo
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Rollouts, batch_of
from tests.baselines.conftest import EVEN, WORD, flags


def segment(index, *, reward=0.0, agent="policy", cause="start", parent=None):
    """A prompt token and two trainable ones."""
    return Segment(index, agent, parent, cause, token_ids=[1, 2, 3], mask=[0, 1, 1], logprobs=[0.0, -1.0, -1.0],
                   rewards=[0.0, 0.0, reward])  # fmt: skip


def trajectory(*segments, truncated=False):
    total = sum(sum(s.rewards) for s in segments)
    return Trajectory("t", segments=list(segments), reward=total, truncated=truncated, terminated=not truncated,
                      extra={"group": 0})  # fmt: skip


def estimated(batch, values, after, *words):
    """Advantages and returns of trainable tokens, without a model."""
    learner = ppo.PPO.__new__(ppo.PPO)
    learner.args = flags("ppo", *WORD, "--out", "x", *words)
    learner.lam = learner.args.lam
    batch = batch_of(batch)
    rows = [np.array([np.nan, *pair]) for pair in values]
    both = learner._estimate(batch, rows, np.array(after))
    return tuple([row[1:].tolist() for row in part] for part in both)


COMPACTED = (segment(0), segment(1, reward=1.0, cause="compaction", parent=0))
VALUES = [(0.1, 0.2), (0.3, 0.4)]


def test_decay_multiplies_by_what_was_sampled_later():
    # lambda 1/2. Last segment: deltas 0.4 - 0.3 = 0.1 and 1 - 0.4 = 0.6, so 0.1 + 0.6 / 2 = 0.4 and 0.6.
    # First segment, its end paid with the 1 that came later: 0.2 - 0.1 = 0.1 and 1 - 0.2 = 0.8, so 0.5 and 0.8;
    # two tokens were sampled later: times 1/4. The targets are not multiplied.
    advantages, returns = estimated(
        [trajectory(*COMPACTED)], VALUES, [9, 9], "--across", "decay", "--lam", 0.5
    )
    assert np.allclose(advantages, [(0.125, 0.2), (0.4, 0.6)])
    assert np.allclose(returns, [(0.6, 1.0), (0.7, 1.0)])


def test_stitch_bootstraps_from_the_next_segment():
    # One sequence of four: deltas 0.1, 0.3 - 0.2 = 0.1, 0.1, 0.6 with lambda 1/2.
    advantages, _ = estimated([trajectory(*COMPACTED)], VALUES, [9, 9], "--across", "stitch", "--lam", 0.5)
    assert np.allclose(advantages, [(0.25, 0.3), (0.4, 0.6)])  # 0.1 + 0.3 / 2, 0.1 + 0.4 / 2, ...


def test_only_what_a_limit_cut_off_is_bootstrapped():
    cut, ended = trajectory(segment(0), truncated=True), trajectory(segment(0))
    both = estimated([cut, ended], [(0.0, 0.0)] * 2, [0.7, 0.7])[0]
    assert both == [[0.7, 0.7], [0.0, 0.0]]
    assert estimated([cut], [(0.0, 0.0)], [0.7], "--bootstrap", "never")[0] == [[0.0, 0.0]]
    # The value after a segment that was compacted is of no use: what counts is the end of the chain.
    chain = trajectory(segment(0), segment(1, cause="compaction", parent=0), truncated=True)
    assert estimated([chain], [(0.0, 0.0)] * 2, [5.0, 0.7])[0] == [[0.7, 0.7]] * 2


def test_a_sub_agent_is_paid_what_the_team_got():
    team = trajectory(segment(0, reward=1.0), segment(1, agent="helper", cause="delegation", parent=0))
    values = [(0.0, 0.0)] * 2
    assert estimated([team], values, [0, 0])[0] == [[1.0, 1.0]] * 2
    assert estimated([team], values, [0, 0], "--sub-agents", "own")[0] == [[1.0, 1.0], [0.0, 0.0]]
    # Where a limit cut the team off, the sub-agent, which was done long before, lacks what the team lacks: V of the
    # lead's last state, not of its own.
    team.truncated, team.terminated = True, False
    assert estimated([team], values, [0.5, 9.0])[0] == [[1.5, 1.5]] * 2
    assert estimated([team], values, [0.5, 9.0], "--sub-agents", "own")[0] == [[1.5, 1.5], [0.0, 0.0]]
    # What its own steps brought counts once.
    own = trajectory(
        segment(0, reward=0.5), segment(1, agent="helper", cause="delegation", parent=0, reward=0.25)
    )
    assert estimated([own], values, [0, 0])[0] == [[0.5, 0.5], [0.75, 0.75]]


def test_values_are_compared_with_what_came():
    learner = ppo.PPO.__new__(ppo.PPO)
    learner.args = flags("ppo", *WORD, "--out", "x")
    batch = batch_of([trajectory(segment(0, reward=1.0)), trajectory(segment(0), truncated=True)])
    numbers = learner._quality(batch, [np.array([np.nan, 0.5, 1.0]), np.array([np.nan, 0.5, 0.0])])
    # Returns 1, 1, 0, 0 and errors 0.5, 0, 0.5, 0: mean of squares 1/8; the constant 1/2 has 1/4.
    assert numbers["value/mse"] == pytest.approx(0.125)
    assert numbers["value/mse_constant"] == pytest.approx(0.25)
    assert numbers["value/explained_variance"] == pytest.approx(1 - 0.125 / 0.25)


# -- with a model ------------------------------------------------------------------------------------------------------


def learner_of(model, *words):
    args = flags("ppo", *EVEN, "--model", model, "--device", "cpu", "--out", "x", *words)
    return ppo.PPO(args, Ranks("cpu"))


def played(learner, episodes=8):
    rollouts = Rollouts(learner.args.env, {}, learner.actor.policy, Ranks("cpu"), seed=3)
    return batch_of(rollouts.play(episodes))


@pytest.mark.parametrize("critic", ["copy", "shared"])
def test_the_critic_learns_what_comes(even_model, critic):
    learner = learner_of(
        even_model, "--critic", critic, "--critic-lr", 1e-2, "--lr", 1e-3, "--bootstrap", "never"
    )
    batch = played(learner)
    first = learner.update(batch, Costs())
    assert first["value/explained_variance"] == 0.0, "the head begins at zero"
    for _ in range(20):
        numbers = learner.update(batch, costs := Costs())
    assert numbers["value/mse"] < 0.5 * first["value/mse"]
    assert numbers["value/explained_variance"] > 0.3
    assert costs.critic_tokens > 0
    assert numbers["value/loss"] > 0


def test_the_warm_up_leaves_the_policy_alone(even_model):
    learner = learner_of(even_model, "--warmup", 2, "--critic-epochs", 2, "--lr", 1e-2)
    policy = copy.deepcopy(learner.actor.model.state_dict())
    critic = copy.deepcopy(learner.critic.modules.state_dict())

    def equal(before, module):
        return all(torch.equal(before[name], value) for name, value in module.state_dict().items())

    batch = played(learner)
    for update in range(3):
        numbers = learner.update(batch, costs := Costs())
        assert equal(policy, learner.actor.model) == (update < 2)
        assert ("policy/loss" in numbers) == (update >= 2)
        assert (costs.trained_tokens > 0) == (update >= 2)
    assert not equal(critic, learner.critic.modules)


def test_the_loss_of_a_shared_critic_is_a_mean_over_the_steps_that_were_taken(even_model):
    """Three rollouts make three minibatches of the eight that are asked for. The head says 0 and learns at rate 0."""
    words = "--critic shared --minibatches 8 --epochs 2 --lr 0 --critic-lr 0 --bootstrap never"
    learner = learner_of(even_model, *words.split())
    batch = played(learner, 3)
    wanted = np.mean([0.5 * batch.returns[n] ** 2 for n in range(3)])  # V = 0, so each step's loss is G^2 / 2
    assert wanted > 0
    assert learner.update(batch, Costs())["value/loss"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    "words",
    [
        "--loss sao --old sampled --clip-low 0.8 --clip-high 3 --critic-epochs 2",
        "--adaptive-lam 0.05 --returns-lam 1 --whiten --clip-high 0.28",
        "--across stitch --lam 0.9 --value-clip 0.2 --epochs 2 --minibatches 2 --group-size 2",
        "--critic shared --epochs 2 --minibatches 2 --value-clip 0.2",
    ],
)
def test_every_switch_takes_a_step(even_model, words):
    learner = learner_of(even_model, *words.split())
    batch = played(learner)
    for _ in range(2):
        before = [parameter.detach().clone() for parameter in learner.actor.parameters()]
        numbers = learner.update(batch, Costs())
        assert np.isfinite(list(numbers.values())).all()
        assert any(not torch.equal(a, b) for a, b in zip(before, learner.actor.parameters(), strict=True))
