"""Behaviour cloning: whose tokens are imitated, and that it imitates."""

import numpy as np
import pytest
import torch

from agentgym.errors import UsageError
from agentgym.messages import assistant, user
from agentgym.policies.scripted import Scripted, ScriptedPolicy
from agentgym.rollout import collect
from baselines import cloning
from baselines.actor import Actor
from baselines.cloning import Cloning, Demonstrator
from baselines.flags import arguments
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import batch_of
from baselines.run import train
from tests.baselines.conftest import EVEN, WORD, lines


def flags(*words):
    return arguments(cloning.Args, "cloning", "", [str(word) for word in words])


@pytest.fixture(scope="module")
def actor(even_model):
    return Actor(even_model, device="cpu", max_new_tokens=4)


class Sayer(ScriptedPolicy):
    """Says a word in each turn, another in summaries."""

    def next_action(self, conversation):
        return "blue red"

    def summary(self, conversation):
        return "green"


def test_demonstrations_are_in_the_tokens_that_the_student_reads_and_writes(actor):
    played = collect(EVEN[1], Demonstrator(Scripted(["red", "blue red", "grey"]), actor.policy), episodes=1)
    (segment,) = played[0].segments
    end = actor.tokenizer.eos_token_id
    text = actor.tokenizer.decode(segment.token_ids)
    assert text.startswith("<|im_start|>user\nSay ")
    assert text.endswith("<|im_start|>assistant\ngrey<|im_end|>")
    written = [id for id, trainable in zip(segment.token_ids, segment.mask, strict=True) if trainable]
    words = [actor.tokenizer.encode(word) for word in ("red", "blue red", "grey")]
    assert written == [id for word in words for id in (*word, end)]
    # What the student itself would have read at the last turn.
    conversation = segment.messages[:-1]
    read = segment.token_ids[: segment.sampled[-1].start]
    assert actor.policy.prompt_ids(conversation) == read


def test_compactions_are_demonstrated_too(actor):
    played = collect(
        EVEN[1],
        Demonstrator(Sayer(), actor.policy),
        episodes=2,
        env_kwargs={"padding": 90},
        compact=290,
        reply_tokens=5,
        keep_last=1,
        summarizer="policy",
    )
    batch = batch_of(played)
    assert [len(chain.segments) > 1 for chain in batch.chains] == [True, True]
    summaries = [step.action for t in played for step in t.steps if step.kind == "summary"]
    assert set(summaries) == {"green"}
    trainable = sum(int(mask.sum()) for mask in batch.masks)
    turns = sum(len(t.steps) for t in played) - len(summaries)
    assert trainable == 3 * turns + 2 * len(summaries)  # "blue", " red" and the end; "green" and the end


def test_what_the_student_cannot_write_is_refused(actor):
    demonstrator = Demonstrator(Scripted(["violet"] * 2), actor.policy)
    with pytest.raises(UsageError, match="has tokens for, got 'violet', which becomes '<unk>'"):
        demonstrator.act([(user("Say red."),)])
    long = (user("red " * 600),)
    with pytest.raises(UsageError, match="context of 512 tokens"):
        Demonstrator(Scripted(["red"]), actor.policy).act([long])
    with pytest.raises(UsageError, match="give --steps, not --epochs"):
        flags(*EVEN, "--out", "x", "--epochs", 2)


def test_an_update_descends_on_the_mean_negative_log_probability(even_model):
    args = flags(
        *EVEN, "--model", even_model, "--device", "cpu", "--out", "x", "--pack-tokens", 64, "--lr", 0
    )
    learner = Cloning(args, Ranks("cpu"))
    batch = batch_of(collect(EVEN[1], Demonstrator(Scripted(["red"] * 3), learner.actor.policy), episodes=4))
    scored, _ = learner.actor.score(batch.rows)
    costs = Costs()
    numbers = learner.update(batch, costs)
    assert len(learner.actor.packs(batch.rows)) > 1, "the mean is over the batch, not over packs"
    assert numbers["imitation/loss"] == pytest.approx(-scored.mean().item(), rel=1e-5)
    assert costs.trained_tokens == sum(len(pack.ids) for pack in learner.actor.packs(batch.rows))


def test_only_what_was_solved(word_model):
    args = flags(*WORD, "--model", word_model, "--device", "cpu", "--out", "x", "--solved-only",
                 "--demonstrator", "tests.baselines.test_cloning:Guesser")  # fmt: skip
    learner = Cloning(args, Ranks("cpu"))

    class Played:
        policy = None

        def play(self, groups):
            self.played = collect(WORD[1], self.policy, episodes=groups)
            next(t for t in self.played if t.resolved).hacked = True
            return self.played

    kept = learner.sample(source := Played())
    assert 0 < len(kept) == sum(bool(t.resolved) for t in source.played) - 1 < args.groups
    assert all(t.resolved and not t.hacked for t in kept)


class Guesser(ScriptedPolicy):
    """Right half the time."""

    def next_action(self, conversation):
        return str(self.rng.choice(["blue", "red"]))


@pytest.mark.slow
def test_it_imitates_and_goes_on(word_model, tmp_path):
    words = [
        *WORD,
        "--model",
        word_model,
        "--device",
        "cpu",
        "--groups",
        8,
        "--lr",
        "1e-2",
        "--eval-every",
        10,
    ]
    train(flags(*words, "--steps", 5, "--out", tmp_path), "cloning", Cloning)
    assert train(flags(*words, "--steps", 10, "--out", tmp_path), "cloning", Cloning) == 0
    told = lines(tmp_path)
    assert [line["step"] for line in told] == list(range(11))
    assert told[0]["eval/resolved"] <= 0.2
    assert told[-1]["eval/resolved"] >= 0.9
    losses = [line["imitation/loss"] for line in told[:-1]]
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0] / 4
    assert torch.load(tmp_path / "checkpoints" / "step-000010.pt", weights_only=True)["step"] == 10
    assert told[0]["rollout/resolved"] == 1.0, "the demonstrator's"


def test_a_conversation_goes_on_from_what_was_demonstrated(actor):
    """Two spaces are one token less than two words: the ids kept are those that were held, turn after turn."""
    demonstrator = Demonstrator(Scripted(["red", "green"]), actor.policy)
    (first,) = demonstrator.act([(user("Say red."),)])
    conversation = (user("Say red."), assistant(first.text), user("Yes, say red."))
    (second,) = demonstrator.act([conversation])
    assert (
        second.prompt_ids[: len(first.prompt_ids + first.sampled_ids)] == first.prompt_ids + first.sampled_ids
    )
