"""Concurrency, isolation, determinism and resuming of `collect`."""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import types
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from agentgym import AgentEnv, InfrastructureError, Task, UsageError, Verdict, cli
from agentgym.envs.relay import RelayEnv
from agentgym.errors import ContextOverflow, TaskError
from agentgym.policies import Null, Policy, Random, Reply, Scripted
from agentgym.rollout import collect, make_env
from agentgym.trajectory.store import TrajectoryStore
from agentgym.wrappers import ContextCompaction


class Walk(AgentEnv):
    """Pays for even numbers; what it says depends on its seed."""

    tasks = tuple(Task(f"t{n}") for n in range(5))
    default_max_turns = 4

    def begin(self, task):
        self.paid = 0
        return f"{task.id} {self.np_random.integers(1000)}"

    def respond(self, action):
        self.paid += len(action) % 2 == 0
        return f"{action}! {self.np_random.integers(1000)}"

    def verify(self, episode):
        return Verdict(self.paid / self.max_turns)


def told(trajectories):
    """What happened, without times."""
    return [
        (
            t.id,
            t.task_id,
            t.seed,
            t.prompt,
            t.reward,
            t.truncated,
            [(s.action, s.observation) for s in t.steps],
        )
        for t in trajectories
    ]


def test_in_order_and_labelled():
    done = []
    before = set(threading.enumerate())
    trajectories = collect("agentgym/Relay-v0", "gold", episodes=5, seed=3, workers=2, on_finish=done.append)
    assert [t.id for t in trajectories] == [f"agentgym/Relay-v0/gold/3/{i}" for i in range(5)]
    assert [t.reward for t in trajectories] == [1.0] * 5
    assert all(t.terminated and t.resolved and t.policy == "gold" for t in trajectories)
    assert [t.extra["episode"] for t in trajectories] == list(range(5))
    assert {t.id for t in done} == {t.id for t in trajectories}
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("policy", [Random(), Null()])
def test_workers_and_a_plain_loop_agree(policy):
    one, four = (told(collect(Walk, policy, episodes=12, seed=7, workers=n)) for n in (1, 4))
    assert one == four
    env = Walk()
    for index, (_, task, seed, prompt, reward, _, steps) in enumerate(one):
        assert env.reset(seed=seed)[0] == prompt
        assert env.episode.task.id == task
        player = policy.for_episode(env, np.random.default_rng((7, 1, index)))
        for action, observation in steps:
            assert player.act(((),))[0].text == action
            answer, paid, *_ = env.step(action)
            assert answer == observation
        assert paid == reward


def test_other_seeds_other_episodes():
    first, second = (told(collect(Walk, "random", episodes=4, seed=seed)) for seed in (0, 1))
    assert all(a[2:] != b[2:] for a, b in zip(first, second, strict=True))


def test_unknown_names_fail_at_once():
    with pytest.raises(UsageError, match=r"Did you mean 'agentgym/Relay-v0'"):
        collect("agentgym/Relai-v0", "null", episodes=1)
    with pytest.raises(TypeError, match="hop"):
        collect("agentgym/Relay-v0", "null", episodes=1, env_kwargs={"hop": 3})
    with pytest.raises(UsageError, match="gold"):
        collect("agentgym/Relay-v0", "glod", episodes=1)
    with pytest.raises(TaskError, match="no task 't9'"):
        collect(Walk, "null", episodes=1, tasks=["t9"])
    with pytest.raises(UsageError, match="compact"):
        collect(Walk, "null", episodes=1, compact=100)


def test_tasks_and_groups():
    assert [t.task_id for t in collect(Walk, "null", episodes=None)] == [f"t{n}" for n in range(5)]
    assert [t.task_id for t in collect(Walk, "null", episodes=5, tasks=["t3", 1])] == [
        "t3",
        "t1",
        "t3",
        "t1",
        "t3",
    ]
    grouped = collect(Walk, "random", episodes=None, tasks=["t0", "t0", "t1"], group_size=2, workers=3)
    assert [t.task_id for t in grouped] == ["t0"] * 4 + ["t1"] * 2
    assert [t.extra["group"] for t in grouped] == [0, 0, 1, 1, 2, 2]
    assert grouped[0].seed == grouped[1].seed != grouped[2].seed
    assert grouped[0].prompt == grouped[1].prompt
    assert grouped[0].steps[0].action != grouped[1].steps[0].action


