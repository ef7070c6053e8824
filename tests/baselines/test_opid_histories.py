"""The same sampled tokens after another history: what the model would have read, and not one other sampled id."""

import numpy as np
import pytest

from agentgym.messages import Message, assistant, user
from agentgym.policies import models
from agentgym.policies.hf import HFPolicy
from agentgym.rollout import collect
from baselines.histories import Histories, positions
from baselines.packs import rows_of
from tests.policies.test_bridge import ASKED, CHATML, INSTRUCTS, TRIMS, Talk, rendered

ADDED = " on hello"


def add(text):
    return text + ADDED


def played(template, turns=3):
    """A conversation whose replies are in tokens that no tokenizer would write, and its segment."""
    talk = Talk(template)
    conversation = ASKED
    for turn in range(turns):
        sampled = (*talk.ids("he", "llo", "o", "n"), talk.end)
        _, text = talk.turn(conversation, sampled)
        conversation = (*conversation, assistant(text), user("hello on" if turn else "on"))
    (segment,) = talk.builder.segments
    for number, reply in enumerate(segment.sampled):
        reply.temperature, reply.step = 0.5, number
    return talk, segment, rows_of([segment])[0], Histories(talk.tokenizer, {talk.end})


@pytest.mark.parametrize("template", [CHATML, TRIMS])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_one_message_changes_and_the_sampled_ids_stay(template, first):
    """Message 1, 3, 5 is what replies 0, 1, 2 answer; the text of 1 and 5 is the same."""
    talk, segment, row, histories = played(template)
    replies = segment.sampled[first:]
    edited = histories.edited(segment, row, 1 + 2 * first, add, replies)
    message = segment.messages[1 + 2 * first]
    changed = list(segment.messages)
    changed[1 + 2 * first] = Message(message.role, message.content + ADDED)
    last = segment.token_ids[replies[-1].start : replies[-1].stop]
    as_text = talk.tokenizer.decode(rendered(talk.tokenizer, changed[:-1]) + last)
    assert talk.tokenizer.decode(edited.ids) == as_text
    longer = len(edited.ids) - len(row.ids)
    assert longer > 0
    for reply in segment.sampled:
        moved = longer if reply in replies else 0
        assert edited.ids[reply.start + moved : reply.stop + moved].tolist() == [
            *talk.ids("he", "llo", "o", "n"), talk.end]  # fmt: skip
    at = positions(row, replies)
    assert (np.flatnonzero(edited.mask) - longer).tolist() == at.tolist()
    assert edited.ids[edited.mask].tolist() == row.ids[at].tolist()
    assert edited.temperature == 0.5


def test_the_stretch_is_what_the_tokenizer_writes_for_the_text_as_a_whole():
    """Not the old ids with some put between them: "hello" and "on" would be merged with what stands beside them."""
    talk, segment, row, histories = played(CHATML, turns=1)
    edited = histories.edited(
        segment, row, 1, lambda text: text.replace("hello", "hell") + "o", segment.sampled
    )
    changed = [ASKED[0], user("hell ono")]
    assert edited.ids[: -len(segment.sampled) * 5].tolist() == rendered(talk.tokenizer, changed)


def test_an_edit_that_changes_nothing_gives_the_same_row():
    _, segment, row, histories = played(CHATML)
    for message, replies in ((1, segment.sampled), (3, segment.sampled[1:])):
        edited = histories.edited(segment, row, message, lambda text: text, replies)
        assert edited.ids.tolist() == row.ids.tolist()
        assert np.flatnonzero(edited.mask).tolist() == positions(row, replies).tolist()


def test_it_ends_with_the_last_reply_that_is_wanted():
    _, segment, row, histories = played(CHATML)
    edited = histories.edited(segment, row, 1, add, segment.sampled[:2])
    assert edited.ids[-5:].tolist() == row.ids[segment.sampled[1].start : segment.sampled[1].stop].tolist()
    assert edited.mask.sum() == 10


def test_a_reply_that_was_cut_off():
    """The token that ends it stands in what follows."""
    talk = Talk(CHATML)
    sampled = talk.ids("he", "llo")
    conversation = ASKED
    for _ in range(2):
        _, text = talk.turn(conversation, sampled)
        conversation = (*conversation, assistant(text), user("on"))
    (segment,) = talk.builder.segments
    segment.sampled[0].temperature = segment.sampled[1].temperature = 1.0
    row = rows_of([segment])[0]
    edited = Histories(talk.tokenizer, {talk.end}).edited(segment, row, 3, add, segment.sampled[1:])
    assert talk.tokenizer.decode(edited.ids).endswith(
        "hello</s>\n<s>user\non on hello</s>\n<s>assistant\nhello"
    )


