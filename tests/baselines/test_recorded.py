"""Training on what was recorded: who may, how old it may be, and what comes of it."""

import json

import pytest
import torch

from agentgym.cli import main as agentgym
from agentgym.errors import UsageError
from agentgym.trajectory.store import TrajectoryStore, to_dict
from baselines import checkpoints, cloning, run
from baselines.flags import arguments, worlds
from baselines.parallel import Ranks
from baselines.recorded import Recorded, versions_of
from baselines.rollouts import Mixture, Rollouts
from tests.baselines.conftest import EVEN, WORD, flags, lines
from tests.baselines.test_distill import run as distil

BASE = [*EVEN, "--group-size", 3, "--groups", 4, "--lr", 1e-3, "--eval-every", 0, "--device", "cpu"]


@pytest.fixture(scope="module")
def recorded(even_model, tmp_path_factory):
    """Two episodes on each of twelve tasks, by `agentgym run`."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    again = [word for n in range(12) for word in ("--task", f"train-{n}")]
    words = [
        "run",
        EVEN[1],
        "--policy",
        f"hf:{even_model}",
        "--max-new-tokens",
        "4",
        "--episodes",
        "24",
        "--workers",  # batches of several would depend on time, and so the last bits of what is recorded
        "1",
        *again,
    ]
    assert agentgym([*words, "--out", str(folder)]) == 0
    return folder


def live(policy=None, env=EVEN[1]):
    return Rollouts(env, {}, policy, Ranks("cpu"), seed=3, group_size=3)


def edited(recorded, folder, edit):
    """The same data, each trajectory changed."""
    with open(recorded / "trajectories.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    folder.mkdir()
    with open(folder / "trajectories.jsonl", "w", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            edit(number, row)
            file.write(json.dumps(row) + "\n")
    return folder


def with_versions(*versions):
    def edit(number, row):
        for segment in row["segments"]:
            for sampled in segment["sampled"]:
                sampled["policy_version"] = versions[number % len(versions)]

    return edit


def test_groups_are_episodes_of_one_task_and_come_once_each(recorded):
    source = Recorded(str(recorded), live())
    played = source.play(12)
    assert len(played) == 24 == len({t.id for t in played})
    for number in range(12):
        assert len({t.task_id for t in played if t.extra["group"] == number}) == 1
    again = source.play(12)
    assert {t.id for t in again} == {t.id for t in played}
    assert [t.id for t in again] != [t.id for t in played]
    assert {t.extra["group"] for t in again} == set(range(12, 24))
    resumed = Recorded(str(recorded), live())
    resumed.position = 12
    assert [t.id for t in resumed.play(12)] == [t.id for t in again]
    assert {t.extra["env"] for t in again} == {EVEN[1]}


@pytest.mark.parametrize("trainer", ["grpo", "ppo"])
def test_the_first_update_is_that_of_the_tokens_as_sampled(trainer, recorded, even_model, train, tmp_path):
    words = [*BASE, "--model", even_model, "--data", recorded, "--steps", 3]
    metrics = train(trainer, *words, "--out", tmp_path / "run")
    assert metrics[0]["rollout/episodes"] == 8
    assert metrics[0]["policy/ratio_mean"] == pytest.approx(1.0, abs=1e-4), (
        "the weights are those that sampled"
    )
    assert metrics[0]["policy/mismatch"] == 0.0, "old log-probs are the recorded ones"
    assert abs(metrics[2]["policy/ratio_mean"] - 1.0) > 1e-5, "two updates later they are not"
    train(trainer, *words[:-1], 1, "--out", tmp_path / "halves")
    train(trainer, *words, "--out", tmp_path / "halves")
    states = [
        checkpoints.load(tmp_path / name / "checkpoints" / "step-000003.pt") for name in ("run", "halves")
    ]
    a, b = (state["algorithm"]["model"] for state in states)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("steps", "max_age", "versions", "message"),
    [
        (5, 4, [""], None),
        (6, 4, [""], r"age 5, and --max-age is 4; give --steps 5 or a larger"),
        (3, 4, ["7", "9"], None),
        (4, 4, ["7", "9"], r"age 5 \(2 of it within the data\), .* --steps 3 or"),
        (1, 1, ["7", "9"], r"age 2 \(2 of it within the data\), and --max-age is 1; give a larger"),
        (1, 4, ["main"], "whole numbers, got"),
        (
            1,
            9,
            ["7", ""],
            r"every reply to say .* or none to, got \['7'\] and, in episode .*/1, a reply without",
        ),
    ],
)
def test_age(steps, max_age, versions, message, recorded, tmp_path):
    source = Recorded(str(edited(recorded, tmp_path / "data", with_versions(*versions))), live())
    if message is None:
        source.check_age(steps, max_age)
    else:
        with pytest.raises(UsageError, match=message):
            source.check_age(steps, max_age)


def test_a_trajectory_is_as_old_as_its_oldest_reply(recorded):
    trajectory = next(t for t in TrajectoryStore(recorded) if sum(len(s.sampled) for s in t.segments) > 1)
    replies = [sampled for segment in trajectory.segments for sampled in segment.sampled]
    for number, reply in enumerate(replies):
        reply.policy_version = str(10 - number)
    assert versions_of([trajectory]) == [11 - len(replies)]


def test_a_trajectory_in_which_only_some_replies_say_their_version_is_refused(recorded):
    trajectory = next(t for t in TrajectoryStore(recorded) if sum(len(s.sampled) for s in t.segments) > 1)
    replies = [sampled for segment in trajectory.segments for sampled in segment.sampled]
    replies[0].policy_version = "7"
    with pytest.raises(UsageError, match="a reply without one"):
        versions_of([trajectory])


def test_an_episode_in_which_nobody_answered_is_not_old(recorded):
    first, second, *_ = TrajectoryStore(recorded)
    for segment in first.segments:
        for sampled in segment.sampled:
            sampled.policy_version = "7"
    second.segments = []
    assert versions_of([first, second]) == [7, 7]


def refused(train, message, *words):
    with pytest.raises(UsageError, match=message):
        train("grpo", *BASE, "--steps", 1, *words)


def test_other_weights_are_found_out(recorded, even_model, train, tmp_path):
    from baselines.tiny import make_model
    from tests.baselines.toys import TEXTS

    other = make_model(tmp_path / "other", TEXTS, hidden=32, context=512, seed=1)
    refused(
        train, "that --model itself sampled", "--model", other, "--data", recorded, "--out", tmp_path / "run"
    )
    words = [*EVEN, "--group-size", 1, "--groups", 12, "--eval-every", 0, "--device", "cpu", "--steps", 9,
             "--teacher", even_model, "--data", recorded, "--model", other, "--lr", 1e-2]  # fmt: skip
    metrics = distil(*words, "--form", "full", "--out", tmp_path / "full")
    assert metrics[-1]["teacher/divergence"] < 0.5 * metrics[0]["teacher/divergence"], (
        "imitation takes any tokens"
    )
    with pytest.raises(UsageError, match="age 8"):
        distil(*words, "--out", tmp_path / "sampled")


def test_other_weights_are_found_out_wherever_they_stand_in_the_file(recorded, even_model, train, tmp_path):
    def shift(row):
        for segment in row["segments"]:
            segment["logprobs"] = [p - m for p, m in zip(segment["logprobs"], segment["mask"], strict=True)]

    def later(number, row):  # the first eight are as they were
        if number >= 8:
            shift(row)

    def by_a_worker(number, row):
        if number == 17:  # the last in the order in which they are drawn
            shift(row)
            for segment in row["segments"]:
                segment["agent"] = "worker_0"

    words = ["--model", even_model, "--out", tmp_path / "run"]
    refused(train, "as agent 'policy'", *words, "--data", edited(recorded, tmp_path / "later", later))
    refused(train, r"as agent 'worker_0': its log-probs are 1\.00 nats", *words,
            "--data", edited(recorded, tmp_path / "worker", by_a_worker))  # fmt: skip


def test_imitation_takes_what_was_written_without_drawing(recorded, even_model, tmp_path):
    """At temperature 0 there are no log-probs; the tokens are read at the temperature that the student plays at."""

    def greedy(number, row):
        for segment in row["segments"]:
            segment["logprobs"] = []
            for sampled in segment["sampled"]:
                sampled["temperature"] = 0.0

    data = edited(recorded, tmp_path / "greedy", greedy)
    words = [*EVEN, "--groups", 4, "--group-size", 1, "--eval-every", 0, "--device", "cpu", "--steps", 1,
             "--model", even_model, "--data", data]  # fmt: skip
    learnt = []
    for temperature in (1.0, 0.5):
        out = tmp_path / f"cloned-{temperature}"
        args = arguments(
            cloning.Args,
            "cloning",
            "",
            [str(word) for word in [*words, "--temperature", temperature, "--out", out]],
        )
        assert run.train(args, "cloning", cloning.Cloning) == 0
        learnt.append(lines(out)[0]["imitation/loss"])
    assert learnt[1] != pytest.approx(learnt[0], rel=1e-3)
    words += ["--teacher", even_model, "--form", "full", "--old", "sampled"]
    told = distil(*words, "--out", tmp_path / "distilled")
    assert told[0]["teacher/divergence"] == pytest.approx(0.0, abs=1e-6)
    assert "policy/mismatch" not in told[0]


def test_what_a_training_run_kept_is_data_for_the_weights_that_played_it(even_model, train, tmp_path):
    words = [*BASE, "--model", even_model]
    train("grpo", *words, "--steps", 3, "--lr", 0.05, "--keep-rollouts", 1, "--out", tmp_path / "kept")
    rollouts = tmp_path / "kept" / "rollouts"
    kept = list(TrajectoryStore(rollouts / "step-000002"))
    assert set(versions_of(kept)) == {2}
    train("grpo", *words, "--steps", 1, "--data", rollouts / "step-000000", "--out", tmp_path / "first")
    refused(train, "that --model itself sampled", "--model", even_model, "--data", rollouts / "step-000002",
            "--out", tmp_path / "third")  # fmt: skip


def test_what_cannot_be_trained_on_is_told(recorded, even_model, word_model, train, tmp_path):
    model = ["--model", even_model, "--out", tmp_path / "run"]
    refused(train, "there is none at", *model, "--data", tmp_path / "nothing")
    refused(train, "expected episodes of one of these: agentgym/Relay-v0; got Even-v0", *model, "--data", recorded,
            "--env", "agentgym/Relay-v0")  # fmt: skip
    refused(
        train, "expected the vocabulary of --model", "--model", word_model, "--data", recorded, "--out", "x"
    )
    refused(train, "--mismatch is for weights that play", *model, "--data", recorded, "--mismatch", "mask")

    def forget(name, value):
        def edit(number, row):
            for segment in row["segments"]:
                segment[name] = value

        return edited(recorded, tmp_path / name, edit)

    refused(train, "expected token ids, got none", *model, "--data", forget("token_ids", []))
    refused(train, "expected log-probs of its tokens", *model, "--data", forget("logprobs", []))

    seen = set()

    def single(number, row):
        if row["task_id"] in seen:
            row["infrastructure_error"], row["reward"] = "gone", None
        seen.add(row["task_id"])

    alone = edited(recorded, tmp_path / "alone", single)
    refused(train, "several episodes of a task with --group-size 3", *model, "--data", alone)

    def held_out(number, row):
        row["task_id"] = f"test-{number % 12}"

    other = edited(recorded, tmp_path / "other-split", held_out)
    refused(train, r"12 tasks that .*Even-v0 would play, got one of 'test-0'", *model, "--data", other)

    def broken(number, row):
        row["infrastructure_error"], row["reward"] = "gone", None

    refused(train, "24 that broke", *model, "--data", edited(recorded, tmp_path / "broken", broken))
    assert not (tmp_path / "run").exists(), "nothing is left behind by a command that could not begin"


# -- several environments ----------------------------------------------------------------------------------------------


def test_environments_take_turns_whatever_the_batches(even_model):
    from agentgym.policies import make_policy

    def played(sizes):
        policy = make_policy("random")
        parts = {
            "word": Rollouts(WORD[1], {}, policy, Ranks("cpu"), seed=0, group_size=2),
            "relay": Rollouts("agentgym/Relay-v0", {}, policy, Ranks("cpu"), seed=0, group_size=2),
            "even": Rollouts(EVEN[1], {}, policy, Ranks("cpu"), seed=0, group_size=2),
        }
        mixed = Mixture(parts)
        found = [t for size in sizes for t in mixed.play(size)]
        assert mixed.position == sum(sizes)
        return [to_dict(t) | {"started": 0, "seconds": 0} for t in found]

    whole, parts = played([7]), played([1, 1, 3, 2])
    keys = ("id", "task_id", "seed", "extra")
    assert [[t[key] for key in keys] for t in whole] == [[t[key] for key in keys] for t in parts]
    assert [t["extra"]["env"] for t in whole[::2]] == [
        "word",
        "relay",
        "even",
        "word",
        "relay",
        "even",
        "word",
    ]
    assert [t["extra"]["group"] for t in whole] == [n // 2 for n in range(14)]
    assert len({t["id"] for t in whole}) == 14
    assert len({t["task_id"] for t in whole if t["extra"]["env"] == "word"}) == 3


def test_what_was_played_is_held_by_nobody_else():
    """A run empties `played` after each update; lists of the parts' own would keep all that was ever played."""
    from agentgym.policies import make_policy

    part = Rollouts(WORD[1], {}, make_policy("null"), Ranks("cpu"), seed=0)
    mixed = Mixture({WORD[1]: part})
    assert len(mixed.play(3)) == len(mixed.played) == 3
    assert part.played == []


