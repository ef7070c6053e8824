"""Prompts and replies as published: every expected text is written out by hand from the rules of the originals."""

from __future__ import annotations

import copy
import json
import pickle
import re
import warnings
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from agentgym.cli import main
from agentgym.core import AgentEnv, Task, Verdict, tool
from agentgym.errors import TaskError, ToolError, UsageError
from agentgym.messages import assistant
from agentgym.rollout import collect, make_env
from agentgym.trajectory import Reply, TrajectoryStore
from agentgym.trajectory.replay import replay
from agentgym.wrappers import ChatContext, PublishedPrompts, RecordTrajectory
from agentgym.wrappers.prompt_forms import FORMS, read_action, read_search, read_templates
from tests.cli.tiny import TINY
from tests.trajectory.test_store import VALIDATOR


class Room(AgentEnv):
    """Speaks as ALFWorld does."""

    tasks = [Task("t")]
    default_max_turns = 6

    def begin(self, task: Task) -> str:
        self.heard: list[str] = []
        return "-= Hall =-\n\nA room.\n\nYour task is to: put a {cup} on shelf."

    def respond(self, action: str) -> str:
        self.heard.append(action)
        if action not in self.admissible_actions():
            raise ToolError("Nothing happens.")
        if action == "put cup 1":
            self.finish()
        return f"You did {action}."

    def admissible_actions(self) -> tuple[str, ...]:
        return ("go to shelf 1", "help", "put cup 1")

    def gold(self) -> str:
        return "put cup 1"

    def verify(self, episode: object) -> Verdict:
        return Verdict(float(self.episode.done))


class Shop(Room):
    """Speaks as WebShop does."""

    def begin(self, task: Task) -> str:
        super().begin(task)
        return "WebShop [SEP] Instruction: [SEP] a red cup [SEP] Search"

    def respond(self, action: str) -> str:
        self.heard.append(action)
        if action == "lost":
            return "Nothing here."
        return "Instruction: [SEP] a red cup [SEP] Back to Search [SEP] B01 [SEP] $5.0" + " x" * 30 * len(
            action
        )

    def admissible_actions(self) -> tuple[str, ...]:
        return ("click[back to search]", "click[b01]") if self.heard else ("search[a red cup]",)


class Questions(AgentEnv):
    """Answers whatever is searched for."""

    tasks = [Task("q")]
    default_max_turns = 6

    def begin(self, task: Task) -> str:
        return "Who built it? "

    def respond(self, action: str) -> str:
        return f"\n<information>{action[8:-9]}: nobody knows</information>\n" if action else ""

    def verify(self, episode: object) -> Verdict:
        return Verdict(0.0)


class Tools(AgentEnv):
    tasks = [Task("t")]

    def begin(self, task: Task) -> str:
        return "x"

    @tool
    def ping(self) -> str:
        """Ping."""
        return "pong"

    def verify(self, episode: object) -> Verdict:
        return Verdict(0.0)


gymnasium.register("test/Room-v0", entry_point=f"{__name__}:Room")

PROMPTS = '''
"""Prompts."""
raise SystemExit("run")
X_TEMPLATE_NO_HIS = """1|{current_observation}|{admissible_actions}"""
X_TEMPLATE = """2|{task_description}|{step_count}|{history_length}|{action_history}|{current_step}\\
|{current_observation}|{available_actions}"""
X_TEMPLATE_WITH_MEMORY = "{retrieved_memories}"
COUNT = 3
'''
GO, PUT = "<think>a</think><action>go to shelf 1</action>", "<think>a</think><action>Put cup 1</action>"


@pytest.fixture
def template(tmp_path: Path) -> str:
    path = tmp_path / "prompts.py"
    path.write_text(PROMPTS)
    return str(path)


def text_of(conversation) -> str:
    [message] = conversation
    assert message.role == "user"
    return message.content


