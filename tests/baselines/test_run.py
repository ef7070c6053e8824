"""The loop around every trainer: resuming, settings, logs, loud failures."""

import dataclasses
import json
import os
import subprocess
import sys
import types
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from agentgym.errors import InfrastructureError, MissingDependency, UsageError
from agentgym.trajectory.records import Call, Event, Sampled, Segment, Step, Trajectory
from baselines import checkpoints, grpo, ppo
from baselines.logs import Logs, read_lines
from baselines.metrics import Costs, check_truncation, evaluation_metrics, rollout_metrics
from baselines.parallel import Ranks
from baselines.rollouts import Rollouts, batch_of
from baselines.run import Run, optimizer_step
from tests.baselines.conftest import EVEN, TRAINERS, WORD, flags, lines, tasks

SMALL = "--groups 2 --group-size 3 --lr 1e-2 --keep-rollouts 1 --checkpoint-every 2".split()
TIMES = ("time/", "speed/", "memory/")


def untimed(line):
    return {name: number for name, number in line.items() if not name.startswith(TIMES)}


def same(a, b):
    """Equal to the last bit, however nested."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


class Killed(BaseException):
    """What a kill looks like from inside."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "extra"),
    [
        ("grpo", "--resample 1 --estimator rloo --epochs 2 --minibatches 2"),
        ("ppo", "--critic-epochs 2 --minibatches 2 --warmup 1"),
        (
            "ppo",
            "--critic shared --set padding=90 --compact 240 --reply-tokens 5 --summarizer last --keep-last 1",
        ),
    ],
)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    trainer, extra, train, even_model, tmp_path, monkeypatch
):
    words = [*EVEN, "--model", even_model, *SMALL, *extra.split(), "--eval-every", 2, "--eval-episodes", 4]
    whole = train(trainer, *words, "--steps", 5, "--out", tmp_path / "whole")

    update, calls = TRAINERS[trainer][1].update, []

    def killed(self, batch, costs):
        calls.append(1)
        if len(calls) == 4:  # there is a checkpoint after two updates, and metrics of three
            raise Killed
        return update(self, batch, costs)

    monkeypatch.setattr(TRAINERS[trainer][1], "update", killed)
    with pytest.raises(Killed):
        train(trainer, *words, "--steps", 5, "--out", tmp_path / "killed")
    monkeypatch.setattr(TRAINERS[trainer][1], "update", update)
    assert len(lines(tmp_path / "killed")) == 3
    resumed = train(trainer, *words, "--steps", 5, "--out", tmp_path / "killed")

    assert [untimed(line) for line in resumed] == [untimed(line) for line in whole]
    assert [line["step"] for line in whole] == [0, 1, 2, 3, 4, 5]
    assert tasks(tmp_path / "killed") == tasks(tmp_path / "whole")
    assert len(set(tasks(tmp_path / "whole"))) > 5
    ends = [
        checkpoints.load(tmp_path / name / "checkpoints" / "step-000005.pt") for name in ("whole", "killed")
    ]
    for end in ends:
        assert end.pop("cpu_seconds") > 0
    same(*ends)


def test_only_an_equal_run_goes_on(train, word_model, tmp_path):
    words = [*WORD, "--model", word_model, "--groups", 2, "--group-size", 8, "--eval-every", 0]
    out = ["--out", tmp_path / "run"]
    assert len(train("grpo", *words, *out, "--steps", 1)) == 1
    assert len(train("grpo", *words, *out, "--steps", 2)) == 2, "more steps are the same run"
    with pytest.raises(UsageError, match=r"another lr: 1e-05, not 0\.1"):
        train("grpo", *words, *out, "--steps", 2, "--lr", 0.1)
    with pytest.raises(UsageError, match="another algorithm: 'grpo', not 'ppo'"):
        train("ppo", *words, *out, "--steps", 2)
    with pytest.raises(UsageError, match=r"another max_turns: None, not 4; give"):
        train("grpo", *words, *out, "--steps", 2, "--max-turns", 4)
    moved = tmp_path / "moved"
    (tmp_path / "run").rename(moved)
    assert len(train("grpo", *words, "--out", moved, "--steps", 2, "--checkpoint-every", 1)) == 2
    out = ["--out", moved]
    with pytest.raises(UsageError, match="holds 2 updates already"):
        train("grpo", *words, *out, "--steps", 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="not a training run"):
        train("grpo", *words, "--out", tmp_path / "full")


