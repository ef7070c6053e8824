"""Distillation: divergences by hand, terms and updates beside ones written out in plain torch, hints, learning."""

import copy
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from agentgym.errors import UsageError
from agentgym.rollout import collect
from agentgym.trajectory.records import Step, Trajectory
from baselines import checkpoints, cloning, distill
from baselines.divergence import divergence, drawn_divergence
from baselines.flags import arguments
from baselines.metrics import Costs
from baselines.parallel import Ranks
from baselines.rollouts import Rollouts, batch_of
from baselines.routing import Hints
from baselines.run import train
from baselines.tiny import make_model, texts_of
from tests.baselines.conftest import EVEN, lines, tasks
from tests.baselines.families import WORDS
from tests.baselines.test_parallel import launch
from tests.baselines.toys import TEXTS

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = "tests.baselines.families:Families-v0"
SAME = nn.Identity()  # a head whose states are the logits


def flags(*words):
    return arguments(distill.Args, "distill", "", [str(word) for word in words])


def run(*words):
    """Train; the lines of the metrics."""
    args = flags(*words)
    assert train(args, "distill", distill.Distill) == 0
    return lines(args.out)


@pytest.fixture(scope="session")
def even_teacher(tmp_path_factory):
    """Of another size than the student, and another mind."""
    return make_model(tmp_path_factory.mktemp("teacher"), TEXTS, hidden=16, layers=1, context=512, seed=5)


def learner_of(model, *words):
    base = ["--model", model, "--groups", 2, "--group-size", 4, "--device", "cpu", "--out", "x"]
    learner = distill.Distill(flags(*EVEN, *base, *words), Ranks("cpu"))
    learner.optimizer = torch.optim.SGD(learner.actor.parameters(), 0.5)
    return learner


def played(learner):
    args = learner.args
    rollouts = Rollouts(args.env, {}, learner.actor.policy, Ranks("cpu"), seed=3, group_size=args.group_size)
    return batch_of(learner.sample(rollouts))


# -- divergences -------------------------------------------------------------------------------------------------------

STUDENT = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])  # (1/4, 3/4), (1/2, 1/2)
TEACHER = torch.tensor([[0.0, 0.0], [math.log(4), 0.0]])  # (1/2, 1/2), (4/5, 1/5)
REVERSE = [0.25 * math.log(0.5) + 0.75 * math.log(1.5), 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)]
FORWARD = [0.5 * math.log(2) + 0.5 * math.log(2 / 3), 0.8 * math.log(0.8 / 0.5) + 0.2 * math.log(0.2 / 0.5)]


@pytest.mark.parametrize(("kind", "expected"), [("reverse", REVERSE), ("forward", FORWARD)])
@pytest.mark.parametrize("chunk", [1, 8])
def test_divergences_of_whole_distributions(kind, expected, chunk):
    temperature = torch.tensor([2.0, 0.5])
    own, other = (of * temperature[:, None] for of in (STUDENT, TEACHER))
    found = divergence((SAME, own), (SAME, other), temperature, kind=kind, chunk=chunk)
    assert found.tolist() == pytest.approx(expected)


def test_a_wider_head_has_its_padding_left_out():
    other = torch.cat([TEACHER, torch.full((2, 3), 9.0)], 1)
    found = divergence((SAME, STUDENT), (SAME, other), torch.ones(2))
    assert found.tolist() == pytest.approx(REVERSE)


def test_draws_estimate_the_divergence_and_its_gradient():
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(3, 5, generator=generator).requires_grad_()
    other, weights = torch.randn(3, 5, generator=generator), torch.tensor([1.0, 2.0, 3.0])
    exact = divergence((SAME, own), (SAME, other), torch.ones(3))
    (wanted,) = torch.autograd.grad((weights * exact).sum(), own)
    even = ((torch.arange(4000) + 0.5) / 4000).expand(3, -1)  # every token as often as its probability says
    found = drawn_divergence((SAME, own), (SAME, other), torch.ones(3), even, chunk=2)
    (gradient,) = torch.autograd.grad((weights * found).sum(), own)
    torch.testing.assert_close(found, exact, rtol=0, atol=2e-3)
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=4e-3)


def test_few_draws_are_right_on_average():
    generator = torch.Generator().manual_seed(1)
    own = torch.randn(1, 4, generator=generator).expand(20_000, -1).clone().requires_grad_()
    other = torch.randn(1, 4, generator=generator).expand(20_000, -1)
    exact = divergence((SAME, own), (SAME, other), torch.ones(20_000))
    (wanted,) = torch.autograd.grad(exact.sum(), own)
    uniforms = torch.rand(20_000, 2, generator=generator)
    found = drawn_divergence((SAME, own), (SAME, other), torch.ones(20_000), uniforms)
    (gradient,) = torch.autograd.grad(found.sum(), own)
    torch.testing.assert_close(found.mean(), exact.mean(), rtol=0, atol=0.03)
    torch.testing.assert_close(gradient.mean(0), wanted.mean(0), rtol=0, atol=0.03)


