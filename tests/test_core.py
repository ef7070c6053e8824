"""The contract of `AgentEnv` and `AgentWrapper`: limits, rewards, failures, infos, middleware, snapshots, copies."""

from __future__ import annotations

import copy
import math
import pickle
import random
import time
import typing
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agentgym
from agentgym import (
    AgentEnv,
    AgentWrapper,
    InfrastructureError,
    Task,
    ToolCall,
    ToolError,
    ToolResult,
    Verdict,
    tool,
)
from agentgym.core import INFO_KEYS, Episode, Turn
from agentgym.errors import TaskError, UsageError
from agentgym.protocols import Hermes
from tests.toys import TASKS, BrokenStart, BrokenVerifier, Deny, Logged, Moves, Notes

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("global_rngs_untouched")]

ResetNeeded = gymnasium.error.ResetNeeded


def calls(*wanted: tuple[str, dict]) -> str:
    return "\n".join(Hermes().render_call(ToolCall(name, arguments)) for name, arguments in wanted)


class Guess(AgentEnv):
    tasks = [Task("three", "Guess a digit.", data={"digit": "3"})]

    def begin(self, task):
        self.right = False
        return task.prompt

    def respond(self, action):
        if action == self.episode.task.data["digit"]:
            self.right = True
            self.finish()
        return "yes" if self.right else "no"

    def verify(self, episode):
        return Verdict(float(self.right))


class TestAFewLinesAreEnough:
    def test_it_works(self):
        env = Guess()
        assert env.reset(seed=0)[0] == "Guess a digit."
        assert env.step("5")[:4] == ("no", 0.0, False, False)
        assert env.step("3")[:4] == ("yes", 1.0, True, False)

    @pytest.mark.parametrize("make", [Guess, Moves, Notes, lambda: Logged(Deny(Notes()))])
    def test_check_env(self, make):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*different from the unwrapped")  # true of every wrapper
            check_env(make(), skip_render_check=True)  # that part wants a registered id

    def test_an_environment_without_moves_or_with_both_kinds_is_refused(self):
        class Neither(AgentEnv):
            tasks = TASKS

        class Both(Notes):
            def respond(self, action):
                return ""

        for cls in (Neither, Both):
            with pytest.raises(TypeError, match="either methods marked @tool or respond"):
                cls()

    def test_what_a_subclass_forgot_is_named(self):
        class NoBegin(AgentEnv):
            tasks = TASKS

            def respond(self, action):
                return ""

        class NoVerify(NoBegin):
            default_max_turns = 1

            def begin(self, task):
                return ""

        with pytest.raises(NotImplementedError, match=r"NoBegin must define begin\(task\)"):
            NoBegin().reset()
        env = NoVerify()
        env.reset()
        with pytest.raises(NotImplementedError, match=r"NoVerify must define verify\(episode\)"):
            env.step("")


