"""Critics learn what they should from judgements, and from no others."""

from pathlib import Path

import numpy as np
import pytest
import torch

from agentgym.errors import UsageError
from agentgym.messages import user
from baselines.actor import Actor
from baselines.critic import GenerativeCritic, Judged, joined, judgement_rewards, quality, smoothed
from baselines.critic_prompt import ANSWER_END, State, value_prompt
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.plain_critics import ConstantCritic, ScalarCritic
from baselines.tiny import make_model

NAN = float("nan")
GOOD, BAD = (value_prompt(State((user("Go."),), turns=1, turns_left=left)) for left in (9, 1))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Knows the question and the answers."""
    texts = [message.content for message in (*GOOD, *BAD)]
    answers = "".join(f"So <answer>{n}</answer>" for n in range(11))
    return make_model(tmp_path_factory.mktemp("critic"), [*texts, answers], hidden=32, context=256)


def generative(model, lr=3e-3, optimizer=torch.optim.AdamW, **options):
    actor = Actor(model, device="cpu", max_new_tokens=12, stop=(ANSWER_END,), max_batch=64)
    critic = GenerativeCritic(actor, Ranks("cpu"), **options)
    critic.optimizer = optimizer(critic.parameters(), lr)
    return critic


def judged_by_hand(critic, prompts, texts, version=None):
    """As if the critic had written these texts, equally many of each prompt."""
    count = len(texts) // len(prompts)
    ids = critic.actor.tokenizer.encode
    rows = [
        joined(critic.actor.policy.prompt_ids(prompts[n // count]), ids(text, add_special_tokens=False))
        for n, text in enumerate(texts)
    ]
    from baselines.critic_prompt import parse

    answers = np.array([NAN if parse(text) is None else parse(text) for text in texts]).reshape(-1, count)
    return Judged(list(prompts), answers, critic.version if version is None else version, rows, list(texts))


def logprobs(critic, judged):
    scored, _ = critic.actor.score(judged.rows, entropy=False)
    return np.array(
        [float(part.sum()) for part in scored.split([int(row.mask.sum()) for row in judged.rows])]
    )


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_what_a_judgement_earns():
    answers = np.array([[0.7, NAN], [0.0, 1.0]])
    assert np.allclose(judgement_rewards(answers, np.array([1.0, 0.5])), [[1 - 0.09, 0], [0.75, 0.75]])


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        # Rewards: 1 and 0.5; 0.9 and 0.
        ("state", [0.5, -0.5, 0.9, -0.9]),
        ("batch", [1 - 1.4 / 3, 0.5 - 1.9 / 3, 0.9 - 1.5 / 3, 0 - 2.4 / 3]),
        ("outcome", [1 - 1.4 / 3, 0.5 - 1.9 / 3, 0.9 - 1.5 / 3, 0 - 2.4 / 3]),
        ("none", [1, 0.5, 0.9, 0]),
    ],
)
def test_what_a_reward_is_compared_with(baseline, expected):
    critic = GenerativeCritic.__new__(GenerativeCritic)
    critic.baseline = baseline
    assert np.allclose(critic._advantages(np.array([[1, 0.5], [0.9, 0]]), np.array([1.0, 1.0])), expected)


def test_outcomes_that_differ_are_compared_apart():
    critic = GenerativeCritic.__new__(GenerativeCritic)
    critic.baseline = "outcome"
    rewards = np.array([[1.0], [0.5], [0.9]])
    assert np.allclose(critic._advantages(rewards, np.array([1.0, 0.0, 1.0])), [0.1, 0.0, -0.1])


def test_the_value_of_a_state_is_the_mean_of_its_well_formed_answers():
    judged = Judged([GOOD] * 3, np.array([[0.2, 0.6], [NAN, 0.5], [NAN, NAN]]), 0)
    assert np.array_equal(judged.values, [0.4, 0.5, NAN], equal_nan=True)


def test_how_good_judgements_were():
    judged = Judged([GOOD] * 4, np.array([[1.0, 0.8], [0.2, NAN], [NAN, NAN], [0.5, 0.5]]), 0)
    numbers = quality(judged, np.array([1.0, 0.0, 1.0, 0.0]))
    # Values 0.9, 0.2, none, 0.5. Squared errors 0.01, 0.04, -, 0.25; the missing one counts 1 where it is penalised.
    assert numbers["value/parse_rate"] == 5 / 8
    assert numbers["value/fallback"] == 1 / 4
    assert numbers["value/mse"] == pytest.approx(0.3 / 3)
    assert numbers["value/penalised_mse"] == pytest.approx(1.3 / 4)
    assert numbers["value/mean_success"] == pytest.approx(0.9)
    assert numbers["value/mean_failure"] == pytest.approx(0.35)
    # Pairs with different outcomes: (0.9, 0.2), (0.9, 0.5), both in order; one tie of three: 2 / sqrt(3 * 2).
    assert numbers["value/kendall_tau"] == pytest.approx(2 / 6**0.5)


def test_nothing_well_formed_is_no_value():
    numbers = quality(Judged([GOOD], np.array([[NAN, NAN]]), 0), np.array([0.0]))
    assert numbers["value/parse_rate"] == 0
    assert numbers["value/penalised_mse"] == 1
    assert "value/mse" not in numbers
    assert "value/mean_failure" not in numbers


def test_a_mean_that_forgets():
    assert smoothed(None, 0.3) == 0.3
    assert smoothed(0.5, 1.0) == pytest.approx(0.55)


def test_one_judgement_has_no_siblings(model):
    with pytest.raises(UsageError, match="2 judgements"):
        generative(model, judgements=1)
    generative(model, judgements=1, baseline="batch")


# -- with a model ------------------------------------------------------------------------------------------------------


def test_judgements_are_what_was_sampled(model):
    critic = generative(model, judgements=3)
    judged = critic.judge([GOOD, BAD], (0, 1), costs := Costs())
    assert judged.answers.shape == (2, 3)
    assert len(judged.texts) == len(judged.rows) == 6
    prompts = [critic.actor.policy.prompt_ids(prompt) for prompt in (GOOD, BAD)]
    for n, row in enumerate(judged.rows):
        assert row.ids[~row.mask].tolist() == list(prompts[n // 3])
        assert critic.actor.tokenizer.decode(row.ids[row.mask]).startswith(judged.texts[n])
    generated = sum(int(row.mask.sum()) for row in judged.rows)
    new = len(prompts[0]) + len(prompts[1]) - next(n for n in range(999) if prompts[0][n] != prompts[1][n])
    assert costs.critic_tokens == new + generated, "what the questions share is computed once"
    again = critic.judge([GOOD, BAD], (0, 1), Costs())
    assert again.texts == judged.texts


def test_a_question_longer_than_the_context_is_refused(model):
    long = value_prompt(State((user("Go." * 300),)))
    with pytest.raises(UsageError, match=r"asked about, but .*leaves no room"):
        generative(model).judge([GOOD, long], (0,), Costs())


def test_the_gradient_is_that_of_reinforce(model):
    """One step of plain gradient descent, beside the formula over all rows at once."""
    critic = generative(model, lr=1.0, optimizer=torch.optim.SGD, judgements=2, max_grad_norm=1e9)
    judged = judged_by_hand(
        critic, [GOOD, BAD], ["So <answer>9</answer>", "So <answer>1</answer>", "So So", "<answer>0</answer>"]
    )
    outcomes = np.array([1.0, 0.0])
    # Rewards 0.99, 0.19; 0, 1. Each less its sibling's: 0.8, -0.8; -1, 1.
    advantages = torch.tensor([0.8, -0.8, -1.0, 1.0])
    scored, _ = critic.actor.score(judged.rows, entropy=False, grad=True)
    sizes = [int(row.mask.sum()) for row in judged.rows]
    loss = -(scored * advantages.repeat_interleave(torch.tensor(sizes))).sum() / sum(sizes)
    expected = torch.autograd.grad(loss, critic.parameters())
    before = [parameter.detach().clone() for parameter in critic.parameters()]
    numbers = critic.learn(judged, outcomes, Costs())
    assert numbers["reward"] == pytest.approx((0.99 + 0.19 + 0 + 1) / 4)
    for old, parameter, gradient in zip(before, critic.parameters(), expected, strict=True):
        assert torch.allclose(old - parameter, gradient, atol=1e-5)
    assert critic.version == 1


def test_samples_of_older_weights_are_refused(model):
    critic = generative(model, judgements=2)
    judged = critic.judge([GOOD], (0,), Costs())
    critic.imitate([GOOD], ["So <answer>9</answer>"], Costs())
    with pytest.raises(AssertionError, match="another version"):
        critic.learn(judged, np.array([1.0]), Costs())


def test_without_a_baseline_a_wrong_answer_is_pulled_up(model):
    """All said 0, and it came to 0.9: the reward 0.19 is above nothing, but not above the others'."""
    texts = ["So <answer>0</answer>"] * 4
    changes = {}
    for baseline in ("state", "batch", "none"):
        critic = generative(model, judgements=4, baseline=baseline)
        judged = judged_by_hand(critic, [GOOD], texts)
        before = logprobs(critic, judged)
        critic.learn(judged, np.array([0.9]), Costs())
        changes[baseline] = float((logprobs(critic, judged) - before).mean())
    assert changes["none"] > 0.05
    assert changes["state"] == changes["batch"] == 0


