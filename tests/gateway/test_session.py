"""What a session records, by hand: one program, one format, a policy that says what the test wants."""

from __future__ import annotations

import pytest

from agentgym.core import Verdict
from agentgym.errors import ContextOverflow, InfrastructureError
from agentgym.gateway import Limits, Refusal, Screened
from agentgym.gateway.chat import read_choice
from agentgym.messages import assistant, system, user
from agentgym.tools import Tool, ToolCall
from tests.gateway.toy import (
    PROGRAMS,
    AnthropicProgram,
    ChatProgram,
    ResponsesProgram,
    Says,
    ask,
    call_text,
    make_session,
)

LS = "I look.\n" + call_text("bash", command="ls")


def segments(trajectory):
    return [(s.agent, s.cause, s.parent) for s in trajectory.segments]


@pytest.mark.parametrize("make", PROGRAMS)
def test_the_policy_reads_what_it_sampled_and_the_program_gets_structure(make):
    policy = Says(LS, "done")
    session = make_session(policy)
    program = make("be good", "look")
    body = ask(session, program)
    assert program.text(body) == "I look."
    assert program.take(body, lambda i: "a.txt") == 1
    ask(session, program)
    head, *rest = policy.asked[1]
    assert head.content.startswith("be good\n\nYou can call these tools:\n<tools>\n")
    assert rest == [user("look"), assistant(LS), user("<tool_response>\na.txt\n</tool_response>")]
    trajectory = session.finish(Verdict(1.0))
    assert segments(trajectory) == [("policy", "start", None)]
    (call,) = trajectory.steps[0].calls
    assert (call.name, call.arguments, call.text, call.blocked) == ("bash", {"command": "ls"}, "a.txt", False)
    assert trajectory.steps[0].observation == "a.txt"
    assert trajectory.steps[1].reward == trajectory.reward == 1.0
    assert trajectory.prompt == "look"
    assert trajectory.resolved


def test_several_calls_are_answered_in_one_message():
    session = make_session(policy := Says(LS + call_text("bash", command="pwd"), "done"))
    program = ChatProgram("s", "look")
    assert program.take(ask(session, program), lambda i: f"answer {i}") == 2
    ask(session, program)
    answers = "<tool_response>\nanswer {}\n</tool_response>"
    assert policy.asked[1][-1] == user(f"{answers.format(0)}\n{answers.format(1)}")
    assert [call.text for call in session.finish().steps[0].calls] == ["answer 0", "answer 1"]


def test_of_equal_answers_each_stays_its_conversations():
    """Two agents answered in equal words after other thoughts, which the program has dropped."""
    session = make_session(policy := Says("<think>a</think>yes", "<think>b</think>yes", "on", "on"))
    one, two = ChatProgram("s", "one"), ChatProgram("s", "two")
    ask(session, one)
    ask(session, two)
    for program, sampled in ((one, "<think>a</think>yes"), (two, "<think>b</think>yes")):
        program.rows.append({"role": "assistant", "content": "yes"})
        program.say("go on")
        ask(session, program)
        assert policy.asked[-1][2] == assistant(sampled)


def test_the_first_answer_to_a_call_is_on_record():
    session = make_session(Says(LS, "done", "done"))
    program = ChatProgram("s", "look")
    body = ask(session, program)
    for answer in ("a.txt", "b.txt"):
        again = program.fork()
        again.take(body, lambda i, answer=answer: answer)
        ask(session, again)
    (step, *_) = session.finish().steps
    assert (step.observation, step.calls[0].text) == ("a.txt", "a.txt")


def test_an_edited_reply_is_not_the_policys():
    session = make_session(Says("the first answer", "the second"))
    program = ChatProgram("s", "go")
    ask(session, program)
    program.rows += [{"role": "assistant", "content": "what I would rather have heard"}]
    program.say("on")
    ask(session, program)
    trajectory = session.finish()
    assert segments(trajectory) == [("policy", "start", None), ("policy", "fork", 0)]
    assert [sum(s.mask) for s in trajectory.segments] == [step.sampled_tokens for step in trajectory.steps]