# -- an update ---------------------------------------------------------------------------------------------------------


def logits_of(model, row):
    """(T - 1, V) at the row's temperature, in plain transformers."""
    return model(input_ids=torch.as_tensor(row.ids)[None]).logits[0][:-1] / row.temperature


def sampled_scores(model, row):
    scores = torch.log_softmax(logits_of(model, row), -1)
    return scores.gather(1, torch.as_tensor(row.ids[1:])[:, None])[:, 0]


def test_the_term_is_the_gap_of_log_probs(even_model, even_teacher):
    learner = learner_of(even_model, "--teacher", even_teacher, "--temperature", 0.7, "--coef", 0.5,
                         "--outcome-weight", 2)  # fmt: skip
    batch = played(learner)
    advantages, numbers = learner.token_advantages(batch, Costs())
    outcome = learner.credit(batch)
    teacher = learner.teachers[""].actor.model
    gaps = []
    for row, found, of_outcome in zip(batch.rows, advantages, outcome, strict=True):
        with torch.no_grad():
            gap = (sampled_scores(learner.actor.model, row) - sampled_scores(teacher, row)).numpy()
        gap = np.concatenate([[0.0], gap]) * row.mask
        np.testing.assert_allclose(found, 2 * of_outcome - 0.5 * gap, atol=1e-4)
        assert not found[~row.mask].any()
        gaps.append(gap[row.mask])
    assert numbers["teacher/gap"] == pytest.approx(np.concatenate(gaps).mean(), abs=1e-4)
    assert numbers["teacher/gap"] > 0


def test_a_teacher_that_is_the_student_teaches_nothing(even_model):
    learner = learner_of(even_model, "--teacher", even_model)
    advantages, numbers = learner.token_advantages(played(learner), Costs())
    assert numbers["teacher/gap"] == 0.0
    assert not np.concatenate(advantages).any()


def plain_step(model, teachers, batch, keys, form, lr):
    """One step of SGD down the mean divergence over trainable tokens, all logits at once."""
    count = sum(int(row.mask.sum()) for row in batch.rows)
    loss = torch.zeros(())
    for row, key in zip(batch.rows, keys, strict=True):
        own = torch.log_softmax(logits_of(model, row), -1)
        with torch.no_grad():
            other = torch.log_softmax(logits_of(teachers[key], row), -1)
        p, q = (own, other) if form == "reverse" else (other, own)
        loss = loss + ((p.exp() * (p - q)).sum(-1) * torch.as_tensor(row.mask[1:])).sum() / count
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= lr * parameter.grad
    return loss.item()


@pytest.mark.parametrize(("form", "pack_tokens"), [("reverse", 4096), ("forward", 64)])
def test_a_full_update_goes_down_the_divergence_to_each_task_s_teacher(
    form, pack_tokens, even_model, even_teacher, tmp_path
):
    other = make_model(tmp_path / "other", TEXTS, hidden=8, layers=2, heads=2, context=512, seed=9)
    learner = learner_of(
        even_model, "--form", "full", "--divergence", form, "--pack-tokens", pack_tokens, "--temperature", 0.8,
        "--groups", 3, "--route", "word", "--teacher", f"0={even_teacher}", "--teacher", f"1={other}",
        "--teacher", f"2={even_teacher}", "--teacher", f"3={other}",
    )  # fmt: skip
    learner.actor.chunk = 7
    before = copy.deepcopy(learner.actor.model)
    batch = played(learner)
    numbers_of = {f"train-{n}": str(n % 4) for n in range(12)}
    keys = [numbers_of[batch.trajectories[n].task_id] for n in batch.rollouts]
    assert len(set(keys)) > 1
    numbers = learner.update(batch, Costs())
    teachers = {key: teacher.actor.model for key, teacher in learner.teachers.items()}
    assert teachers["0"] is teachers["2"], "a model that teaches twice is held once"
    loss = plain_step(before, teachers, batch, keys, form, 0.5)
    assert numbers["teacher/divergence"] == pytest.approx(loss, rel=1e-4)
    for (name, a), b in zip(before.named_parameters(), learner.actor.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)