def test_each_environment_has_its_own_keywords_and_split():
    args = flags("grpo", *WORD, "--set", "word=red", "--tasks", "f.jsonl", "--max-turns", 3, "--out", "x",
                 "--also", "agentgym/Relay-v0 hops=2 eval_split=train", "--also", "agentgym/ALFWorld-v0")  # fmt: skip
    word, relay, household = worlds(args)
    assert (word.name, word.eval_split) == (WORD[1], "test")
    assert (relay.name, relay.id, relay.eval_split) == (args.also[0], "agentgym/Relay-v0", "train")
    assert relay.stack.keywords("hf:x")["env_kwargs"] == {"hops": 2, "max_turns": 3}
    assert household.stack.keywords("hf:x")["env_kwargs"] == {"max_turns": 3}


@pytest.mark.parametrize("also", ["", "hops=2", WORD[1]])
def test_bad_environments(also, word_model):
    with pytest.raises(UsageError, match="--also"):
        worlds(flags("grpo", *WORD, "--out", "x", "--also", also))


def test_an_unknown_environment_is_told_before_anything_is_loaded(train, tmp_path):
    with pytest.raises(UsageError, match="Rely-v0"):
        train(
            "grpo", *WORD, "--model", "nowhere", "--also", "agentgym/Rely-v0 hops=2", "--out", tmp_path / "x"
        )


def test_a_run_on_two_environments_learns_from_both(word_model, train, tmp_path):
    words = [
        "--env",
        "baselines.toys:Word-v0",
        "--also",
        "baselines.toys:Word-v0 word=red",
        "--max-new-tokens",
        3,
    ]
    words += ["--model", word_model, "--groups", 3, "--group-size", 2, "--steps", 1, "--keep-rollouts", 1,
              "--eval-episodes", 3, "--device", "cpu", "--out", tmp_path / "run"]  # fmt: skip
    metrics = train("grpo", *words)
    assert metrics[0]["rollout/episodes"] == 6
    assert metrics[0]["eval/episodes"] == 3
    kept = list(TrajectoryStore(tmp_path / "run" / "rollouts" / "step-000000"))
    assert [t.extra["env"] for t in kept[::2]] == [WORD[1], f"{WORD[1]} word=red", WORD[1]]