def test_a_call_that_cannot_be_read_is_text():
    broken = "<tool_call>{'name': bash}</tool_call>"
    session = make_session(Says(broken))
    program = ChatProgram("s", "go")
    assert program.text(ask(session, program)) == broken
    assert session.finish().steps[0].info == {"unread_call": True}


def test_without_tools_the_text_is_the_programs():
    text = "Let me see.\n```bash\nls\n```"
    session = make_session(Says(text), protocol="bash")
    program = ChatProgram("s", "go")
    assert program.text(ask(session, program, tools=False)) == text
    assert [call.arguments for call in session.finish().steps[0].calls] == [{"command": "ls"}]


def test_a_choice_of_none_keeps_the_prompt_and_the_text():
    session = make_session(policy := Says("x", LS))
    program = ChatProgram("s", "go")
    ask(session, program)
    assert program.text(ask(session, program, tool_choice="none")) == LS
    assert policy.asked[0] == policy.asked[1]


CHAT = {"type": "function", "function": {"name": "ls"}}
RESPONSES = {"type": "function", "name": "ls"}


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        (None, "auto"),
        ("none", "none"),
        (CHAT, "required"),
        (RESPONSES, "required"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CHAT]}}, "auto"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CHAT]}}, "required"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [RESPONSES]}, "auto"),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, "required"),
    ],
)
def test_choices_of_openais_formats(choice, read):
    assert read_choice(choice, (Tool("ls", "", '{"type": "object", "properties": {}}', "ls"),)) == read


# -- screens -------------------------------------------------------------------------------------------------


def harmless(call, session):
    if "rm" in call.arguments["command"]:
        return Screened(ToolCall("bash", {"command": "true"}), '{"rule": "r"}')
    return Screened(None, "seen") if "cat" in call.arguments["command"] else None


def test_a_screened_call_does_not_reach_the_program():
    text = (
        call_text("bash", command="rm -rf /")
        + call_text("bash", command="cat x")
        + call_text("bash", command="ls")
    )
    session = make_session(policy := Says(text, "done"), screen=harmless)
    program = ChatProgram("s", "go")
    body = ask(session, program)
    given = [call["function"]["arguments"] for call in body["choices"][0]["message"]["tool_calls"]]
    assert given == ['{"command": "true"}', '{"command": "cat x"}', '{"command": "ls"}']
    program.take(body, lambda i: f"{i}")
    ask(session, program)
    assert assistant(text) in policy.asked[1], "the policy goes on from what it sampled"
    trajectory = session.finish()
    calls = [(c.arguments["command"], c.blocked, c.note, c.text) for c in trajectory.steps[0].calls]
    assert calls == [
        ("rm -rf /", True, '{"rule": "r"}', "0"),
        ("cat x", False, "seen", "1"),
        ("ls", False, "", "2"),
    ]
    assert segments(trajectory) == [("policy", "start", None)]
    (event,) = [e for e in trajectory.events if e.kind == "screened"]
    assert event.data["given"] == {"name": "bash", "arguments": {"command": "true"}}


def test_a_screened_block_is_rewritten_in_the_text():
    session = make_session(Says("I clean.\n```bash\nrm -rf /\n```\nSo."), protocol="bash", screen=harmless)
    program = ChatProgram("s", "go")
    assert program.text(ask(session, program, tools=False)) == "I clean.\n```bash\ntrue\n```\nSo."


def test_a_screened_block_written_in_another_way_leaves_nothing_of_the_text():
    session = make_session(
        Says("I clean.\n```bash  \nrm -rf /\n```  \nSo."), protocol="bash", screen=harmless
    )
    program = ChatProgram("s", "go")
    assert program.text(ask(session, program, tools=False)) == "```bash\ntrue\n```"


