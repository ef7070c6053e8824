"""Every row of the table of cases, with values derived by hand."""

import json

import pytest

from agentgym.errors import SegmentError, UsageError
from agentgym.messages import Message, MessageCall, assistant, system, user
from agentgym.trajectory.realign import common_prefix, learn_end_of_turn, tail_start
from agentgym.trajectory.records import Reply, Trajectory
from agentgym.trajectory.segments import SegmentBuilder
from agentgym.trajectory.store import from_dict, to_dict
from agentgym.trajectory.tree import left_out
from tests.trajectory.test_store import VALIDATOR

E, U, A, S = 1, 3, 4, 2  # end of message, and the headers of user, assistant, system
Q = (user("q"),)
Q_IDS = (U, 10, E, A)


def kinds(builder):
    return [event.kind for event in builder.events]


def reply(text, prompt, sampled, **more):
    return Reply(text, tuple(prompt), tuple(sampled), **more)


def chat(*texts):
    """A conversation of user and assistant in turn."""
    return tuple(user(text) if index % 2 == 0 else assistant(text) for index, text in enumerate(texts))


# -- append, realign, fork ----------------------------------------------------------------------------------------


def test_append_keeps_one_segment_and_masks_what_was_sampled():
    b = SegmentBuilder()
    assert b.add(Q, reply("x", Q_IDS, (20, E), logprobs=(-0.5, -0.1), temperature=0.7), step=0) == 0
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    assert b.add(chat("q", "x", "o"), reply("y", prompt, (21, E), logprobs=(-0.2, -0.3)), step=1) == 0
    (segment,) = b.segments
    assert segment.token_ids == [U, 10, E, A, 20, E, U, 11, E, A, 21, E]
    assert segment.mask == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert segment.logprobs == [0, 0, 0, 0, -0.5, -0.1, 0, 0, 0, 0, -0.2, -0.3]
    assert segment.rewards == [0.0] * 12
    assert segment.messages == chat("q", "x", "o", "y")
    assert (segment.cause, segment.parent, segment.agent) == ("start", None, "policy")
    assert [(s.message, s.start, s.stop, s.step, s.temperature) for s in segment.sampled] == [
        (1, 4, 6, 0, 0.7),
        (3, 10, 12, 1, None),
    ]
    assert kinds(b) == ["append"]


def test_parallel_tool_results_append_in_the_order_rendered():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    results = (Message("tool", "1", tool_call_id="c1"), Message("tool", "2", tool_call_id="c2"))
    prompt = (*Q_IDS, 20, E, 5, 31, E, 5, 32, E, A)
    assert b.add((*Q, assistant("x"), *results), reply("y", prompt, (21, E))) == 0
    assert b.segments[0].token_ids == [*prompt, 21, E]
    assert kinds(b) == ["append"]


def test_realign_keeps_the_sampled_ids_and_takes_only_the_new_tail():
    b = SegmentBuilder()
    b.add(Q, reply("ab", Q_IDS, (20, 21, E)))
    prompt = (*Q_IDS, 22, E, U, 11, E, A)  # the tokenizer writes "ab" as 22
    assert b.add(chat("q", "ab", "o"), reply("y", prompt, (23, E))) == 0
    assert b.segments[0].token_ids == [U, 10, E, A, 20, 21, E, U, 11, E, A, 23, E]
    assert b.segments[0].mask == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert kinds(b) == ["realign"]


def test_realign_again_in_the_turn_after():
    b = SegmentBuilder()
    b.add(Q, reply("ab", Q_IDS, (20, 21, E)))
    second = (*Q_IDS, 22, E, U, 11, E, A)
    b.add(chat("q", "ab", "o"), reply("cd", second, (24, 25, E)))
    third = (*second, 26, 27, 28, E, U, 12, E, A)
    b.add(chat("q", "ab", "o", "cd", "p"), reply("y", third, (23, E)))
    held = [U, 10, E, A, 20, 21, E, U, 11, E, A, 24, 25, E, U, 12, E, A, 23, E]
    assert b.segments[0].token_ids == held
    assert kinds(b) == ["realign", "realign"]


