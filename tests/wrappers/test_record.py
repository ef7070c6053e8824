import json

import gymnasium
import numpy as np
import pytest

from agentgym.core import AgentEnv, Task, Verdict, tool
from agentgym.errors import InfrastructureError, SegmentError, UsageError
from agentgym.messages import assistant, system, user
from agentgym.rollout import collect
from agentgym.spaces import UnicodeText
from agentgym.trajectory import Reply, TrajectoryStore, to_dict
from agentgym.trajectory.replay import Difference, replay, rescore
from agentgym.wrappers import ChatContext, ContextCompaction
from agentgym.wrappers.record import RecordTrajectory
from tests.trajectory.test_store import VALIDATOR
from tests.trajectory.toy import END, greedy, render

GO = '<tool_call>{"name": "go", "arguments": {"where": "%s"}}</tool_call>'


class Walk(AgentEnv):
    """Go north twice. The seed names the place."""

    instructions = "Walk."
    tasks = (Task("short", "go"), Task("other", "go"))
    default_max_turns = 6

    def begin(self, task):
        self.place, self.steps = int(self.np_random.integers(1000)), 0
        return f"{task.id}: at {self.place}"

    @tool
    def go(self, where: str) -> str:
        """Go."""
        if where == "break":
            raise InfrastructureError("the floor is gone")
        self.steps += where == "north"
        if self.steps == 2:
            self.finish()
        return f"went {where}, {self.np_random.integers(1000)}"

    def anchor(self):
        return f"{self.place}/{self.steps}"

    def verify(self, episode):
        return Verdict(
            float(episode.done), components={"done": 1.0}, held_out={"h": 0.5}, evidence={"e": "x"}
        )


class Echo(AgentEnv):
    """Plain text; says what was said, at length, until "stop"."""

    tasks = (Task("t"),)
    default_max_turns = 12

    def begin(self, task):
        return "say"

    def respond(self, action):
        if action == "stop":
            self.finish()
        return f"heard {action} " + "word " * 20

    def verify(self, episode):
        return Verdict(float(episode.done))


def play(env, actions, **reset):
    env.reset(**reset)
    for action in actions:
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return info
    return info


def test_an_episode_becomes_a_trajectory(tmp_path):
    env = RecordTrajectory(Walk(), tmp_path, policy="me")
    assert env.trajectory is None
    play(env, [GO % "south", "nonsense", GO % "north", GO % "north"], seed=3)
    t = env.trajectory
    assert (t.id, t.env_id, t.policy, t.seed) == ("Walk-1", "Walk", "me", 3)
    assert t.prompt == f"{t.task_id}: at {env.unwrapped.place}"
    assert (t.reward, t.terminated, t.truncated, t.resolved, t.hacked) == (1.0, True, False, True, None)
    assert t.outcome == "clean_resolved"
    assert t.verdict == {
        "score": 1.0,
        "passed": True,
        "components": {"done": 1.0},
        "held_out": {"h": 0.5},
        "evidence": {"e": "x"},
    }
    assert [step.kind for step in t.steps] == ["turn"] * 4
    assert [step.reward for step in t.steps] == [0, 0, 0, 1.0]
    assert t.steps[0].calls[0].name == "go"
    assert t.steps[0].calls[0].arguments == {"where": "south"}
    assert t.steps[0].calls[0].text.startswith("went south")
    assert t.steps[0].info == {"anchor": f"{env.unwrapped.place}/0"}
    assert t.steps[1].info["invalid_action"] is True
    assert t.steps[1].calls == []
    assert t.steps[0].observation == t.segments[0].messages[3].content
    assert [m.role for m in t.segments[0].messages[:3]] == ["system", "user", "assistant"]
    assert t.segments[0].messages[0].content == env.unwrapped.system_prompt
    assert len(t.segments) == 1
    assert t.seconds > 0
    assert TrajectoryStore(tmp_path).load() == [t]
    VALIDATOR.validate(to_dict(t))


def test_ids_are_unused_in_the_file_or_given(tmp_path):
    for expected in (["Walk-1", "mine"], ["Walk-2", "Walk-3"]):
        env = RecordTrajectory(Walk(), tmp_path)
        ids = []
        for name in expected:
            env.next_id = name if name == "mine" else None
            play(env, [GO % "north"] * 2)
            ids.append(env.trajectory.id)
        assert ids == expected
        env.close()
    assert TrajectoryStore(tmp_path).ids() == {"Walk-1", "mine", "Walk-2", "Walk-3"}