def test_of_two_equal_calls_in_a_text_nobody_can_say_which_was_screened():
    said = []

    def first(call, session):
        said.append(call)
        return Screened(ToolCall("bash", {"command": "true"})) if len(said) == 1 else None

    call = call_text("bash", command="ls")
    session = make_session(Says(f"Look: {call} and {call}"), screen=first)
    program = ChatProgram("s", "go")
    text = program.text(ask(session, program, tools=False))
    assert text == call_text("bash", command="true") + "\n" + call


# -- whose conversation it is --------------------------------------------------------------------------------


def test_a_shared_system_prompt_makes_nobody_the_same():
    session = make_session(Says("one", "two", "three"))
    parent, child = ChatProgram("same", "the goal"), ChatProgram("same", "a part of it")
    parent.take(ask(session, parent), None)
    child.take(ask(session, child), None)
    parent.say("the child says two")
    ask(session, parent)
    trajectory = session.finish()
    assert segments(trajectory) == [("policy", "start", None), ("agent-1", "delegation", 0)]
    assert [(step.agent, step.kind) for step in trajectory.steps] == [
        ("policy", "turn"),
        ("agent-1", "delegated"),
        ("policy", "turn"),
    ]


def summed_up():
    """A session whose program has just thrown its history away for a summary of it."""
    session = make_session(Says("one", "I have opened the box and read the note.", "three"))
    program = ChatProgram("same", "the goal")
    program.take(ask(session, program), None)
    program.say("sum it up")
    summary = program.text(ask(session, program))
    program.rows = []
    program.say(f"You did this before: {summary}")
    return session, program


def test_a_conversation_around_a_summary_is_its_authors():
    session, program = summed_up()
    ask(session, program)
    trajectory = session.finish()
    assert segments(trajectory) == [("policy", "start", None), ("policy", "compaction", 0)]
    assert [m.content for m in trajectory.segments[1].dropped] == [
        "the goal",
        "one",
        "sum it up",
        "I have opened the box and read the note.",
    ]
    (event,) = [e for e in trajectory.events if e.kind == "compaction"]
    assert event.data == {"segment": 1, "parent": 0, "dropped": 4}
    assert [step.kind for step in trajectory.steps] == ["turn"] * 3


def test_a_quoted_reply_that_goes_on_was_no_summary():
    """A program that asks for a title beside its work quotes a reply, too."""
    session = make_session(Says("I shall repair the parser first.", "Repairing a parser", "done"))
    program, title = (
        ChatProgram("same", "the goal"),
        ChatProgram("find titles", "I shall repair the parser first."),
    )
    program.take(ask(session, program), None)
    ask(session, title)
    program.say("on")
    ask(session, program)
    trajectory = session.finish(reward=1.0)
    assert segments(trajectory) == [("policy", "start", None), ("agent-1", "delegation", 0)]
    assert [(step.agent, step.kind, step.reward) for step in trajectory.steps] == [
        ("policy", "turn", 0.0),
        ("agent-1", "delegated", 0.0),
        ("policy", "turn", 1.0),
    ]
    (event,) = [e for e in trajectory.events if e.kind == "delegation"]
    assert event.data == {"segment": 1, "parent": 0, "dropped": 0}


def test_a_rewrite_around_a_reply_that_goes_on_is_a_fork():
    session = make_session(Says("I shall repair the parser first.", "two", "three"))
    program = ChatProgram("s", "the goal")
    body = ask(session, program)
    other = program.fork()
    other.say("You said: I shall repair the parser first.")
    ask(session, other)
    program.take(body, None)
    program.say("on")
    ask(session, program)
    trajectory = session.finish()
    assert segments(trajectory) == [("policy", "start", None), ("policy", "fork", 0)]
    assert [e.kind for e in trajectory.events if e.kind != "realign"] == ["fork"]


def test_a_delegation_whose_first_try_fails():
    session = make_session(Says("one", "two"))
    parent, child = ChatProgram("same", "the goal"), ChatProgram("same", "a part of it")
    parent.take(ask(session, parent), None)
    pending, _ = session.begin(child.form.read(child.body()))
    session.fail(pending, InfrastructureError("down"))
    ask(session, child)
    assert segments(session.finish()) == [("policy", "start", None), ("agent-1", "delegation", 0)]