def test_realign_where_the_renderer_changes_older_turns_too():
    b = SegmentBuilder(end_of_turn=[E])
    b.add(Q, reply("ab", Q_IDS, (20, E)))
    prompt = (U, 33, 34, E, A, 22, 35, E, U, 11, E, A)  # "q" is 33 34 now
    assert b.add(chat("q", "ab", "o"), reply("y", prompt, (23, E))) == 0
    assert b.segments[0].token_ids == [U, 10, E, A, 20, E, U, 11, E, A, 23, E]


def test_a_conversation_that_differs_forks_at_the_common_prefix():
    b = SegmentBuilder()
    start = (system("s"), *Q)
    ids = (S, 9, E, U, 10, E, A)
    b.add(start, reply("x", ids, (20, E)))
    assert b.add((system("s"), user("other")), reply("y", (S, 9, E, U, 12, E, A), (21, E))) == 1
    fork = b.segments[1]
    assert (fork.cause, fork.parent, fork.copied_messages, fork.copied_tokens) == ("fork", 0, 1, 4)
    assert fork.mask == [0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert fork.dropped == (user("q"), assistant("x"))
    assert kinds(b) == ["fork"]


def test_tokens_that_drop_text_are_a_fork_though_the_messages_are_equal():
    b = SegmentBuilder()
    b.add(Q, reply("think x", Q_IDS, (50, 51, 52, 20, E)))
    prompt = (*Q_IDS, 20, E, U, 11, E, A)  # the template strips the reasoning 50 51 52 of old turns
    assert b.add(chat("q", "think x", "o"), reply("y", prompt, (21, E))) == 1
    assert b.segments[0].mask == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert b.segments[1].token_ids == [*prompt, 21, E]
    assert b.segments[1].mask == [0] * len(prompt) + [1, 1]
    assert (b.segments[1].copied_messages, b.segments[1].copied_tokens) == (2, 4)
    assert kinds(b) == ["fork"]


def test_a_template_that_strips_forks_every_turn_and_is_counted():
    b = SegmentBuilder()
    texts, ids = ["q"], list(Q_IDS)
    for turn in range(4):
        b.add(chat(*texts), reply(f"think {turn}", ids, (50, 51, 60 + turn, E)))
        texts += [f"think {turn}", f"o{turn}"]
        ids += [60 + turn, E, U, 11, E, A]
    assert kinds(b) == ["fork"] * 3
    assert [sum(segment.mask) for segment in b.segments] == [4, 4, 4, 4]


def test_without_a_known_end_of_turn_a_changed_encoding_is_a_fork():
    b = SegmentBuilder()
    b.add(Q, reply("ab", Q_IDS, (20, 21), finish_reason="length"))
    assert b.add(chat("q", "ab", "o"), reply("y", (*Q_IDS, 22, E, U, 11, E, A), (23, E))) == 1
    assert kinds(b) == ["fork"]


def test_a_reply_that_names_the_end_of_turn_is_realigned_though_none_was_sampled():
    b = SegmentBuilder()
    b.add(Q, reply("ab", Q_IDS, (20, 21), finish_reason="length", end_of_turn=(E,)))
    assert b.add(chat("q", "ab", "o"), reply("y", (*Q_IDS, 22, E, U, 11, E, A), (23, E))) == 0
    assert kinds(b) == ["realign"]
    assert b.segments[0].token_ids == [*Q_IDS, 20, 21, E, U, 11, E, A, 23, E]
    assert b.segments[0].mask == [0] * len(Q_IDS) + [1, 1, 0, 0, 0, 0, 0, 1, 1]


def test_the_last_token_of_a_reply_cut_off_is_no_end_of_turn():
    b = SegmentBuilder()
    b.add((user("d"),), reply("cd", (U, 21, E, A), (20, 21), finish_reason="length"))
    prompt = (U, 21, E, A, 22, E, U, 21, 21, E, A)  # by chance 21 stands there once for each message
    assert b.add(chat("d", "cd", "dd"), reply("y", prompt, (23, E))) == 1
    assert kinds(b) == ["fork"]


# -- edited, empty, cut off, prefilled ------------------------------------------------------------------------------


def test_an_edited_reply_stays_trained_where_it_was_sampled():
    b = SegmentBuilder()
    b.add(Q, reply("x ", Q_IDS, (20, 30, E)))
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    assert b.add(chat("q", "x", "o"), reply("y", prompt, (21, E))) == 1
    assert b.segments[0].mask == [0, 0, 0, 0, 1, 1, 1]
    assert b.segments[1].mask == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert (b.segments[1].parent, b.segments[1].copied_messages, b.segments[1].copied_tokens) == (0, 1, 5)


def test_an_empty_reply_stores_nothing_and_the_leaf_does_not_move():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    before = list(b.segments[0].token_ids)
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    assert b.add(chat("q", "x", "o"), Reply("", prompt, ())) is None
    assert b.segments[0].token_ids == before
    longer = (*prompt, E, U, 12, E, A)
    assert b.add(chat("q", "x", "o", "", "p"), reply("y", longer, (21, E))) == 0
    assert b.segments[0].token_ids == [*longer, 21, E]
    assert kinds(b) == ["empty_reply", "append"]


def test_an_end_token_alone_is_a_reply():
    b = SegmentBuilder()
    assert b.add(Q, reply("", Q_IDS, (E,))) == 0
    assert b.segments[0].mask == [0, 0, 0, 0, 1]


def test_a_reply_cut_off_is_closed_by_the_next_prompt_with_mask_0():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, 21), finish_reason="length"))
    b.add(chat("q", "x", "o"), reply("y", (*Q_IDS, 20, 21, E, U, 11, E, A), (22, E)))
    assert b.segments[0].token_ids == [U, 10, E, A, 20, 21, E, U, 11, E, A, 22, E]
    assert b.segments[0].mask == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1]