def test_an_unfinished_episode_is_not_written(tmp_path):
    env = RecordTrajectory(Walk(), tmp_path)
    env.reset()
    env.step(GO % "south")
    env.reset()
    env.step(GO % "south")
    env.close()
    env.close()
    assert TrajectoryStore(tmp_path).load() == []


def test_truncation_and_the_environments_errors_pass_through():
    env = RecordTrajectory(Walk(max_turns=1))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("x")
    play(env, [GO % "south"])
    assert (env.trajectory.terminated, env.trajectory.truncated, env.trajectory.reward) == (False, True, 0.0)
    assert env.trajectory.outcome == "clean_unresolved"
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("x")
    env.reset()
    with pytest.raises(UsageError, match="got int"):
        env.step(3)


def test_infrastructure_errors_have_no_reward(tmp_path):
    env = RecordTrajectory(Walk(), tmp_path)
    play(env, [GO % "north", GO % "break"], seed=1)
    t = env.trajectory
    assert (t.infrastructure_error, t.reward, t.truncated) == ("the floor is gone", None, True)
    assert (t.outcome, t.resolved, t.verdict) == (None, None, {})
    assert t.steps[-1].observation == "The episode ended because the environment failed."
    assert TrajectoryStore(tmp_path).load() == [t]
    assert replay(t, Walk()) is None


@pytest.mark.parametrize("entry_point", ["tests.wrappers.test_record:Walk", Walk])
def test_the_spec_of_the_stack_is_kept_where_it_can_be_written(entry_point):
    gymnasium.register("test/Walk-v0", entry_point, order_enforce=False, disable_env_checker=True)
    try:
        env = RecordTrajectory(ChatContext(gymnasium.make("test/Walk-v0", max_turns=3)), "somewhere")
        env.reset()
        assert env.trajectory.env_id == "test/Walk-v0"
        if entry_point is Walk:
            assert env.trajectory.env_spec == ""  # a class has no JSON form
        else:
            spec = gymnasium.envs.registration.EnvSpec.from_json(env.trajectory.env_spec)
            again = gymnasium.make(spec)
            assert isinstance(again, ChatContext)
            assert again.unwrapped.max_turns == 3
    finally:
        del gymnasium.registry["test/Walk-v0"]


# -- replies and segments -------------------------------------------------------------------------------------------


def reply_for(conversation, text, **more):
    return Reply(text, render(conversation), (*greedy(text), END), **more)


class Letters(AgentEnv):
    """Plain text in the letters of the toy tokenizer."""

    tasks = (Task("t"),)

    def begin(self, task):
        return "ab"

    def respond(self, action):
        if action == "ccc":
            self.finish()
        return "ba"

    def verify(self, episode):
        return Verdict(float(episode.done))


def test_attached_replies_bring_token_ids():
    env = RecordTrajectory(Letters(), forks="error")
    env.reset()
    chat = (user("ab"),)
    env.attach(reply_for(chat, "a", logprobs=(-0.5, -0.1), temperature=0.5), policy_seconds=0.25)
    env.step("a")
    chat += (assistant("a"), user("ba"))
    env.attach(reply_for(chat, "b"))  # thrown away
    env.attach(reply_for(chat, "ccc"), agent="other")
    env.step("ccc")
    t = env.trajectory
    main, aside = t.segments
    assert main.token_ids == [*render(chat), *greedy("ccc"), END]
    assert sum(main.mask) == 2 + 4
    assert main.rewards[-1] == 1.0
    assert sum(main.rewards) == 1.0
    assert (aside.cause, sum(aside.mask), aside.sampled[0].superseded) == ("retry", 0, True)
    assert (t.steps[0].prompt_tokens, t.steps[0].sampled_tokens, t.steps[0].policy_seconds) == (4, 2, 0.25)
    assert [step.agent for step in t.steps] == ["policy", "other"]
    assert [step.segment for step in t.steps] == [0, 0]


def test_the_action_must_be_the_attached_reply():
    env = RecordTrajectory(Letters())
    env.reset()
    env.attach(Reply("a"))
    with pytest.raises(UsageError, match="'a', got 'b'"):
        env.step("b")
    env.step("a")
    assert len(env.trajectory.steps) == 1


def test_an_empty_reply_is_a_step_without_a_segment():
    env = RecordTrajectory(Letters())
    play(env, ["", "ccc"])
    assert [step.segment for step in env.trajectory.steps] == [None, 0]
    assert [event.kind for event in env.trajectory.events] == ["empty_reply"]