def test_the_stack():
    env = make_env("agentgym/Relay-v0", env_kwargs={"hops": 3})
    assert env.unwrapped.hops == 3
    assert "RecordTrajectory<ChatContext<Relay" in str(env)
    env = make_env("agentgym/Relay-v0", compact=400, keep_last=1, summarizer="drop")
    assert "RecordTrajectory<ContextCompaction<Relay" in str(env)
    inner = env.env
    assert (inner.max_tokens, inner.reply_tokens, inner.keep_last, inner.strategy) == (400, 100, 1, "drop")


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"reply_tokens": -5}, "reply_tokens means something only with compact=TOKENS, got -5"),
        ({"keep_last": 1}, "keep_last means something only with compact=TOKENS, got 1"),
        ({"summarizer": "rule"}, "summarizer means something only with compact=TOKENS, got 'rule'"),
        ({"tokens": "chars"}, "tokens means something only with compact=TOKENS, got 'chars'"),
        ({"prompts": "text", "keep_last": 1}, "keep_last means something only with compact=TOKENS, got 1"),
        ({"prompts": "text", "compact": 900}, "give prompts or compact, not both"),
        ({"mask_blocked": True}, "mean something only with anti_hack='block'"),
    ],
)
def test_a_keyword_without_the_one_it_goes_with_is_told_before_anything_is_made(keywords, said, monkeypatch):
    monkeypatch.setattr(gymnasium, "make", lambda *_, **__: pytest.fail("made an environment"))
    with pytest.raises(UsageError, match=said):
        make_env("agentgym/Relay-v0", **keywords)


def test_an_environment_whose_wrappers_refuse_is_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(RelayEnv, "close", lambda self: closed.append(self))
    with pytest.raises(UsageError, match="expected keep_last >= 1, got 0"):
        make_env("agentgym/Relay-v0", compact=900, keep_last=0, delegation={})
    assert len(closed) == 1
    env = make_env("agentgym/Relay-v0", prompts="text", tokens=lambda messages: 7)
    assert env.reset(seed=0)[1]["context_tokens"] == 7
    assert len(closed) == 1


class Model(Null):
    """Stands for a model that takes memory."""

    made: ClassVar[list["Model"]] = []

    def __init__(self, name):
        self.name, self.closed = f"hf:{name}", 0
        self.made.append(self)

    def close(self):
        self.closed += 1


@pytest.fixture
def models(monkeypatch):
    """What `make_policy` makes of "hf:NAME", and how often each was closed."""
    module = types.ModuleType("agentgym.policies.hf")
    module.HFPolicy = Model
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Model, "made", [])
    return lambda: [(model.name, model.closed) for model in Model.made]


def test_models_are_made_once_for_all_workers_and_closed(models, tmp_path):
    stack = {"compact": 4000, "summarizer": "hf:writer", "delegation": {"worker_policy": "hf:helper"}}
    played = collect(
        "agentgym/Relay-v0", "hf:player", episodes=6, workers=6, out=tmp_path, env_kwargs={"hops": 2}, **stack
    )
    assert sorted(models()) == [("hf:helper", 1), ("hf:player", 1), ("hf:writer", 1)]
    assert [t.infrastructure_error for t in played] == [""] * 6
    settings = json.loads((tmp_path / "run.json").read_text())
    assert settings["env"] == stack | {"env_kwargs": {"hops": 2}}


def test_a_model_of_one_environment_is_closed_with_it(models):
    for text in ("hf:helper", "null"):
        env = make_env("agentgym/Relay-v0", delegation={"worker_policy": text})
        env.close()
    make_env("agentgym/Relay-v0", compact=4000, summarizer="hf:writer").close()
    given = Model("given")
    make_env("agentgym/Relay-v0", compact=4000, summarizer=given, delegation={"worker_policy": given}).close()
    assert models() == [("hf:helper", 1), ("hf:writer", 1), ("hf:given", 0)]