def test_a_reply_cut_off_and_encoded_otherwise_is_closed_too():
    b = SegmentBuilder(end_of_turn=[E])
    b.add(Q, reply("ab", Q_IDS, (20, 21), finish_reason="length"))
    b.add(chat("q", "ab", "o"), reply("y", (*Q_IDS, 22, E, U, 11, E, A), (23, E)))
    assert b.segments[0].token_ids == [U, 10, E, A, 20, 21, E, U, 11, E, A, 23, E]
    assert kinds(b) == ["realign"]


def test_a_prefill_is_continued_and_not_trained():
    b = SegmentBuilder()
    b.add((*Q, assistant("Sure: ")), reply("x", (*Q_IDS, 40), (20, E)))
    assert b.segments[0].messages == (*Q, assistant("Sure: x"))
    assert b.segments[0].mask == [0, 0, 0, 0, 0, 1, 1]
    assert b.segments[0].sampled[0].message == 1
    b.add(chat("q", "Sure: x", "o"), reply("y", (*Q_IDS, 40, 20, E, U, 11, E, A), (21, E)))
    assert kinds(b) == ["append"]


def test_a_prefilled_prompt_asked_again_shares_all_but_the_prefill():
    b = SegmentBuilder()
    prefilled = (*Q, assistant("Sure: "))
    b.add(prefilled, reply("x", (*Q_IDS, 40), (20, E)), accepted=True)
    assert b.add(prefilled, reply("y", (*Q_IDS, 40), (21, E)), accepted=True) == 1
    assert (b.segments[1].parent, b.segments[1].copied_messages, b.segments[1].copied_tokens) == (0, 1, 5)


def test_a_cut_off_reply_can_itself_be_continued():
    b = SegmentBuilder()
    b.add(Q, reply("The ans", Q_IDS, (20, 21), finish_reason="length"), step=0)
    assert b.add((*Q, assistant("The ans")), reply("wer", (*Q_IDS, 20, 21), (22, E)), step=1) == 0
    (segment,) = b.segments
    assert segment.messages == (*Q, assistant("The answer"))
    assert segment.mask == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [s.message for s in segment.sampled] == [1, 1]
    b.add(chat("q", "The answer", "o"), reply("z", (*segment.token_ids, U, 11, E, A), (23, E)))
    assert len(b.segments) == 1


# -- retries --------------------------------------------------------------------------------------------------------


