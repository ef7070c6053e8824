"""Every number that a trainer takes has a range, and every row of the tables at the top of the files is a command."""

import dataclasses
import re
import types
import typing

import pytest

from agentgym.errors import UsageError
from baselines import cloning, distill, genac, grpo, opid, ppo
from baselines.flags import arguments
from tests.baselines.conftest import WORD

TRAINERS = {"grpo": grpo, "ppo": ppo, "genac": genac, "opid": opid, "distill": distill, "cloning": cloning}
NAN, INF = float("nan"), float("inf")

# Whole numbers, by the least there may be.
WHOLE = {
    0: """steps seed max_age lora_rank eval_every checkpoint_every keep_rollouts resample overlong_limit overlong_cache
        warmup sft span_tokens step_skills skill_from skill_until""",
    1: """groups group_size max_new_tokens batch workers epochs minibatches pack_tokens eval_episodes keep_checkpoints
        critic_epochs critic_minibatches critic_tokens sft_batch judgements max_spans analyser_tokens
        analyser_workers""",
    2: "draws",
}
# Other numbers: those that may be, at the edge, and those that may not; none may be NaN, infinite or below 0.
REAL = {
    "lr weight_decay eval_temperature": ((0,), ()),
    "temperature episode_timeout max_grad_norm": ((1e-9, 1e9), (0,)),
    "clip_low clip_high kl_coef entropy_coef step_weight": ((0,), ()),
    "dual_clip": ((1.01,), (0, 0.5, 1)),
    "reduce_constant value_clip adaptive_lam skill_clip critic_temperature": ((1e-9,), (0,)),
    "mismatch_high": ((1,), (0, 0.99)),
    "step_gamma gamma lam returns_lam span_probability": ((0, 1), (1.01,)),
    "critic_lr value_coef episode_skill step_skill coef outcome_weight": ((0,), ()),
}
GOOD = {name: (least,) for least, names in WHOLE.items() for name in names.split()}
BAD = {
    name: (-1, least - 1, least + 0.5, NAN, INF) for least, names in WHOLE.items() for name in names.split()
}
GOOD |= {name: good for names, (good, _) in REAL.items() for name in names.split()}
BAD |= {name: (*bad, -1, NAN, INF, -INF) for names, (_, bad) in REAL.items() for name in names.split()}
# What a flag, or its number at the edge, means something with.
WITH = {
    "reduce_constant": {"reduce": "constant"},
    "group_size": {"estimator": "reinforce"},
    "judgements": {"baseline": "batch"},
    "coef": {"outcome_weight": 1.0},
}


def args_of(trainer, *words):
    teacher = ["--teacher", "runs/teacher"] if trainer == "distill" else []
    return arguments(TRAINERS[trainer].Args, trainer, "", [*WORD, "--out", "x", *teacher, *words])


def numbers_of(trainer):
    """The names of its flags that are numbers."""
    hints = typing.get_type_hints(TRAINERS[trainer].Args)
    kinds = {name: set(typing.get_args(hint)) or {hint} for name, hint in hints.items()}
    return [name for name, kind in kinds.items() if kind - {types.NoneType} in ({int}, {float})]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_numbers_out_of_range_are_refused_by_name_and_those_at_the_edge_are_taken(trainer):
    base = args_of(trainer)
    for name in numbers_of(trainer):
        beside = {k: v for k, v in WITH.get(name, {}).items() if hasattr(base, k)}
        for value in GOOD[name]:
            dataclasses.replace(base, **beside, **{name: value}).check()
        for value in BAD[name]:
            with pytest.raises(
                UsageError, match=rf"expected .*--{name.replace('_', '-')}\b.*, got .*{value}"
            ):
                dataclasses.replace(base, **beside, **{name: value}).check()


@pytest.mark.parametrize(
    ("trainer", "words", "said"),
    [
        ("grpo", "--groups nan", "--groups"),
        ("grpo", "--max-grad-norm 0", "such as 1e9"),
        ("grpo", "--loss sao --dual-clip 3", "--loss sao has a gate"),
        ("grpo", "--loss sao --clip-low 0", r"--clip-low to be a finite number > 0, got 0\.0"),
        ("ppo", "--loss sao --old sampled --clip-high 0", "--clip-high to be a finite number > 0"),
        ("grpo", "--reduce constant", "--reduce-constant TOKENS with --reduce constant, and only there"),
        ("grpo", "--reduce-constant 9", "--reduce-constant TOKENS with --reduce constant, and only there"),
        ("grpo", "--mismatch mask --old sampled", "--old sampled takes none"),
        ("ppo", "--mismatch mask --data runs/x", "--mismatch is for weights that play"),
        ("distill", "--coef 0", "nothing to learn from"),
    ],
)
def test_flags_that_mean_nothing_together_are_refused(trainer, words, said):
    with pytest.raises(UsageError, match=said):
        args_of(trainer, *words.split())


def rows_of(trainer):
    """The table at the top of a trainer's file: the name of each row, and its flags."""
    found, name, before = {}, "", ""
    for line in TRAINERS[trainer].__doc__.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("    |") or cells[-1] in ("flags", "gradient") or not line.strip(" |-"):
            continue
        if cells[0]:
            name, before = cells[0], found.get(name, "")
        words = f"--form {name}" if trainer == "distill" else cells[-1].replace("the same and", before)
        found[name] = (
            f"{found.get(name, '')} {words}".strip()
        )  # a row without a name goes on with the one before
    return found


@pytest.mark.parametrize(
    ("trainer", "count"), [("grpo", 7), ("ppo", 5), ("genac", 0), ("opid", 4), ("distill", 3), ("cloning", 0)]
)
def test_every_row_of_a_table_is_a_command_that_can_begin(trainer, count):
    rows = rows_of(trainer)
    assert len(rows) == count
    for name, words in rows.items():
        words = re.sub(r"\bTOKENS\b", "16", words)
        assert words.startswith(("--", "(the default")), name
        args = args_of(trainer, *(words.split() if words.startswith("--") else ()))
        assert words.startswith("(") or args != args_of(trainer) or "--form sampled" in words, name


def test_the_published_reduction_is_in_the_row():
    rows = rows_of("grpo")
    for name, reduce in {"GRPO": "sequence", "Dr. GRPO": "constant", "GSPO": "sequence"}.items():
        assert f"--reduce {reduce}" in rows[name]
    assert rows["DAPO"].count("TOKENS") == 2
