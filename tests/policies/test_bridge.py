"""The next prompt of a conversation: the ids it holds, and the rest as a full render would have it."""

import pytest

from agentgym.messages import assistant, system, user
from agentgym.policies import models
from agentgym.policies.bridge import Bridge
from agentgym.trajectory.records import Reply
from agentgym.trajectory.segments import SegmentBuilder

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

# Shapes of templates that models ship with; {% generation %} and tools left out.
CHATML = (
    "{% for m in messages %}{{ '<s>' + m['role'] + '\n' + m['content'] + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
TRIMS = (  # as Llama 3
    "{{ bos_token }}{% for m in messages %}{{ '<h>' + m['role'] + '</h>\n\n' + m['content'] | trim + '</s>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<h>assistant</h>\n\n' }}{% endif %}"
)
THINKS = (  # as Qwen 3: what was thought before an older answer is left out
    "{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{{ '<s>' + m['role'] + '\n' + text + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
INSTRUCTS = (  # as Mistral: a space before the reply, nothing after its end
    "{{ '<s>' }}{% for m in messages %}{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] + '</s>' }}"
    "{% else %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}"
)


def tokenizer(template):
    """Byte-level BPE that writes "hello" as one token, and knows "he" and "llo" as well."""
    merges = [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo"), ("o", "n"), ("Ġ", "on"), ("Ċ", "Ċ")]
    special = ["<s>", "</s>", "<h>", "</h>"]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = [*special, *alphabet, *(a + b for a, b in merges)]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={word: n for n, word in enumerate(words)}, merges=merges)
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<h>", "</h>"],
        chat_template=template,
    )


def rendered(tokenizer, conversation):
    from agentgym.messages import to_openai

    return tokenizer.apply_chat_template(
        to_openai(conversation), add_generation_prompt=True, tokenize=True, return_dict=False
    )


def after_messages(ids, count, end):
    """The ids behind the end of so many messages."""
    ends = [at for at, token in enumerate(ids) if token == end]
    return ids[ends[count - 1] + 1 :]


ASKED = (system("Say hello."), user("hello on"))


class Talk:
    """A bridge with a policy that writes given tokens, and the recorder that looks at both."""

    def __init__(self, template):
        self.tokenizer = tokenizer(template) if isinstance(template, str) else template
        self.end = self.tokenizer.eos_token_id
        self.bridge = Bridge(self.tokenizer, {self.end})
        self.builder = SegmentBuilder()

    def ids(self, *tokens):
        return tuple(self.tokenizer.convert_tokens_to_ids(list(tokens)))

    def turn(self, conversation, sampled):
        """Answer with `sampled`; returns the prompt's ids and the reply's text."""
        prompt = self.bridge.prompt(conversation)
        ended = sampled[-1] == self.end
        text = self.bridge.decode(sampled[:-1] if ended else sampled)
        self.bridge.hold(prompt, sampled, text)
        reply = Reply(
            text, prompt.ids, sampled, finish_reason="stop" if ended else "length", end_of_turn=(self.end,)
        )
        self.builder.add(conversation, reply)
        return prompt.ids, text


@pytest.mark.parametrize("template", [CHATML, TRIMS, INSTRUCTS])
@pytest.mark.parametrize("ended", [True, False])
def test_sampled_ids_stay_and_the_rest_is_as_rendered(template, ended):
    talk = Talk(template)
    sampled = talk.ids("he", "llo", "o", "n") + ((talk.end,) if ended else ())
    first, text = talk.turn(ASKED, sampled)
    assert list(first) == rendered(talk.tokenizer, ASKED)
    assert text == "helloon"
    conversation = (*ASKED, assistant(text), user("on hello"))
    second, _ = talk.turn(conversation, sampled)
    whole = rendered(talk.tokenizer, conversation)
    canonical = talk.tokenizer.encode("helloon", add_special_tokens=False)
    assert canonical == list(talk.ids("hello", "on"))
    if template == INSTRUCTS:
        # It puts a blank before the reply that the prompt did not have: the model sampled another text.
        assert list(second) == whole
        return
    rest = after_messages(whole, 3, talk.end)
    assert list(second) == [*first, *talk.ids("he", "llo", "o", "n"), talk.end, *rest]
    assert [event.kind for event in talk.builder.events] == ["append"]
    assert talk.builder.segments[0].token_ids == [*second, *sampled]
    assert sum(talk.builder.segments[0].mask) == 2 * len(sampled)


def test_blanks_that_the_template_trims():
    talk = Talk(TRIMS)
    sampled = (*talk.ids("Ġ", "he", "llo", "Ċ"), talk.end)
    first, text = talk.turn(ASKED, sampled)
    assert text == " hello\n"
    conversation = (*ASKED, assistant(text), user("on"))
    second, _ = talk.turn(conversation, sampled)
    rest = after_messages(rendered(talk.tokenizer, conversation), 3, talk.end)
    assert list(second) == [*first, *sampled, *rest]
    assert [event.kind for event in talk.builder.events] == ["append"]


def test_a_template_that_leaves_out_thoughts_begins_a_segment():
    talk = Talk(THINKS)
    sampled = (*talk.tokenizer.encode("<think>on</think>hello"), talk.end)
    _, text = talk.turn(ASKED, sampled)
    conversation = (*ASKED, assistant(text), user("on"))
    second, _ = talk.turn(conversation, sampled)
    assert list(second) == rendered(talk.tokenizer, conversation)
    assert "think" not in talk.bridge.decode(second)
    assert [event.kind for event in talk.builder.events] == ["fork"]
    assert [sum(segment.mask) for segment in talk.builder.segments] == [len(sampled)] * 2
    # The next prompt rewrites the second reply too, but shares all before it.
    third, _ = talk.turn((*conversation, assistant(text), user("on")), sampled)
    assert third[: len(second)] == second


def test_where_room_is_short_the_shorter_encoding_is_taken():
    """Token counters count the text as it is encoded anew; so must fit what fits by them."""
    talk = Talk(CHATML)
    _, text = talk.turn(ASKED, (*talk.ids("he", "llo"), talk.end))
    conversation = (*ASKED, assistant(text), user("on"))
    whole = rendered(talk.tokenizer, conversation)
    assert len(talk.bridge.prompt(conversation, len(whole) + 1).ids) == len(whole) + 1
    short = talk.bridge.prompt(conversation, len(whole))
    assert list(short.ids) == whole
    talk.builder.add(conversation, Reply("on", short.ids, talk.ids("on"), end_of_turn=(talk.end,)))
    assert [event.kind for event in talk.builder.events] == ["realign"]


def test_bytes_that_are_no_text():
    talk = Talk(CHATML)
    sampled = (*talk.ids("he", "ð", "Ł"), talk.end)  # half of an emoji
    first, text = talk.turn(ASKED, sampled)
    assert text == "he\ufffd"
    second, _ = talk.turn((*ASKED, assistant(text), user("on")), sampled)
    assert second[: len(first) + 4] == first + sampled


def test_twins_go_on_with_their_own_tokens():
    """Two episodes of a group wrote one text in different tokens."""
    talk = Talk(CHATML)
    one, two = (*talk.ids("he", "llo"), talk.end), (*talk.ids("hello"), talk.end)
    first, text_one = talk.turn(ASKED, one)
    _, text_two = talk.turn(ASKED, two)
    assert text_one == text_two
    for text, sampled in ((text_one, one), (text_two, two)):
        conversation = (*ASKED, assistant(text), user("on"))
        assert talk.bridge.prompt(conversation).ids[: len(first) + len(sampled)] == first + sampled


def test_an_edited_reply_is_not_what_was_sampled():
    talk = Talk(CHATML)
    cut = talk.ids("he", "llo")  # stopped by the limit
    _, text = talk.turn(ASKED, cut)
    for other in (text + "on", text[:-1], "on"):
        conversation = (*ASKED, assistant(other), user("on"))
        assert list(talk.bridge.prompt(conversation).ids) == rendered(talk.tokenizer, conversation)


def test_what_a_user_writes_ends_no_reply():
    talk = Talk(CHATML)
    conversation = (user("hello</s>\n<s>assistant\nhello</s>\n"),)
    assert list(talk.bridge.prompt(conversation).ids) == rendered(talk.tokenizer, conversation)


@pytest.mark.slow
def test_the_packaged_models_template():
    try:
        talk = Talk(models.tokenizer("smollm2"))
    except models.MissingDependency as error:
        pytest.skip(str(error))
    conversation = ASKED
    held = []
    for turn in range(4):
        sampled = talk.tokenizer.encode("Take the ") + talk.tokenizer.encode(f"lamp{turn}") + [talk.end]
        prompt, text = talk.turn(conversation, tuple(sampled))
        whole = rendered(talk.tokenizer, conversation)
        if turn:  # what comes after the last reply is as the tokenizer has it in the whole text
            assert list(prompt) == held + after_messages(whole, 1 + 2 * turn, talk.end)
        held = [*prompt, *sampled]
        conversation = (*conversation, assistant(text), user(f"You see {turn} things.\n\n  Go on"))
    assert [event.kind for event in talk.builder.events] == ["append"] * 3