def test_a_retry_supersedes_what_it_replaces():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E), logprobs=(-1.0, -2.0)), step=0)
    assert b.add(Q, reply("y", Q_IDS, (21, E), logprobs=(-3.0, -4.0)), step=0) == 0
    kept, aside = b.segments
    assert (kept.token_ids, kept.mask) == ([*Q_IDS, 21, E], [0, 0, 0, 0, 1, 1])
    assert kept.messages == (*Q, assistant("y"))
    assert (aside.cause, aside.parent, aside.copied_messages, aside.copied_tokens) == ("retry", 0, 1, 4)
    assert (aside.token_ids, aside.mask) == ([*Q_IDS, 20, E], [0] * 6)
    assert aside.logprobs == [0, 0, 0, 0, -1.0, -2.0]
    assert [s.superseded for s in kept.sampled + aside.sampled] == [False, True]
    assert kinds(b) == ["superseded"]
    assert b.segment_of(0) == 0
    b.add(chat("q", "y", "o"), reply("z", (*Q_IDS, 21, E, U, 11, E, A), (22, E)))
    assert b.segments[0].mask == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]


def test_a_retry_in_the_middle_leaves_what_came_before_alone():
    b = SegmentBuilder(forks="error")
    b.add(Q, reply("x", Q_IDS, (20, E)))
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    b.add(chat("q", "x", "o"), reply("bad", prompt, (21, 22, E)))
    b.add(chat("q", "x", "o"), reply("worse", prompt, (23, E)))
    b.add(chat("q", "x", "o"), reply("good", prompt, (24, E)))
    assert b.segments[0].token_ids == [*prompt, 24, E]
    assert b.segments[0].mask == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert [sum(segment.mask) for segment in b.segments] == [4, 0, 0]
    assert kinds(b) == ["append", "superseded", "superseded"]


def test_what_is_continued_was_acted_on_and_its_rival_was_not():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    b.add(Q, reply("y", Q_IDS, (21, E)))
    assert b.add(chat("q", "x", "o"), reply("z", (*Q_IDS, 20, E, U, 11, E, A), (22, E))) == 1
    assert b.segments[1].cause == "fork"
    assert b.segments[1].mask == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert b.segments[0].mask == [0] * 6
    assert [s.superseded for s in b.segments[0].sampled] == [True]
    assert kinds(b).count("superseded") == 1


def test_two_replies_to_one_prompt_may_both_be_continued():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    b.add(Q, reply("y", Q_IDS, (21, E)))
    b.add(chat("q", "x", "o"), reply("z", (*Q_IDS, 20, E, U, 11, E, A), (22, E)))
    b.add(chat("q", "y", "o"), reply("w", (*Q_IDS, 21, E, U, 11, E, A), (23, E)))
    assert [sum(segment.mask) for segment in b.segments] == [4, 4]
    assert "superseded" not in kinds(b)
    strict = SegmentBuilder(forks="error")
    strict.add(Q, reply("x", Q_IDS, (20, E)))
    strict.add(Q, reply("y", Q_IDS, (21, E)))
    with pytest.raises(SegmentError, match="two replies"):
        strict.add(chat("q", "x", "o"), reply("z", (*Q_IDS, 20, E, U, 11, E, A), (22, E)))


def test_a_rejected_reply_is_kept_aside_and_the_path_goes_on():
    b = SegmentBuilder(forks="error")
    b.add(Q, reply("x", Q_IDS, (20, E)), accepted=True, step=0)
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    assert b.add(chat("q", "x", "o"), reply("no", prompt, (21, E)), accepted=False, step=1) == 1
    assert b.add(chat("q", "x", "o"), reply("yes", prompt, (22, E)), accepted=True, step=1) == 0
    assert [sum(segment.mask) for segment in b.segments] == [4, 0]
    assert b.segments[1].token_ids == [*prompt, 21, E]
    assert (b.segments[1].cause, b.segments[1].parent) == ("retry", 0)
    assert b.segment_of(1) == 0


def test_the_same_prompt_again_is_no_retry_where_both_replies_were_acted_on():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)), accepted=True)
    assert b.add(Q, reply("y", Q_IDS, (21, E)), accepted=True) == 1
    assert [sum(segment.mask) for segment in b.segments] == [2, 2]
    assert kinds(b) == ["fork"]