def test_draws_do_not_depend_on_packs(even_model, even_teacher):
    states = []
    for pack_tokens in (4096, 64):
        learner = learner_of(
            even_model, "--form", "drawn", "--pack-tokens", pack_tokens, "--teacher", even_teacher
        )
        learner.update(played(learner), Costs())
        states.append(learner.actor.model.state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "--teacher WHERE"),
        ("--teacher self", "with --hint"),
        ("--teacher x --form drawn --draws 1", "--draws to be a whole number >= 2"),
        ("--teacher x --divergence forward", "--form full"),
        ("--teacher x --teacher a=y", "KEY=WHERE for each"),
        ("--teacher x --teacher y", "two for ''"),
        ("--teacher a=self --teacher a=self --hint sibling", "two for 'a'"),
        ("--teacher http://127.0.0.1:1/v1 --form sampled", "URL#MODEL"),
        ("--teacher http://127.0.0.1:1/v1#m --form full", "--form sampled"),
        ("--teacher http://127.0.0.1:1/v1#m --temperature 0.7", "expected --temperature 1, got 0.7"),
        ("--teacher nowhere/at/all", "no model"),
        ("--teacher x --outcome-weight 1 --group-size 1", "compares siblings"),
        ("--teacher x --coef -1", "--coef to be"),
        ("--teacher self --hint sibling --form full --shard", "--form sampled"),
    ],
)
def test_bad_flags_are_told_in_one_line(even_model, words, message):
    with pytest.raises(UsageError, match=message):
        learner_of(even_model, *words.replace("=y", f"={even_model}").replace(" x", f" {even_model}").split())


# -- hints -------------------------------------------------------------------------------------------------------------


def test_a_hint_changes_what_stands_before_and_no_sampled_token(even_model):
    learner = learner_of(even_model, "--teacher", "self", "--hint", "word")
    batch = played(learner)
    _, rows, numbers = learner._readings(batch)
    assert numbers["teacher/unread_segments"] == 0.0
    for segment, n, plain, told in zip(batch.segments, batch.rollouts, batch.rows, rows, strict=True):
        assert told.ids[told.mask].tolist() == plain.ids[plain.mask].tolist()
        first = segment.sampled[0].start
        longer = len(told.ids) - segment.sampled[-1].stop
        assert told.ids[first + longer :].tolist() == plain.ids[first : segment.sampled[-1].stop].tolist()
        # Data is a number, which the tokenizer does not know
        word = batch.trajectories[n].prompt.split()[1].strip(".")
        text = learner.actor.tokenizer.decode(told.ids[: first + longer])
        assert word in text
        assert text.index("<unk>") > text.index(word), "the hint stands after the prompt"
    advantages, numbers = learner.token_advantages(batch, Costs())
    assert numbers["teacher/gap"] != 0.0
    assert np.concatenate(advantages).any()


def test_a_sibling_s_solution_is_shown_to_the_others_only():
    def rollout(group, resolved, *actions):
        steps = [Step("turn", "policy", action) for action in actions]
        return Trajectory("t", resolved=resolved, steps=steps, extra={"group": group, "env": "e"})

    batch = [
        rollout(0, True, "long", "way"),
        rollout(0, False, "no"),
        rollout(0, True, "short"),
        rollout(1, False, "x"),
    ]
    hints = Hints("sibling", None).of(batch)
    assert hints == ["A solution:\nshort", "A solution:\nshort", "A solution:\nlong\nway", ""]


def test_a_hack_is_no_solution():
    def rollout(action, hacked):
        steps = [Step("turn", "policy", action)]
        return Trajectory("t", resolved=True, hacked=hacked, steps=steps, extra={"group": 0})

    batch = [rollout("cheat", True), rollout("honest", False)]
    assert Hints("sibling", None).of(batch) == ["A solution:\nhonest", ""]


def test_what_has_no_hint_or_no_room_is_left_out_and_counted(even_model):
    learner = learner_of(even_model, "--teacher", "self", "--hint", "sibling")
    batch = played(learner)
    for n, trajectory in enumerate(batch.trajectories):
        trajectory.resolved = n == 0  # the second group has no success, the first trajectory no other one's
    _, rows, numbers = learner._readings(batch)
    assert [k for k, row in enumerate(rows) if row is not None] == [1, 2, 3]
    assert numbers["teacher/unread_segments"] == 5 / 8
    advantages, _ = learner.token_advantages(batch, Costs())
    assert [bool(row.any()) for row in advantages] == [row is not None for row in rows]
    learner.actor.max_tokens = max(len(row.ids) for row in batch.rows)
    _, rows, _ = learner._readings(batch)
    assert sum(row is not None for row in rows) < 3


# -- runs --------------------------------------------------------------------------------------------------------------

SMALL = "--groups 2 --group-size 3 --eval-every 0 --lr 1e-3 --device cpu".split()