def test_the_better_answer_of_a_state_becomes_likelier(model):
    critic = generative(model, judgements=2)
    judged = judged_by_hand(critic, [GOOD], ["So <answer>2</answer>", "So <answer>8</answer>"])
    before = logprobs(critic, judged)
    critic.learn(judged, np.array([1.0]), Costs())
    change = logprobs(critic, judged) - before
    assert change[1] - change[0] > 0.05


@pytest.mark.slow
def test_it_learns_to_answer_and_then_what_a_state_is_worth(model):
    """From words that answer anything: the form is imitated, the value comes from outcomes alone."""
    critic = generative(model, judgements=16)
    rng = np.random.default_rng(0)
    for _ in range(60):
        critic.imitate([GOOD] * 8, [f"So <answer>{n}</answer>" for n in rng.integers(11, size=8)], Costs())
    first = critic.judge([GOOD] * 4, (1,), Costs())
    assert np.mean(~np.isnan(first.answers)) > 0.8
    came = np.full(4, 0.9)
    assert judgement_rewards(first.answers, came).mean() < 0.75, (
        "0.74 if all eleven were as likely and well-formed"
    )
    critic.optimizer.param_groups[0]["lr"] = 1e-2
    for step in range(40):
        critic.learn(critic.judge([GOOD] * 2, (2, step), Costs()), np.array([0.9, 0.9]), Costs())
    last = critic.judge([GOOD] * 4, (3,), Costs())
    assert judgement_rewards(last.answers, came).mean() > 0.85
    assert np.mean(~np.isnan(last.answers)) > 0.9, "what is malformed earns nothing"


