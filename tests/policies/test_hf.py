"""`HFPolicy`: exact ids, honest log-probs, samples that do not depend on the batch."""

import threading

import numpy as np
import pytest

from agentgym import AgentEnv, Task, UsageError, Verdict
from agentgym.errors import ContextOverflow
from agentgym.messages import assistant, system, user
from agentgym.policies import make_policy
from agentgym.rollout import collect
from agentgym.trajectory.stats import details
from agentgym.wrappers import ContextCompaction

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
    if temperature:
        assert worst_difference(tested, replies, temperature) < 1e-4
    else:  # nothing was sampled
        assert [reply.logprobs for reply in replies] == [None] * 4


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
    # A byte is a token: "<s>user\n", "</s>\n" and "<s>assistant\n" are 6 + 2 + 11.
    assert len(policy().prompt_ids((user("x" * 480),))) == 499
    short, full, long = ((user("x" * n),) for n in (480, 492, 493))
    with pytest.raises(ContextOverflow) as caught:
        policy().act([SHORT, long])
    assert caught.value.position == 1
    assert str(caught.value) == (
        "hf:tiny: a prompt of 512 tokens leaves no room for a reply in its context of 512; keep the conversation "
        "under it with --compact 512 --reply-tokens 24 --tokens hf:tiny (ContextCompaction); a first message "
        "of that length needs a model with a longer context"
    )
    replies = policy().act([short, SHORT, full], seeds=[3, 5, 4])  # as much as fits
    assert [len(reply.sampled_ids) for reply in replies] == [13, len(replies[1].sampled_ids), 1]
    assert [replies[0].finish_reason, replies[2].finish_reason] == ["length", "length"]
    assert replies[1].sampled_ids == policy().act([SHORT], seeds=[5])[0].sampled_ids
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


def test_a_full_context_ends_its_episode_only(policy):
    kwargs = {"max_turns": 25}
    trajectories = collect("agentgym/Relay-v0", policy(max_new_tokens=12), episodes=3, env_kwargs=kwargs)
    assert not any(t.infrastructure_error for t in trajectories)
    assert all(t.truncated and t.resolved is False and t.reward == 0.0 for t in trajectories)
    assert all(1 <= len(t.steps) < 25 for t in trajectories)
    (why,) = (e.data["why"] for e in trajectories[0].events if e.kind == "context_overflow")
    assert "--compact 512 --reply-tokens 12 --tokens hf:tiny" in why


def test_the_budget_that_the_message_suggests_is_enough(policy, tiny_model):
    """A byte is a token here, a quarter of what "chars" counts: only the model's own tokens keep the budget."""
    tasks = [Task("t", "Say.")]

    class Answers(AgentEnv):
        default_max_turns = 12

        def begin(self, task):
            return task.prompt

        def respond(self, action):
            return "heard " + "x" * 60

        def verify(self, episode):
            return Verdict(1.0)

    def overflows(**more):
        env = lambda: ContextCompaction(  # noqa: E731
            Answers(tasks=tasks), 512, reply_tokens=12, summarizer="last", keep_last=1, **more
        )
        run = collect(env, policy(max_new_tokens=12), episodes=2)
        return [details(run)["context_overflows"], [len(t.steps) for t in run]]

    assert overflows(tokens=f"hf:{tiny_model}") == [0, [12, 12]]
    assert overflows(tokens="chars")[0] == 2
