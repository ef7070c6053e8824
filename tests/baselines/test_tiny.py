"""Models from scratch know the words they were made from, and read and write them exactly."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym.errors import UsageError
from agentgym.messages import assistant, user
from agentgym.policies import models
from agentgym.policies.hf import HFPolicy
from baselines import tiny

TEXT = "Go north, please. The code is 35.\n\nWrite <open 35>"


@given(st.text())
def test_pieces_are_the_text(text):
    assert "".join(tiny.pieces(text)) == text


def test_ids_are_the_text(tmp_path):
    model, tokenizer = models.load(tiny.make_model(tmp_path / "m", [TEXT], hidden=16, heads=2))
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert tokenizer.decode(ids) == TEXT
    assert len(ids) == len(tiny.pieces(TEXT))
    assert tokenizer.decode(tokenizer.encode("Go south", add_special_tokens=False)) == "Go<unk>"
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Go"}], tokenize=False, add_generation_prompt=True
    )
    assert shown == "<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
    policy = HFPolicy(tmp_path / "m", model=model, tokenizer=tokenizer, max_new_tokens=3)
    first = policy.act([(user("Go north"),)])[0]
    again = (user("Go north"), assistant(first.text), user("please"))
    assert policy.act([again])[0].prompt_ids[: len(first.prompt_ids) + len(first.sampled_ids)] == (
        *first.prompt_ids,
        *first.sampled_ids,
    )


def test_the_seed_decides_and_nothing_else_moves(tmp_path):
    before = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    weights = [
        models.load(tiny.make_model(tmp_path / name, [TEXT], hidden=16, heads=2, seed=seed))[0].state_dict()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert torch.equal(before[2], torch.get_rng_state())
    assert (random.getstate(), str(np.random.get_state())) == before[:2]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("sizes", "told"), [({"hidden": 0}, "hidden"), ({"hidden": 20, "heads": 4}, "2 \\* heads")]
)
def test_sizes_that_fit_no_model(sizes, told, tmp_path):
    with pytest.raises(UsageError, match=told):
        tiny.make_model(tmp_path, [TEXT], **sizes)


WORDS = "--env agentgym/Relay-v0 --set hops=1 --set choices=2 --episodes 8 --hidden 16 --heads 2".split()


def test_the_command_reads_the_words_off_episodes_and_files(tmp_path, capsys):
    (tmp_path / "answers.txt").write_text("<value> 7 </value>", encoding="utf-8")
    words = [*WORDS, "--texts", str(tmp_path / "answers.txt")]
    assert tiny.main([*words, "--out", str(tmp_path / "m")]) == 0
    assert "wrote" in capsys.readouterr().out
    tokenizer = models.tokenizer(tmp_path / "m")
    for text in ("go north", "deliver anchor", "That is not possible here. Expected: take.", "</value> 7"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_model_is_not_written_over(tmp_path):
    tiny.make_model(tmp_path / "m", [TEXT], hidden=16, heads=2)
    with pytest.raises(UsageError, match="there is a model in"):
        tiny.main([*WORDS, "--out", str(tmp_path / "m")])


def test_a_file_of_texts_that_is_none(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff")
    for file in ("missing", "bytes"):
        with pytest.raises(UsageError, match=f"as --texts, got .*{file}"):
            tiny.main([*WORDS, "--texts", str(tmp_path / file), "--out", str(tmp_path / "m")])