def test_a_retry_with_the_same_text_stays_superseded():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    b.add(Q, reply("x", Q_IDS, (21, 22, E)))
    prompt = (*Q_IDS, 21, 22, E, U, 11, E, A)
    b.add(chat("q", "x", "o"), reply("y", prompt, (23, E)), accepted=True)
    assert b.add(chat("q", "x", "else"), reply("z", prompt, (24, E))) == 2  # branches off what was acted on
    assert [sum(segment.mask) for segment in b.segments] == [5, 0, 2]


def test_a_reply_acted_on_supersedes_an_unsure_one():
    b = SegmentBuilder(forks="error")
    b.add(Q, reply("x", Q_IDS, (20, E)))
    assert b.add(Q, reply("y", Q_IDS, (21, E)), accepted=True) == 0
    assert [segment.cause for segment in b.segments] == ["start", "retry"]


# -- compaction, branches, agents -----------------------------------------------------------------------------------


def start_and_one_turn(b, agent="policy"):
    start = (system("s"), *Q)
    ids = (S, 9, E, U, 10, E, A)
    b.add(start, reply("x", ids, (20, E)), agent=agent)
    return start, ids


def test_an_announced_compaction_begins_a_segment_with_its_cause():
    b = SegmentBuilder(forks="error")
    start, ids = start_and_one_turn(b)
    longer = (*start, assistant("x"), user("o"))
    b.add(longer, reply("y", (*ids, 20, E, U, 11, E, A), (21, E)))
    compacted = (*start, user("summary"), assistant("y"), user("p"))
    prompt = (S, 9, E, U, 10, E, U, 70, E, A, 21, E, U, 12, E, A)
    assert b.add(compacted, reply("z", prompt, (22, E)), cause="compaction", step=2) == 1
    segment = b.segments[1]
    assert (segment.cause, segment.parent, segment.copied_messages, segment.copied_tokens) == (
        "compaction",
        0,
        2,
        6,
    )
    assert segment.mask == [0] * len(prompt) + [1, 1]  # the copied tail 21 too
    assert segment.dropped == (assistant("x"), user("o"))
    assert b.events[-1].kind == "compaction"
    assert b.events[-1].step == 2
    assert b.events[-1].data == {"segment": 1, "parent": 0, "dropped": 2}


def test_a_second_compaction_follows_the_first_though_all_share_one_prefix():
    b = SegmentBuilder()
    start, _ = start_and_one_turn(b)
    for index, text in enumerate(["first", "second"]):
        prompt = (S, 9, E, U, 10, E, U, 70 + index, E, A)
        b.add((*start, user(text)), reply(f"r{index}", prompt, (30 + index, E)), cause="compaction")
    assert [segment.parent for segment in b.segments] == [None, 0, 1]
    assert b.segments[2].dropped == (user("first"), assistant("r0"))


def test_compaction_in_mid_turn_copies_the_tail_untrained():
    b = SegmentBuilder()
    start, ids = start_and_one_turn(b)
    half = (*start, assistant("x"), user("o"))
    b.add(half, reply("begun", (*ids, 20, E, U, 11, E, A), (21,), finish_reason="length"))
    compacted = (*start, user("summary"), assistant("begun"))
    prompt = (S, 9, E, U, 10, E, U, 70, E, A, 21)
    assert b.add(compacted, reply(" and done", prompt, (22, E)), cause="compaction") == 1
    assert b.segments[1].mask == [0] * 11 + [1, 1]
    assert b.segments[1].messages[-1] == assistant("begun and done")
    assert (b.segments[1].parent, b.segments[1].copied_messages) == (0, 2)


def test_a_compaction_that_keeps_nothing_still_has_a_parent():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    assert b.add((user("summary"),), reply("y", (U, 70, E, A), (21, E)), cause="compaction") == 1
    assert (b.segments[1].parent, b.segments[1].copied_messages) == (0, 0)
    assert b.segments[1].dropped == chat("q", "x")


def test_an_announced_cause_does_nothing_where_the_conversation_only_grew():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    assert b.add(chat("q", "x", "o"), reply("y", prompt, (21, E)), cause="compaction") == 0
    assert kinds(b) == ["append"]