class TestEnds:
    def test_a_win_on_the_last_turn_is_terminated_with_full_reward(self):
        env = Moves(max_turns=2)
        env.reset()
        env.step("look")
        *_, info = last = env.step("win")
        assert last[1:4] == (1.0, True, False)
        assert info["verdict"] == Verdict(1.0)
        assert info["resolved"] is True

    def test_the_turn_limit_truncates_and_is_judged(self):
        env = Moves(max_turns=3)
        env.reset()
        assert env.turns_left == 3
        assert env.step("point")[1:4] == (0.0, False, False)
        assert env.step("look")[1:4] == (0.0, False, False)
        assert env.turns_left == 1
        *_, info = last = env.step("look")
        assert last[1:4] == (0.25, False, True)
        assert info["resolved"] is False
        assert env.turns_left == 0

    def test_an_environment_that_never_finishes_is_truncated(self):
        env = Notes()
        env.reset()
        ends = [env.step("nonsense")[2:4] for _ in range(6)]
        assert ends == [(False, False)] * 5 + [(False, True)]

    def test_lost_is_terminated(self):
        env = Moves()
        env.reset()
        assert env.step("lose")[1:4] == (0.0, True, False)

    def test_max_seconds(self, monkeypatch):
        now = [100.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        env = Moves(max_turns=99, max_seconds=10)
        env.reset()
        now[0] = 109.0
        assert env.seconds_left == 1.0
        assert env.step("look")[2:4] == (False, False)
        now[0] = 110.0
        assert env.step("point")[1:4] == (0.25, False, True)
        assert env.seconds_left == 0.0
        env.reset()
        assert env.seconds_left == 10.0
        now[0] = 150.0
        assert env.step("win")[1:4] == (1.0, True, False)  # the end of the task wins over the limit

    def test_no_deadline(self):
        env = Moves()
        env.reset()
        assert env.seconds_left == math.inf

    def test_the_verdict_is_asked_for_once(self):
        for last in ("win", "lose", "look"):
            env = Moves(max_turns=2)
            env.reset()
            env.step("look")
            assert env.verified == 0
            env.step(last)
            assert env.verified == 1

    def test_what_stands_behind_the_end_does_not_run(self):
        env = Notes()
        env.reset()
        *_, info = env.step(
            calls(("write", {"name": "a", "text": ""}), ("done", {}), ("write", {"name": "b", "text": ""}))
        )
        assert env.log == ["write a"]
        assert [record.call.name for record in info["calls"]] == ["write", "done"]

    def test_the_reward_is_a_python_float(self):
        class Numpy(Moves):
            def verify(self, episode):
                return Verdict(np.float32(1), passed=np.bool_(True))

        env = Numpy()
        env.reset()
        assert type(env.step("look")[1]) is float
        *_, info = last = env.step("win")
        assert type(last[1]) is float
        assert info["resolved"] is True

    def test_step_needs_a_running_episode(self):
        env = Moves()
        with pytest.raises(ResetNeeded, match="Moves"):
            env.step("look")
        with pytest.raises(ResetNeeded):
            _ = env.episode
        env.reset()
        env.step("win")
        with pytest.raises(ResetNeeded):
            env.step("look")
        env.reset()
        env.step("look")
        env.close()
        with pytest.raises(ResetNeeded):
            env.step("look")

    @pytest.mark.parametrize("action", [None, 5, b"win", ["win"], {"text": "win"}])
    def test_an_action_is_text(self, action):
        env = Moves()
        env.reset()
        with pytest.raises(UsageError, match="whole message as text"):
            env.step(action)
        assert env.turns_left == 4

    @pytest.mark.parametrize("action", ["\ud83d", "win \udfff"])
    def test_an_action_can_be_encoded(self, action):
        env = Moves()
        env.reset()
        with pytest.raises(UsageError, match="can be encoded"):
            env.step(action)
        assert env.step("中🙂")[0].startswith("中🙂 ")

    def test_numpy_text_is_text(self):
        env = Moves()
        env.reset()
        assert env.step(np.str_("win"))[1] == 1.0

    def test_an_end_that_is_refused(self):
        env = Guess(max_turns=3)
        env.reset(seed=0)
        assert env.step("3")[2]
        env.reopen()
        env.right = False
        assert env.step("5")[1:4] == (0.0, False, False)
        assert env.step("3")[1:4] == (1.0, True, False)
        env.reopen()  # the last turn is used up
        with pytest.raises(ResetNeeded):
            env.step("3")


class TestFailures:
    def test_reset_lets_it_through_and_can_be_repeated(self):
        env = BrokenStart()
        with pytest.raises(InfrastructureError, match="no sandbox"):
            env.reset(seed=1)
        with pytest.raises(ResetNeeded):
            env.step("win")
        env.broken = False
        env.reset(seed=1)
        assert env.step("win")[1] == 1.0

    def test_a_move_that_breaks_ends_the_episode_unjudged(self):
        env = Moves()
        env.reset(options={"task": "red"})
        observation, reward, terminated, truncated, info = env.step("broken")
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["infrastructure_error"] == "the server died"
        assert info["task_id"] == "red"
        assert not {"verdict", "resolved", "invalid_action"} & info.keys()
        assert "server" not in observation
        assert env.verified == 0
        with pytest.raises(ResetNeeded):
            env.step("look")

    def test_the_calls_before_the_broken_one_are_reported(self):
        env = Notes()
        env.reset()
        *_, info = env.step(calls(("write", {"name": "a", "text": "b"}), ("breaks", {}), ("done", {})))
        assert info["infrastructure_error"] == "the sandbox died"
        assert [record.call.name for record in info["calls"]] == ["write"]

    def test_a_broken_verifier_is_no_reward(self):
        env = BrokenVerifier()
        env.reset()
        *_, info = last = env.step("win")
        assert last[1:4] == (0.0, False, True)
        assert info["infrastructure_error"] == "no room for grading"
        assert [record.call.arguments for record in info["calls"]] == [{"text": "win"}]
        assert "verdict" not in info

    @pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1.1, -0.1, "x", None, [1]])
    def test_no_verdict_out_of_range(self, score):
        with pytest.raises(InfrastructureError, match=r"score in \[0, 1\]"):
            Verdict(score)

        class Wild(Moves):
            def verify(self, episode):
                return Verdict(score)

        env = Wild()
        env.reset()
        *_, info = last = env.step("win")
        assert last[1:4] == (0.0, False, True)
        assert "infrastructure_error" in info

    @pytest.mark.parametrize(
        "parts",
        [
            {"components": {"a": math.nan}},
            {"held_out": {"a": math.inf}},
            {"components": {"a": "x"}},
            {"evidence": {"a": 1}},
        ],
    )
    def test_no_verdict_with_parts_that_cannot_be_written(self, parts):
        with pytest.raises(InfrastructureError, match="'a'"):
            Verdict(0.5, **parts)

    def test_parts_of_a_verdict_are_python_floats(self):
        verdict = Verdict(0.5, components={"a": np.float32(0.5), "b": 1})
        assert [type(value) for value in verdict.components.values()] == [float, float]

    @pytest.mark.parametrize("score", ["1", b"1"])
    def test_a_text_is_no_score(self, score):
        with pytest.raises(InfrastructureError):
            Verdict(score)

    @pytest.mark.parametrize(("method", "value"), [("begin", None), ("begin", 5), ("respond", None)])
    def test_what_is_no_text_is_no_observation(self, method, value):
        cls = type("Odd", (Moves,), {method: lambda self, given: value})

        def run(env):
            env.reset()
            env.step("look")

        with pytest.raises(TypeError, match=f"{method} to return text, got {type(value).__name__}"):
            run(cls())

    def test_a_failure_the_policy_should_read(self):
        env = Moves()
        env.reset()
        *_, info = last = env.step("wrong")
        assert last[:4] == ("That is no move; expected win, lose or point.", 0.0, False, False)
        assert info["invalid_action"] is True
        assert info["calls"][0].result.error
        assert env.turns_left == 3
        assert "invalid_action" not in env.step("look")[4]

    def test_a_tool_that_fails_is_no_invalid_action(self):
        env = Notes()
        env.reset()
        observation, *_, info = env.step(calls(("read", {"name": "a"})))
        assert observation == "<tool_response>\nno note 'a'\n</tool_response>"
        assert info["calls"][0].result == ToolResult("no note 'a'", error=True)
        assert "invalid_action" not in info

    @pytest.mark.parametrize(
        ("action", "said"),
        [
            ("I think I am done.", "no tool call"),
            ("<tool_call>{</tool_call>", "not valid JSON"),
            (calls(("raed", {})), "there is no tool 'raed'"),
            (calls(("read", {})), "needs the argument 'name'"),
            (calls(("write", {"name": "a", "text": "b"}), ("read", {"name": 5})), "must be of type string"),
            (calls(("write", {"name": "a", "text": "b"})) + "<tool_call>", "not closed"),
            (calls(("begin", {})), "there is no tool 'begin'"),
            (calls(("__init__", {})), "there is no tool '__init__'"),
        ],
    )
    def test_one_bad_call_and_none_runs(self, action, said):
        env = Notes()
        env.reset()
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation.startswith("Invalid action: ")
        assert said in observation
        assert info["invalid_action"] is True
        assert info["calls"] == ()
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert env.log == []
        assert env.turns_left == 5

    def test_all_complaints_are_told(self):
        env = Notes()
        env.reset()
        observation = env.step(calls(("read", {}), ("raed", {})))[0]
        assert "needs the argument 'name'" in observation
        assert "no tool 'raed'" in observation

    def test_other_exceptions_surface(self):
        env = Moves()
        env.reset()
        with pytest.raises(ZeroDivisionError):
            env.step("bug")

    def test_missing_dependency_inside_a_tool_is_infrastructure(self):
        assert issubclass(agentgym.errors.MissingDependency, InfrastructureError)
        assert not issubclass(ToolError, InfrastructureError)