def test_under_a_chat_wrapper_the_observation_is_the_conversation():
    env = RecordTrajectory(ChatContext(Walk()), forks="error")
    observation, _ = env.reset(seed=1)
    env.step(GO % "south")
    last, *_ = env.step(GO % "north")
    t = env.trajectory
    assert t.prompt == observation[-1].content
    assert t.segments[0].messages == last[:-1]
    assert t.steps[1].observation == env.unwrapped.episode.turns[1].observation
    assert [event.kind for event in t.events] == ["append"]


@pytest.mark.parametrize("summarizer", ["drop", "last", "rule", "policy"])
def test_compaction_is_announced_and_logged(summarizer):
    env = ContextCompaction(Echo(), 400, 40, summarizer=summarizer, tokens="chars")
    env = RecordTrajectory(env, forks="error")
    _, info = env.reset()
    summaries = 0
    for k in range(40):
        asked = bool(info.get("summary_requested"))
        summaries += asked
        _, _, terminated, truncated, info = env.step("sum" if asked else f"hello {k}")
        if terminated or truncated:
            break
    t = env.trajectory
    compactions = [event for event in t.events if event.kind == "compaction"]
    assert len(compactions) == len(t.segments) - 1 > 0
    assert {segment.cause for segment in t.segments[1:]} == {"compaction"}
    for event, segment in zip(compactions, t.segments[1:], strict=True):
        assert event.data["segment"] == segment.index
        assert event.data["strategy"] == summarizer
        assert event.data["before_tokens"] > event.data["after_tokens"]
        assert event.data["dropped_messages"]
        assert segment.parent == segment.index - 1
    assert t.turns == 12
    kinds = [step.kind for step in t.steps]
    assert kinds.count("summary") == summaries == (len(compactions) if summarizer == "policy" else 0)
    assert all(step.observation == "" for step in t.steps if step.kind == "summary")
    assert replay(t, ContextCompaction(Echo(), 400, 40, summarizer=summarizer, tokens="chars")) is None
    assert replay(t, Echo()) is None  # summaries are skipped where nobody asks for them
    VALIDATOR.validate(json.loads(json.dumps(to_dict(t))))


def test_an_empty_reply_leaves_the_announced_rewrite_to_the_next_one():
    env = RecordTrajectory(ContextCompaction(Echo(), 200, 40, summarizer="last"), forks="error")
    _, info = env.reset()
    rewrites, over = 0, False
    while not over:
        action = "" if "compaction" in info else "hello"
        *_, terminated, truncated, info = env.step(action)
        rewrites += "compaction" in info
        over = terminated or truncated
    t = env.trajectory
    events = [event for event in t.events if event.kind == "compaction"]
    assert len(events) == rewrites >= 2
    assert all(event.data["strategy"] == "last" for event in events)
    assert {segment.cause for segment in t.segments[1:]} == {"compaction"}


class Rich(gymnasium.Wrapper):
    """Somebody else's mistake."""

    def step(self, action):
        observation, _, *rest = self.env.step(action)
        return observation, float("nan"), *rest


def test_a_reward_that_is_no_number_breaks_the_episode_not_the_file():
    env = RecordTrajectory(Rich(Echo()))
    env.reset()
    with pytest.raises(InfrastructureError, match="finite reward"):
        env.step("a")


class Rewrites(gymnasium.Wrapper):
    """Changes history and tells nobody."""

    def step(self, action):
        observation, *rest = self.env.step(action)
        return (system("new"), observation[-1]), *rest


class Foreign(gymnasium.Env):
    """Somebody else's environment, with an info of its own words."""

    observation_space = action_space = UnicodeText()
    system_prompt = ""

    def __init__(self, **info):
        self.info = info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "hi", dict(self.info)

    def step(self, action):
        return "ok", np.float32(0.5), np.bool_(True), False, dict(self.info)