def test_going_back_to_an_old_node_forks_there():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)), accepted=True)
    second = (*Q_IDS, 20, E, U, 11, E, A)
    b.add(chat("q", "x", "o"), reply("y", second, (21, E)), accepted=True)
    back = (*Q_IDS, 20, E, U, 12, E, A)
    assert b.add(chat("q", "x", "other"), reply("z", back, (22, E))) == 1
    branch = b.segments[1]
    assert (branch.parent, branch.copied_messages, branch.copied_tokens) == (0, 2, 7)
    assert branch.mask == [0] * 10 + [1, 1]
    assert branch.dropped == (user("o"), assistant("y"))


def test_interleaved_agents_each_extend_their_own_leaf():
    b = SegmentBuilder(forks="error")
    lead, work = (user("lead"),), (user("work"),)
    lead_ids, work_ids = (U, 10, E, A), (U, 11, E, A)
    for turn in range(3):
        sampled = (20 + turn, E)
        assert b.add(lead, reply(f"l{turn}", lead_ids, sampled), agent="lead") == 0
        assert b.add(work, reply(f"w{turn}", work_ids, sampled), agent="worker") == 1
        lead, work = ((*c, assistant(f"{n}{turn}"), user("go")) for c, n in ((lead, "l"), (work, "w")))
        lead_ids, work_ids = ((*ids, *sampled, U, 12, E, A) for ids in (lead_ids, work_ids))
    assert [(s.agent, s.cause, s.parent, sum(s.mask)) for s in b.segments] == [
        ("lead", "start", None, 6),
        ("worker", "start", None, 6),
    ]


def test_delegation_is_announced_and_hangs_on_who_delegated():
    b = SegmentBuilder(forks="error")
    b.add(Q, reply("x", Q_IDS, (20, E)), agent="lead")
    sub = (user("sub"),)
    assert b.add(sub, reply("y", (U, 11, E, A), (21, E)), agent="worker", cause="delegation") == 1
    assert (b.segments[1].cause, b.segments[1].parent, b.segments[1].dropped) == ("delegation", 0, ())
    assert kinds(b) == ["delegation"]


def test_the_longest_match_wins_over_the_latest():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)), accepted=True)
    second = (*Q_IDS, 20, E, U, 11, E, A)
    b.add(chat("q", "x", "o"), reply("y", second, (21, E)), accepted=True)  # segment 0
    b.add(Q, reply("x", Q_IDS, (20, E)), accepted=True)  # segment 1 ends in "x", a prefix of segment 0
    third = (*second, 21, E, U, 12, E, A)
    assert b.add(chat("q", "x", "o", "y", "p"), reply("z", third, (22, E))) == 0


def test_identical_leaves_go_to_the_same_agent_then_to_the_latest():
    b = SegmentBuilder()
    for agent in ("one", "two", "one"):
        b.add(Q, reply("x", Q_IDS, (20, E)), agent=agent, accepted=True)
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    assert b.add(chat("q", "x", "o"), reply("y", prompt, (21, E)), agent="two") == 1
    assert b.add(chat("q", "x", "p"), reply("y", prompt, (21, E)), agent="one") == 2


# -- the rest -------------------------------------------------------------------------------------------------------


def test_an_unannounced_boundary_is_an_error_where_the_caller_says_so():
    b = SegmentBuilder(forks="error")
    b.add(Q, reply("x", Q_IDS, (20, E)))
    with pytest.raises(SegmentError, match="only the first 0 of its 1 messages"):
        b.add((user("else"),), reply("y", (U, 11, E, A), (21, E)))
    assert len(b.segments) == 1
    assert b.add(chat("q", "x", "o"), reply("y", (*Q_IDS, 20, E, U, 11, E, A), (21, E))) == 0


def test_without_ids_segments_are_messages_only():
    b = SegmentBuilder()
    assert b.add(Q, Reply("x"), step=0) == 0
    assert b.add(chat("q", "x", "o"), Reply("y"), step=1) == 0
    assert b.add((user("summary"),), Reply("z"), step=2, cause="compaction") == 1
    assert b.segments[0].messages == chat("q", "x", "o", "y")
    assert all(not s.token_ids and not s.mask and not s.rewards for s in b.segments)
    assert [s.step for s in b.segments[0].sampled] == [0, 1]
    assert not b.assign_reward(2, 1.0)