class TestCalls:
    def test_several_in_order(self):
        env = Notes()
        env.reset()
        observation, *_, info = env.step(
            "First\n"
            + calls(
                ("write", {"name": "a", "text": "1"}), ("read", {"name": "a"}), ("nothing", {}), ("exits", {})
            )
        )
        assert observation == "\n".join(
            f"<tool_response>\n{text}\n</tool_response>" for text in ("ok", "1", "", "bad")
        )
        assert [record.call for record in info["calls"]] == [
            ToolCall("write", {"name": "a", "text": "1"}),
            ToolCall("read", {"name": "a"}),
            ToolCall("nothing", {}),
            ToolCall("exits", {}),
        ]
        assert info["calls"][3].result == ToolResult("bad", error=True, exit_code=3)
        assert all(record.seconds >= 0 for record in info["calls"])
        assert env.turns_left == 5

    def test_a_tool_may_change_its_arguments_and_not_the_record(self):
        env = Notes()
        env.reset()
        observation, *_, info = env.step(calls(("pile", {"items": [3, 1, 2], "limit": 2})))
        assert observation == "<tool_response>\n[1, 2]\n</tool_response>"
        assert info["calls"][0].call.arguments == {"items": [3, 1, 2], "limit": 2}

    def test_a_move_is_the_call_act(self):
        env = Moves()
        env.reset()
        *_, info = env.step("look")
        assert [record.call for record in info["calls"]] == [ToolCall("act", {"text": "look"})]

    @pytest.mark.parametrize("protocol", ["hermes", "xml", "react"])
    def test_protocols(self, protocol):
        env = Notes(protocol=protocol)
        env.reset()
        env.step(env.protocol.render_call(ToolCall("write", {"name": "secret", "text": "</tool_call>\n"})))
        assert env.notes == {"secret": "</tool_call>\n"}
        assert env.step(env.protocol.render_call(ToolCall("done", {})))[1] == 1.0

    def test_the_system_prompt_lists_the_tools(self):
        env = Notes()
        assert env.system_prompt == Hermes().describe(env.tools)
        assert '"write"' in env.system_prompt
        assert Moves().system_prompt == ""


