"""The question a critic is asked, its answer, and where in a reply it is asked."""

import numpy as np
import pytest

from agentgym.messages import assistant, system, user
from agentgym.trajectory.records import Sampled, Segment, Step, Trajectory
from baselines.critic_prompt import Agent, State, answer, parse, span_starts, states_of, value_prompt

AGENT = Agent("smollm2", 134_515_008, 0.42)


def test_the_question_tells_who_acts_what_happened_and_what_is_left():
    state = State((user("Open the box."), assistant("<look>"), user("35")), "<op", 1, 4, written=2, most=10)
    instructions, question = value_prompt(state, AGENT)
    assert instructions.role == "system"
    assert "from 0 (no chance) to 10" in instructions.content
    assert question.content == (
        "Agent: smollm2, 135M parameters. Score of late: 4.2 of 10.\n\n"
        "The run so far:\nuser: Open the box.\nassistant: <look>\nuser: 35\nassistant: <op\n\n"
        "Budget: 1 turns used, 4 left; 2 of 10 tokens of this reply written.\nWhich score, from 0 to 10?"
    )


def test_what_is_unknown_is_left_out():
    question = value_prompt(State((user("Go."),), turns=3), Agent("a", 999))[1].content
    assert question.startswith("Agent: a, 999 parameters. Score of late: unknown.")
    assert "Budget: 3 turns used.\n" in question
    assert value_prompt(State((user("Go."),)))[1].content.startswith("The run so far:\nuser: Go.")


def test_questions_of_one_run_begin_alike_up_to_the_budget():
    messages = (user("Go."), assistant("north"), user("You walk on."))
    first, second = (value_prompt(State(messages[:n], turns=n // 2), AGENT)[1].content for n in (1, 3))
    run = first[: first.index("\n\nBudget")]
    assert second.startswith(run + "\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Two mistakes. <answer>7</answer>", 0.7),
        ("<answer> 10 </answer>", 1.0),
        ("<answer>0</answer>", 0.0),
        ("<answer>3</answer> or <answer>9</answer>", 0.3),
        ("<answer>11</answer>", None),
        ("<answer>7.5</answer>", None),
        ("<answer>-1</answer>", None),
        ("<answer>seven</answer> <answer>7</answer>", None),
        ("<answer>7", None),
        ("7", None),
        ("", None),
    ],
)
def test_only_a_whole_number_from_0_to_10_in_the_tag_is_an_answer(text, value):
    assert parse(text) == value


def test_an_answer_is_read_as_it_was_written():
    assert [parse(answer(value)) for value in (0.0, 0.04, 0.06, 0.5, 1.0)] == [0.0, 0.0, 0.1, 0.5, 1.0]


MASK = [0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0]  # two replies: tokens 2 to 4 and 7 to 10
SURE, UNSURE = np.log(0.9), np.log(0.1)


def test_a_span_begins_with_each_reply_and_before_unlikely_tokens():
    logprobs = np.full(12, SURE)
    assert span_starts(MASK, logprobs) == [2, 7]
    logprobs[[3, 5, 9]] = UNSURE  # token 5 was read, not sampled
    assert span_starts(MASK, logprobs) == [2, 3, 7, 9]
    assert span_starts(MASK, logprobs, probability=0.05) == [2, 7]
    assert span_starts(MASK, logprobs, probability=0.0) == [2, 7]


def test_spans_of_fixed_length():
    assert span_starts(MASK, np.full(12, UNSURE), every=2) == [2, 4, 7, 8, 10]  # tokens 0, 2, 4, 6 of seven


def test_too_many_spans_are_thinned_and_replies_last():
    logprobs = np.full(12, UNSURE)
    assert span_starts(MASK, logprobs) == [2, 3, 4, 7, 8, 9, 10]
    assert span_starts(MASK, logprobs, most=4) == [2, 3, 7, 10], (
        "both replies, the first and last of the five others"
    )
    assert span_starts(MASK, logprobs, most=2) == [2, 7]
    assert span_starts(MASK, logprobs, most=1) == [2]
    many = [0, 1] * 40
    chosen = span_starts(many, np.zeros(80))
    assert len(chosen) == 16
    assert chosen[0] == 1
    assert chosen[-1] == 79
    assert set(np.diff(chosen)) <= {4, 6}, "evenly"


def test_a_state_ends_before_its_token_and_knows_its_segment_alone():
    """Two segments of one run: a compaction after the first turn threw the first answer away."""
    first = Segment(
        0,
        messages=(user("Task."), assistant("abc")),
        sampled=[Sampled(1, start=2, stop=5, step=0)],
        token_ids=[1, 2, 10, 11, 12],
        mask=[0, 0, 1, 1, 1],
    )
    second = Segment(
        1,
        cause="compaction",
        messages=(system("Short."), user("Task."), assistant("de")),
        sampled=[Sampled(2, start=1, stop=3, step=2)],
        token_ids=[1, 13, 14],
        mask=[0, 1, 1],
    )
    steps = [Step("turn", "policy", "abc"), Step("summary", "policy", "s"), Step("turn", "policy", "de")]
    run = Trajectory("t", steps=steps, segments=[first, second])

    def states(segment, starts):
        return states_of(run, segment, starts, lambda ids: "".join(map(chr, [i + 87 for i in ids])),
                         max_turns=5, max_new_tokens=3)  # fmt: skip

    assert states(first, [2, 4]) == [
        State((user("Task."),), "", 0, 5, 0, 3),
        State((user("Task."),), "ab", 0, 5, 2, 3),
    ]
    assert states(second, [2]) == [State((system("Short."), user("Task.")), "d", 1, 4, 1, 3)], (
        "a summary is no turn"
    )
