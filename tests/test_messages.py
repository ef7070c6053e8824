"""Messages are values; their OpenAI form goes there and back."""

from __future__ import annotations

import copy
import pickle

import pytest

from agentgym.messages import Message, MessageCall, assistant, from_openai, system, to_openai, user

HISTORY = (
    system("Be brief."),
    user("你好"),
    Message("assistant", "", tool_calls=(MessageCall("c1", "look", '{"a": 1}'),)),
    Message("tool", "seen", tool_call_id="c1"),
    Message("assistant", "Done.", name="lead"),
)
ROWS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "你好"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
        ],
    },
    {"role": "tool", "content": "seen", "tool_call_id": "c1"},
    {"role": "assistant", "content": "Done.", "name": "lead"},
]


def test_openai_form_there_and_back():
    assert to_openai(HISTORY) == ROWS
    assert from_openai(ROWS) == HISTORY


def test_the_openai_form_is_new_each_time():
    rows = to_openai(HISTORY)
    rows[0]["content"] = "changed"
    rows[2]["tool_calls"][0]["id"] = "changed"
    assert to_openai(HISTORY) == ROWS


def test_messages_are_frozen_values():
    message = user("a")
    with pytest.raises(AttributeError):
        message.content = "b"
    assert copy.deepcopy(message) is message
    assert pickle.loads(pickle.dumps(HISTORY)) == HISTORY
    assert hash(HISTORY) == hash(pickle.loads(pickle.dumps(HISTORY)))
    assert user("a") != assistant("a")


def test_what_endpoints_write_differently():
    assert from_openai([{"role": "developer", "content": "a"}]) == (system("a"),)
    assert from_openai([{"role": "assistant", "content": None}]) == (assistant(""),)
    assert from_openai([{"role": "assistant", "tool_calls": None, "name": None}]) == (assistant(""),)
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert from_openai([{"role": "user", "content": parts}]) == (user("ab"),)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"role": "robot", "content": ""},
            "expected a role among system, user, assistant, tool, got 'robot'",
        ),
        ({"content": "a"}, "expected a role"),
        ({"role": "user", "content": 5}, "expected text content, got int"),
        (
            {"role": "user", "content": [{"type": "image_url"}]},
            "only text parts are supported, got 'image_url'",
        ),
        ({"role": "user", "content": ["a"]}, "only text parts"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "expected a call of a function"),
        ({"role": "assistant", "tool_calls": ["c"]}, "expected a call of a function"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {}}}]}, "JSON text"),
    ],
)
def test_errors_say_which_message(row, said):
    with pytest.raises(ValueError, match=f"message 1: .*{said}"):
        from_openai([{"role": "user", "content": "a"}, row])