class TestMiddleware:
    def test_the_outermost_wrapper_is_the_outermost_handler(self):
        env = Logged(gymnasium.wrappers.TimeLimit(Logged(Moves(), "inner"), 99), "outer")
        env.reset(seed=0)
        observation = env.step("look")[0]
        assert observation.startswith("outer(inner(look ")

    def test_it_sees_each_call_of_a_batch(self):
        env = Logged(Notes())
        env.reset()
        *_, info = env.step(calls(("write", {"name": "a", "text": "1"}), ("read", {"name": "a"})))
        assert env.seen == 2
        assert [record.result.text for record in info["calls"]] == ["log(ok)", "log(1)"]

    def test_it_sees_no_call_of_a_bad_batch(self):
        env = Logged(Notes())
        env.reset()
        env.step(calls(("write", {"name": "a", "text": "1"}), ("read", {})))
        assert env.seen == 0

    def test_it_may_deny(self):
        env = Deny(Notes())
        env.reset()
        observation, *_, info = env.step(
            calls(("write", {"name": "a", "text": "1"}), ("read", {"name": "a"}))
        )
        assert env.agent_env.log == ["read a"]
        assert [record.result.blocked for record in info["calls"]] == [True, False]
        assert info["calls"][0].result.note == "denied"
        assert "denied" not in observation
        assert env.agent_env.turns_left == 5

    def test_a_denied_move_is_no_invalid_action(self):
        env = Deny(Moves(), tool="act")
        env.reset()
        *_, info = last = env.step("win")
        assert last[1:4] == (0.0, False, False)
        assert "invalid_action" not in info

    def test_it_may_change_the_call(self):
        env = Notes()
        env.use(
            lambda call, next: next(
                call._replace(arguments={"name": "other"}) if call.name == "read" else call
            )
        )
        env.reset()
        env.step(calls(("read", {"name": "a"})))
        assert env.log == ["read other"]

    def test_it_sees_tool_errors_as_answers_and_failures_as_failures(self):
        seen = []

        def watch(call, next):
            try:
                result = next(call)
            except InfrastructureError:
                seen.append("infrastructure")
                raise
            seen.append(result.error)
            return result

        env = Notes()
        env.use(watch)
        env.reset()
        env.step(calls(("read", {"name": "a"}), ("breaks", {})))
        assert seen == [True, "infrastructure"]

    def test_added_while_an_episode_runs(self):
        env = Moves()
        env.reset()
        env.step("look")
        env.use(lambda call, next: ToolResult("shut"))
        assert env.step("win")[:2] == ("shut", 0.0)

    def test_a_wrapper_wants_one_of_our_environments(self):
        with pytest.raises(UsageError, match="wraps environments of this package, got CartPoleEnv"):
            Logged(gymnasium.make("CartPole-v1"))

    def test_a_wrapper_without_a_handler_adds_none(self):
        env = AgentWrapper(Moves())
        env.reset()
        assert env.agent_env._middleware == []


