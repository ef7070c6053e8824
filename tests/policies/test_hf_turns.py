"""`HFPolicy` over many turns: what is computed, what is kept, and which tokens a conversation goes on with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import UsageError
from agentgym.errors import InfrastructureError
from agentgym.messages import assistant, system, to_openai, user
from agentgym.policies import make_policy
from agentgym.rollout import collect
from agentgym.trajectory.segments import SegmentBuilder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from agentgym.policies.caches import PrefixCache  # noqa: E402
from agentgym.policies.hf import HFPolicy  # noqa: E402


@pytest.fixture(scope="module")
def loaded(tiny_model):
    policy = make_policy(f"hf:{tiny_model}")
    return policy.model, policy.tokenizer


@pytest.fixture
def make(loaded):
    model, tokenizer = loaded

    def policy(**options):
        made = HFPolicy("tiny", model=model, tokenizer=tokenizer, **({"max_new_tokens": 5} | options))
        made.context = 4096  # rotary positions have no end
        return made

    return policy


def worst_difference(model, reply):
    """Between the recorded log-probs and those of one plain forward pass over all the ids."""
    ids = torch.tensor([reply.prompt_ids + reply.sampled_ids])
    with torch.inference_mode():
        scored = torch.log_softmax(model(ids).logits[0].double() / reply.temperature, -1)
    at = range(len(reply.prompt_ids) - 1, ids.shape[1] - 1)
    return max(
        abs(float(scored[i, token]) - logprob)
        for i, token, logprob in zip(at, reply.sampled_ids, reply.logprobs, strict=True)
    )


def answered(conversation, reply, text):
    return (*conversation, assistant(reply.text), user(text))


def test_thirty_turns_compute_each_token_once(make):
    tested, builder = make(), SegmentBuilder()
    conversation, ended = (system("Play."), user("go")), True
    for turn in range(30):
        before = tested.counts.computed
        (reply,) = tested.act([conversation], seeds=[turn])
        builder.add(conversation, reply)
        # The last token of the reply before, which nothing was computed from; an end of turn if it stopped without
        # one; and the bytes of "\n", "<s>user\n", "on", "</s>\n", "<s>assistant\n": 1 + 6 + 2 + 2 + 11.
        if turn:
            assert tested.counts.computed - before == 1 + (not ended) + 22
        ended = reply.sampled_ids[-1] == 1
        conversation = answered(conversation, reply, "on")
    (segment,) = builder.segments
    assert [event.kind for event in builder.events] == ["append"] * 29
    assert worst_difference(tested.model, reply) < 1e-4
    assert tested.counts.generated == sum(segment.mask)
    # All tokens once: those of the prompts, and of each reply but the last the token that no step had computed.
    assert tested.counts.computed == len(segment.mask) - sum(segment.mask) + 29


def test_a_group_shares_its_prompt(make):
    tested = make(max_batch=8)
    asked = (user("the same for all"),)
    replies = tested.act([asked] * 8, seeds=range(8))
    prompt = len(replies[0].prompt_ids)
    assert (tested.counts.computed, tested.counts.reused) == (prompt, 7 * prompt)
    assert len({reply.sampled_ids for reply in replies}) == 8
    longer = (user("the same for everybody"),)  # "<s>user\nthe same for " is shared: 6 + 13 tokens
    tested = make(max_batch=8)
    mixed = tested.act([asked, longer, asked, longer], seeds=range(4))
    assert tested.counts.reused == len(mixed[0].prompt_ids) + len(mixed[1].prompt_ids) + 19
    assert mixed[0].sampled_ids == replies[0].sampled_ids
    assert mixed[2].sampled_ids == replies[2].sampled_ids
    assert max(worst_difference(tested.model, reply) for reply in replies + mixed) < 1e-4


@pytest.mark.parametrize("cache_tokens", [0, 60, 400])
def test_what_is_kept_changes_nothing_but_the_cost(make, cache_tokens):
    """Turns, forks, retries and compactions of several conversations, in batches of unequal length."""
    rng = np.random.default_rng(0)
    kept, fresh = make(cache_tokens=cache_tokens, max_batch=3), make(cache_tokens=0, max_batch=1)
    live = [(system("You play."), user("begin " + "x" * n)) for n in (1, 9, 9, 30)]
    seen = []
    for step in range(8):
        seeds = [100 * step + i for i in range(len(live))]
        replies, expected = kept.act(live, seeds=seeds), fresh.act(live, seeds=seeds)
        for reply, other in zip(replies, expected, strict=True):
            assert (reply.prompt_ids, reply.sampled_ids) == (other.prompt_ids, other.sampled_ids)
            np.testing.assert_allclose(reply.logprobs, other.logprobs, atol=1e-4)
        assert worst_difference(kept.model, replies[step % 4]) < 1e-4
        assert kept._cache.tokens <= cache_tokens
        seen += live
        live = [answered(c, r, f"go {step}") for c, r in zip(live, replies, strict=True)]
        if step % 3 == 1:
            live[0] = (*live[0][:2], user("summary"), live[0][-1])  # a compaction
            live[1] = seen[rng.integers(len(seen))]  # back to where some conversation once was
    asked = kept.counts.computed + kept.counts.reused
    assert asked == fresh.counts.computed + fresh.counts.reused
    assert fresh.counts.reused == 0
    assert (kept.counts.reused > asked / 2) == (cache_tokens >= 400)


def test_long_replies(make):
    """Longer than the room that rows begin with; some end early, and others move into their rows."""
    tested, alone = make(max_new_tokens=120), make(max_new_tokens=120, cache_tokens=0)
    asked = [(user("hi"),), (user("a longer question"),), (user("?"),), (user("one"),)]
    tested.end_ids = alone.end_ids = frozenset([1, 40, 41, 42])
    replies = tested.act(asked, seeds=range(4))
    lengths = [len(reply.sampled_ids) for reply in replies]
    assert min(lengths) < 64 < max(lengths)
    for conversation, reply, seed in zip(asked, replies, range(4), strict=True):
        assert alone.act([conversation], seeds=[seed])[0].sampled_ids == reply.sampled_ids
        assert worst_difference(tested.model, reply) < 1e-4


def test_compaction_and_fork_reuse_the_longest_prefix(make):
    tested = make()
    begin = (system("A long system prompt, " * 5), user("goal"))
    (reply,) = tested.act([begin], seeds=[0])
    before = tested.counts.computed
    tested.act([(*begin, user("what happened: a lot"))], seeds=[1])  # compacted: the old reply is gone
    # "</s>\n<s>user\ngoal</s>\n" is shared, then "<s>" too; new are "user\nwhat happened: a lot</s>\n<s>assistant\n".
    assert tested.counts.computed - before == 5 + 20 + 2 + 11
    before = tested.counts.computed
    tested.act([answered(begin, reply, "on")], seeds=[2])
    ended = reply.sampled_ids[-1] == 1
    assert tested.counts.computed - before == 1 + (not ended) + 22


def test_new_weights_forget_the_old(make, loaded):
    import copy

    model, tokenizer = copy.deepcopy(loaded[0]), loaded[1]
    model.train()
    tested = HFPolicy("mine", model=model, tokenizer=tokenizer, version="0", max_new_tokens=8)
    conversation = (user("hello"),)
    (first,) = tested.act([conversation], seeds=[0])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    tested.weights_changed("1")
    (second,) = tested.act([answered(conversation, first, "on")], seeds=[0])
    assert model.training
    assert (first.policy_version, second.policy_version, tested.name) == ("0", "1", "hf:mine")
    assert second.prompt_ids[: len(first.prompt_ids) + 8] == first.prompt_ids + first.sampled_ids
    model.eval()
    assert worst_difference(model, second) < 1e-4
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(InfrastructureError, match="hf:mine: the model's logits are no numbers"):
        tested.act([conversation])
    with pytest.raises(UsageError, match="a model with its tokenizer or neither"):
        HFPolicy("mine", model=model)


def test_what_is_forgotten_is_encoded_anew(make):
    tested = make(max_new_tokens=8)
    conversation = (user("hello"),)
    (first,) = tested.act([conversation], seeds=[0])
    later = answered(conversation, first, "on")
    held = tested.prompt_ids(later)
    assert held[: len(first.prompt_ids) + 8] == list(first.prompt_ids + first.sampled_ids)
    tested.forget()
    text = tested.tokenizer.apply_chat_template(to_openai(later), tokenize=False, add_generation_prompt=True)
    assert tested.prompt_ids(later) == tested.tokenizer.encode(text, add_special_tokens=False)
    reused = tested.counts.reused
    tested.act([later], seeds=[0])
    assert tested.counts.reused == reused, "nor is anything computed for it left"


def test_rollouts_only_append(make):
    run = collect(
        "agentgym/Relay-v0", make(max_batch=4, max_new_tokens=12), episodes=8, env_kwargs={"max_turns": 6}
    )
    kinds = [event.kind for trajectory in run for event in trajectory.events]
    assert kinds.count("append") == 8 * 5
    assert not {"realign", "fork"} & set(kinds)
    assert any(
        "\ufffd" in step.action for trajectory in run for step in trajectory.steps
    )  # not text, so not encodable
    for trajectory in run:
        (segment,) = trajectory.segments
        assert sum(segment.mask) == sum(step.sampled_tokens for step in trajectory.steps)


SMALL = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("Qwen2", {}),
        ("Qwen3", {}),
        ("Mistral", {"sliding_window": 16}),
        ("Gemma3Text", {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}),
        ("Olmo2", {}),
    ],
)
def test_other_decoders(loaded, family, options):
    config = getattr(transformers, f"{family}Config")(**(SMALL | options))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    tested = HFPolicy(family, model=model, tokenizer=loaded[1], max_new_tokens=6)
    live = [(user("hi"),), (user("a longer one, longer than the window"),)]
    for turn in range(3):
        replies = tested.act(live, seeds=[turn, turn + 10])
        assert max(worst_difference(model, reply) for reply in replies) < 1e-3
        live = [answered(c, r, "on") for c, r in zip(live, replies, strict=True)]
    assert tested.counts.reused > 0


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("Gemma2", {"final_logit_softcapping": 1.0}),  # caps logits after the head
        ("Bloom", {"n_head": 4, "n_layer": 2}),  # positions inside its attention, which takes no plan
        ("Mamba", {"state_size": 4}),  # no attention
    ],
)
def test_models_that_would_not_be_exact_are_refused(loaded, family, options):
    config = getattr(transformers, f"{family}Config")(**(SMALL | options))
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(UsageError, match=family):
        HFPolicy(family, model=model, tokenizer=loaded[1])


def prefix_values(ids):
    """Keys and values that tell what stood before each token: (2, 1, 1, T, 1)."""
    values = [hash(tuple(ids[: t + 1])) % 1_000_003 for t in range(len(ids))]
    return torch.tensor(values, dtype=torch.float64).view(1, 1, 1, -1, 1).expand(2, 1, 1, -1, 1)


sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=25)


@settings(max_examples=25)
@given(sequences, st.integers(0, 40))
def test_the_cache_holds_what_stood_there(added, max_tokens):
    small, large = PrefixCache(max_tokens), PrefixCache(10_000)
    for n, ids in enumerate(added):
        array = np.array(ids)
        for cache in (small, large):
            found = cache.longest_prefix(array)
            got = torch.cat(found, dim=3) if found else prefix_values([])
            assert torch.equal(got, prefix_values(ids)[:, :, :, : got.shape[3]])
            if cache is large:  # nothing longer is held
                beginnings = {tuple(old[:t]) for old in added[:n] for t in range(len(old) + 1)} | {()}
                assert got.shape[3] == max(t for t in range(len(ids) + 1) if tuple(ids[:t]) in beginnings)
            cache.add(array, prefix_values(ids))
        assert small.tokens <= max_tokens
        assert large.tokens == len({tuple(old[: t + 1]) for old in added[: n + 1] for t in range(len(old))})


@pytest.mark.slow
def test_conversations_of_a_thousand_turns():
    cache, ids = PrefixCache(1050), np.arange(1060)
    for turn in range(len(ids)):
        cache.add(ids[: turn + 1], torch.zeros(2, 1, 1, turn + 1, 1))
    assert cache.tokens == 1050


def test_the_end_used_least_recently_goes_first():
    cache = PrefixCache(6)
    for ids in ([1, 2, 3], [1, 2, 4], [1, 2, 5]):  # 5 tokens: 1 2, and three ends
        cache.add(np.array(ids), prefix_values(ids))
    cache.longest_prefix(np.array([1, 2, 3]))
    cache.add(np.array([7, 8]), prefix_values([7, 8]))
    held = {n: sum(p.shape[3] for p in cache.longest_prefix(np.array([1, 2, n]))) for n in (3, 4, 5)}
    assert held == {3: 3, 4: 2, 5: 3}
    cache.clear()
    assert (cache.tokens, cache.longest_prefix(np.array([7, 8]))) == (0, [])