class TestReadingReplies:
    @pytest.mark.parametrize(
        ("reply", "action", "well_formed"),
        [
            ("<think>x</think><action>look</action>", "look", True),
            ("<think>x</think> so <action> Go To Desk 1\n</action> and more", "go to desk 1", True),
            ("<action>look</action>", "look", False),
            ("<think>x<action>look</action>", "look", False),
            ("<THINK>x</THINK><ACTION>look</ACTION>", "look", False),  # <think> in lower case only
            ("<THINK>x</think><action>look</action>", "look", False),
            ("<think>x</THINK><action>look</action>", "look", False),
            ("<action>look</action><think>x</think>", "look", True),  # in any order
            ("<think>x</think><action>look</action><action>help</action>", "look", True),
            ("<think></think><action>fly</action>", "fly", True),  # whether it can be done plays no part
            ("<think>去</think><action>look</action>", "look", False),
            ("<think>x</think><action>look 鿿</action>", "look 鿿", False),
            ("<think>ひ</think><action>look</action>", "look", True),  # kana are no Chinese characters
            ("</action><think></think><action>look", "", True),
            ("go to desk 1", "go to desk 1", False),
            ("cut off: ten to the GO shelf twenty!", "f: ten to the go shelf twenty!", False),
            ("0123456789<think>x</think><action>look", "89<think>x</think><action>look", False),
            ("", "", False),
        ],
    )
    def test_actions(self, reply, action, well_formed):
        assert read_action(reply, 30) == (action, well_formed)

    def test_tail(self):
        assert read_action("abcdefghijklmnopqrstuvwxyz", 20) == ("ghijklmnopqrstuvwxyz", False)
        assert FORMS["webshop"].read("x" * 40).action == "x" * 20
        assert FORMS["alfworld"].read("x" * 40).action == "x" * 30

    @pytest.mark.parametrize(
        ("reply", "action", "well_formed"),
        [
            ("<think>x</think><search> who is it? </search>", "<search>who is it?</search>", True),
            ("<Search>A\nb</Search>", "<search>A\nb</search>", True),  # no thoughts asked for, case kept
            ("<answer>Rome</answer>", "<answer>Rome</answer>", True),
            ("<search>a</search><answer>b</answer>", "<search>a</search>", False),
            ("<answer>b</answer><search>a</search>", "<search>a</search>", False),
            ("<answer>b</answer><search>a", "<answer>b</answer>", False),
            ("<search>a</search><search>b</search>", "<search>a</search>", False),
            ("<search>a", "", False),
            ("Rome", "", False),
        ],
    )
    def test_searches(self, reply, action, well_formed):
        assert read_search(reply) == (action, well_formed)

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize(
        "piece", ["<search>", "</search>", "<answer>", "<action>", "</action>", "<think>"]
    )
    def test_long_replies_take_linear_time(self, form, piece):
        FORMS[form].read(piece * 200_000)  # where time grows with the square, this takes minutes

    @pytest.mark.parametrize("form", FORMS)
    def test_what_is_written_is_read_back(self, form):
        action = "<search>a b</search>" if form == "search" else "search[a b]"
        assert FORMS[form].read(FORMS[form].write(action)) == (action, True)


