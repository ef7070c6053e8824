"""GRPO and PPO over an agent whose workers the trained policy plays: every token once, paid as asked."""

import dataclasses

import numpy as np
import pytest
import torch

from agentgym.trajectory.records import Trajectory
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Batch, Rollouts, batch_of
from baselines.tiny import make_model
from tests.baselines.conftest import TRAINERS, flags
from tests.baselines.crew_toy import TEXTS

ASK = "--env tests.baselines.crew_toy:Ask-v0 --delegate 1 --worker-turns 2 --max-new-tokens 4".split()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("ask"), TEXTS, hidden=32, context=512)


def played(trainer: str, model, *words: object):
    args = flags(
        trainer,
        *ASK,
        "--model",
        model,
        "--device",
        "cpu",
        "--out",
        "x",
        "--groups",
        4,
        "--group-size",
        4,
        *words,
    )
    learner = TRAINERS[trainer][1](args, Ranks("cpu"))
    rollouts = Rollouts(
        args.env, args.stack.keywords("hf:x"), learner.actor.policy, learner.ranks, seed=0, group_size=4
    )
    return learner, rollouts.play(4)


def sampled(trajectories: list[Trajectory], agent: str | None = None) -> int:
    """Tokens that the policy sampled in all replies, or in those of the lead or of workers."""
    return sum(
        s.sampled_tokens
        for t in trajectories
        for s in t.steps
        if agent is None or (s.agent == "policy") == (agent == "policy")
    )


@pytest.mark.parametrize("trainer", ["grpo", "ppo"])
def test_an_update_takes_every_token_once(trainer, model):
    learner, trajectories = played(trainer, model)
    assert not any(t.infrastructure_error for t in trajectories)
    batch = batch_of(trajectories)
    assert 0 < sampled(trajectories, "worker") < sampled(trajectories)
    assert sum(int(mask.sum()) for mask in batch.masks) == sampled(trajectories)
    before = [p.detach().clone() for p in learner.actor.parameters()]
    numbers = learner.update(batch, Costs())
    assert np.isfinite(list(numbers.values())).all()
    assert any(not torch.equal(a, b) for a, b in zip(before, learner.actor.parameters(), strict=True))


def paid(batch: Batch, learner) -> list[float]:
    rewards = batch.paid(learner.args.sub_agents)
    return [sum(float(rewards[k].sum()) for k in chain) for chain, _, leads in batch.chains if not leads]


def test_a_worker_is_paid_the_team_s_return_or_what_it_earned(model):
    learner, trajectories = played("ppo", model)
    batch = batch_of(trajectories)
    of = [float(batch.returns[n]) for _, n, leads in batch.chains if not leads]
    assert paid(batch, learner) == of
    assert set(of) == {0.0, 1.0}
    learner, trajectories = played("ppo", model, "--sub-agents", "own")
    batch = batch_of(trajectories)
    workers = [segment for t in trajectories for segment in t.segments if segment.agent != "policy"]
    assert sum(paid(batch, learner)) == sum(sum(segment.rewards) for segment in workers)
    learner.args = dataclasses.replace(learner.args, sub_agents="both")
    of = [float(batch.returns[n]) for _, n, leads in batch.chains if not leads]
    assert sum(paid(batch, learner)) == sum(of) + sum(sum(segment.rewards) for segment in workers)
    silent = [t for t in trajectories if t.reward == 1.0 and not reported(t)]
    assert silent  # whatever the team got, a worker that never reported earned nothing
    assert not any(any(s.rewards) for t in silent for s in t.segments if s.agent != "policy")


def reported(t: Trajectory) -> bool:
    return any(call.name == "report" for step in t.steps for call in step.calls)


def test_lockstep_gives_the_same_tokens_again(model):
    runs = []
    for _ in range(2):
        _, trajectories = played("grpo", model)
        runs.append([[(s.agent, s.token_ids, s.mask) for s in t.segments] for t in trajectories])
    assert runs[0] == runs[1]
