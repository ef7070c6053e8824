"""Review-v0: who is paid for what, who sees what; on a workbench without a sandbox, and once on SWE-v0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import gymnasium
import pettingzoo
import pytest

from agentgym import AgentEnv, InfrastructureError, Task, UsageError, Verdict, tool
from agentgym.registration import find
from agentgym.wrappers.agents import wrap_agents

ID = "agentgym/Review-v0"
BASE = "agentgym-test/Workbench-v0"
AUTHOR, REVIEWER = "author_0", "reviewer_0"


class Workbench(AgentEnv):
    """A list of lines; it passes with the line "fix" and without "break"."""

    tasks = [Task("bench", "Write fix.")]

    def begin(self, task):
        self.lines: list[str] = []
        return task.prompt

    @tool
    def bash(self, command: str) -> str:
        """Write a line."""
        if command == "lost":
            raise InfrastructureError("the bench is gone")
        if command == "submit":
            return self.submit()
        self.lines.append(command)
        return " ".join(self.lines)

    @tool
    def edit(self, line: str) -> str:
        """Write only this line."""
        self.lines = [line]
        return line

    @tool
    def submit(self) -> str:
        """Hand in."""
        self.finish()
        return "Submitted."

    def verify(self, episode):
        good = "fix" in self.lines and "break" not in self.lines
        patch = "".join(f"+{line}\n" for line in self.lines)
        return Verdict(
            0.75 if good else 0.0,
            passed=good,
            components={"lines": len(self.lines)},
            held_out={"more": 1.0},
            evidence={"patch": patch} if patch else {},
        )

    def gold(self):
        return call("submit") if "fix" in self.lines else call("bash", command="fix")

    def save_workspace(self):
        return list(self.lines)

    def load_workspace(self, saved):
        self.lines = list(saved)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(BASE, Workbench, order_enforce=False, disable_env_checker=True)
    yield
    del gymnasium.registry[BASE]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


WRITE_FIX, WRITE_BREAK, SUBMIT = call("bash", command="fix"), call("bash", command="break"), call("submit")
ACCEPT, VETO = call("accept"), call("veto", comment="It breaks.")


def make(**keywords: Any) -> Any:
    env = pettingzoo.make("parallel", ID, base=BASE, **keywords)
    env.reset(seed=0)
    return env


def play(env: Any, *actions: str) -> tuple[Any, ...]:
    """Each action is of whoever does not wait; what the last step said."""
    said: tuple[Any, ...] = ()
    for action in actions:
        (agent,) = (agent for agent in env.agents if not env.waits(agent))
        said = env.step({agent: action})
        if env.agents:
            assert not any("verdict" in info for info in said[-1].values())
            assert [info.get("waits", False) for info in said[-1].values()] in ([True, False], [False, True])
    return said


@pytest.mark.parametrize(
    ("actions", "author", "reviewer"),
    [
        ([WRITE_FIX, SUBMIT, ACCEPT], 0.75, 1.0),  # let in what passes
        ([WRITE_BREAK, SUBMIT, ACCEPT], 0.0, 0.0),  # let in what does not
        ([SUBMIT, VETO, WRITE_FIX, SUBMIT, ACCEPT], 0.75, 1.0),  # refused it first, rightly
        ([WRITE_FIX, SUBMIT, VETO, SUBMIT, ACCEPT], 0.75, 0.5),  # once wrongly
        ([WRITE_FIX, SUBMIT, VETO, SUBMIT, VETO], 0.0, 0.0),  # what is never let in is not paid
        ([SUBMIT, VETO, WRITE_BREAK, SUBMIT, VETO], 0.0, 1.0),
    ],
)
def test_who_is_paid_for_what(actions, author, reviewer):
    env = make(submissions=2)
    _, rewards, terminated, truncated, infos = play(env, *actions)
    assert rewards == {AUTHOR: author, REVIEWER: reviewer}
    assert all(terminated.values())
    assert not any(truncated.values())
    assert infos[AUTHOR]["resolved"] == (author > 0)
    assert infos[REVIEWER]["resolved"] == (reviewer == 1.0)
    assert infos[AUTHOR]["verdict"].components["submissions"] == actions.count(SUBMIT)
    assert infos[REVIEWER]["verdict"].components["vetoes"] == actions.count(VETO)
    assert infos[AUTHOR]["verdict"].held_out == {"more": 1.0}


def test_what_the_two_read():
    env = make()
    observations, *_ = play(env, WRITE_BREAK, SUBMIT)
    assert "Submission 1 of at most 2" in observations[REVIEWER]["text"]
    assert "Write fix." in observations[REVIEWER]["text"]
    assert "```diff\n+break\n" in observations[REVIEWER]["text"]
    observations, *_ = play(env, VETO)
    assert observations[AUTHOR]["text"] == "The reviewer has refused the change: It breaks."
    observations, *_ = play(env, SUBMIT, call("accept", comment="x" * 5000))
    assert len(observations[AUTHOR]["text"]) < 2200
    assert "You review changes" in env.instructions_of(REVIEWER)
    assert "first read by a reviewer" in env.instructions_of(AUTHOR)


def test_nothing_changed_and_a_long_change():
    env = make(diff_chars=200)
    observations, *_ = play(env, SUBMIT)
    assert "Nothing was changed." in observations[REVIEWER]["text"]
    play(env, VETO)
    observations, *_ = play(env, call("bash", command="x" * 1000), SUBMIT)
    assert "characters cut" in observations[REVIEWER]["text"]
    assert len(observations[REVIEWER]["text"]) < 500


def test_the_reviewer_works_in_a_copy():
    env = make()
    play(env, WRITE_FIX, SUBMIT)
    observations, *_ = play(env, WRITE_BREAK)
    assert "fix break" in observations[REVIEWER]["text"]
    play(env, VETO)
    observations, *_ = play(env, call("bash", command="more"))
    assert "fix more" in observations[AUTHOR]["text"]
    observations, *_ = play(env, SUBMIT, call("bash", command="look"))
    assert "fix more look" in observations[REVIEWER]["text"]  # a fresh copy


def test_the_reviewer_can_neither_edit_nor_submit():
    env = make()
    *_, infos = play(env, WRITE_FIX, SUBMIT)
    assert [each.name for each in infos[REVIEWER]["tools"]] == ["bash", "accept", "veto"]
    assert [each.name for each in infos[AUTHOR]["tools"]] == ["bash", "edit", "submit"]
    *_, infos = play(env, call("edit", line="x"))
    assert infos[REVIEWER]["invalid_action"]
    play(env, call("bash", command="submit"))  # ends nothing
    _, rewards, *_ = play(env, ACCEPT)
    assert rewards == {AUTHOR: 0.75, REVIEWER: 1.0}


def test_who_waits_calls_nothing():
    env = make()
    *_, infos = env.step({AUTHOR: WRITE_FIX, REVIEWER: "not read"})
    assert [each.call.name for each in infos[AUTHOR]["calls"]] == ["bash"]
    assert infos[REVIEWER]["calls"] == ()


def test_the_first_decision_of_a_message_counts():
    env = make()
    _, rewards, *_, infos = play(env, WRITE_FIX, SUBMIT, ACCEPT + VETO)
    assert rewards == {AUTHOR: 0.75, REVIEWER: 1.0}
    assert [each.result.error for each in infos[REVIEWER]["calls"]] == [False, True]


def test_not_to_decide_lets_nothing_in_and_is_not_right():
    env = make(review_turns=2, submissions=1)
    observations, rewards, *_ = play(env, SUBMIT, "hm", "hm")
    assert rewards == {AUTHOR: 0.0, REVIEWER: 0.0}
    assert "did not decide in time" in observations[AUTHOR]["text"]


def test_an_author_out_of_turns_has_submitted():
    env = make(base_kwargs={"max_turns": 1}, submissions=3)
    _, rewards, terminated, *_ = play(env, WRITE_BREAK, VETO)
    assert rewards == {AUTHOR: 0.0, REVIEWER: 1.0}
    assert all(terminated.values())


def test_an_author_out_of_time_has_submitted():
    env = make(base_kwargs={"max_seconds": 1e-9}, submissions=3)
    assert env.reviewer.max_seconds is None  # how long a review may take is said by its turns
    play(env, WRITE_BREAK, call("bash", command="ls"))
    _, rewards, terminated, *_ = play(env, VETO)
    assert rewards == {AUTHOR: 0.0, REVIEWER: 1.0}
    assert all(terminated.values())


def test_rounds_run_out_in_the_middle_of_a_review():
    env = make(max_cycles=3)
    _, rewards, terminated, truncated, infos = play(env, WRITE_FIX, SUBMIT, "hm")
    assert rewards == {AUTHOR: 0.0, REVIEWER: 0.0}
    assert all(truncated.values())
    assert not any(terminated.values())
    assert infos[REVIEWER]["verdict"].components["submissions"] == 1.0


@pytest.mark.parametrize("before", [[], [SUBMIT]])
def test_what_breaks_is_no_reward(before):
    env = make()
    _, rewards, _, truncated, infos = play(env, *before, call("bash", command="lost"))
    assert set(rewards.values()) == {0.0}
    assert all(truncated.values())
    for info in infos.values():
        assert info == {"task_id": "bench", "infrastructure_error": "the bench is gone"}


@pytest.mark.parametrize("agent", [AUTHOR, REVIEWER])
def test_a_monitor_watches_both(agent):
    env = make()
    watched = wrap_agents(env, {}, anti_hack={"context": {"network": "none"}})
    watched.reset(seed=0)
    play(env, *([] if agent == AUTHOR else [SUBMIT]))
    *_, infos = play(env, call("bash", command="curl https://example.com/solution.patch"))
    (record,) = infos[agent]["calls"]
    assert record.result.blocked
    assert not any("example.com" in line for line in env.author.lines + env.reviewer.lines)
    assert infos[agent]["hacked"] is False  # it did not take effect


def test_gold_is_right():
    env = make()
    while env.agents:
        _, rewards, *_ = env.step({agent: env.gold(agent) for agent in env.agents})
    assert rewards == {AUTHOR: 0.75, REVIEWER: 1.0}


def test_a_base_without_a_shell_is_refused():
    with pytest.raises(UsageError, match="expected a base with a repository and the tool 'bash'"):
        pettingzoo.make("parallel", ID, base="agentgym/SearchQA-v0")


def test_a_protocol_that_cannot_write_a_decision_is_refused():
    with pytest.raises(UsageError, match="expected a protocol in which accept and veto can be written"):
        pettingzoo.make("parallel", ID, base=BASE, base_kwargs={"protocol": "bash"})


@pytest.mark.slow
def test_on_a_real_repository():
    if reason := find(ID).missing():
        pytest.skip(reason)
    env = pettingzoo.make("parallel", ID)
    env.reset(seed=0, options={"task": "ledger-undo"})
    observations, *_ = play(env, call("bash", command="echo note > note.txt"), SUBMIT)
    assert "+++ b/note.txt" in observations[REVIEWER]["text"]
    observations, *_ = play(env, call("bash", command="echo mine >> note.txt; cat note.txt"))
    assert "note\nmine" in observations[REVIEWER]["text"]
    play(env, call("veto", comment="Nothing is repaired."))
    observations, *_ = play(env, call("bash", command="cat note.txt"))
    assert "mine" not in observations[AUTHOR]["text"]
    while env.agents:
        _, rewards, *_, infos = env.step({agent: env.gold(agent) for agent in env.agents})
    assert rewards == {AUTHOR: 1.0, REVIEWER: 1.0}
    assert "ledger.py" in infos[AUTHOR]["verdict"].evidence["patch"]
    env.close()
