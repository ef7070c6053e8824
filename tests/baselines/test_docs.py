"""What is said of the trainers is so."""

import re
from pathlib import Path

from baselines.parallel import Ranks
from baselines.rollouts import Rollouts, batch_of
from tests.baselines.conftest import EVEN, flags

ROOT = Path(__file__).resolve().parents[2]
# In runs of another kind than the two below: a verdict with held-out parts; nothing solved; --kl-coef.
SOMETIMES = {"rollout/hack_gap", "policy/kl_reference"}


def test_every_number_is_documented_and_every_documented_number_is_logged(train, even_model, tmp_path):
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    table = text[text.index("## Numbers") : text.index("## A model from scratch")]
    documented = set(re.findall(r"`([a-z]+/[a-z_]+)`", table))
    logged = {"cost/solved"}
    for trainer, groups in (("grpo", "--groups 2 --group-size 3"), ("ppo", "--groups 6")):
        words = [*EVEN, "--model", even_model, *groups.split(), "--steps", 1, "--eval-episodes", 2]
        for line in train(trainer, *words, "--checkpoint-every", 0, "--out", tmp_path / trainer):
            logged |= {name for name in line if name != "step"}
    # A random model solves nothing
    per_solved = {name for name in documented if name.endswith("_per_solved")}
    assert logged - documented == set()
    assert documented - logged == SOMETIMES | per_solved
    assert {f"cost/{name}_per_solved" for name in ("environment_steps", "generated_tokens")} <= per_solved


def test_the_algorithm_of_your_own(train, even_model, tmp_path, monkeypatch):
    """Everything that was resolved gets advantage 1, all else 0."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    shown = {"__name__": "shown"}
    exec(code, shown)
    learner = shown["BestOnly"](
        flags("grpo", *EVEN, "--model", even_model, "--device", "cpu", "--out", "x"), Ranks("cpu")
    )
    given = []
    monkeypatch.setattr(learner, "learn", lambda batch, credit, costs: given.extend(credit) or {})
    batch = batch_of(Rollouts(EVEN[1], {}, learner.actor.policy, Ranks("cpu"), seed=0, group_size=4).play(1))
    batch.returns[:] = [1.0, 0.0, 0.0, 0.0]
    learner.update(batch, None)
    assert [row.tolist() for row in given] == [
        (row.mask * (n == 0)).tolist() for row, n in zip(batch.rows, batch.rollouts, strict=True)
    ]
    assert given[0].any()