def test_the_command_line_closes_the_models_that_it_named(models, capsys):
    words = "agentgym/Relay-v0 --policy hf:player --episodes 2 --compact 4000 --tokens chars --summarizer hf:writer"
    assert cli.main(["run", *words.split(), "--delegate", "1", "--worker-policy", "hf:helper", "--json"]) == 0
    assert sorted(models()) == [("hf:helper", 1), ("hf:player", 1), ("hf:writer", 1)]
    assert json.loads(capsys.readouterr().out)["episodes"] == 2


def test_an_environment_that_was_registered_with_its_own_context_keeps_it():
    def compacted(**kwargs):
        return ContextCompaction(RelayEnv(**kwargs), max_tokens=400, reply_tokens=50, summarizer="drop")

    gymnasium.register("test/Compacted-v0", compacted)
    try:
        assert "ChatContext" not in str(make_env("test/Compacted-v0"))
        (trajectory,) = collect(
            "test/Compacted-v0", "gold", episodes=1, env_kwargs={"hops": 20, "scenery": 400}
        )
        assert trajectory.resolved
        assert {segment.cause for segment in trajectory.segments} == {"start", "compaction"}
        with pytest.raises(UsageError, match="the conversations of another wrapper"):
            make_env("test/Compacted-v0", compact=200)
    finally:
        del gymnasium.registry["test/Compacted-v0"]


@pytest.mark.parametrize("summarizer", ["rule", "policy"])
def test_compaction_changes_nothing_for_scripted_policies(summarizer):
    kwargs = {"hops": 12, "scenery": 300}
    plain = collect("agentgym/Relay-v0", "gold", episodes=2, env_kwargs=kwargs)
    compacted = collect(
        "agentgym/Relay-v0",
        "gold",
        episodes=2,
        env_kwargs=kwargs,
        compact=700,
        reply_tokens=50,
        summarizer=summarizer,
    )
    assert any(s.kind == "summary" for t in compacted for s in t.steps) == (summarizer == "policy")
    actions = [[[s.action for s in t.steps if s.kind == "turn"] for t in run] for run in (plain, compacted)]
    assert actions[0] == actions[1]
    assert [t.reward for t in compacted] == [1.0, 1.0]


# -- concurrency and isolation ---------------------------------------------------------------------------------


def test_environments_are_reused_and_closed():
    made, closed = [], []

    class Counted(Walk):
        def __init__(self):
            super().__init__()
            made.append(threading.get_ident())

        def close(self):
            super().close()
            closed.append(threading.get_ident())

    collect(Counted, "null", episodes=50, workers=3)
    assert 2 <= len(made) <= 4  # one of them only to look at
    assert sorted(made) == sorted(closed)


def test_a_slow_environment_does_not_hold_up_the_others():
    others_are_done = threading.Event()
    started = itertools.count()

    class OneSlow(Walk):
        def respond(self, action):
            if self.slow:
                assert others_are_done.wait(20)
            return super().respond(action)

        def begin(self, task):
            self.slow = next(started) == 0
            return super().begin(task)

    finished = []

    def note(trajectory):
        finished.append(trajectory.id)
        if len(finished) == 49:
            others_are_done.set()

    class Batched(Null):
        max_batch = 8

        def for_episode(self, env, rng):
            return self

    for policy in (Null(), Batched()):
        finished.clear()
        others_are_done.clear()
        started = itertools.count()
        trajectories = collect(OneSlow, policy, episodes=50, workers=8, on_finish=note)
        assert not any(t.infrastructure_error for t in trajectories)


@pytest.mark.parametrize("error", [ValueError("broken code"), InfrastructureError("broken server")])
@pytest.mark.parametrize("where", ["begin", "respond"])
def test_a_broken_episode_is_marked_and_others_go_on(error, where):
    class Poisoned(Walk):
        def begin(self, task):
            self.bad = task.id == "t2"
            if where == "begin" and self.bad:
                raise error
            return super().begin(task)

        def respond(self, action):
            if self.bad and self.turns_left == 1:
                raise error
            return super().respond(action)

    trajectories = collect(Poisoned, Scripted(["aa"] * 4), episodes=None, workers=2)
    bad = trajectories[2]
    assert bad.reward is None
    assert bad.outcome is None
    assert bad.task_id == "t2"
    assert ("traceback" in bad.extra) == isinstance(error, ValueError)
    assert bad.infrastructure_error == (
        "ValueError: broken code" if "traceback" in bad.extra else "broken server"
    )
    assert [t.reward for t in trajectories if t is not bad] == [1.0] * 4
    if where == "respond":
        assert [s.action for s in bad.steps] == ["aa"] * 3  # what was recorded until then
        assert bad.steps[1].observation.startswith("aa! ")
        assert [s.step for segment in bad.segments for s in segment.sampled] == [0, 1, 2]