@pytest.mark.slow
def test_the_value_head_learns_outcomes_and_a_teachers_numbers(model):
    actor = Actor(model, device="cpu")
    critic = ScalarCritic(actor, Ranks("cpu"))
    critic.optimizer = torch.optim.AdamW(critic.parameters(), 3e-3)
    assert critic.judge([GOOD, BAD], (), Costs()).values.tolist() == [0.0, 0.0]
    for _ in range(50):
        critic.imitate([GOOD, BAD], ["So <answer>7</answer>", "So <answer>2</answer>"], Costs())
    assert np.allclose(critic.judge([GOOD, BAD], (), Costs()).values, [0.7, 0.2], atol=0.1)
    for _ in range(50):
        judged = critic.judge([GOOD, BAD], (), costs := Costs())
        critic.learn(judged, np.array([1.0, 0.0]), costs)
    assert np.allclose(critic.judge([GOOD, BAD], (), Costs()).values, [1.0, 0.0], atol=0.1)
    assert costs.critic_tokens > 0
    with pytest.raises(UsageError, match="well-formed"):
        critic.imitate([GOOD], ["So"], Costs())


def test_the_value_head_of_a_question_is_no_other_questions(model):
    """Rows of different lengths and a shared beginning: each value is the one of its own row."""
    critic = ScalarCritic(Actor(model, device="cpu"), Ranks("cpu"))
    torch.nn.init.ones_(critic._critic.modules["head"].weight)
    both = critic.judge([BAD, GOOD, BAD], (), Costs()).values
    alone = [critic.judge([prompt], (), Costs()).values[0] for prompt in (BAD, GOOD)]
    assert np.allclose(both, [alone[0], alone[1], alone[0]], atol=1e-5)
    assert abs(alone[0] - alone[1]) > 1e-3


def test_the_constant_is_the_smoothed_mean():
    critic = ConstantCritic(Ranks("cpu"))
    assert critic.judge([GOOD, BAD], (), Costs()).values.tolist() == [0.5, 0.5]
    judged = critic.judge([GOOD, BAD], (), Costs())
    critic.learn(judged, np.array([1.0, 0.0, 0.2]), Costs())
    assert critic.value == pytest.approx(0.4)
    critic.learn(judged, np.array([1.0]), Costs())
    assert critic.value == pytest.approx(0.46)
    other = ConstantCritic(Ranks("cpu"))
    other.load(critic.state())
    assert other.judge([GOOD], (), Costs()).values[0] == pytest.approx(0.46)