def test_a_reply_without_ids_between_ones_with_ids_becomes_context():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)))
    assert b.add(chat("q", "x", "o"), Reply("scripted")) == 1
    prompt = (*Q_IDS, 20, E, U, 11, E, A, 33, E, U, 12, E, A)
    assert b.add(chat("q", "x", "o", "scripted", "p"), reply("y", prompt, (21, E))) == 0
    assert b.segments[0].mask == [0, 0, 0, 0, 1, 1, *[0] * 10, 1, 1]


def test_logprobs_of_a_segment_are_all_known_or_none():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E), logprobs=(-1.0, -1.0)))
    b.add(chat("q", "x", "o"), reply("y", (*Q_IDS, 20, E, U, 11, E, A), (21, E)))
    assert b.segments[0].logprobs == []


def test_rewards_lie_on_the_last_trainable_token_of_the_step():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)), step=0)
    b.add(chat("q", "x", "o"), reply("y", (*Q_IDS, 20, E, U, 11, E, A), (21, E)), step=1)
    assert b.assign_reward(0, 0.25)
    assert b.assign_reward(1, 1.0)
    assert b.assign_reward(1, -0.5)
    assert b.segments[0].rewards == [0, 0, 0, 0, 0, 0.25, 0, 0, 0, 0, 0, 0.5]


def test_the_reward_of_an_empty_reply_goes_to_the_token_before():
    b = SegmentBuilder()
    assert not b.assign_reward(0, 1.0)
    b.add(Q, reply("x", Q_IDS, (20, E)), step=0)
    b.add(chat("q", "x", "o"), Reply(""), step=1)
    assert b.assign_reward(1, 1.0)
    assert b.segments[0].rewards == [0, 0, 0, 0, 0, 1.0]


def test_a_reward_without_a_token_of_its_own_goes_to_the_latest_step_before():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)), step=0, agent="one")
    b.add((user("r"),), reply("x", (U, 9, E, A), (20, E)), step=1, agent="two")
    b.add(chat("q", "x", "o"), reply("y", (*Q_IDS, 20, E, U, 11, E, A), (21, E)), step=2, agent="one")
    assert b.assign_reward(3, 1.0)
    assert b.segments[0].rewards[-1] == 1.0
    assert sum(b.segments[1].rewards) == 0


def test_the_reward_of_an_empty_reply_stays_with_its_agent():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)), step=0, agent="lead")
    b.add((user("r"),), Reply("", (U, 9, E, A), ()), step=1, agent="worker")
    assert not b.assign_reward(1, 1.0)
    assert b.segments[0].rewards == [0] * 6
    b.add((user("r"),), reply("y", (U, 9, E, A), (20, E)), step=2, agent="worker")
    b.add(chat("q", "x", "o"), reply("", (*Q_IDS, 20, E, U, 11, E, A), ()), step=3, agent="lead")
    assert b.assign_reward(3, 0.5)
    assert b.segments[0].rewards[-1] == 0.5
    assert sum(b.segments[1].rewards) == 0


def test_the_reward_of_a_first_reply_that_is_left_out_goes_to_the_first_after_it():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E)), step=0)
    b.leave_out(0)
    b.add((user("r"),), reply("w", (U, 9, E, A), (20, E)), step=1, agent="worker", cause="delegation")
    assert not b.assign_reward(0, -0.5)  # the worker's reply is not its agent's
    prompt = (*Q_IDS, 20, E, U, 11, E, A)
    b.add(chat("q", "x", "o"), reply("y", prompt, (21, E)), step=2)
    b.add(chat("q", "x", "o", "y", "p"), reply("z", (*prompt, 21, E, U, 12, E, A), (22, E)), step=3)
    assert b.assign_reward(0, -0.5)
    assert b.assign_reward(3, 1.0)
    lead, worker = b.segments
    assert lead.mask == [0] * 10 + [1, 1] + [0] * 4 + [1, 1]
    assert lead.rewards == [0] * 11 + [-0.5] + [0] * 5 + [1.0]
    assert sum(worker.rewards) == 0