def test_a_hanging_episode_is_left_behind():
    release = threading.Event()

    class Hanging(Walk):
        def respond(self, action):
            if self.episode.task.id == "t1":
                assert release.wait(60)
            return super().respond(action)

    try:
        trajectories = collect(Hanging, "null", episodes=None, workers=1, episode_timeout=0.3)
        assert "episode_timeout=0.3" in trajectories[1].infrastructure_error
        assert trajectories[1].reward is None
        assert [t.reward for i, t in enumerate(trajectories) if i != 1] == [1.0] * 4
    finally:
        release.set()


def test_environments_that_run_a_loop_of_their_own():
    class Asynchronous(Walk):
        def respond(self, action):
            return asyncio.run(asyncio.sleep(0, super().respond(action)))

    async def caller():
        return collect(Asynchronous, "null", episodes=3, workers=2)

    assert [t.reward for t in asyncio.run(caller())] == [1.0] * 3


def test_construction_errors_reach_the_caller():
    calls = itertools.count()

    def make():
        if next(calls) == 1:
            raise RuntimeError("no more licences")
        return Walk()

    with pytest.raises(RuntimeError, match="no more licences"):
        collect(make, "null", episodes=4, workers=1)


@pytest.mark.parametrize("odd", [float("nan"), {1, 2}, object()])
def test_an_episode_that_cannot_be_written_is_marked_and_others_go_on(tmp_path, odd):
    class Odd(Walk):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            if self.episode.task.id == "t2":
                info["anchor"] = odd
            return observation, reward, terminated, truncated, info

    trajectories = collect(Odd, Scripted(["aa"] * 4), episodes=None, workers=2, out=tmp_path)
    assert [t.reward for t in trajectories] == [1.0, 1.0, None, 1.0, 1.0]
    bad = trajectories[2]
    assert "cannot be written" in bad.infrastructure_error
    assert "steps[0].info.anchor" in bad.infrastructure_error
    assert (bad.outcome, bad.terminated, bad.truncated) == (None, False, False)
    assert [s.action for s in bad.steps] == ["aa"] * 4  # the rest of it is kept
    assert sorted(TrajectoryStore(tmp_path), key=lambda t: t.extra["episode"]) == trajectories
    ran = []
    collect(Odd, Scripted(["aa"] * 4), episodes=None, out=tmp_path, on_finish=ran.append)
    assert [t.task_id for t in ran] == ["t2"]  # tried again, like any that broke


def test_an_episode_of_which_nothing_can_be_written_leaves_its_name(tmp_path):
    class Sure(Policy):
        name = "sure"

        def act(self, conversations):
            return [Reply("aa", (1,), (2,), (-0.5,), temperature=float("nan")) for _ in conversations]

    (bad,) = collect(Walk, Sure(), episodes=1, tasks=["t3"], out=tmp_path)
    assert "temperature" in bad.infrastructure_error
    assert (bad.reward, bad.task_id, bad.steps, bad.segments) == (None, "t3", [], [])
    assert (bad.extra["episode"], bad.extra["group"]) == (0, 0)
    assert list(TrajectoryStore(tmp_path)) == [bad]


# -- policies --------------------------------------------------------------------------------------------------


class Batched(Policy):
    name = "batched"
    max_batch = 4
    takes_seeds = True

    def __init__(self):
        self.batches = []

    def act(self, conversations, *, seeds):
        self.batches.append(len(conversations))
        time.sleep(0.002)
        return [Reply(f"{len(c)} {seed}") for c, seed in zip(conversations, seeds, strict=True)]