class TestInfo:
    def run(self, env, actions):
        infos = [env.reset(seed=3)[1]]
        for action in actions:
            *_, info = env.step(action)
            infos.append(info)
        return infos

    def every(self):
        yield from self.run(Moves(), ["look", "wrong", "win"])
        yield from self.run(Moves(), ["broken"])
        yield from self.run(Notes(), ["x", calls(("read", {"name": "a"})), calls(("done", {}))])
        yield from self.run(
            gymnasium.make("agentgym/Relay-v0", hops=1), ["x", "take", "go north", "deliver amber"]
        )

    def test_keys_are_the_documented_ones(self):
        for info in self.every():
            assert info.keys() <= INFO_KEYS.keys()
            assert {"task_id", "calls"} <= info.keys()

    def test_types_are_the_documented_ones_and_never_none(self):
        known = {"str": str, "int": int, "bool": bool, "Verdict": Verdict}
        for info in self.every():
            for key, value in info.items():
                documented = INFO_KEYS[key].split(":")[0]
                if documented.startswith("tuple["):
                    assert type(value) is tuple, key
                    inner = {"str": str, "Tool": agentgym.Tool, "CallRecord": agentgym.CallRecord}[
                        documented[6:-6]
                    ]
                    assert all(type(item) is inner for item in value), key
                else:
                    assert type(value) is known[documented], key

    def test_infos_are_equal_between_equal_runs(self):
        assert list(self.every()) == list(self.every())

    def test_an_info_handed_out_does_not_change(self):
        env = Notes()
        env.reset()
        *_, info = env.step(calls(("pile", {"items": [2, 1]})))
        kept, before = info, copy.deepcopy(info)
        env.step(calls(("pile", {"items": [5, 4]})))
        env.step("x")
        env.reset()
        env.step(calls(("done", {})))
        assert kept == before

    def test_infos_are_not_shared(self):
        env = Moves()
        _, first = env.reset()
        first["task_id"] = "changed"
        *_, second = env.step("look")
        assert second["task_id"] != "changed"

    def test_anchor_and_actions_only_where_defined(self):
        assert not {"anchor", "admissible_actions"} & Moves().reset()[1].keys()
        _, info = gymnasium.make("agentgym/Relay-v0").reset()
        assert info["anchor"] == "taken=False hop=0 mistakes=0"
        assert info["admissible_actions"] == ("take",)