class TestPhrasing:
    def test_alfworld(self, template):
        env = PublishedPrompts(Room(), "alfworld", history=2, template=template)
        opening = "-= Hall =-\n\nA room.\n\nYour task is to: put a {cup} on shelf."
        listed = "'go to shelf 1'\n 'put cup 1'"  # without help
        conversation, _ = env.reset(seed=0)
        assert text_of(conversation) == f"1|{opening}|{listed}"

        first = f"[Observation 1: '{opening}', Action 1: 'go to shelf 1']"
        conversation, *_ = env.step(GO)
        assert text_of(conversation) == (
            f"2|put a {{cup}} on shelf.|1|1|{first}|2|You did go to shelf 1.|{listed}"
        )
        second = "[Observation 2: 'You did go to shelf 1.', Action 2: 'fly']"
        conversation, *_ = env.step("FLY")
        assert text_of(conversation) == (
            f"2|put a {{cup}} on shelf.|2|2|{first}\n{second}|3|Nothing happens.|{listed}"
        )
        third = "[Observation 3: 'Nothing happens.', Action 3: '']"
        conversation, *_ = env.step("")
        assert text_of(conversation) == (
            f"2|put a {{cup}} on shelf.|3|2|{second}\n{third}|4|Nothing happens.|{listed}"
        )
        conversation, reward, terminated, _, info = env.step(PUT)
        assert (reward, terminated, info["resolved"]) == (1.0, True, True)
        assert env.unwrapped.heard == ["go to shelf 1", "fly", "", "put cup 1"]

    def test_webshop(self, template):
        env = PublishedPrompts(Shop(), "webshop", template=template)
        conversation, _ = env.reset(seed=0)
        assert text_of(conversation) == "1|'Search'|'search[<your query>]',\n'click[search]',"
        clicks = "'click[back to search]',\n'click[b01]',"
        conversation, *_ = env.step("<think></think><action>lost</action>")
        assert text_of(conversation) == (
            f"2|a red cup|1|1|[Observation 1: ''Search'', Action 1: 'lost']|2|Nothing here.|{clicks}"
        )
        conversation, *_ = env.step("<think></think><action></action>")
        assert text_of(conversation) == (
            "2|a red cup|2|2|[Observation 1: ''Search'', Action 1: 'lost']\n"
            f"[Observation 2: 'Nothing here.', Action 2: '']|3|'Back to Search' [SEP] 'B01' [SEP] '$5.0'|{clicks}"
        )

    def test_a_prompt_that_is_too_long_goes_without_history(self, template):
        env = PublishedPrompts(Shop(max_turns=9), "webshop", history=9, template=template)
        env.reset(seed=0)
        seen = []
        for _ in range(5):  # each answer has some 6,000 characters
            conversation, *_ = env.step(f"<think></think><action>{'a' * 100}</action>")
            seen.append(text_of(conversation)[0])
        assert seen == ["2", "2", "2", "1", "1"]

    def test_search(self, tmp_path):
        path = tmp_path / "prompts.py"
        path.write_text(
            'A_TEMPLATE_NO_HIS = "{task_description}"\nA_TEMPLATE = "{step_count}|{memory_context}|"\n'
        )
        env = PublishedPrompts(Questions(), "search", template=path)
        assert text_of(env.reset(seed=0)[0]) == "Who built it? "
        one = "Step 1:<search>Towers</search> <information>Towers: nobody knows</information>\n"
        assert text_of(env.step("<search>Towers</search>")[0]) == f"1|{one}|"
        two = "Step 2: \n"
        assert text_of(env.step("I know nothing")[0]) == f"2|{one}\n{two}|"

    def test_searching_in_the_environment_itself(self):
        [trajectory] = collect(
            "agentgym/SearchQA-v0", "gold", episodes=1, prompts="search", env_kwargs={"protocol": "search-r1"}
        )
        assert trajectory.reward == 1.0
        assert trajectory.steps[-1].info["malformed_total"] == 0
        shown = trajectory.segments[1].messages[0].content
        assert "Step 1:<search>" in shown
        assert "</search> <information>Doc 1(Title: " in shown
        assert "</information>\n\n" in shown

    def test_history_of_none(self, template):
        env = PublishedPrompts(Room(), "alfworld", history=0, template=template)
        env.reset(seed=0)
        assert text_of(env.step(GO)[0]) == "1|You did go to shelf 1.|'go to shelf 1'\n 'put cup 1'"

    def test_published_histories(self):
        assert {name: form.history for name, form in FORMS.items() if name != "text"} == {
            "alfworld": 5,
            "webshop": 2,
            "search": 4,
        }

    @pytest.mark.parametrize("form", FORMS)
    def test_our_own_sentences_say_all(self, form):
        first, later = FORMS[form].templates
        named = set(re.findall(r"{(\w+)}", later))
        assert named >= {"task_description", "step_count"}
        assert named & {"action_history", "memory_context"}
        assert "<think>" in first
        assert "<think>" in later