def test_batches_are_batches():
    policy = Batched()
    trajectories = collect(Walk, policy, episodes=40, workers=8)
    assert sum(policy.batches) == sum(len(t.steps) for t in trajectories) == 160
    assert max(policy.batches) == 4
    assert len(policy.batches) < 120
    assert told(trajectories) == told(collect(Walk, Batched(), episodes=40, workers=1))
    actions = [s.action for t in trajectories for s in t.steps]
    assert len(set(actions)) == len(actions)  # each question has a seed of its own


def test_a_failing_policy_marks_and_a_wrong_one_raises(tmp_path):
    class Down(Batched):
        def act(self, conversations, *, seeds):
            raise InfrastructureError("server is down")

    assert {t.infrastructure_error for t in collect(Walk, Down(), episodes=6)} == {"server is down"}

    class Wrong(Batched):
        def act(self, conversations, *, seeds):
            return (
                super().act(conversations, seeds=seeds)[1:]
                if len(self.batches) > 12
                else [Reply("")] * len(seeds)
            )

    class Buggy(Null):
        def next_action(self, conversation):
            raise KeyError("bug")

    wrong = Wrong()
    wrong.batches = [0] * 20
    with pytest.raises(UsageError, match="Reply, got"):
        collect(Walk, wrong, episodes=6)
    with pytest.raises(KeyError):
        collect(Walk, Buggy(), episodes=6, out=tmp_path)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("answer", [None, "text", ["text"], [None], (), iter(())])
def test_what_is_no_reply_is_the_policys_mistake(batch, answer):
    class Odd(Policy):
        name = "odd"
        max_batch = batch

        def act(self, conversations):
            return answer

    with pytest.raises(UsageError, match=r"policy 'odd': expected a list of \d Reply, got"):
        collect(Walk, Odd(), episodes=2)


def test_an_environment_that_exits_breaks_its_episode_only():
    class Leaves(Walk):
        def respond(self, action):
            raise SystemExit(0)

    assert {t.infrastructure_error for t in collect(Leaves, "random", episodes=3)} == {"SystemExit: 0"}


def test_closing_badly_is_no_reason_to_stop():
    class Sticky(Walk):
        def close(self):
            raise OSError("will not close")

    assert len(collect(Sticky, "random", episodes=2)) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"workers": 0}, "workers to be a whole number >= 1, got 0"),
        ({"workers": -3}, "got -3"),
        ({"seed": -1}, "seed to be a whole number >= 0, got -1"),
        ({"episode_timeout": 0}, "episode_timeout > 0"),
        ({"episode_timeout": float("nan")}, "episode_timeout > 0"),
        ({"group_size": 0}, "group_size"),
        ({"policy": object()}, "expected a Policy"),
    ],
)
def test_arguments_that_make_no_sense(arguments, said):
    with pytest.raises(UsageError, match=said):
        collect(Walk, **({"policy": "random", "episodes": 1} | arguments))


def test_keywords_of_the_environment_have_a_place_of_their_own():
    with pytest.raises(UsageError, match=r"no 'hops'; keywords of the environment go into env_kwargs"):
        collect("agentgym/Relay-v0", "gold", episodes=1, hops=3)


def test_one_run_at_a_time_in_a_folder(tmp_path):
    def second_run(trajectory):
        with pytest.raises(UsageError, match="another run is writing"):
            collect(Walk, "random", episodes=2, out=tmp_path)

    collect(Walk, "random", episodes=1, out=tmp_path, on_finish=second_run)
    assert len(collect(Walk, "random", episodes=2, out=tmp_path)) == 2  # given back


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_torn_settings_are_said(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=r"run\.json to hold the settings"):
        collect(Walk, "random", episodes=1, out=tmp_path)


class Small(Batched):
    """A model that reads five messages; each batch is refused before anything of it is answered."""

    name = "small"

    def __init__(self, max_batch=4):
        super().__init__()
        self.max_batch = max_batch

    def act(self, conversations, *, seeds):
        for position, conversation in enumerate(conversations):
            if len(conversation) > 5:
                raise ContextOverflow(f"{len(conversation)} messages are too many", position)
        return super().act(conversations, seeds=seeds)


