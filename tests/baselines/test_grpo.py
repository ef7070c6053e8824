"""GRPO's credit, its sampling, and an update beside one written out in plain torch."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentgym.errors import UsageError
from agentgym.trajectory.records import Sampled, Segment, Step, Trajectory
from baselines import grpo
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Rollouts, batch_of
from tests.baselines.conftest import EVEN, WORD, flags


def trajectory(group, reward, *segments, error="", anchors=()):
    """Segments are lists of (token, mask); each step lies in the segment of its number, with one sampled token."""
    built = []
    for index, tokens in enumerate(segments):
        ids, mask = zip(*tokens, strict=True)
        sampled = [Sampled(0, t, t + 1, index, 1.0, "stop") for t, m in enumerate(mask) if m]
        built.append(
            Segment(
                index,
                parent=index - 1 if index else None,
                cause="compaction" if index else "start",
                token_ids=list(ids),
                mask=list(mask),
                logprobs=[-1.0 * m for m in mask],
                rewards=[0.0] * len(ids),
                sampled=sampled,
            )
        )
    steps = [
        Step("turn", "policy", "x", segment=k, sampled_tokens=1, reward=reward if k == len(built) - 1 else 0.0,
             info={"anchor": anchors[k + 1]} if anchors else {})
        for k in range(len(built))
    ]  # fmt: skip
    extra = {"group": group} | ({"anchor": anchors[0]} if anchors else {})
    return Trajectory("t", steps=steps, segments=built, reward=None if error else reward, extra=extra,
                      infrastructure_error=error, resolved=bool(reward))  # fmt: skip


def credit(batch, *words, cls=grpo.GRPO):
    """What the estimator says, without a model."""
    learner = cls.__new__(cls)
    learner.args = flags("grpo", *WORD, "--out", "x", *words)
    return [row.tolist() for row in learner.credit(batch_of(batch))]


ONE = [(1, 0), (2, 1), (3, 1)]
TWO = [(1, 0), (2, 0), (3, 1)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # returns 1, 0, 0: mean 1/3, deviation with n - 1: sqrt((4/9 + 1/9 + 1/9) / 2) = 1/sqrt(3)
        (["--estimator", "grpo"], [2 / 3 * 3**0.5, -1 / 3 * 3**0.5, -1 / 3 * 3**0.5]),
        (["--estimator", "dr_grpo"], [2 / 3, -1 / 3, -1 / 3]),
        (["--estimator", "rloo"], [1.0, -0.5, -0.5]),
        (["--estimator", "reinforce"], [1.0, 0.0, 0.0]),
    ],
)
def test_every_trainable_token_carries_its_trajectory_s_number(words, expected):
    # The first trajectory was compacted: two segments, and still one sibling among three. A fourth one broke.
    batch = [trajectory(0, 1.0, ONE, TWO), trajectory(0, 0.0, ONE), trajectory(0, 0.0, TWO),
             trajectory(0, 9.0, ONE, error="gone")]  # fmt: skip
    a, b, c = expected
    for found, wanted in zip(
        credit(batch, *words), [[0, a, a], [0, 0, a], [0, b, b], [0, 0, c]], strict=True
    ):
        assert found == pytest.approx(wanted, abs=1e-5)


def test_reinforce_plus_plus_divides_by_the_deviation_over_tokens():
    # Tokens: +1/2 twice (two segments, one token each), -1/2 twice. Mean 0, deviation sqrt(4/4 / 3) = 1/sqrt(3).
    batch = [trajectory(0, 1.0, TWO, TWO), trajectory(0, 0.0, ONE)]
    found = credit(batch, "--estimator", "reinforce++")
    half = 0.5 * 3**0.5
    assert np.allclose(np.concatenate(found), [0, 0, half, 0, 0, half, 0, -half, -half])


def test_gigpo_compares_steps_from_the_same_state():
    # Both begin in s; only the first comes by a, the second by b. Discount 0.5: returns to go are 0.5 and 1 in the
    # first, 0 and 0 in the second. From s: 0.5 against 0, Dr. GRPO's advantage 0.25 and -0.25; a and b: alone, 0.
    batch = [
        trajectory(0, 1.0, TWO, TWO, anchors=("s", "a", "end")),
        trajectory(0, 0.0, TWO, TWO, anchors=("s", "b", "end")),
    ]
    found = credit(batch, "--estimator", "dr_grpo", "--step-weight", 2, "--step-gamma", 0.5)
    assert np.allclose(np.concatenate(found)[[2, 5, 8, 11]], [0.5 + 2 * 0.25, 0.5, -0.5 - 2 * 0.25, -0.5])


def test_overlong_trajectories_are_paid_less():
    # Tokens 2 and 1; limit 2, cache 1: the first loses 1.
    found = credit([trajectory(0, 1.0, TWO, TWO), trajectory(0, 1.0, TWO)], "--estimator", "reinforce",
                   "--overlong-limit", 2, "--overlong-cache", 1)  # fmt: skip
    assert np.concatenate(found)[[2, 5, 8]].tolist() == [0.0, 0.0, 1.0]
    # What a worker of another policy wrote counts for nobody.
    batch = [trajectory(0, 1.0, TWO, TWO), trajectory(0, 1.0, TWO)]
    batch[1].segments += trajectory(0, 1.0, [(1, 0), (2, 0), (3, 0)]).segments
    batch[1].steps.append(Step("delegated", "worker_0", "x", segment=1, sampled_tokens=1))
    found = credit(batch, "--estimator", "reinforce", "--overlong-limit", 2, "--overlong-cache", 1)
    assert [row[2] for row in found] == [0.0, 0.0, 1.0]
    with pytest.raises(UsageError, match="--overlong-limit and --overlong-cache together"):
        grpo.GRPO(flags("grpo", *WORD, "--out", "x", "--overlong-limit", 5), Ranks("cpu"))


class FakeRollouts:
    """Plays groups of two; returns by group number as told."""

    def __init__(self, returns):
        self.returns = returns
        self.position = 0

    def play(self, groups):
        numbers = range(self.position, self.position + groups)
        self.position += groups
        return [trajectory(g, r, TWO) for g in numbers for r in self.returns[g]]


def test_dynamic_sampling_plays_new_groups_for_those_that_teach_nothing():
    learner = grpo.GRPO.__new__(grpo.GRPO)
    learner.args = flags("grpo", *WORD, "--out", "x", "--groups", 2, "--group-size", 2, "--resample", 2)
    rollouts = FakeRollouts({0: (1, 1), 1: (0, 1), 2: (0, 0), 3: (1, 0), 4: (0, 1)})
    assert [t.extra["group"] for t in learner.sample(rollouts)] == [1, 1, 3, 3]
    assert rollouts.position == 4, "0 and 2 were played in vain, 4 was not needed"
    vain = FakeRollouts(dict.fromkeys(range(9), (1, 1)))
    assert len(learner.sample(vain)) == 4, "nothing was found: the last batch, which has no gradient"
    assert vain.position == 6


def test_what_is_missing_is_counted_in_groups_however_many_siblings_they_have():
    """Recorded groups may be smaller than --group-size: of four groups wanted two of three siblings differ at first."""
    learner = grpo.GRPO.__new__(grpo.GRPO)
    learner.args = flags("grpo", *WORD, "--out", "x", "--groups", 4, "--group-size", 4, "--resample", 4)
    returns = {
        0: (1, 1, 1),
        1: (0, 1, 1),
        2: (0, 0, 0),
        3: (1, 0, 0),
        4: (0, 1, 1),
        5: (1, 1, 0),
        6: (0, 1, 0),
    }
    rollouts = FakeRollouts(returns)
    assert [t.extra["group"] for t in learner.sample(rollouts)] == [n for n in (1, 3, 4, 5) for _ in range(3)]
    assert rollouts.position == 6, "0 and 2 were played in vain, 6 was not needed"


# -- the update --------------------------------------------------------------------------------------------------------


def played(learner, groups=2):
    args = learner.args
    rollouts = Rollouts(args.env, {}, learner.actor.policy, Ranks("cpu"), seed=3, group_size=args.group_size)
    return batch_of(rollouts.play(groups))


def plain_update(model, batch, advantages, lr, clip=1.0):
    """The same step by hand: one row at a time, all logits at once, SGD in place of AdamW."""
    loss = torch.zeros(())
    count = sum(int(row.mask.sum()) for row in batch.rows)
    for row, advantage in zip(batch.rows, advantages, strict=True):
        logits = model(input_ids=torch.as_tensor(row.ids)[None]).logits[0]  # (T, V)
        logp = torch.log_softmax(logits[:-1] / row.temperature, -1).gather(
            1, torch.as_tensor(row.ids[1:])[:, None]
        )[:, 0]
        weight = torch.as_tensor(advantage * row.mask)[1:].float()
        loss = loss - (logp * weight).sum() / count
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= lr * parameter.grad


def learner_of(model, *words, cls=grpo.GRPO):
    args = flags("grpo", *EVEN, "--model", model, "--group-size", 4, "--device", "cpu", "--out", "x", *words)
    learner = cls(args, Ranks("cpu"))
    learner.optimizer = torch.optim.SGD(learner.actor.parameters(), 0.5)
    return learner


@pytest.mark.parametrize("pack_tokens", [4096, 64])
def test_an_update_is_the_policy_gradient(even_model, pack_tokens):
    learner = learner_of(even_model, "--temperature", 0.7, "--pack-tokens", pack_tokens)
    before = copy.deepcopy(learner.actor.model).float()
    batch = played(learner)
    batch.returns[:4] = (
        0.5  # one of the two groups teaches nothing: its tokens are not run, but they are counted
    )
    numbers = learner.update(batch, Costs())
    assert numbers["policy/useful_segments"] == 0.5
    plain_update(before, batch, learner.credit(batch), 0.5)
    for (name, a), b in zip(before.named_parameters(), learner.actor.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)
    assert numbers["policy/ratio_mean"] == 1.0
    assert numbers["policy/mismatch"] < 1e-4, "scored at the temperature it was sampled at"


def test_a_batch_without_a_difference_changes_nothing(even_model):
    learner = learner_of(even_model)
    batch = played(learner)
    batch.returns[:] = 0.7
    before = copy.deepcopy(learner.actor.model.state_dict())
    numbers = learner.update(batch, costs := Costs())
    assert numbers == {"policy/useful_segments": 0.0}
    assert costs.trained_tokens == 0
    assert all(torch.equal(before[name], value) for name, value in learner.actor.model.state_dict().items())


def test_several_steps_on_a_batch_have_ratios_against_its_sampler(even_model):
    learner = learner_of(
        even_model, "--epochs", 3, "--minibatches", 2, "--clip-low", 0.01, "--clip-high", 0.01
    )
    numbers = learner.update(played(learner), Costs())
    assert numbers["policy/ratio_max"] > 1.0
    assert numbers["policy/clip_fraction"] > 0.0
    assert numbers["policy/approx_kl"] > 0.0


def test_the_first_model_holds_the_policy_back(even_model):
    """With a large weight on the divergence the policy stays nearer to where it began."""

    def moved(coef):
        learner = learner_of(even_model, "--kl-coef", coef, "--kl-kind", "k2", "--max-grad-norm", 100)
        # 0.5 overshoots so steep a bowl
        learner.optimizer = torch.optim.SGD(learner.actor.parameters(), 0.05)
        first = copy.deepcopy(learner.actor.model.state_dict())
        batch = played(learner)
        for _ in range(6):
            numbers = learner.update(batch, Costs())
        now = learner.actor.model.state_dict()
        return sum(float((first[name] - now[name]).norm()) for name in first), numbers

    (far, _), (near, numbers) = moved(1e-6), moved(3.0)
    assert near < far
    assert numbers["policy/kl_reference"] > 0


def test_the_divergence_counts_older_tokens_by_their_ratio():
    """One token that has probability 1/2 now, had 1/6 when it was sampled, and 1/4 in the first model; weight 1."""
    learner = grpo.GRPO.__new__(grpo.GRPO)
    learner.settings = flags("grpo", *WORD, "--out", "x", "--kl-coef", 2)
    now, then, first = (torch.tensor([p]).log() for p in (1 / 2, 1 / 6, 1 / 4))
    learner.actor = SimpleNamespace(logprobs=lambda pack, hidden: (hidden, torch.zeros(1)))
    pack = SimpleNamespace(row=torch.zeros(1, dtype=torch.long))
    tokens = {"advantage": torch.zeros(1), "weight": torch.ones(1), "first": first}
    k3 = np.log(2) - 1 / 2
    for old, ratio in ({"old": then}, 3.0), ({}, 1.0):
        logp = now.clone().requires_grad_()
        loss, stats = learner._policy_loss(pack, logp, tokens | old)
        loss.backward()
        assert loss.item() == pytest.approx(2 * ratio * k3, rel=1e-5)
        assert stats["kl_reference"] == pytest.approx(ratio * k3, rel=1e-5)
        assert logp.grad.item() == pytest.approx(2 * ratio * (1 - 1 / 2), rel=1e-5)


@pytest.mark.parametrize(
    "words",
    [
        "--loss gspo --clip-low 3e-4 --clip-high 4e-4",
        "--loss sao --old sampled",
        "--mismatch truncate --epochs 2",
        "--mismatch sequence_mask",
        "--entropy-coef 0.01 --dual-clip 3 --reduce rollout",
        "--reduce constant --reduce-constant 12",
        "--lora-rank 2",
    ],
)
def test_every_switch_takes_a_step(even_model, words):
    pytest.importorskip("peft" if "lora" in words else "torch")
    learner = learner_of(even_model, *words.split())
    before = [parameter.detach().clone() for parameter in learner.actor.parameters()]
    numbers = learner.update(played(learner), Costs())
    assert np.isfinite(list(numbers.values())).all()
    assert any(not torch.equal(a, b) for a, b in zip(before, learner.actor.parameters(), strict=True))
