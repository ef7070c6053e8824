"""`baselines.actor`: packed rows give what each row gives by itself, in numbers and in gradients."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import UsageError
from agentgym.messages import user
from agentgym.trajectory.records import Sampled, Segment

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from agentgym.policies import models  # noqa: E402
from agentgym.policies.attention import install  # noqa: E402
from baselines.actor import Actor, Critic, Row, logprobs, packs, rows_of, states  # noqa: E402
from baselines.tiny import make_model  # noqa: E402
from tests.baselines.conftest import EVEN  # noqa: E402

FAMILIES = {
    "Llama": {},
    "Qwen3": {"head_dim": 8},
    "Mistral": {"sliding_window": 12},
}


def small_model(family="Llama", vocab_size=60, seed=0):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=1,
        **FAMILIES[family],
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def make_rows(seed=0, vocab_size=60):
    """A group of three on one prompt, a row that leaves that prompt half-way, two equal rows, one of its own."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, vocab_size, 20)
    rows = []
    for begin, tail in ((20, 5), (20, 9), (20, 1), (11, 7), (20, 6), (0, 8)):
        ids = np.concatenate([prompt[:begin], rng.integers(0, vocab_size, tail)])
        mask = np.zeros(len(ids), bool)
        mask[len(ids) - tail + (begin == 0) :] = rng.random(tail - (begin == 0)) < 0.7
        mask[-1] = True
        rows.append(Row(ids, mask, float(rng.choice([0.6, 1.0]))))
    return [*rows, rows[1]]


def plain(model, rows):
    """Log-probs and entropies by one forward pass a row, in flat order."""
    scored, entropies = [], []
    for row in rows:
        at = torch.from_numpy(np.flatnonzero(row.mask))
        logits = model(torch.from_numpy(row.ids)[None]).logits[0, at - 1] / row.temperature
        logs = torch.log_softmax(logits, -1)
        scored.append(logs.gather(1, torch.from_numpy(row.ids)[at][:, None])[:, 0])
        entropies.append(-(logs.exp() * logs).sum(-1))
    return torch.cat(scored), torch.cat(entropies)


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [{"max_tokens": 500}, {"max_tokens": 40}, {"max_tokens": 500, "share_prefixes": False}],
    ids=["one pack", "several packs", "nothing shared"],
)
@pytest.mark.parametrize("chunk", [500, 4])
def test_packs_equal_plain_rows(family, options, chunk):
    model, rows = small_model(family), make_rows()
    wanted = plain(model, rows)  # before `install`, by transformers' own eager attention
    count = len(wanted[0])
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=(2, count)).astype(np.float32)) / count
    (weights * torch.stack(wanted)).sum().backward()
    expected = gradients(model)

    install(model)
    seen = []
    for pack in packs(rows, **options):
        both = torch.stack(logprobs(model, states(model, pack), pack, chunk=chunk))
        torch.testing.assert_close(both, torch.stack(wanted)[:, pack.flat], atol=1e-5, rtol=1e-5)
        (weights[:, pack.flat] * both).sum().backward()
        seen += pack.flat.tolist()
        assert len(pack.ids) <= options["max_tokens"]
    assert sorted(seen) == list(range(count))
    got = gradients(model)
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, atol=1e-5, rtol=1e-4)


def test_a_pack_by_hand():
    def row(ids, mask, temperature=1.0):
        return Row(np.array(ids), np.array(mask, bool), temperature)

    rows = [
        row([5, 6, 7, 9], [0, 0, 1, 1], 0.5),  # after [5, 6], which comes from the row before it in the pack
        row([5, 6, 2], [0, 0, 1]),
        row([5, 6, 7], [0, 0, 1], 0.7),  # a beginning of row 0
    ]
    (pack,) = packs(rows, max_tokens=10)
    assert pack.rows.tolist() == [1, 2, 0]  # in lexicographic order
    assert pack.ids.tolist() == [5, 6, 2, 7, 9]
    assert pack.positions.tolist() == [0, 1, 2, 2, 3]
    assert pack.attention.spans == [
        (slice(0, 3), []),
        (slice(3, 4), [slice(0, 2)]),
        (slice(4, 5), [slice(0, 2), slice(3, 4)]),
    ]
    assert pack.targets.tolist() == [2, 7, 7, 9]
    assert pack.before.tolist() == [1, 1, 1, 3]
    assert pack.row.tolist() == [1, 2, 0, 0]
    assert pack.token.tolist() == [2, 2, 2, 3]
    assert pack.flat.tolist() == [2, 3, 0, 1]  # row 0 has two trainable tokens, then row 1, then row 2
    assert pack.temperature.tolist() == pytest.approx([1.0, 0.7, 0.5, 0.5])
    assert pack.end.tolist() == [2, 3, 4]
    first, second = packs(rows, max_tokens=4)  # 5 6 2 and 7 fit, 9 does not
    assert (first.ids.tolist(), second.ids.tolist()) == ([5, 6, 2, 7], [5, 6, 7, 9])


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=9), min_size=1, max_size=12), st.integers(9, 40)
)
def test_packs_hold_every_token_once(ids, max_tokens):
    rows = [Row(np.array(row), np.arange(len(row)) > 0) for row in ids]
    made = packs(rows, max_tokens=max_tokens)
    assert sorted(f for pack in made for f in pack.flat.tolist()) == list(range(sum(len(i) - 1 for i in ids)))
    for pack in made:
        beginnings = {tuple(ids[n][: t + 1]) for n in pack.rows.tolist() for t in range(len(ids[n]))}
        assert len(pack.ids) == len(beginnings) <= max_tokens
        for row, token, target, before in zip(pack.row, pack.token, pack.targets, pack.before, strict=True):
            assert ids[row][token] == target
            assert ids[row][token - 1] == pack.ids[before]
            assert pack.positions[before] == token - 1
        for number, end in zip(pack.rows, pack.end, strict=True):
            assert pack.positions[end] == len(ids[number]) - 1