def test_the_version_of_the_weights_is_kept_with_each_reply():
    b = SegmentBuilder()
    b.add(Q, reply("x", Q_IDS, (20, E), policy_version="step-1"), step=0)
    b.add(
        chat("q", "x", "o"),
        reply("y", (*Q_IDS, 20, E, U, 11, E, A), (21, E), policy_version="step-2"),
        step=1,
    )
    assert [s.policy_version for s in b.segments[0].sampled] == ["step-1", "step-2"]
    t = Trajectory("t", segments=b.segments)
    row = json.loads(json.dumps(to_dict(t)))
    assert from_dict(row) == t
    VALIDATOR.validate(row)
    for sampled in row["segments"][0]["sampled"]:  # as files had it before
        del sampled["policy_version"]
    VALIDATOR.validate(row)
    assert [s.policy_version for s in from_dict(row).segments[0].sampled] == ["", ""]


def test_a_superseded_reply_gets_no_reward():
    b = SegmentBuilder()
    b.add(Q, reply("no", Q_IDS, (20, E)), step=0, accepted=False)
    assert not b.assign_reward(0, 1.0)
    b.add(Q, reply("yes", Q_IDS, (21, E)), step=0, accepted=True)
    assert b.assign_reward(0, 1.0)
    assert [sum(segment.rewards) for segment in b.segments] == [0, 1]


def test_a_reply_that_history_holds_in_another_form():
    b = SegmentBuilder()
    call = Message("assistant", "", tool_calls=(MessageCall("c1", "ls", "{}"),))
    b.add(Q, reply("<tool_call>ls</tool_call>", Q_IDS, (20, E)), message=call)
    result = Message("tool", "ok", tool_call_id="c1")
    assert b.add((*Q, call, result), reply("y", (*Q_IDS, 20, E, 5, 31, E, A), (21, E))) == 0


def test_contradictory_replies_are_refused():
    b = SegmentBuilder()
    with pytest.raises(ValueError, match="both prompt_ids and sampled_ids"):
        Reply("x", prompt_ids=(1, 2))
    with pytest.raises(ValueError, match="finite log-probs"):
        Reply("x", (1,), (2,), (float("-inf"),))
    with pytest.raises(TypeError, match="str, got bytes"):
        Reply(b"x")
    assert Reply("a\ud800é").text == "a?é"  # half of a surrogate pair cannot be encoded
    with pytest.raises(UsageError, match="expected sampled ids"):
        b.add(Q, Reply("x", prompt_ids=(1, 2), sampled_ids=()))
    with pytest.raises(UsageError, match="'count' or 'error'"):
        SegmentBuilder(forks="never")


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [
        ("", "", 0),
        ("abc", "", 0),
        ("abc", "abd", 2),
        ("abc", "abc", 3),
        ("abc", "abcdefgh", 3),
        ("xbc", "abc", 0),
    ],
)
def test_common_prefix(first, second, length):
    assert common_prefix(first, second) == length


def test_left_out_counts_equal_messages():
    a, b = user("a"), user("b")
    assert left_out((a, b, a, a), (a, a)) == (b, a)


def test_tail_start_refuses_what_it_cannot_vouch_for():
    held, rendered = [U, 10, E, A, 20, 21, E], (U, 10, E, A)
    assert tail_start(held, 4, rendered, (*rendered, 22, E, U, 11, E, A), {E}) == 6
    assert tail_start(held, 4, rendered, (*rendered, 22, E, U, 11, E, A), set()) is None
    assert tail_start(held, 4, rendered, (*rendered, 22), {E}) is None  # no end in the prompt
    assert tail_start(held, 4, rendered, (*rendered, 21, E, U, 11, E, A), {E}) is None  # text is missing
    assert (
        tail_start(held, 4, rendered, (*rendered, *range(100, 140), E, U, 11, E, A), {E}) is None
    )  # far too long


def test_learning_the_end_of_turn_needs_one_for_each_message():
    prompts = [((S, 9, E, U, 10, E, A), 2), ((S, 9, E, U, 10, E, A, 20, E, U, 11, E, A), 4)]
    assert learn_end_of_turn([20, E], prompts) == E
    assert learn_end_of_turn([E, 20, E], prompts) is None
    assert learn_end_of_turn([E, 20], prompts) is None
    assert learn_end_of_turn([], prompts) is None