def test_a_first_try_that_fails_changes_no_cause():
    session, program = summed_up()
    pending, _ = session.begin(program.form.read(program.body()))
    session.fail(pending, InfrastructureError("down"))
    ask(session, program)
    assert segments(session.finish()) == [("policy", "start", None), ("policy", "compaction", 0)]


def test_a_report_is_no_summary():
    session = make_session(Says("a call to a child", "I have found the file in the attic.", "good", "fixed"))
    parent, child, other = (ChatProgram("same", goal) for goal in ("the goal", "find it", ""))
    parent.take(ask(session, parent), None)
    report = child.text(ask(session, child))
    parent.say(report)
    parent.take(ask(session, parent), None)
    other.rows = []
    other.say(f"Repair it. {report}")
    ask(session, other)
    causes = [("policy", "start", None), ("agent-1", "delegation", 0), ("agent-2", "delegation", 0)]
    assert [(agent, cause) for agent, cause, _ in segments(session.finish())] == [c[:2] for c in causes]


def test_a_named_agent():
    session = make_session(Says("one", "two"))
    for name, goal in (("lead", "x"), ("tester", "y")):
        program = ChatProgram("s", goal)
        pending, _ = session.begin(program.form.read(program.body()), agent=name)
        session.complete(pending, session.policy.act([pending.placed.conversation], seeds=[0])[0])
    assert segments(session.finish()) == [("lead", "start", None), ("tester", "delegation", 0)]


def test_forks_can_be_refused():
    session = make_session(Says("one", "two", "three"), forks="error")
    program = ChatProgram("s", "go")
    program.take(ask(session, program), None)
    program.say("on")
    ask(session, program)
    program.rows[1] = {"role": "assistant", "content": "edited"}
    with pytest.raises(Refusal, match="forks are refused"):
        ask(session, program)
    assert session.calls == 2


# -- retries, repetitions, loss ------------------------------------------------------------------------------


def sampled(trajectory):
    """Of each step: whether its tokens are trained."""
    trained = {}
    for segment in trajectory.segments:
        for place in segment.sampled:
            assert place.step not in trained
            trained[place.step] = all(segment.mask[place.start : place.stop])
            assert trained[place.step] is any(segment.mask[place.start : place.stop])
    return [trained[step] for step in sorted(trained)]


def test_a_retry_supersedes():
    session = make_session(Says("one", "two", "three"))
    program = ChatProgram("s", "go")
    ask(session, program)
    program.take(ask(session, program), None)
    program.say("on")
    ask(session, program)
    trajectory = session.finish()
    assert sampled(trajectory) == [False, True, True]
    assert [s.cause for s in trajectory.segments] == ["start", "retry"]


def test_what_is_gone_on_with_is_trained_even_where_the_history_is_rewritten_at_once():
    session = make_session(Says("one", "two", "three"))
    program = ChatProgram("s", "go")
    first = ask(session, program)
    ask(session, program)
    program.take(first, None)
    program.say("on")
    ask(session, program, tools=False)  # without tools the prompt begins in another way
    assert sampled(session.finish()) == [True, False, True]


def test_one_request_id_is_answered_once():
    session = make_session(policy := Says("one", "two"))
    program = ChatProgram("s", "go")
    asked = program.form.read(program.body())
    pending, new = session.begin(asked, request_id="r1")
    again, new_again = session.begin(asked, request_id="r1")
    assert (new, new_again) == (True, False)
    assert again is pending
    program.say("more")
    with pytest.raises(Refusal, match="stands for another request"):
        session.begin(program.form.read(program.body()), request_id="r1")
    assert policy.asked == []


def test_a_request_id_may_be_tried_again_after_a_failure():
    session = make_session()
    program = ChatProgram("s", "go")
    asked = program.form.read(program.body())
    pending, _ = session.begin(asked, request_id="r1")
    pending.future.set_exception(session.fail(pending, InfrastructureError("down")))
    again, new = session.begin(asked, request_id="r1")
    assert new
    assert again is not pending


