"""`HFPolicy`: exact ids, honest log-probs, samples that do not depend on the batch."""

import threading

import numpy as np
import pytest

from agentgym import UsageError
from agentgym.messages import assistant, system, user
from agentgym.policies import make_policy
from agentgym.rollout import collect

pytest.importorskip("torch")
pytest.importorskip("transformers")

SHORT = (user("hi"),)
LONG = (
    system("You are terse."),
    user("Three colours, please. é中🙂"),
    assistant("red, green"),
    user("one more"),
)
MIXED = [SHORT, LONG, (user("what is the time?"),), SHORT]


@pytest.fixture(scope="module")
def policy(tiny_model):
    """A factory that loads the model once."""
    base = make_policy(f"hf:{tiny_model}", max_new_tokens=24)

    def make(**options):
        from agentgym.policies.hf import HFPolicy

        model, tokenizer = base.model, base.tokenizer
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("agentgym.policies.models.load", lambda *arguments: (model, tokenizer))
            return HFPolicy("tiny", **({"max_new_tokens": 24} | options))

    return make


def worst_difference(policy, replies, temperature):
    """The largest difference between recorded log-probs and those of a full forward pass without padding."""
    import torch

    worst = 0.0
    for reply in replies:
        ids = torch.tensor([reply.prompt_ids + reply.sampled_ids])
        with torch.inference_mode():
            logits = policy.model(ids).logits[0].double() / temperature
        scored = torch.log_softmax(logits, -1)[len(reply.prompt_ids) - 1 : -1]
        scored = scored[range(len(reply.sampled_ids)), list(reply.sampled_ids)]
        worst = max(worst, float((scored - torch.tensor(reply.logprobs)).abs().max()))
    return worst


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_ids_and_logprobs(policy, temperature):
    tested = policy(temperature=temperature)
    replies = tested.act(MIXED, seeds=[3, 4, 5, 6])
    for conversation, reply in zip(MIXED, replies, strict=True):
        rendered = tested.tokenizer.decode(reply.prompt_ids)
        assert rendered == "".join(f"<s>{m.role}\n{m.content}</s>\n" for m in conversation) + "<s>assistant\n"
        assert reply.temperature == temperature
        assert reply.finish_reason in ("stop", "length")
        assert (reply.finish_reason == "length") == (
            len(reply.sampled_ids) == 24 and reply.sampled_ids[-1] != 1
        )
        ended = reply.sampled_ids[-1] == 1
        assert reply.text == tested.tokenizer.decode(reply.sampled_ids[: len(reply.sampled_ids) - ended])
    assert worst_difference(tested, replies, temperature or 1.0) < 1e-4


def test_greedy_is_the_likeliest(policy):
    import torch

    tested = policy(temperature=0.0)
    (reply,) = tested.act([LONG], seeds=[0])
    ids = torch.tensor([reply.prompt_ids + reply.sampled_ids])
    with torch.inference_mode():
        best = tested.model(ids).logits[0].argmax(-1)[len(reply.prompt_ids) - 1 : -1]
    assert tuple(best.tolist()) == reply.sampled_ids


def test_the_rest_of_the_batch_does_not_matter(policy):
    together = policy().act(MIXED, seeds=[3, 4, 5, 6])
    alone = [policy().act([c], seeds=[seed])[0] for c, seed in zip(MIXED, [3, 4, 5, 6], strict=True)]
    split = policy(max_batch=3).act(MIXED, seeds=[3, 4, 5, 6])
    for other in (alone, split):
        assert [r.sampled_ids for r in other] == [r.sampled_ids for r in together]
        for a, b in zip(other, together, strict=True):
            np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def test_seeds(policy):
    def ids(**options):
        tested = policy(**options)
        return [r.sampled_ids for _ in range(2) for r in tested.act([SHORT, SHORT])]

    assert ids(seed=1) == ids(seed=1)
    assert ids(seed=1) != ids(seed=2)
    assert len(set(ids(seed=1))) == 4
    assert (
        policy().act([SHORT], seeds=[9])[0].sampled_ids
        == policy(seed=5).act([SHORT], seeds=[9])[0].sampled_ids
    )