@pytest.mark.parametrize(
    ("info", "field", "recorded"),
    [
        ({"task_id": 5}, "task_id", "5"),
        ({"task_id": np.int64(5)}, "task_id", "5"),
        ({"task_id": ("a", 1)}, "task_id", "('a', 1)"),
        ({"task_id": 0}, "task_id", "0"),
        ({"task_id": None}, "task_id", ""),
        ({"infrastructure_error": True}, "infrastructure_error", "True"),
        ({"infrastructure_error": OSError("gone")}, "infrastructure_error", "gone"),
        ({"infrastructure_error": None}, "infrastructure_error", ""),
        ({"infrastructure_error": False}, "infrastructure_error", ""),
        ({"resolved": np.bool_(True)}, "resolved", True),
        ({"resolved": None}, "resolved", None),
        ({"hacked": None}, "hacked", None),
        ({"hacked": 1}, "hacked", True),
        ({"verdict": {"score": 1}}, "verdict", {}),
        ({"verdict": None}, "verdict", {}),
        ({"calls": 3, "delegated": 2, "compaction": "yes"}, "events", []),
        ({"anchor": ("a", 1)}, "extra", {"anchor": "['a', 1]"}),
        ({"anchor": np.int64(7)}, "extra", {"anchor": 7}),
        ({"anchor": None}, "extra", {}),
    ],
    ids=str,
)
def test_what_others_say_in_info_is_recorded_in_the_records_types(info, field, recorded, tmp_path):
    env = RecordTrajectory(Foreign(**info), tmp_path)
    env.reset(seed=3)
    env.step("a")
    env.close()
    (trajectory,) = TrajectoryStore(tmp_path)
    assert getattr(trajectory, field) == recorded
    assert trajectory.seed == 3
    assert trajectory.reward == (None if trajectory.infrastructure_error else 0.5)
    assert trajectory == env.trajectory
    assert replay(trajectory, Foreign(**info)) is None


def test_info_of_a_step_keeps_numbers_under_names():
    env = RecordTrajectory(Foreign(n=np.int64(3), x=np.float32(0.5), nan=float("nan"), anchor=7, text="x"))
    env.env.info[5] = 6
    env.reset()
    env.step("a")
    assert env.trajectory.steps[0].info == {"anchor": 7, "n": 3, "x": 0.5}


def test_a_run_whose_tasks_have_numbers_for_ids_goes_on(tmp_path):
    first = collect(lambda: Foreign(task_id=5), "null", episodes=1, seed=0, out=tmp_path)
    both = collect(lambda: Foreign(task_id=5), "null", episodes=2, seed=0, out=tmp_path)
    assert both[0] == first[0]
    assert [t.task_id for t in both] == ["5", "5"]


def test_an_unannounced_rewrite_is_a_fork_or_an_error():
    env = RecordTrajectory(Rewrites(ChatContext(Echo())))
    play(env, ["a", "b"])
    assert [segment.cause for segment in env.trajectory.segments] == ["start", "fork"]
    env = RecordTrajectory(Rewrites(ChatContext(Echo())), forks="error")
    env.reset()
    env.step("a")
    with pytest.raises(SegmentError):
        env.step("b")
    assert len(env.unwrapped.episode.turns) == 1  # raised before the action was taken


class Forgets(gymnasium.Wrapper):
    """Shows the same conversation at every turn."""

    def step(self, action):
        _, *rest = self.env.step(action)
        return (user("again"),), *rest


def test_what_was_acted_on_is_no_retry_though_the_prompt_is_the_same():
    env = RecordTrajectory(Forgets(ChatContext(Echo())))
    play(env, ["a", "b", "c"])
    replies = [sampled for segment in env.trajectory.segments for sampled in segment.sampled]
    assert [(sampled.step, sampled.superseded) for sampled in replies] == [(0, False), (1, False), (2, False)]


def test_other_observations_are_refused():
    env = RecordTrajectory(gymnasium.make("CartPole-v1"))
    with pytest.raises(UsageError, match="ndarray"):
        env.reset()


# -- snapshots ------------------------------------------------------------------------------------------------------


def test_snapshot_and_restore_give_the_same_record_again(tmp_path):
    env = RecordTrajectory(ChatContext(Walk()), tmp_path)
    env.reset(seed=5)
    env.step(GO % "south")
    saved = env.snapshot()
    records = []
    for _ in range(2):
        env.restore(saved)
        for _ in range(2):
            env.step(GO % "north")
        records.append(env.trajectory)
    first, second = records
    assert [(s.action, s.observation, s.reward) for s in first.steps] == [
        (s.action, s.observation, s.reward) for s in second.steps
    ]
    assert first.segments == second.segments
    assert [t.id for t in TrajectoryStore(tmp_path)] == ["Walk-1", "Walk-1.2"]


# -- replay and rescore ---------------------------------------------------------------------------------------------


def recorded(actions=(GO % "south", GO % "north", GO % "north"), **reset):
    env = RecordTrajectory(ChatContext(Walk()))
    play(env, actions, **reset)
    return env.trajectory