class TestEpisode:
    def test_record(self):
        env = Notes()
        prompt, _ = env.reset(options={"task": "blue"})
        first = env.step("x")
        second = env.step(calls(("write", {"name": "a", "text": "1"}), ("done", {})))
        episode = env.episode
        assert (episode.task, episode.prompt, episode.done) == (TASKS[2], prompt, True)
        assert episode.turns == [
            Turn("x", first[0], ()),
            Turn(calls(("write", {"name": "a", "text": "1"}), ("done", {})), second[0], second[4]["calls"]),
        ]
        assert [record.call.name for record in episode.calls] == ["write", "done"]

    def test_an_old_episode_does_not_change(self):
        env = Moves()
        env.reset()
        env.step("win")
        old, turns = env.episode, list(env.episode.turns)
        env.reset()
        env.step("look")
        assert old is not env.episode
        assert old.turns == turns
        assert old.done

    def test_a_copy_grows_on_its_own_and_shares_the_workspace(self):
        workspace = object()
        episode = Episode(TASKS[0], "p", [Turn("a", "b", ())], workspace, True)
        again = copy.deepcopy(episode)
        again.turns.append(Turn("c", "d", ()))
        assert len(episode.turns) == 1
        assert again.workspace is workspace
        assert again.done

    def test_verdict(self):
        assert Verdict(1).passed is True
        assert Verdict(0.999).passed is False
        assert Verdict(0.5, passed=True).passed is True
        verdict = Verdict(0.5, components={"a": 0.5}, held_out={"b": 0.25}, evidence={"log": "x"})
        with pytest.raises(TypeError):
            verdict.components["a"] = 1.0
        with pytest.raises(AttributeError):
            verdict.score = 1.0
        assert pickle.loads(pickle.dumps(verdict)) == verdict
        assert pickle.loads(pickle.dumps(verdict)).evidence == {"log": "x"}
        assert verdict == Verdict(0.5, components={"a": 0.5}, held_out={"b": 0.25}, evidence={"log": "1.2 s"})
        assert verdict != Verdict(0.5, components={"a": 0.5}, held_out={"b": 0.5})


class TestTasksAndSeeds:
    def test_the_same_seed_gives_the_same_episodes(self):
        def run(disturb):
            env = Moves(split="all")
            seen = []
            for seed in (7, None, None):
                state = random.getstate(), np.random.get_state()
                if disturb:
                    random.seed(disturb)
                    np.random.seed(disturb)
                    random.random()
                observation, info = env.reset(seed=seed)
                seen += [observation, info["task_id"]]
                seen += [env.step("look")[0], env.step("win")[0]]
                random.setstate(state[0])
                np.random.set_state(state[1])
            return seen

        assert run(0) == run(1) == run(99)

    def test_seeds_differ(self):
        assert len({Moves().reset(seed=seed)[0] for seed in range(20)}) == 20

    def test_resets_without_a_seed_differ(self):
        env = Moves()
        assert len({env.reset()[0] for _ in range(20)}) == 20

    @pytest.mark.parametrize(
        ("wanted", "got"),
        [("blue", "blue"), (0, "red"), (1, "green"), (-1, "green"), (np.int64(1), "green"), (TASKS[2], "blue"),
         (Task("mine", "Mine."), "mine")],
    )  # fmt: skip
    def test_options(self, wanted, got):
        env = Moves()  # draws from train; an id reaches every task
        assert env.reset(options={"task": wanted})[1]["task_id"] == got

    @pytest.mark.parametrize(
        ("options", "error", "said"),
        [
            ({"task": "bleu"}, TaskError, "Did you mean 'blue'"),
            ({"task": 2}, TaskError, "has 2 tasks"),
            ({"task": 1.0}, UsageError, "an id, an index or a Task, got 1.0"),
            ({"task": True}, UsageError, "an id, an index or a Task, got True"),
            ({"tusk": "red"}, UsageError, "knows the option 'task', got"),
        ],
    )
    def test_wrong_options(self, options, error, said):
        env = Moves()
        with pytest.raises(error, match=said):
            env.reset(options=options)

    def test_options_are_not_changed(self):
        options = {"task": "red"}
        Moves().reset(options=options)
        assert options == {"task": "red"}
        assert Moves().reset(options={})[1]["task_id"] in ("red", "green")
        assert Moves().reset(options={"task": None})[1]["task_id"] in ("red", "green")

    def test_splits(self):
        assert {Moves(split="test").reset(seed=s)[1]["task_id"] for s in range(9)} == {"blue"}
        assert {Moves(split="all").reset(seed=s)[1]["task_id"] for s in range(60)} == {"red", "green", "blue"}
        assert {Moves().reset(seed=s)[1]["task_id"] for s in range(60)} == {"red", "green"}
        only_test = Moves(tasks=[Task("x", split="dev")])  # no split called train: all of it
        assert only_test.reset()[1]["task_id"] == "x"

    def test_unknown_keyword(self):
        with pytest.raises(TypeError, match=r"Moves takes no keyword 'max_turn'. Did you mean 'max_turns'"):
            Moves(max_turn=5)