def test_samples_follow_the_distribution(policy):
    import torch

    tested = policy(temperature=0.7)
    logits = torch.tensor([[2.0, 0.0, -50.0, 1.0, 0.5]], dtype=torch.float32)
    probabilities = torch.softmax(logits[0].double() / 0.7, -1)
    grid = (np.arange(1000) + 0.5) / 1000
    tokens, logprobs = tested._sample(logits.expand(1000, -1), grid)
    counts = torch.bincount(tokens, minlength=5)
    assert (counts - 1000 * probabilities).abs().max() <= 1
    assert counts[2] == 0
    torch.testing.assert_close(logprobs.exp(), probabilities[tokens])
    last, _ = tested._sample(logits, np.array([np.nextafter(1.0, 0.0)]))
    assert last.item() == 4


def test_ends(policy):
    free = policy().act([LONG], seeds=[1])[0]
    assert free.finish_reason == "length"
    end = free.sampled_ids[5]
    at = free.sampled_ids.index(end) + 1

    tested = policy()
    tested.end_ids = frozenset([end])
    replies = tested.act([SHORT, LONG], seeds=[7, 1])  # one ends earlier than the other
    assert replies[1].sampled_ids == free.sampled_ids[:at]
    assert replies[1].finish_reason == "stop"
    assert replies[1].text == tested.tokenizer.decode(free.sampled_ids[: at - 1])
    assert replies[0].sampled_ids[:4] == policy().act([SHORT], seeds=[7])[0].sampled_ids[:4]


def test_stop_texts_stay_in_the_text(policy):
    free = policy().act([LONG], seeds=[1])[0]
    stop = next(free.text[i : i + 2] for i in range(3, 20) if free.text[i : i + 2].isascii())
    reply = policy(stop=[stop]).act([LONG], seeds=[1])[0]
    assert reply.finish_reason == "stop"
    assert reply.text == free.text[: free.text.index(stop) + 2]
    assert reply.sampled_ids == free.sampled_ids[: len(reply.sampled_ids)]


def test_what_does_not_fit(policy):
    long = (user("x" * 480),)
    with pytest.raises(UsageError, match=r"reply of up to 24 .* context of 512; .*--compact 512"):
        policy().act([long])
    for options in ({"max_new_tokens": 0}, {"temperature": -1}, {"max_batch": 0}):
        with pytest.raises(UsageError, match="expected max_new_tokens >= 1"):
            policy(**options)


def test_names(tiny_model, tmp_path):
    with pytest.raises(UsageError, match=r"no model '.*' on this machine"):
        make_policy(f"hf:{tmp_path}")
    with pytest.raises(UsageError, match=r"unknown dtype 'float23'\. Did you mean 'float32'"):
        make_policy(f"hf:{tiny_model}", dtype="float23")


def test_half_precision(tiny_model):
    tested = make_policy(f"hf:{tiny_model}", dtype="bfloat16", max_new_tokens=8)
    assert len(tested.act([SHORT, LONG], seeds=[1, 2])) == 2


def test_many_threads(policy):
    tested = policy()
    expected = {seed: tested.act([LONG], seeds=[seed])[0].sampled_ids for seed in range(4)}
    got = {}
    threads = [
        threading.Thread(target=lambda s=seed: got.update({s: tested.act([LONG], seeds=[s])[0].sampled_ids}))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


def test_rollouts_do_not_depend_on_workers(policy):
    runs = [
        collect(
            "agentgym/Relay-v0", policy(max_new_tokens=6), episodes=4, workers=n, env_kwargs={"max_turns": 3}
        )
        for n in (1, 4)
    ]
    one, four = ([[s.action for s in t.steps] for t in run] for run in runs)
    assert one == four
    assert len({str(actions) for actions in one}) == 4
    recorded = runs[0][0]
    assert sum(sum(s.mask) for s in recorded.segments) == sum(s.sampled_tokens for s in recorded.steps) > 0


@pytest.mark.slow
def test_smollm2():
    import torch

    torch.set_num_threads(1)
    tested = make_policy("hf:smollm2", max_new_tokens=24, temperature=0.0)
    paris, _ = tested.act([(user("What is the capital of France?"),), LONG])
    assert paris.text == "The capital of France is Paris."
    assert paris.finish_reason == "stop"
    assert tested.tokenizer.decode(paris.sampled_ids).endswith("<|im_end|>")
    tested.temperature = 0.8
    replies = tested.act(MIXED, seeds=range(4))
    assert worst_difference(tested, replies, 0.8) < 1e-4
    ids = tested.prompt_ids((user("hello"),))
    assert tested.tokenizer.decode(ids).endswith("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