class Uneven(Walk):
    """Even tasks take two turns, odd ones four."""

    def respond(self, action):
        if len(self.episode.turns) == 1 and int(self.episode.task.id[1]) % 2 == 0:
            self.finish()
        return super().respond(action)

    def verify(self, episode):
        return Verdict(1.0)


@pytest.mark.parametrize("max_batch", [1, 4])
def test_an_agent_that_runs_out_of_context_is_truncated_and_others_go_on(max_batch, tmp_path):
    trajectories = collect(Uneven, Small(max_batch), episodes=None, workers=4, out=tmp_path)
    assert [t.reward for t in trajectories] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert [t.truncated for t in trajectories] == [False, True, False, True, False]
    assert [t.resolved for t in trajectories] == [True, False, True, False, True]
    assert [len(t.steps) for t in trajectories] == [2, 3, 2, 3, 2]
    assert not any(t.infrastructure_error for t in trajectories)
    events = [(e.step, e.data) for e in trajectories[1].events if e.kind == "context_overflow"]
    assert events == [(3, {"why": "7 messages are too many"})]
    assert trajectories[1].verdict == {}
    # It is a result: not run again.
    ran = []
    collect(Uneven, Small(max_batch), episodes=None, out=tmp_path, on_finish=ran.append)
    assert ran == []


class Summarizer(Policy):
    """Writes its seed; without one it draws from a generator that all threads share."""

    name = "seeded"
    takes_seeds = True

    def __init__(self):
        self.shared = np.random.default_rng(0)

    def act(self, conversations, *, seeds=None):
        if seeds is None:
            seeds = self.shared.integers(1 << 62, size=len(conversations))
        time.sleep(random.random() * 0.005)
        return [Reply(f"seed {seed}") for seed in seeds]


def test_summaries_of_a_given_model_do_not_depend_on_workers():
    def summaries(workers):
        writer = Summarizer()
        env = lambda: ContextCompaction(  # noqa: E731
            RelayEnv(hops=20, scenery=200), 700, reply_tokens=50, summarizer=writer
        )
        run = collect(env, "gold", episodes=6, workers=workers)
        return [[e.data["summary"] for e in t.events if e.kind == "compaction"] for t in run]

    one = summaries(1)
    assert all(len(found) >= 2 for found in one)
    assert len({text for found in one for text in found[:2]}) == 12  # each with a seed of its own
    assert summaries(4) == one


# -- resuming --------------------------------------------------------------------------------------------------