class TestRendering:
    def test_ansi(self):
        env = Moves(render_mode="ansi", tasks=[Task("t", "Go.")])
        prompt, _ = env.reset()
        assert env.render() == prompt
        first = env.step("look")[0]
        assert env.render() == f"{prompt}\n> look\n{first}"

    def test_none(self):
        env = Moves()
        env.reset()
        assert env.render() is None


class Held(Moves):
    held = 0

    def begin(self, task):
        self.held += 1
        return super().begin(task)

    def teardown(self):
        self.held = 0


class TestClosing:
    def test_twice_and_without_reset(self):
        env = Moves()
        env.close()
        env.reset()
        env.close()
        env.close()

    def test_teardown_before_each_begin(self):
        env = Held()
        for _ in range(3):
            env.reset()
            assert env.held == 1
        env.close()
        assert env.held == 0

    def test_a_closed_environment_may_be_reset(self):
        env = Held()
        env.reset()
        env.close()
        env.reset()
        assert env.step("win")[1] == 1.0


def stack():
    return Logged(Deny(Notes(max_turns=9, split="all"), tool="exits"), "outer")


SCRIPT = [
    calls(("write", {"name": "a", "text": "1"})),
    "nonsense",
    calls(("exits", {}), ("read", {"name": "a"})),
    calls(("done", {})),
]