@pytest.mark.parametrize("form", ["sampled", "drawn"])
def test_a_stopped_run_goes_on_bit_for_bit(form, even_model, even_teacher, tmp_path):
    words = [
        *EVEN,
        "--model",
        even_model,
        *SMALL,
        "--form",
        form,
        "--teacher",
        even_teacher,
        "--checkpoint-every",
        1,
    ]
    run(*words, "--steps", 2, "--out", tmp_path / "whole")
    run(*words, "--steps", 1, "--out", tmp_path / "halves")
    run(*words, "--steps", 2, "--out", tmp_path / "halves")
    states = [
        checkpoints.load(tmp_path / name / "checkpoints" / "step-000002.pt") for name in ("whole", "halves")
    ]
    a, b = (state["algorithm"]["model"] for state in states)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_every_number_is_documented_and_every_documented_number_is_logged(even_model, even_teacher, tmp_path):
    text = (ROOT / "docs" / "distill.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(teacher/[a-z_A-Z]+)`", text))
    logged = set()
    for form in ("sampled", "full"):
        words = [*EVEN, "--model", even_model, *SMALL, "--form", form, "--steps", 1, "--route", "word"]
        words += [word for n in range(4) for word in ("--teacher", f"{n}={even_teacher}")]
        logged |= {
            name
            for line in run(*words, "--out", tmp_path / form)
            for name in line
            if name.startswith("teacher/")
        }
    assert {re.sub("gap_[0-3]", "gap_KEY", name) for name in logged} == documented


def test_the_student_itself_teaches_with_a_hint(even_model, tmp_path):
    words = [
        *EVEN,
        "--model",
        even_model,
        *SMALL,
        "--form",
        "full",
        "--steps",
        8,
        "--teacher",
        "self",
        "--hint",
        "word",
    ]
    metrics = run(*words, "--out", tmp_path / "run")
    assert metrics[0]["teacher/divergence"] > 0
    assert metrics[0]["policy/grad_norm"] > 0


@pytest.mark.slow
def test_two_processes_learn_what_one_would(even_model, even_teacher, tmp_path):
    words = [
        *EVEN,
        "--model",
        even_model,
        *SMALL,
        "--teacher",
        even_teacher,
        "--steps",
        2,
        "--keep-rollouts",
        1,
    ]
    run(*words, "--out", tmp_path / "one")
    launch("distill", words, tmp_path / "two", 2)
    assert tasks(tmp_path / "two") == tasks(tmp_path / "one")
    states = [checkpoints.load(tmp_path / name / "checkpoints" / "step-000002.pt") for name in ("one", "two")]
    for name, parameter in states[0]["algorithm"]["model"].items():
        found = states[1]["algorithm"]["model"][name]
        torch.testing.assert_close(found, parameter, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.slow
def test_four_experts_merge_into_one_student_and_crossed_ones_do_not(experts, tmp_path):
    """Each expert was shown one family by its solver; the student, who knew nothing, has to know all four."""
    student, models = experts

    def merged(name, taught_by, *words):
        words = ["--env", FAMILIES, "--model", student, "--route", "side", "--groups", 16, "--group-size", 2,
                 "--eval-every", 1000, "--eval-episodes", 40, "--max-new-tokens", 3, "--device", "cpu",
                 "--checkpoint-every", 0, *words, "--out", tmp_path / name]  # fmt: skip
        for side, expert in taught_by.items():
            words += ["--teacher", f"{side}={models[expert]}"]
        return run(*words)

    own = {side: side for side in WORDS}
    crossed = dict(zip(WORDS, [*list(WORDS)[1:], next(iter(WORDS))], strict=True))
    full = ["--form", "full", "--lr", 1e-2, "--steps", 30]
    right, wrong = merged("right", own, *full), merged("wrong", crossed, *full)
    sampled = merged("sampled", own, "--form", "sampled", "--lr", 5e-3, "--steps", 40)
    assert right[0]["eval/resolved"] < 0.3
    assert right[-1]["eval/resolved"] >= 0.9
    assert wrong[-1]["eval/resolved"] <= 0.1
    assert sampled[-1]["eval/resolved"] >= 0.6


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    """A random model, and one that was cloned from it for each family."""
    folder = tmp_path_factory.mktemp("experts")
    texts = texts_of(collect(FAMILIES, "gold", episodes=None))
    student = make_model(folder / "student", [*texts, "Nothing."], hidden=32, heads=2, context=128)
    for side in WORDS:
        words = ["--env", FAMILIES, "--set", f"side={side}", "--model", student, "--lr", 5e-3, "--steps", 40,
                 "--groups", 8, "--eval-every", 0, "--checkpoint-every", 0, "--device", "cpu",
                 "--out", folder / side]  # fmt: skip
        args = arguments(cloning.Args, "cloning", "", [str(word) for word in words])
        assert train(args, "cloning", cloning.Cloning) == 0
    return student, {side: folder / side / "model" for side in WORDS}