def test_resume_after_an_interrupt(tmp_path):
    def interrupt(trajectory):
        if trajectory.extra["episode"] == 3:
            raise KeyboardInterrupt

    whole = told(collect(Walk, "random", episodes=10))
    with pytest.raises(KeyboardInterrupt):
        collect(Walk, "random", episodes=8, out=tmp_path, workers=1, on_finish=interrupt)
    kept = TrajectoryStore(tmp_path / "trajectories.jsonl").ids()
    assert 4 <= len(kept) < 8
    ran = []
    assert told(collect(Walk, "random", episodes=8, out=tmp_path, on_finish=ran.append)) == whole[:8]
    assert {t.id for t in ran}.isdisjoint(kept)
    assert told(collect(Walk, "random", episodes=10, out=tmp_path)) == whole
    lines = (tmp_path / "trajectories.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(t[0] for t in whole)


def test_broken_episodes_are_tried_again(tmp_path):
    broken = True

    class Flaky(Walk):
        def begin(self, task):
            if broken and task.id == "t1":
                raise InfrastructureError("down for a moment")
            return super().begin(task)

    assert [bool(t.infrastructure_error) for t in collect(Flaky, "null", episodes=None, out=tmp_path)][1]
    broken = False
    ran = []
    again = collect(Flaky, "null", episodes=None, out=tmp_path, on_finish=ran.append)
    assert [t.task_id for t in ran] == ["t1"]
    assert [t.reward for t in again] == [1.0] * 5
    assert [t.reward for t in collect(Flaky, "null", episodes=None, out=tmp_path)] == [1.0] * 5


def test_another_run_in_the_same_folder_is_refused(tmp_path):
    collect("agentgym/Relay-v0", "null", episodes=1, out=tmp_path / "a")
    for changed in ({"seed": 1}, {"tasks": [0]}, {"env_kwargs": {"hops": 2}}, {"compact": 1000}):
        with pytest.raises(UsageError, match=r"another (seed|tasks|env)"):
            collect("agentgym/Relay-v0", "null", episodes=1, out=tmp_path / "a", **changed)
    with pytest.raises(UsageError, match="another policy"):
        collect("agentgym/Relay-v0", "random", episodes=1, out=tmp_path / "a")
    (tmp_path / "a" / "run.json").unlink()
    with pytest.raises(UsageError, match=r"no run\.json"):
        collect("agentgym/Relay-v0", "null", episodes=1, out=tmp_path / "a")


def test_tasks_that_changed_are_another_run(tmp_path):
    file, out = tmp_path / "tasks.jsonl", tmp_path / "out"
    run = lambda **more: collect(  # noqa: E731
        "agentgym/Relay-v0", "gold", episodes=2, out=out, env_kwargs={"tasks": str(file)}, **more
    )
    file.write_text('{"id": "one", "number": 1}\n')
    assert {t.task_id for t in run()} == {"one"}
    assert {t.task_id for t in run()} == {"one"}  # the same: resumed
    for changed in (
        '{"id": "two", "number": 1}',
        '{"id": "one", "number": 2}',
        '{"id": "one", "number": 1, "prompt": "!"}',
    ):
        file.write_text(changed + "\n")
        with pytest.raises(UsageError, match="tasks that have changed") as caught:
            run()
        assert "\n" not in str(caught.value)


def test_only_the_tasks_that_are_played_are_compared(tmp_path):
    class Other(Walk):
        tasks = (Task("t0"), Task("t1", "new"))

    for env in (Walk, Other):
        env.__name__ = "Same"
    make = {"episodes": 1, "tasks": ["t0"], "out": tmp_path}
    try:
        collect(Walk, "null", **make)
        collect(Other, "null", **make)
        with pytest.raises(UsageError, match="tasks"):
            collect(Other, "null", **(make | {"tasks": ["t1"]}))
    finally:
        Walk.__name__ = "Walk"


def test_records_in_tasks_are_told_apart_wherever_they_were_read(tmp_path):
    import dataclasses
    from pathlib import Path

    @dataclasses.dataclass
    class Record:
        patch: str
        folder: Path = dataclasses.field(compare=False)

    def digest(patch, folder, **more):
        class Recorded(Walk):
            tasks = (Task("t0", data={"record": Record(patch, Path(folder)), **more}),)

        out = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        collect(Recorded, "null", episodes=1, out=out)
        return json.loads((out / "run.json").read_text())["tasks_sha256"]

    assert digest("a", "/x") == digest("a", "/y") != digest("b", "/x")
    assert digest("a", "/x", what=object()) == digest("a", "/x", what=object())  # no address gets in


SCRIPT = """
import sys, time
from agentgym.envs.relay import RelayEnv
from agentgym.rollout import collect

class Slow(RelayEnv):
    def respond(self, action):
        time.sleep(0.002)
        return super().respond(action)

if __name__ == "__main__":
    collect(Slow, "random", episodes=60, workers=3, out=sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_resumed(tmp_path, how):
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT)
    lines = out / "trajectories.jsonl"
    process = subprocess.Popen([sys.executable, script, out], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not lines.exists() or lines.read_bytes().count(b"\n") < 10:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, how)
    process.communicate(timeout=10)
    assert process.returncode in (-how, 130)  # by the signal, not by a second error
    before = TrajectoryStore(lines).ids()
    assert 10 <= len(before) < 60

    subprocess.run([sys.executable, script, out], check=True, timeout=120)
    subprocess.run([sys.executable, script, tmp_path / "whole"], check=True, timeout=120)
    resumed = list(TrajectoryStore(lines))
    whole = list(TrajectoryStore(tmp_path / "whole" / "trajectories.jsonl"))
    assert len({t.id for t in resumed}) == len(resumed) == 60
    assert sorted(told(resumed)) == sorted(told(whole))


def test_parts_of_a_run_are_what_the_whole_would_be():
    whole = told(collect(Walk, "random", episodes=8, seed=2, group_size=2))
    parts = [collect(Walk, "random", episodes=4, seed=2, group_size=2, first=first) for first in (0, 4)]
    assert [*told(parts[0]), *told(parts[1])] == whole
    assert [t.extra["group"] for t in parts[1]] == [2, 2, 3, 3]
    with pytest.raises(UsageError, match="first to be a multiple of group_size=2, got 3"):
        collect(Walk, "null", episodes=4, group_size=2, first=3)


def test_parts_of_a_run_on_chosen_tasks_are_what_the_whole_would_be(tmp_path):
    chosen = {"seed": 2, "tasks": ["t1", "t4", "t2"]}
    whole = collect(Walk, "random", episodes=4, **chosen, out=tmp_path / "whole")
    assert [t.task_id for t in whole] == ["t1", "t4", "t2", "t1"]
    for first in (2, 0):
        collect(Walk, "random", episodes=2, first=first, **chosen, out=tmp_path / "parts")
    assert told(collect(Walk, "random", episodes=4, **chosen, out=tmp_path / "parts")) == told(whole)
    # Groups 3 and 4 of the run, where every group goes on through the tasks.
    pairs = collect(Walk, "random", episodes=4, first=6, group_size=2, **chosen)
    assert [t.task_id for t in pairs] == ["t1", "t1", "t4", "t4"]
    assert told(pairs) == told(collect(Walk, "random", episodes=10, group_size=2, **chosen))[6:]


class Sleepy(Walk):
    """Takes its time, never the same, and ends when it is told to."""

    def respond(self, action):
        time.sleep(random.random() / 500)
        if action.endswith("stop"):
            self.finish()
        return super().respond(action)


class Batches(Policy):
    """Remembers who was asked together; answers with a text that depends on the seed."""

    max_batch = 64
    takes_seeds = True

    def __init__(self):
        self.batches = []

    def act(self, conversations, *, seeds):
        self.batches.append([conversation[0].content for conversation in conversations])
        return [Reply(f"{seed % 100}{' stop' if seed % 3 == 0 else ''}") for seed in seeds]


def test_lockstep_asks_for_the_same_batches():
    runs = []
    for workers in (5, 5, 9):
        policy = Batches()
        trajectories = collect(Sleepy, policy, episodes=9, seed=4, workers=workers, lockstep=True)
        runs.append((policy.batches, told(trajectories)))
    assert runs[0] == runs[1]
    assert len(runs[0][0][0]) == 5
    assert runs[2][1] == runs[0][1], "how many run at once is nobody's business"
    # All nine at once: a batch holds everybody who has not ended, in order.
    prompts = [prompt for _, _, _, prompt, *_ in runs[2][1]]
    turns = [len(steps) for *_, steps in runs[2][1]]
    assert len(set(turns)) > 1
    expected = [[p for p, n in zip(prompts, turns, strict=True) if n > k] for k in range(max(turns))]
    assert runs[2][0] == expected


def test_lockstep_keeps_to_the_policy_s_batch_size_and_survives_failures():
    class Fails(Sleepy):
        def begin(self, task):
            if task.id == "t3":
                raise InfrastructureError("no room")
            return super().begin(task)

    policy = Batches()
    policy.max_batch = 2
    trajectories = collect(Fails, policy, episodes=None, workers=5, lockstep=True)
    assert [bool(t.infrastructure_error) for t in trajectories] == [False, False, False, True, False]
    assert {len(batch) for batch in policy.batches} <= {1, 2}
    assert len(policy.batches[0]) == len(policy.batches[1]) == 2

    class Broken(Batches):
        def act(self, conversations, *, seeds):
            raise ZeroDivisionError("a bug of the policy")

    with pytest.raises(ZeroDivisionError):
        collect(Walk, Broken(), episodes=6, workers=3, lockstep=True)


def test_lockstep_replaces_an_environment_that_hangs():
    class Hangs(Walk):
        def respond(self, action):
            if self.episode.task.id == "t1":
                time.sleep(2.0)
            return super().respond(action)

    trajectories = collect(Hangs, Batches(), episodes=None, workers=2, lockstep=True, episode_timeout=0.5)
    assert [bool(t.infrastructure_error) for t in trajectories] == [False, True, False, False, False]