def test_an_answer_that_was_lost_once_and_then_delivered_is_not_lost():
    session = make_session(Says("one"))
    program = ChatProgram("s", "go")
    pending, _ = session.begin(program.form.read(program.body()))
    session.complete(pending, session.policy.act([pending.placed.conversation], seeds=[0])[0])
    session.lose(pending, "gone")
    session.delivered(pending)
    session.lose(pending, "gone")
    trajectory = session.finish()
    assert sampled(trajectory) == [True]
    assert trajectory.steps[0].info == {}


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_lost_answer_is_trained_only_if_something_continues_it(goes_on):
    session = make_session(Says("one", "two"))
    program = ChatProgram("s", "go")
    pending, _ = session.begin(program.form.read(program.body()))
    given = session.complete(pending, session.policy.act([pending.placed.conversation], seeds=[0])[0])
    session.lose(pending, "gone")
    if goes_on:
        program.take(program.form.body(pending.asked, given), None)
        program.say("on")
        ask(session, program)
    trajectory = session.finish(reward=0.5)
    assert sampled(trajectory) == ([True, True] if goes_on else [False])
    assert trajectory.reward == 0.5


def test_calls_side_by_side_are_recorded_in_order_of_arrival():
    session = make_session(policy := Says("late", "early"))
    one, two = ChatProgram("s", "one"), ChatProgram("s", "two")
    first, _ = session.begin(one.form.read(one.body()))
    second, _ = session.begin(two.form.read(two.body()))
    for pending in (second, first):
        session.complete(pending, policy.act([pending.placed.conversation], seeds=[0])[0])
    assert [step.action for step in session.finish().steps] == ["early", "late"]


def test_an_unanswered_call_does_not_keep_the_record():
    session = make_session(Says("two"))
    one, two = ChatProgram("s", "one"), ChatProgram("s", "two")
    stuck, _ = session.begin(one.form.read(one.body()))
    ask(session, two)
    trajectory = session.finish()
    assert [step.action for step in trajectory.steps] == ["two"]
    assert [e.kind for e in trajectory.events] == ["unanswered"]
    with pytest.raises(Refusal, match="has ended"):
        session.complete(stuck, Says("x").act([stuck.placed.conversation], seeds=[0])[0])
    assert session.finish() is trajectory


# -- limits and failures -------------------------------------------------------------------------------------


def refusal_of(session, program, **body):
    with pytest.raises(Refusal) as caught:
        ask(session, program, **body)
    return caught.value.kind


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        (Limits(calls=1), "exhausted"),
        (Limits(sampled_tokens=1), "exhausted"),
        (Limits(session_seconds=1e-9), "exhausted"),
        (Limits(context_tokens=3), "context"),
    ],
)
def test_limits(limits, kind):
    session = make_session(Says("one", "two"), limits=limits)
    program = ChatProgram("s", "go")
    if limits.session_seconds is None and limits.context_tokens is None:
        ask(session, program)
    assert refusal_of(session, program) == kind
    assert refusal_of(session, program) == kind
    name = next(
        n for n in ("calls", "sampled_tokens", "session_seconds", "context_tokens") if getattr(limits, n)
    )
    assert session.exhausted == name
    (event,) = [e for e in session.finish().events if e.kind == "limit"]
    assert event.data == {"what": name, "times": 2}


def test_the_policys_own_window():
    session = make_session()
    program = ChatProgram("s", "go")
    pending, _ = session.begin(program.form.read(program.body()))
    refusal = session.fail(pending, ContextOverflow("too long"))
    assert (refusal.kind, session.exhausted, session.failure) == ("context", "context", None)


@pytest.mark.parametrize("error", [InfrastructureError("down"), ValueError("a bug")])
def test_a_failure_is_never_a_reward_unless_a_later_call_makes_it_good(error):
    program = ChatProgram("s", "go")
    for good in (False, True):
        session = make_session(Says("one"))
        pending, _ = session.begin(program.form.read(program.body()))
        assert session.fail(pending, error).kind == "failed"
        if good:
            ask(session, program)
        trajectory = session.finish(Verdict(1.0))
        assert bool(trajectory.infrastructure_error) is not good
        assert trajectory.reward == (1.0 if good else None)