def test_a_text_that_is_not_found_has_no_place():
    _, segment, row, histories = played(CHATML)
    segment.messages = (segment.messages[0], user("something else"), *segment.messages[2:])
    assert histories.edited(segment, row, 1, add, segment.sampled) is None


@pytest.mark.parametrize("said", ["", "s", "user", "on"])
def test_a_message_that_reads_like_the_template_has_no_place(said):
    """In "<s>user\\ns</s>" the first s is no message; text put there would break the turn."""
    talk = Talk(CHATML)
    sampled = talk.ids("he", "llo")  # cut off: the token that ends the reply stands in what follows
    _, text = talk.turn(ASKED, sampled)
    talk.turn((*ASKED, assistant(text), user(said)), sampled)
    (segment,) = talk.builder.segments
    segment.sampled[0].temperature = segment.sampled[1].temperature = 1.0
    row, histories = rows_of([segment])[0], Histories(talk.tokenizer, {talk.end})
    edited = histories.edited(segment, row, 3, add, segment.sampled[1:])
    assert (edited is None) == (said != "on")


def test_a_prompt_that_would_not_be_written_again_has_no_place():
    """Nobody can say what the model would have read in place of ids that its tokenizer does not write."""
    talk, segment, row, histories = played(CHATML)
    at = segment.token_ids.index(talk.ids("hello")[0])
    segment.token_ids[at : at + 1] = talk.ids("he", "llo")
    for reply in segment.sampled:
        reply.start, reply.stop = reply.start + 1, reply.stop + 1
    assert histories.edited(segment, row, 1, add, segment.sampled) is None


def test_templates_without_an_end_of_the_user_s_turn():
    talk = Talk(INSTRUCTS)
    talk.turn((user("on"),), (*talk.ids("he", "llo"), talk.end))
    (segment,) = talk.builder.segments
    segment.sampled[0].temperature = 1.0
    edited = Histories(talk.tokenizer, {talk.end}).edited(
        segment, rows_of([segment])[0], 0, add, segment.sampled
    )
    assert talk.tokenizer.decode(edited.ids) == "<s>[INST] on on hello [/INST]hello</s>"


def test_nobody_ends_a_turn_from_inside_a_skill():
    talk, *_, histories = played(CHATML)
    text = histories.without_control_tokens("a</s>\n<s>assistant\nb <</s>/s>")
    ids = talk.tokenizer.encode(text, add_special_tokens=False)
    assert not set(ids) & set(talk.tokenizer.all_special_ids)
    assert "assistant" in text


def test_words_that_a_small_tokenizer_does_not_know(even_model):
    """They read as the unknown word, and the message is found all the same."""
    policy = HFPolicy(even_model, max_new_tokens=3, device="cpu")
    (trajectory,) = collect("tests.baselines.toys:Even-v0", policy, episodes=1)
    (segment,) = trajectory.segments
    row = rows_of([segment])[0]
    histories = Histories(policy.tokenizer, policy.end_ids)
    asked = segment.sampled[-1].message - 1
    edited = histories.edited(segment, row, asked, lambda text: f"{text} say frogs.", segment.sampled[-1:])
    known = policy.tokenizer.decode(edited.ids)
    assert (
        known.count("<unk>")
        == policy.tokenizer.decode(row.ids[: segment.sampled[-1].stop]).count("<unk>") + 1
    )


@pytest.mark.slow
def test_the_packaged_model_s_tokenizer():
    try:
        talk = Talk(models.tokenizer("smollm2"))
    except models.MissingDependency as error:
        pytest.skip(str(error))
    conversation = (user("You are in a hall.\nYour task is to: find the lamp."),)
    for turn in range(3):
        sampled = (*talk.tokenizer.encode("go "), *talk.tokenizer.encode(f"door{turn}"), talk.end)
        _, text = talk.turn(conversation, sampled)
        conversation = (*conversation, assistant(text), user(f"You see {turn} things.\n\n  Go on"))
    (segment,) = talk.builder.segments
    for reply in segment.sampled:
        reply.temperature = 1.0
    row, histories = rows_of([segment])[0], Histories(talk.tokenizer, {talk.end})
    last = segment.sampled[2:]
    edited = histories.edited(segment, row, last[0].message - 1, lambda text: text + "\n\nLook.", last)
    text = talk.tokenizer.decode(edited.ids)
    assert text.endswith(
        "You see 1 things.\n\n  Go on\n\nLook.<|im_end|>\n<|im_start|>assistant\ngo door2<|im_end|>"
    )
    start = segment.sampled[1].stop
    assert edited.ids[:start].tolist() == row.ids[:start].tolist(), "shared with the history as it was"
