"""GRPO and PPO over an agent whose workers the trained policy plays: every token once, paid as asked."""

import contextlib
import dataclasses

import numpy as np
import pytest
import torch

from agentgym import rollout
from agentgym.cli.stack import Stack
from agentgym.policies import Scripted
from agentgym.policies.hf import HFPolicy
from agentgym.rollout import collect
from agentgym.trajectory.records import Trajectory
from baselines import genac
from baselines.flags import World
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.recorded import Recorded, versions_of
from baselines.rollouts import Batch, Rollouts, batch_of
from baselines.tiny import make_model
from tests.baselines.conftest import TRAINERS, flags
from tests.baselines.crew_toy import TEXTS

ASK = "--env tests.baselines.crew_toy:Ask-v0 --delegate 1 --worker-turns 2 --max-new-tokens 4".split()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("ask"), TEXTS, hidden=32, context=512)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another model with other numbers for the same words."""
    return make_model(
        tmp_path_factory.mktemp("other"), ["Another one", *TEXTS], hidden=32, context=512, seed=1
    )


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
    with contextlib.ExitStack() as held:
        stack = rollout.with_models(args.stack.keywords("hf:x"), held)
        rollouts = Rollouts(args.env, stack, learner.actor.policy, learner.ranks, seed=0, group_size=4)
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


# -- workers that another policy plays ---------------------------------------------------------------------------------


def untrained(trajectories: list[Trajectory], *, ids: bool) -> None:
    """All of the lead and nothing of the workers is trained and paid."""
    workers = [s for t in trajectories for s in t.segments if s.agent != "policy"]
    assert workers
    assert all(bool(s.token_ids) is ids and not any(s.mask) and not any(s.rewards) for s in workers)
    batch = batch_of(trajectories)
    assert {segment.agent for segment in batch.segments} == {"policy"}
    assert sum(int(mask.sum()) for mask in batch.masks) == sampled(trajectories, "policy")
    assert [sum(sum(s.rewards) for s in t.segments) for t in trajectories] == [t.reward for t in trajectories]


@pytest.fixture
def made(monkeypatch) -> list[HFPolicy]:
    """What flags name is made with short replies, and kept here."""
    found = []
    make = rollout.make_policy
    monkeypatch.setattr(
        rollout, "make_policy", lambda text: found.append(make(text, max_new_tokens=4)) or found[-1]
    )
    return found


@pytest.mark.parametrize("trainer", ["grpo", "ppo"])
def test_what_another_model_wrote_is_not_trained_on(trainer, model, other, made):
    own = ["--sub-agents", "own"] if trainer == "ppo" else []
    learner, trajectories = played(trainer, model, "--worker-policy", f"hf:{other}", *own)
    untrained(trajectories, ids=True)
    batch = batch_of(trajectories)
    scored, _ = learner.actor.score(batch.rows, entropy=False)
    recorded = torch.cat(batch.on_tokens(batch.sampled))
    assert float((scored - recorded).abs().max()) < 1e-4
    numbers = learner.update(batch, Costs())
    assert np.isfinite(list(numbers.values())).all()


@pytest.mark.parametrize("who", ["a model", "a model at temperature 0", "a script"])
def test_data_with_workers_of_another_policy_can_be_trained_on(who, model, other, tmp_path):
    worker = Scripted(["red"] * 9) if who == "a script" else HFPolicy(
        other, max_new_tokens=4, temperature=float(who == "a model")
    )  # fmt: skip
    lead = HFPolicy(model, max_new_tokens=4, version="7")
    trajectories = collect(
        ASK[1],
        lead,
        episodes=8,
        group_size=4,
        workers=1,
        out=tmp_path,
        delegation={"max_workers": 1, "worker_turns": 2, "worker_policy": worker, "turn_cost": 0.5},
    )
    untrained(trajectories, ids=who != "a script")
    assert set(versions_of(trajectories)) == {7}
    learner, _ = played("grpo", model)
    data = Recorded(str(tmp_path), Rollouts(ASK[1], {}, lead, Ranks("cpu"), seed=0, group_size=4))
    data.check_tokens(learner.actor)
    data.check_weights(learner.actor)


def test_a_run_loads_a_worker_once_and_evaluation_changes_no_training(
    model, other, made, train, tmp_path, monkeypatch
):
    closed = []
    close = HFPolicy.close
    monkeypatch.setattr(HFPolicy, "close", lambda self: closed.append(self) or close(self))
    words = [*ASK, "--also", f"{ASK[1]} max_turns=3", "--model", model, "--worker-policy", f"hf:{other}", "--steps", 2,
             "--groups", 2, "--group-size", 3, "--eval-episodes", 2, "--device", "cpu"]  # fmt: skip
    with_tests = train("grpo", *words, "--eval-every", 1, "--out", tmp_path / "with")
    assert [policy.name for policy in made] == [f"hf:{other}"]
    assert closed == made
    without = train("grpo", *words, "--eval-every", 0, "--out", tmp_path / "without")
    names = [name for name in without[0] if name.startswith(("rollout/", "policy/"))]
    assert names
    assert [[line[name] for name in names] for line in with_tests[:2]] == [
        [line[name] for name in names] for line in without
    ]


def test_the_turns_of_an_environment_are_told_without_its_workers():
    stack = Stack(delegate=1, worker_policy="hf:nowhere")
    assert genac._max_turns(World("ask", ASK[1], stack, "test")) == 4