class TestSnapshots:
    def test_exact_and_again(self):
        env = Moves(max_turns=9)
        env.reset(seed=1)
        env.step("look")
        snapshot = env.snapshot()
        futures = []
        for _ in range(3):
            steps = [env.step(action) for action in ("look", "point", "win")]
            after = env.reset()  # the generator goes on from where it was
            futures.append((steps, after))
            env.restore(snapshot)
            assert env.turns_left == 8
            assert len(env.episode.turns) == 1
        assert futures[0] == futures[1] == futures[2]

    def test_from_the_start_and_after_the_end(self):
        env = Moves()
        env.reset(seed=1)
        start = env.snapshot()
        env.step("win")
        end = env.snapshot()
        env.restore(start)
        assert env.step("look")[2] is False
        env.restore(end)
        with pytest.raises(ResetNeeded):
            env.step("look")
        assert env.episode.done

    def test_into_another_instance(self):
        one, two = Moves(), Moves()
        one.reset(seed=1)
        snapshot = one.snapshot()
        two.restore(snapshot)
        assert one.step("look") == two.step("look")

    def test_attributes_made_later_are_gone(self):
        env = Moves()
        env.reset()
        snapshot = env.snapshot()
        env.later = 1
        env.restore(snapshot)
        assert not hasattr(env, "later")
        wrapped = Logged(Moves())
        wrapped.reset()
        snapshot = wrapped.snapshot()
        wrapped.later = 1
        wrapped.restore(snapshot)
        assert "later" not in wrapped.__dict__

    def test_what_is_excluded_stays(self):
        class Keeps(Moves):
            snapshot_exclude = frozenset({"connection"})

        env = Keeps()
        env.connection = connection = object()
        env.reset()
        snapshot = env.snapshot()
        assert "connection" not in snapshot["state"]
        env.restore(snapshot)
        assert env.connection is connection

    def test_nested_state_is_not_shared(self):
        env = Notes()
        env.reset()
        env.notes["a"] = "1"
        snapshot = env.snapshot()
        env.notes["a"] = "2"
        env.restore(snapshot)
        env.notes["a"] = "3"
        env.restore(snapshot)
        assert env.notes == {"a": "1"}

    def test_workspace_hooks(self):
        class Files(Moves):
            disk = {"now": "1"}

            def save_workspace(self):
                return dict(self.disk)

            def load_workspace(self, saved):
                self.disk.clear()
                self.disk.update(saved)

        env = Files()
        env.reset()
        snapshot = env.snapshot()
        env.disk["now"] = "2"
        env.restore(snapshot)
        assert env.disk == {"now": "1"}

    def test_the_clock_goes_back(self, monkeypatch):
        now = [100.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        env = Moves(max_seconds=10)
        env.reset()
        now[0] = 104.0
        snapshot = env.snapshot()
        now[0] = 109.0
        env.restore(snapshot)
        assert env.seconds_left == 6.0

    def test_through_wrappers_of_ours_and_of_others(self):
        env = Logged(gymnasium.wrappers.OrderEnforcing(Logged(Moves(), "inner")), "outer")
        env.reset(seed=1)
        env.step("look")
        snapshot = env.snapshot()
        assert (env.seen, env.env.env.seen) == (1, 1)
        first = [env.step("look"), env.step("win")]
        env.restore(snapshot)
        assert (env.seen, env.env.env.seen) == (1, 1)
        assert [env.step("look"), env.step("win")] == first
        assert env.seen == 3

    def test_a_stack_without_one_of_ours_says_so(self):
        wrapper = Logged(Moves())
        wrapper.env = gymnasium.make("CartPole-v1").unwrapped
        with pytest.raises(UsageError, match="got CartPoleEnv"):
            wrapper.snapshot()


class TestCopies:
    @pytest.mark.parametrize("again", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
    @pytest.mark.parametrize("played", [0, 2])
    def test_in_the_middle_of_an_episode(self, again, played):
        env = stack()
        env.reset(seed=5)
        for action in SCRIPT[:played]:
            env.step(action)
        other = again(env)
        assert other.agent_env is not env.agent_env
        assert [env.step(action) for action in SCRIPT[played:]] == [
            other.step(action) for action in SCRIPT[played:]
        ]
        assert env.reset() == other.reset()

    @pytest.mark.parametrize("again", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
    def test_handlers_belong_to_the_copy(self, again):
        env = stack()
        env.reset(seed=5)
        env.step(SCRIPT[0])
        other = again(env)
        other.step(calls(("read", {"name": "a"})))
        assert (env.seen, other.seen) == (1, 2)
        assert other.agent_env._middleware[-1].__self__ is other

    def test_before_reset(self):
        env = pickle.loads(pickle.dumps(Moves()))
        assert env.reset(seed=1) == Moves().reset(seed=1)


class TestSpecs:
    def test_the_spec_rebuilds_the_stack(self):
        env = Logged(Deny(gymnasium.make("agentgym/Relay-v0", hops=2, scenery=10), tool="x"), "outer")
        again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
        assert (type(again), type(again.env), again.name, again.env.tool) == (Logged, Deny, "outer", "x")
        assert (again.unwrapped.hops, again.unwrapped.scenery) == (2, 10)
        assert env.reset(seed=4) == again.reset(seed=4)
        assert env.step("take") == again.step("take")


def test_info_keys_document_themselves():
    for key, text in INFO_KEYS.items():
        assert key.isidentifier()
        assert ": " in text


def test_public_names_exist():
    for name in agentgym.__all__:
        assert hasattr(agentgym, name)
    for name in agentgym.core.__all__:
        assert hasattr(agentgym.core, name)


def test_methods_have_resolvable_annotations():
    for cls in (AgentEnv, AgentWrapper):
        for name, method in vars(cls).items():
            if callable(method) and not name.startswith("__"):
                typing.get_type_hints(method)


def test_tool_marks_survive_inheritance():
    class More(Notes):
        @tool
        def extra(self) -> str:
            """More."""
            return "extra"

    env = More()
    env.reset()
    assert env.step(calls(("extra", {})))[0] == "<tool_response>\nextra\n</tool_response>"
    assert [t.name for t in env.tools][-1] == "extra"