class TestCounts:
    def test_malformed_and_inadmissible_apart(self):
        env = PublishedPrompts(Room(), "alfworld")
        _, info = env.reset(seed=0)
        assert (info["malformed_total"], info["inadmissible_total"], "malformed" in info) == (0, 0, False)
        seen = []
        for reply in (GO, "<think>a</think><action>fly</action>", "go to shelf 1", "fly", GO):
            *_, info = env.step(reply)
            seen.append((info.get("malformed"), info.get("invalid_action")))
            totals = info["malformed_total"], info["inadmissible_total"]
        assert seen == [(None, None), (None, True), (True, None), (True, True), (None, None)]
        assert totals == (2, 1)
        _, info = env.reset()
        assert (info["malformed_total"], info["inadmissible_total"]) == (0, 0)


class TestRecording:
    def recorded(self, replies: list[Reply]):
        env = RecordTrajectory(PublishedPrompts(Room(), "alfworld"), forks="error")
        env.reset(seed=0)
        for reply in replies:
            env.attach(reply)
            env.step(reply.text)
        return env.trajectory

    def test_each_turn_is_a_segment_announced(self):
        replies = [Reply(GO, (1, 2, 3 + n), (7, 8), (-0.5, -0.5), 1.0) for n in range(2)]
        replies.append(Reply(PUT, (1, 2, 5), (9,), (-0.25,), 1.0))
        trajectory = self.recorded(replies)
        assert [(s.cause, s.parent, s.token_ids, s.mask) for s in trajectory.segments] == [
            ("start", None, [1, 2, 3, 7, 8], [0, 0, 0, 1, 1]),
            ("compaction", 0, [1, 2, 4, 7, 8], [0, 0, 0, 1, 1]),
            ("compaction", 1, [1, 2, 5, 9], [0, 0, 0, 1]),
        ]
        assert [segment.rewards for segment in trajectory.segments] == [[0.0] * 5, [0.0] * 5, [0, 0, 0, 1.0]]
        assert [event.kind for event in trajectory.events] == ["compaction", "compaction"]
        assert all(len(segment.messages) == 2 for segment in trajectory.segments)

    def test_what_the_rewrite_did(self):
        env = PublishedPrompts(Room(), "alfworld", tokens="chars")
        first, before = env.reset(seed=0)
        *_, info = env.step(GO)
        rewrite = info["compaction"]
        assert (rewrite.segment, rewrite.strategy, rewrite.kept, rewrite.summary) == (1, "window", 0, "")
        assert rewrite.dropped == (*first, assistant(GO))
        assert rewrite.before_tokens == before["context_tokens"] + 4 + -(-len(GO) // 4)
        assert rewrite.after_tokens == info["context_tokens"]
        assert info["segment"] == 1
        *_, info = env.step(PUT)
        assert "compaction" not in info  # nobody answers the last prompt

    def test_the_same_prompt_again_is_a_segment_too(self, tmp_path):
        path = tmp_path / "p.py"
        path.write_text("A_TEMPLATE_NO_HIS = A_TEMPLATE = 'always the same'")
        env = RecordTrajectory(PublishedPrompts(Room(), "alfworld", template=path), forks="error")
        env.reset(seed=0)
        for _ in range(3):
            env.step("fly")
        assert [segment.cause for segment in env.trajectory.segments] == ["start", "compaction", "compaction"]

    def test_stored_and_replayed(self, tmp_path):
        def make():
            return make_env("agentgym/Relay-v0", prompts="text", env_kwargs={"hops": 3})

        [trajectory] = collect(make, "gold", episodes=1, seed=3, out=tmp_path)
        assert (trajectory.reward, len(trajectory.segments)) == (1.0, 5)
        [loaded] = TrajectoryStore(tmp_path)
        VALIDATOR.validate(json.loads((tmp_path / "trajectories.jsonl").read_text()))
        assert loaded.segments[2].messages[0].role == "user"
        assert replay(loaded, make()) is None
        [again] = collect(make, f"replay:{tmp_path}", episodes=1, seed=3)
        assert [step.action for step in again.steps] == [step.action for step in trajectory.steps]


class TestStack:
    @pytest.mark.parametrize("policy", ["gold", "random", "repeat"])
    def test_scripted_policies_write_the_form(self, policy):
        trajectories = collect("agentgym/Relay-v0", policy, episodes=2, prompts="text")
        for trajectory in trajectories:
            assert trajectory.steps[-1].info["malformed_total"] == 0
        assert policy != "gold" or all(trajectory.resolved for trajectory in trajectories)

    def test_keywords(self, template):
        env = make_env("test/Room-v0", prompts={"form": "alfworld", "history": 1, "template": template})
        assert text_of(env.reset(seed=0)[0]).startswith("1|")
        with pytest.raises(UsageError, match="give prompts or compact, not both"):
            make_env("test/Room-v0", prompts="alfworld", compact=1000)

    def test_command_line(self, capsys, template, tmp_path):
        words = ["run", "agentgym/Relay-v0", "--policy", "gold", "--episodes", "1", "--json"]
        out = str(tmp_path / "run")
        flags = ["--prompts", "text", "--prompt-history", "1", "--prompt-template", template, "--out", out]
        assert main([*words, *flags]) == 0
        assert json.loads(capsys.readouterr().out)["resolved"] == 1
        [trajectory] = TrajectoryStore(out)
        assert trajectory.segments[3].messages[0].content.startswith("2|You are a courier.")
        assert trajectory.segments[3].messages[0].content.count("[Observation ") == 1
        assert main([*words, "--prompt-history", "1"]) == 2
        assert "--prompt-history means something only with --prompts FORM" in capsys.readouterr().err
        assert main(["run", TINY, "--prompts", "text"]) == 2
        assert "needs a list of admissible actions; TinyEnv gives none" in capsys.readouterr().err
        assert main([*words, "--prompts", "alfworld"]) == 2
        assert "expected 'Your task is to: ' in the first observation" in capsys.readouterr().err
        assert main([*words, "--prompts", "alfword"]) == 2
        assert "Did you mean 'alfworld'?" in capsys.readouterr().err

    def test_snapshots_copies_and_pickles(self, template):
        env = PublishedPrompts(Room(), "alfworld", history=1, template=template)
        env.reset(seed=1)
        env.step(GO)
        saved = env.snapshot()
        twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]

        def play(env):
            return [env.step(reply)[:4] for reply in (GO, "fly", PUT)]

        expected = play(env)
        env.restore(saved)
        assert play(env) == expected
        assert all(play(twin) == expected for twin in twins)

    def test_spec_round_trip(self, template):
        env = PublishedPrompts(gymnasium.make("test/Room-v0"), "alfworld", 1, template)
        again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
        assert again.spec == env.spec
        assert again.reset(seed=3)[0] == env.reset(seed=3)[0]

    def test_check_env(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*different from the unwrapped version")
            check_env(PublishedPrompts(gymnasium.make("test/Room-v0"), "alfworld"))

    @pytest.mark.parametrize("kind", [SyncVectorEnv, pytest.param(AsyncVectorEnv, marks=pytest.mark.slow)])
    def test_vectors(self, kind):
        single = PublishedPrompts(Room(), "alfworld")
        vector = kind([lambda: PublishedPrompts(Room(), "alfworld")] * 2)
        try:
            assert vector.reset(seed=0)[0] == (single.reset(seed=0)[0],) * 2
            observations, *_, infos = vector.step((GO, "fly"))
            assert observations[0] == single.step(GO)[0]
            assert list(infos["malformed_total"]) == [0, 1]
        finally:
            vector.close()


class TestRefusals:
    def test_environments(self):
        with pytest.raises(UsageError, match=r"unknown form of prompts 'alf'\. Did you mean 'alfworld'"):
            PublishedPrompts(Room(), "alf")
        with pytest.raises(UsageError, match="needs a list of admissible actions; Tools gives none"):
            PublishedPrompts(Tools(), "text")
        with pytest.raises(UsageError, match="form 'search' needs protocol='search-r1', got Room"):
            PublishedPrompts(Room(), "search")
        with pytest.raises(
            UsageError, match="form 'search' needs protocol='search-r1', got Tools with protocol='h"
        ):
            PublishedPrompts(Tools(), "search")
        with pytest.raises(UsageError, match="expected observations in UnicodeText"):
            PublishedPrompts(ChatContext(Room()), "alfworld")
        with pytest.raises(UsageError, match="expected history to be a whole number >= 0, got -1"):
            PublishedPrompts(Room(), "alfworld", history=-1)
        with pytest.raises(
            TaskError, match="expected 'Your task is to: ' in the first observation, got 'WebShop"
        ):
            PublishedPrompts(Shop(), "alfworld").reset(seed=0)
        with pytest.raises(TaskError, match="the second one 'Instruction:', got '-= Hall"):
            PublishedPrompts(Room(), "webshop").reset(seed=0)
        env = PublishedPrompts(Room(), "alfworld")
        env.reset(seed=0)
        with pytest.raises(UsageError, match="expected the policy's whole message as text, got int"):
            env.step(3)

    @pytest.mark.parametrize(
        ("code", "complaint"),
        [
            (
                "A_TEMPLATE = 'x'",
                "expected one constant with a name in *_TEMPLATE_NO_HIS that is a text, got A_TEMPLATE",
            ),
            (
                "A_TEMPLATE_NO_HIS = 'x'\nA_TEMPLATE = f'{1}'",
                "in *_TEMPLATE that is a text, got A_TEMPLATE_NO_HIS",
            ),
            ("A_TEMPLATE_NO_HIS = 'x'\nA_TEMPLATE = 'x'\nB_TEMPLATE = 'x'", "got A_TEMPLATE, B_TEMPLATE"),
            ("", "that is a text, got no texts"),
            (
                "A_TEMPLATE_NO_HIS = '{task}'",
                "A_TEMPLATE_NO_HIS names {task}; expected one of task_description, ",
            ),
            ("A_TEMPLATE_NO_HIS = '{}'", "A_TEMPLATE_NO_HIS names {}; expected one of"),
            ("A_TEMPLATE_NO_HIS = '{step_count.real}'", "names {step_count.real}; expected one of"),
            ("A_TEMPLATE_NO_HIS = '{step_count:999999999}'", "names {step_count}; expected one of"),
            ("A_TEMPLATE_NO_HIS = '{'", "A_TEMPLATE_NO_HIS is no format string: "),
            ("A_TEMPLATE_NO_HIS = (", "expected a Python file of prompts: "),
            ("\0", "expected a Python file of prompts: "),
            ("A_TEMPLATE = " + "-" * 100_000 + "1", "expected a Python file of prompts: "),
        ],
    )
    def test_templates(self, code, complaint, tmp_path):
        path = tmp_path / "p.py"
        path.write_text(code)
        with pytest.raises(UsageError, match=re.escape(complaint)) as raised:
            read_templates(path)
        assert "\n" not in str(raised.value)

    def test_no_template_file(self, tmp_path):
        with pytest.raises(UsageError, match=r"expected a Python file of prompts: .*No such file"):
            read_templates(tmp_path / "none.py")