def test_an_earlier_call_makes_no_failure_good():
    session = make_session(policy := Says("one"))
    one, two = ChatProgram("s", "one"), ChatProgram("s", "two")
    first, _ = session.begin(one.form.read(one.body()))
    second, _ = session.begin(two.form.read(two.body()))
    session.fail(second, InfrastructureError("down"))
    session.complete(first, policy.act([first.placed.conversation], seeds=[0])[0])
    assert session.finish(reward=1.0).reward is None


def test_what_belongs_to_the_policy_is_noted():
    session = make_session(Says("one", "two"))
    program = ChatProgram("s", "go")
    ask(session, program, temperature=0.2, stop=["x"], metadata={"why": "y" * 2000})
    ask(session, program, temperature=0.2)
    ignored = [e.data for e in session.finish().events if e.kind == "ignored"]
    assert ignored == [
        {"what": "temperature", "times": 2, "value": 0.2},
        {"what": "stop", "times": 1, "value": ["x"]},
        {"what": "metadata", "times": 1, "value": '{"why": "' + "y" * 991},
    ]


# -- Responses -----------------------------------------------------------------------------------------------


def test_a_response_goes_on_from_an_earlier_one():
    session = make_session(policy := Says("one", "two"))
    program = ResponsesProgram("s", "go")
    body = ask(session, program)
    program.rows = []
    program.say("on")
    ask(session, program, previous_response_id=body["id"])
    assert policy.asked[1][1:] == (user("go"), assistant("one"), user("on"))
    assert len(session.finish().segments) == 1


def test_an_unknown_response():
    session = make_session(Says("one"))
    assert refusal_of(session, ResponsesProgram("s", "go"), previous_response_id="resp_x") == "not_found"


def test_instructions_are_those_of_the_last_request():
    session = make_session(policy := Says("one", "two"))
    body = ask(session, ResponsesProgram("old", "go"), tools=False)
    program = ResponsesProgram("new", "on")
    ask(session, program, tools=False, previous_response_id=body["id"])
    assert policy.asked[1] == (system("new"), user("go"), assistant("one"), user("on"))


def test_thoughts_that_come_back_are_known_already():
    session = make_session(policy := Says("<think>hm</think>yes", "two"))
    program = AnthropicProgram("s", "go")
    ask(session, program)
    blocks = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "yes"}]
    program.rows.append({"role": "assistant", "content": blocks})
    program.say("on")
    ask(session, program)
    assert assistant("<think>hm</think>yes") in policy.asked[1]


def test_what_comes_after_the_end_is_on_no_record():
    """A policy may still be at a call when the session ends; the trajectory is written by then."""

    def screen(call, session):
        return Screened(ToolCall("bash", {"command": "true"}))

    session = make_session(policy := Says(LS), screen=screen)
    pending, other = (session.begin(ChatProgram.form.read(ChatProgram("s", "go").body()))[0] for _ in "ab")
    trajectory = session.finish(reward=1.0)
    (reply,) = policy.act([pending.placed.conversation], seeds=[0])
    with pytest.raises(Refusal, match="has ended"):
        session.complete(pending, reply)
    session.fail(other, RuntimeError("late"))
    assert [(event.kind, event.data) for event in trajectory.events] == [
        ("unanswered", {"call": 0}),
        ("unanswered", {"call": 1}),
    ]
    assert (trajectory.steps, trajectory.infrastructure_error) == ([], "")


def test_the_prompt_says_when_no_call_is_wanted():
    """Protocols ask for a call in each message; the last one of a program's conversation is an answer."""
    session = make_session(policy := Says("done"))
    ask(session, ChatProgram("s", "go"))
    told = policy.asked[0][0].content
    assert told.endswith(
        "Each message must hold at least one call. "
        "The one exception: when nothing is left to do, write your answer as plain text without a call."
    )