@pytest.mark.parametrize("reset", [{"seed": 7}, {"seed": 7, "options": {"task": "other"}}])
def test_a_replay_repeats_the_episode(reset):
    t = recorded(**reset)
    assert replay(t, Walk()) is None
    assert replay(t, ChatContext(Walk())) is None
    assert rescore(t, Walk()) == Verdict(
        1.0, components={"done": 1.0}, held_out={"h": 0.5}, evidence={"e": "x"}
    )


def test_a_replay_says_where_it_first_differs():
    t = recorded(seed=7)
    t.steps[1].observation = "else"
    difference = replay(t, Walk())
    assert (difference.step, difference.field, difference.recorded) == (1, "observation", "else")
    assert "went north" in difference.replayed
    t = recorded(seed=7)
    t.steps[0].reward = 0.5
    assert replay(t, Walk()) == Difference(0, "reward", 0.5, 0.0)
    t = recorded(seed=7)
    t.prompt = "p"
    assert replay(t, Walk()).field == "prompt"
    t = recorded(seed=7)
    assert replay(t, Walk(max_turns=2)) == Difference(1, "truncated", False, True)
    t.steps[1].action = GO % "south"
    assert replay(t, Walk()).field == "observation"


def test_a_replay_that_ends_early():
    t = recorded(seed=7)
    t.steps.append(t.steps[0])
    assert replay(t, Walk()) == Difference(2, "terminated", False, True)


def test_rescoring_uses_the_present_verifier():
    class Strict(Walk):
        def verify(self, episode):
            return Verdict(0.25)

    t = recorded(seed=7)
    assert rescore(t, Strict()).score == 0.25
    t.steps.pop()
    with pytest.raises(UsageError, match="do not end"):
        rescore(t, Walk())
    broken = recorded((GO % "break",), seed=7)
    with pytest.raises(InfrastructureError, match="the floor is gone"):
        rescore(broken, Walk())


def test_the_wrapper_describes_itself():
    env = RecordTrajectory(Walk(), "somewhere", policy="p")
    assert env._saved_kwargs == {"path": "somewhere", "policy": "p", "forks": "count"}


class Fragile(Echo):
    """Raises at "crash"."""

    def respond(self, action):
        if action == "crash":
            raise RuntimeError("a bug")
        return super().respond(action)


def test_the_step_in_which_the_environment_raises_is_kept_and_is_the_last(tmp_path):
    env = RecordTrajectory(Fragile(), tmp_path)
    env.reset(seed=0)
    env.step("a")
    with pytest.raises(RuntimeError):
        env.step("crash")
    t = env.trajectory
    assert [(s.action, s.observation, s.segment) for s in t.steps[1:]] == [("crash", "", 0)]
    assert [s.step for s in t.segments[0].sampled] == [0, 1]
    env.attach(Reply("b", (1, 2), (3,)))
    assert env.step("b")[0].startswith("heard b")  # whoever goes on does so unrecorded
    env.step("stop")
    assert len(t.steps) == 2
    assert len(t.segments) == 1
    assert TrajectoryStore(tmp_path).load() == []
    play(env, ["stop"], seed=1)  # and the next episode is recorded again
    assert [s.action for s in env.trajectory.steps] == ["stop"]
    assert TrajectoryStore(tmp_path).load() == [env.trajectory]


def test_a_reward_that_is_no_number_ends_the_record():
    class Unpaid(gymnasium.Wrapper):
        def step(self, action):
            observation, _, *rest = self.env.step(action)
            return observation, float("nan"), *rest

    env = RecordTrajectory(Unpaid(Echo()))
    env.reset(seed=0)
    with pytest.raises(InfrastructureError):
        env.step("a")
    assert [s.action for s in env.trajectory.steps] == ["a"]
    assert env.trajectory.reward == 0.0


def test_an_episode_that_is_cut_off_is_written_truncated(tmp_path):
    env = RecordTrajectory(Echo(), tmp_path)
    with pytest.raises(UsageError, match="running episode"):
        env.cut_off("context_overflow", "too long")
    env.reset(seed=0)
    env.step("a")
    env.cut_off("context_overflow", "too long")
    (t,) = TrajectoryStore(tmp_path)
    assert t == env.trajectory
    assert (t.reward, t.terminated, t.truncated, t.resolved, t.verdict) == (0.0, False, True, False, {})
    assert t.outcome == "clean_unresolved"
    assert [(e.kind, e.step, e.data) for e in t.events] == [("context_overflow", 1, {"why": "too long"})]
    VALIDATOR.validate(to_dict(t))
    with pytest.raises(UsageError, match="running episode"):
        env.cut_off("context_overflow", "too long")