def test_a_command_that_cannot_begin_leaves_nothing(train, word_model, tmp_path):
    words = ["--model", word_model, "--out", tmp_path / "run"]
    with pytest.raises(UsageError, match="Did you mean 'Word-v0'"):
        train("grpo", "--env", "baselines.toys:Wort-v0", *words)
    with pytest.raises(UsageError, match="wort"):
        train("grpo", *WORD, *words, "--set", "wort=red")
    with pytest.raises(UsageError, match="no model"):
        train("grpo", *WORD, "--model", tmp_path / "none", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_came_to_no_checkpoint_begins_anew_under_other_settings(train, word_model, tmp_path):
    words = [
        *WORD,
        "--model",
        word_model,
        "--groups",
        2,
        "--group-size",
        8,
        "--eval-every",
        0,
        "--out",
        tmp_path,
    ]
    with pytest.raises(InfrastructureError, match="diverged"):
        train("grpo", *words, "--lr", 1e30, "--steps", 5)
    assert (tmp_path / "config.json").exists()
    told = train("grpo", *words, "--lr", 1e-3, "--steps", 1)
    assert [line["step"] for line in told] == [0]


def test_one_process_at_a_time_has_a_run_s_folder(train, word_model, tmp_path):
    words = [*WORD, "--model", word_model, "--groups", 2, "--group-size", 8, "--eval-every", 0, "--steps", 1]
    held = checkpoints.claim(tmp_path / "run", {"any": 1})
    with pytest.raises(UsageError, match=r"another process is training in .*run; wait for it"):
        train("grpo", *words, "--out", tmp_path / "run")
    os.close(held)
    train("grpo", *words, "--out", tmp_path / "run")
    train("grpo", *words, "--out", tmp_path / "run", "--steps", 2)  # the end of a run lets go of it
    with pytest.raises(UsageError, match="cannot write a run into /dev/null/run: Not a directory"):
        checkpoints.claim(Path("/dev/null/run"), {})


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    checkpoints.save(tmp_path, 1, {"step": 1}, keep=2)

    def full(state, path):
        path.write_bytes(b"half")
        raise RuntimeError("unexpected pos 48768 vs 48656")  # what torch says of a full disk

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InfrastructureError, match=r"step-000002\.pt \(unexpected pos"):
        checkpoints.save(tmp_path, 2, {"step": 2}, keep=2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001.pt"]


def test_a_run_s_folder(train, word_model, tmp_path):
    words = [*WORD, "--model", word_model, "--groups", 2, "--group-size", 8, "--eval-every", 1]
    train("grpo", *words, "--steps", 2, "--checkpoint-every", 1, "--keep-checkpoints", 1, "--out", tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["group_size"] == 8
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002.pt"]
    assert sorted(path.name for path in (tmp_path / "eval").iterdir()) == [f"step-00000{n}" for n in range(3)]
    assert list((tmp_path / "tensorboard").iterdir())
    from agentgym.policies import models

    model, tokenizer = models.load(tmp_path / "model")
    end = checkpoints.load(tmp_path / "checkpoints" / "step-000002.pt")["algorithm"]["model"]
    same({name: parameter.detach() for name, parameter in model.named_parameters()}, end)
    assert tokenizer.decode(tokenizer.encode("Say red, green.")) == "Say red, green."


@pytest.mark.parametrize(
    ("trainer", "bad", "said"),
    [
        ("grpo", "--group-size 0", "--group-size to be a whole number >= 1, got 0"),
        ("grpo", "--seed -1", "--seed to be a whole number >= 0, got -1"),
        ("grpo", "--lr -1", r"--lr to be a finite number >= 0, got -1\.0"),
        ("grpo", "--lr nan", "--lr to be a finite number >= 0, got nan"),
        ("grpo", "--temperature 0", "--temperature > 0"),
        ("grpo", "--group-sise 2", r"see python -m baselines\.grpo --help"),
        ("grpo", "--group-size 1", "grpo compares siblings, and --group-size 1 has none"),
        ("grpo", "--overlong-limit 5", "--overlong-limit and --overlong-cache together"),
        (
            "grpo",
            "--overlong-limit 5 --overlong-cache 9",
            "--overlong-cache <= --overlong-limit, got 9 and 5",
        ),
        ("grpo", "--step-weight 1 --step-gamma 1.5", r"--step-gamma to be a number from 0 to 1, got 1\.5"),
        ("ppo", "--lam 1.5", r"--lam to be a number from 0 to 1, got 1\.5"),
        ("ppo", "--critic-epochs 0", "--critic-epochs to be a whole number >= 1, got 0"),
        ("ppo", "--critic shared --warmup 3", "--critic copy"),
    ],
)
def test_flags_are_checked_before_anything_is_loaded(trainer, bad, said):
    with pytest.raises(UsageError, match=said):
        flags(trainer, *WORD, "--out", "x", *bad.split())


def test_one_rollout_a_task_is_enough_without_siblings():
    alone = flags("grpo", *WORD, "--out", "x", "--group-size", 1, "--estimator", "reinforce")
    assert alone.group_size == 1
    with pytest.raises(UsageError, match="--reduce-constant"):
        grpo.GRPO(flags("grpo", *WORD, "--out", "x", "--reduce", "constant"), Ranks("cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told():
    with pytest.raises(UsageError, match="torch sees none here"):
        Ranks("cuda")


@pytest.mark.parametrize("module", [grpo, ppo])
def test_help_explains_itself(module, capsys):
    from agentgym.cli import guarded

    assert guarded(lambda: module.main(["--help"])) == 0
    shown = capsys.readouterr().out
    for word in ("arXiv", "Example:", "--group-size", "--anti-hack", "--compact", "--kl-coef", "goes on"):
        assert word in shown


# -- order of tasks ----------------------------------------------------------------------------------------------------


def test_every_task_comes_once_before_any_comes_again():
    def order(seed):
        rollouts = Rollouts("baselines.toys:Word-v0", {}, None, Ranks("cpu"), seed=seed)
        return [rollouts.task(n) for n in range(24)]

    assert all(sorted(order(0)[k : k + 8]) == sorted(set(order(0))) for k in (0, 8, 16))
    assert order(0)[:8] != order(0)[8:16]
    assert order(0) == order(0) != order(1)
    listed = Rollouts(
        "baselines.toys:Word-v0",
        {"env_kwargs": {"split": "test"}},
        None,
        Ranks("cpu"),
        seed=0,
        order="listed",
    )
    assert [listed.task(n) for n in range(5)] == [f"word-test-{n}" for n in (0, 1, 2, 3, 0)]


# -- loud failures -----------------------------------------------------------------------------------------------------


def played(
    *, ids=True, mask=(0, 1), reward=1.0, reason="stop", truncated=False, group=0, error="", resolved=True
):
    """A trajectory of one step, made by hand."""
    segment = Segment(
        0, token_ids=[5, 6], mask=list(mask), logprobs=[0.0, -1.0], rewards=[0.0, reward or 0.0]
    )
    if not ids:
        segment = Segment(0)
    segment.sampled = [Sampled(1, 1, 2, 0, 1.0, reason)]
    return Trajectory(
        "t",
        steps=[Step("turn", "policy", "hello", sampled_tokens=1, prompt_tokens=1)],
        segments=[segment],
        reward=reward,
        resolved=resolved,
        terminated=not truncated,
        truncated=truncated,
        infrastructure_error=error,
        extra={"group": group},
    )


def test_nothing_to_train_on_is_an_error():
    with pytest.raises(UsageError, match="the policy gave no token ids"):
        batch_of([played(ids=False)])
    with pytest.raises(UsageError, match="every reply was masked"):
        batch_of([played(mask=(0, 0))])
    full = Trajectory(
        "t", events=[Event("context_overflow", 0, {"why": "698 of 512 tokens"})], extra={"group": 0}
    )
    with pytest.raises(UsageError, match="did not fit the model's context: 698 of 512 tokens"):
        batch_of([full])
    with pytest.raises(InfrastructureError, match="all 2 episodes broke; the first: no room"):
        batch_of([played(reward=None, error="Traceback\nno room")] * 2)
    batch = batch_of([played(), played(reward=None, error="gone"), played(reward=0.5)])
    assert batch.rollouts == [0, 2]
    np.testing.assert_equal(batch.returns, [1.0, np.nan, 0.5])


def test_replies_that_never_end():
    with pytest.raises(UsageError, match="all 3 were cut off at --max-new-tokens 7 and all returns are 0"):
        check_truncation([played(reason="length", reward=0.0, resolved=False)] * 3, 7)
    with pytest.raises(UsageError, match=r"all returns are 0\.3"):  # .1 + .2 differs from .3 by rounding only
        check_truncation([played(reason="length", reward=r, resolved=False) for r in (0.3, 0.1 + 0.2)], 7)
    told = check_truncation([played(reason="length", reward=r) for r in (0.0, 1.0)], 7)
    assert told == "100% of the replies were cut off at --max-new-tokens 7", (
        "some were paid: that can be learnt from"
    )
    assert "cut off" in check_truncation([played(reason="length")] * 3, 7), (
        "everything is solved: no reason to stop"
    )
    assert check_truncation([played(reason="length")] * 9 + [played()], 7) is None, "not more than 0.9"
    assert "ran into a limit" in check_truncation([played(truncated=True)] * 10, 7)


def test_what_another_policy_wrote_does_not_hide_replies_that_never_end():
    batch = [played(reason="length", reward=0.0, resolved=False) for _ in range(2)]
    for trajectory in batch:  # a worker of --worker-policy, whose replies have mask 0
        worker = Segment(1, agent="worker_0", token_ids=[5, 6], mask=[0, 0])
        worker.sampled = [Sampled(1, 1, 2, 0, 1.0, "stop", masked=True)]
        trajectory.segments.append(worker)
    assert rollout_metrics(batch)["rollout/cut_replies"] == 1.0
    with pytest.raises(UsageError, match="all 2 were cut off at --max-new-tokens 7"):
        check_truncation(batch, 7)


@pytest.mark.parametrize(
    "word", ["--summarizer rule", "--worker-turns 3", "--penalty 1", "--prompt-history 2"]
)
def test_flags_of_the_environment_that_mean_nothing_are_told_before_a_model_is_loaded(word):
    flag = word.split()[0]
    with pytest.raises(UsageError, match=f"{flag} means something only with"):
        flags("grpo", "--env", "agentgym/Relay-v0", "--model", "/nonexistent", "--out", "x", *word.split())


def test_the_few_that_did_not_break_are_no_reason_to_stop():
    cut, broke = played(reason="length", reward=0.0, resolved=False), played(reward=None, error="gone")
    assert (
        check_truncation([cut, broke, broke], 7) == "100% of the replies were cut off at --max-new-tokens 7"
    )
    with pytest.raises(UsageError, match="all 2 were cut off"):
        check_truncation([cut, cut, broke, broke], 7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_changes_nothing(bad):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter], 0.1)
    (parameter.sum() * bad).backward()
    with pytest.raises(InfrastructureError, match="training diverged"):
        optimizer_step(optimizer, Ranks("cpu"), bad, 1.0)
    assert torch.equal(parameter, torch.ones(2))


def test_the_norm_of_a_gradient_is_cut():
    parameter = torch.nn.Parameter(torch.zeros(2))
    (parameter * torch.tensor([3.0, 4.0])).sum().backward()
    assert optimizer_step(torch.optim.SGD([parameter], 1.0), Ranks("cpu"), 1.0, 0.5) == 5.0
    torch.testing.assert_close(parameter.detach(), torch.tensor([-0.3, -0.4]))  # 0.5 / 5 of the gradient


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_numbers_of_a_batch():
    batch = [
        played(group=0),
        played(group=0, reward=0.0, resolved=False, truncated=True),
        played(group=1, reward=0.0, resolved=False, reason="length"),
        played(group=1, reward=None, error="gone", resolved=None),
    ]
    numbers = rollout_metrics(batch)
    assert numbers["rollout/episodes"] == 4
    assert numbers["rollout/broken"] == 0.25
    assert numbers["rollout/return"] == pytest.approx(1 / 3)  # of the three that count
    assert numbers["rollout/cut_replies"] == pytest.approx(1 / 3)
    assert numbers["rollout/degenerate_groups"] == 0.5  # the second has one valid member
    assert "rollout/hack_gap" not in numbers
    batch[0].verdict = {"score": 1.0, "held_out": {"a": 0.5, "b": 0.0}}
    assert rollout_metrics(batch)["rollout/hack_gap"] == 0.75

    # 3 of 4 valid: Wilson's interval of 1 in 3 at 95 % is 0.0615 to 0.7923.
    numbers = evaluation_metrics(batch)
    assert numbers["eval/broken"] == 0.25
    assert numbers["eval/return"] == pytest.approx(1 / 3)
    assert numbers["eval/resolved_low"] == pytest.approx(0.0615, abs=1e-4)
    assert numbers["eval/resolved_high"] == pytest.approx(0.7923, abs=1e-4)


def test_an_evaluation_that_broke_says_nothing_of_the_policy():
    assert evaluation_metrics([played(reward=None, error="gone", resolved=None)] * 2) == {
        "eval/episodes": 2.0,
        "eval/broken": 1.0,
    }


def test_equal_ids_of_two_environments_are_two_tasks():
    batch = []
    for env, task, reward in (("a", "0", 1.0), ("a", "1", 0.0), ("b", "0", 0.0), ("b", "1", 1.0)):
        batch.append(played(reward=reward))
        batch[-1].task_id, batch[-1].extra["env"] = task, env
    numbers = evaluation_metrics(batch)
    # All four of a resample are 0 with a probability of 1/16 > 2.5 %. Of two tasks both means would be 0.5.
    assert (numbers["eval/return_low"], numbers["eval/return_high"]) == (0.0, 1.0)


def test_calls_of_workers_are_blocked_calls_too():
    call = Call("bash", {}, "")
    trajectory = played()
    trajectory.steps = [
        Step("turn", "policy", "a", calls=[call]),
        Step("delegated", "worker_0", "b", calls=[call, dataclasses.replace(call, blocked=True)]),
        Step("delegated", "worker_0", "c", calls=[call]),
    ]
    assert rollout_metrics([trajectory])["rollout/blocked_calls"] == 0.25


def test_costs_per_solved_task():
    costs = Costs()
    assert "cost/environment_steps_per_solved" not in costs.metrics()
    costs.add_rollouts(
        [played(), played(reward=0.0, resolved=False), played(), played(reward=None, resolved=None)]
    )
    costs.trained_tokens += 10
    numbers = costs.metrics()
    assert numbers["cost/environment_steps_per_solved"] == 2.0  # 4 steps, 2 solved
    assert numbers["cost/generated_tokens"] == 4.0
    assert numbers["cost/trained_tokens_per_solved"] == 5.0


def test_services_get_the_same_numbers(tmp_path, monkeypatch):
    told = []
    for name in ("wandb", "trackio"):
        module = types.ModuleType(name)
        module.init = lambda name=name, **settings: told.append((name, settings))
        module.log = lambda numbers, step, name=name: told.append((name, step, numbers))
        module.finish = lambda name=name: told.append((name, "end"))
        monkeypatch.setitem(sys.modules, name, module)
    logs = Logs(tmp_path, {"lr": 1}, 0, wandb="mine", trackio="yours")
    logs.write(3, {"a": 1.0, "b": float("inf")})
    logs.close()
    assert told[0][1]["project"] == "mine"
    assert told[1][1]["project"] == "yours"
    assert ("wandb", 3, {"a": 1.0, "b": float("inf")}) in told
    assert told[-2:] == [("wandb", "end"), ("trackio", "end")]
    assert read_lines(tmp_path / "metrics.jsonl") == [{"step": 3, "a": 1.0}]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingDependency, match="pip install wandb"):
        Logs(tmp_path, {}, 0, wandb="mine")


def test_a_torn_line_is_written_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "a": 1}\n{"step": 1, "a": 2}\n{"step": 2, "a"')
    Logs(tmp_path, {}, 1).close()
    assert path.read_text() == '{"step": 0, "a": 1}\n'


def test_what_an_evaluation_played_is_not_held(word_model, tmp_path):
    args = flags(
        "grpo", *WORD, "--model", word_model, "--eval-episodes", 2, "--device", "cpu", "--out", tmp_path
    )
    with closing(Run(args, "grpo", TRAINERS["grpo"][1])) as run:
        run._evaluate()
        assert run.held_out.played == []
    assert list((tmp_path / "eval").iterdir())


@pytest.mark.parametrize("name", ["grpo", "tiny"])
def test_without_torch_one_line_says_what_to_install(name, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u; find = u.find_spec; u.find_spec = lambda n: None if n == 'torch' else find(n)"
    )
    done = subprocess.run(
        [sys.executable, "-m", f"baselines.{name}", "--help"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 3
    assert done.stderr == (
        "agentgym: trainers need torch and transformers: pip install 'agentgym-suite[train]'\n"
    )
    asked = "import importlib.util as u; u.find_spec = lambda n: None; import baselines"
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert "agentgym.errors.MissingDependency: trainers need torch" in done.stderr
