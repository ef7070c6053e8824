"""Teachers of the first stage: their words are right, and unusable ones are counted."""

import numpy as np
import pytest

from agentgym.endpoint import Endpoint
from agentgym.envs.relay import RelayEnv
from agentgym.errors import InfrastructureError, UsageError
from agentgym.messages import assistant, user
from baselines.critic_prompt import Agent, State, parse
from baselines.rationales import asked, endpoint_teacher, rate, relay, relay_rationale, teacher_of, usable
from benchmarks.genac_worlds import walk_value
from tests.policies.fake_server import FakeServer, completion

AGENT = Agent("tiny", 1000, 0.33)


def test_the_form_alone():
    assert rate(State((), turns=2), AGENT) == "After 2 turns. Score of late 3.3 of 10. <answer>3</answer>"
    assert parse(rate(State(()), Agent("new", 1))) == 0.5


@pytest.mark.parametrize(("recall", "error"), [(1.0, 0.0), (0.6, 0.3)])
def test_the_relay_teacher_says_the_exact_value(recall, error):
    """Along real episodes with mistakes: within the rounding of an answer."""
    env = RelayEnv(hops=4, choices=4)
    rng = np.random.default_rng(0)
    seen = 0
    for episode in range(10):
        messages = [user(env.reset(seed=episode)[0])]
        ended = False
        while not ended:
            said = relay_rationale(State(tuple(messages)), recall=recall, error=error)
            assert said is not None
            assert parse(said) == pytest.approx(env.value(recall=recall, error=error), abs=0.05001)
            seen += env.mistakes > 0
            action = str(rng.choice(env.admissible_actions()))
            text, _, ended, _, _ = env.step(action)
            messages += [assistant(action), user(text)]
    assert seen > 20


def test_a_run_whose_word_was_lost_is_a_guess():
    env = RelayEnv(hops=2, choices=4)
    task = user(env.reset(seed=0)[0])
    first = env.step("take")[0]
    known = State((task, assistant("take"), user(first)))
    lost = State((task, assistant("take"), user("..." + first[first.index(" Signpost") :])))
    assert relay(known, AGENT) == "Hops: none. 0 wrong, 2 left. The word is known. <answer>3</answer>", (
        "as of late"
    )
    assert relay(lost, AGENT) == "Hops: none. 0 wrong, 2 left. The word is lost. <answer>2</answer>", (
        "one in four"
    )
    env.step(env.gold())
    arrived = State((task, assistant("..."), user(env.step(env.gold())[0])))
    assert relay(arrived, AGENT) is None, "a compaction took its hops away: nobody can count the mistakes"


@pytest.mark.parametrize(
    "state", [State((user("Say red."),)), State((user("follow 2 signposts"),), partial="g")]
)
def test_the_relay_teacher_is_silent_elsewhere(state):
    assert relay(state, AGENT) is None


def test_what_is_unusable_is_dropped_and_counted():
    said = iter(["Good. <answer>8</answer> and more", "no answer", None, "<answer>12</answer>"])
    states = [State((user(f"{n}"),)) for n in range(4)]
    texts = dict(zip(states, said, strict=True))
    kept = usable(asked(lambda state, agent: texts[state], states, AGENT))
    assert (kept.states, kept.texts, kept.dropped) == ([0], ["Good. <answer>8</answer>"], 0.75)


def test_an_answer_behind_a_stray_closing_tag_is_none():
    """The critic would stop at the tag, so the words up to it are all that could be imitated."""
    kept = usable(["I end with </answer>. <answer>7</answer>"])
    assert (kept.states, kept.dropped) == ([], 1.0)


def test_a_call_that_fails_is_dropped_and_counted():
    def teacher(state, agent):
        if state.turns:
            raise InfrastructureError("the server is down")
        return "Good. <answer>8</answer>"

    kept = usable(asked(teacher, [State((), turns=n) for n in range(4)], AGENT))
    assert (kept.states, kept.dropped, kept.failed) == ([0], 0.75, 0.75)
    with pytest.raises(InfrastructureError, match="is down"):
        usable(asked(teacher, [State((), turns=1), State((), turns=2)], AGENT))


def test_a_teacher_that_writes_no_text_is_told():
    with pytest.raises(UsageError, match=r"to write text, or None, got 0\.7"):
        usable(asked(lambda state, agent: 0.7, [State(())], AGENT))


def test_an_endpoint_is_asked_the_critics_question_twice_at_most():
    pytest.importorskip("openai")
    state = State((user("Task."),), turns=1)
    server = FakeServer(completion("hm"), completion("Likely. <answer>9</answer>"))
    with server.running() as url:
        assert endpoint_teacher(Endpoint("m", base_url=url))(state, AGENT) == "Likely. <answer>9</answer>"
    assert "Score of late: 3.3 of 10" in server.requests[0]["messages"][1]["content"]
    server = FakeServer(completion("hm"))
    with server.running() as url:
        assert endpoint_teacher(Endpoint("m", base_url=url))(state, AGENT) is None
    assert len(server.requests) == 2


def test_teachers_by_name():
    assert teacher_of("rate") is rate
    assert teacher_of("baselines.rationales:relay") is relay
    for wrong in ("best", "baselines.rationales:nobody", "baselines.rationales:_TRIES"):
        with pytest.raises(UsageError, match="teacher"):
            teacher_of(wrong)


def test_values_of_the_walk_by_hand():
    # One step from the goal with one turn: p. From 0 to 2 in 2 turns: p * p. From 1 to 2 in 3: up, or down-up-up.
    assert walk_value(2, 1, 1, 0.7) == pytest.approx(0.7)
    assert walk_value(2, 0, 2, 0.7) == pytest.approx(0.49)
    assert walk_value(2, 1, 3, 0.7) == pytest.approx(0.7 + 0.3 * 0.49)
    assert walk_value(2, 2, 0, 0.7) == 1.0
    assert walk_value(2, 0, 1, 0.7) == 0.0