def test_rows_of_segments():
    segment = Segment(
        3,
        sampled=[Sampled(1, 2, 4, temperature=0.6), Sampled(3, 5, 6, temperature=1.0, superseded=True)],
        token_ids=[7, 8, 9, 1, 8, 4],
        mask=[0, 0, 1, 1, 0, 0],
    )
    (row,) = rows_of([segment])
    assert (row.ids.tolist(), row.mask.tolist(), row.temperature) == (
        [7, 8, 9, 1, 8, 4],
        [False, False, True, True, False, False],
        0.6,
    )
    segment.mask[5] = 1
    with pytest.raises(UsageError, match=r"segment 3: expected one temperature, got \['0.6', '1.0'\]"):
        rows_of([segment])
    with pytest.raises(UsageError, match="segment 0: expected token ids, got none"):
        rows_of([Segment(0)])
    ids = np.array([1, 2])
    with pytest.raises(UsageError, match="the first token of a row to be masked"):
        Row(ids, np.array([True, True]))
    with pytest.raises(UsageError, match=r"a temperature above 0, got 0\.0"):
        Row(ids, np.array([False, True]), 0.0)
    with pytest.raises(UsageError, match=r"of one length, got shapes \(2,\) and \(1,\)"):
        Row(ids, np.array([False]))
    with pytest.raises(UsageError, match="row 0 has 2 tokens; expected at most max_tokens=1"):
        packs([Row(ids, np.array([False, True]))], max_tokens=1)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    directory = make_model(
        tmp_path_factory.mktemp("model"), ["hello you there, what do you say to all of this now?"]
    )
    model, tokenizer = models.load(directory, device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(2)  # far from uniform, so that a wrong log-prob shows
    return model, tokenizer


@pytest.fixture
def make_actor(loaded):
    import copy

    def make(**options):
        return Actor("tiny", model=copy.deepcopy(loaded[0]), tokenizer=loaded[1], **options)

    return make


def rows_and_sampled(actor, seeds=(0, 1, 2, 3)):
    replies = actor.policy.act([(user("hello"),), (user("hello you"),)] * 2, seeds=seeds)
    rows = [
        Row(
            np.array(r.prompt_ids + r.sampled_ids),
            np.arange(len(r.prompt_ids + r.sampled_ids)) >= len(r.prompt_ids),
            r.temperature,
        )
        for r in replies
    ]
    return rows, torch.tensor([logprob for r in replies for logprob in r.logprobs])


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_the_ratio_is_one_where_the_weights_are_the_same(make_actor, temperature):
    actor = make_actor(temperature=temperature, max_new_tokens=20)
    rows, sampled = rows_and_sampled(actor)
    scored, entropy = actor.score(rows)
    assert not scored.requires_grad
    torch.testing.assert_close((scored - sampled).exp(), torch.ones(len(sampled)), atol=1e-4, rtol=0)
    assert (entropy > 0).all()
    wrong = [Row(row.ids, row.mask, 1.6 - temperature) for row in rows]
    assert ((actor.score(wrong, entropy=False)[0] - sampled).exp() - 1).abs().max() > 0.1
    assert not actor.score(rows, entropy=False)[1].any()


def test_a_step_and_the_reference(make_actor):
    actor = make_actor(reference=True, max_new_tokens=20)
    rows, sampled = rows_and_sampled(actor)
    optimizer = torch.optim.SGD(actor.parameters(), lr=1e-5)
    for pack in actor.packs(rows):
        (-actor.logprobs(pack)[0].sum()).backward()
    optimizer.step()
    actor.policy.weights_changed("1")
    after, _ = actor.score(rows)
    assert after.sum() > sampled.sum() + 0.01
    torch.testing.assert_close(actor.score(rows, reference=True)[0], sampled.float(), atol=1e-4, rtol=0)
    again, drawn = rows_and_sampled(actor)
    torch.testing.assert_close(actor.score(again)[0], drawn.float(), atol=1e-4, rtol=0)
    with pytest.raises(UsageError, match=r"Actor\(reference=True\) or lora_rank"):
        make_actor().score(rows, reference=True)


def test_layers_computed_again_give_the_same_gradients(make_actor):
    found = []
    for options in (
        {},
        {"recompute_layers": True},
        {"recompute_layers": True, "chunk": 3, "max_tokens": 50},
    ):
        actor = make_actor(max_new_tokens=20, **options)
        rows, _ = rows_and_sampled(actor)
        actor.score(rows, grad=True)[0].sum().backward()
        found.append(gradients(actor.model))
    for other in found[1:]:
        for name, gradient in found[0].items():
            torch.testing.assert_close(other[name], gradient, atol=1e-4, rtol=1e-4)


def test_recomputed_layers_have_no_dropout(tmp_path):
    """Attention drops weights as a function, which no module tells of; what was sampled had none."""
    folder = make_model(tmp_path, ["red green blue"], hidden=32, context=64)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    row = Row(np.arange(10) % 5, np.arange(10) > 3)
    plain, again = (Actor(folder, device="cpu", recompute_layers=on) for on in (False, True))
    wanted = plain.score([row])[0]
    for grad in (False, True):
        torch.testing.assert_close(again.score([row], grad=grad)[0], wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("trainer", ["grpo", "ppo"])
def test_the_flag_of_the_trainers_computes_layers_again_and_changes_no_number(
    trainer, train, even_model, tmp_path, monkeypatch
):
    layer, calls = transformers.models.llama.modeling_llama.LlamaMLP, []
    forward = layer.forward

    def counted(self, *args, **kwargs):
        calls.append(1)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(layer, "forward", counted)
    words = [*EVEN, "--model", even_model, "--groups", 2, "--group-size", 3, "--lr", 1e-3, "--steps", 2]
    found, passes = [], []
    for flags in ([], ["--recompute-layers"]):
        calls.clear()
        found.append(
            train(trainer, *words, *flags, "--eval-every", 0, "--out", tmp_path / f"run{len(found)}")
        )
        passes.append(len(calls))
    assert passes[1] > passes[0] > 0
    for plain, again in zip(*found, strict=True):
        for name in plain.keys() | again.keys():
            if not name.startswith(("time/", "speed/", "memory/")):
                assert again[name] == pytest.approx(plain[name], rel=1e-4, abs=1e-6), name


def test_half_precision(make_actor):
    actor = make_actor(autocast=True, max_new_tokens=20)
    rows, sampled = rows_and_sampled(actor)
    scored, _ = actor.score(rows, grad=True)
    assert scored.dtype == torch.float32
    assert (scored - sampled).abs().mean() < 0.1
    scored.sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in actor.parameters())


@pytest.mark.slow
def test_lora(make_actor):
    pytest.importorskip("peft")
    full, actor = make_actor(max_new_tokens=20), make_actor(lora_rank=4, max_new_tokens=20)
    assert sum(p.numel() for p in actor.parameters()) < sum(p.numel() for p in full.parameters()) / 2
    rows, sampled = rows_and_sampled(actor)
    torch.testing.assert_close(full.score(rows)[0], sampled.float(), atol=1e-4, rtol=0)  # B begins at 0
    optimizer = torch.optim.SGD(actor.parameters(), lr=1e-4)
    (-actor.score(rows, grad=True)[0].sum()).backward()
    optimizer.step()
    actor.policy.weights_changed("1")
    assert actor.score(rows)[0].sum() > sampled.sum() + 0.01
    torch.testing.assert_close(actor.score(rows, reference=True)[0], sampled.float(), atol=1e-4, rtol=0)
    again, drawn = rows_and_sampled(actor)
    torch.testing.assert_close(actor.score(again)[0], drawn.float(), atol=1e-4, rtol=0)
    other = make_actor(lora_rank=4)
    for one, two in zip(make_actor(lora_rank=4).parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("trunk", ["copy", "shared"])
def test_critic(make_actor, trunk):
    actor = make_actor()
    critic = Critic(actor, trunk)
    rows = make_rows(vocab_size=20)
    before, after = critic.score(rows)
    assert all(np.array_equal(np.isnan(v), ~row.mask) for v, row in zip(before, rows, strict=True))
    assert not np.nansum(np.abs(np.concatenate(before)))
    assert not after.any()
    with torch.no_grad():
        critic.modules["head"].weight.normal_(generator=torch.Generator().manual_seed(0))
        critic.modules["head"].bias.fill_(2.0)
    before, after = critic.score(rows)
    for row, values, last in zip(rows, before, after, strict=True):
        with torch.no_grad():
            hidden = actor.model.model(torch.from_numpy(row.ids)[None]).last_hidden_state[0]
        expected = (hidden @ critic.modules["head"].weight[0].detach() + 2.0).numpy()
        at = np.flatnonzero(row.mask)
        np.testing.assert_allclose(values[at], expected[at - 1], atol=1e-4)  # the state before the token
        np.testing.assert_allclose(last, expected[-1], atol=1e-4)
    (pack,) = actor.packs(rows)
    critic.values(pack).sum().backward()
    trained = any(p.grad is not None and p.grad.any() for p in actor.parameters())
    assert trained == (trunk == "shared")
    reused = critic.values(pack, hidden=actor.states(pack))
    torch.testing.assert_close(reused, critic.values(pack))
    with pytest.raises(UsageError, match="'copy' or 'shared', got 'none'"):
        Critic(actor, "none")
