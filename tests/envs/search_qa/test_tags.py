"""The tag form, read as Search-R1 reads it: cut behind </search>, else </answer>; then the first whole block."""

from __future__ import annotations

import pytest

from agentgym.envs.search_qa import SearchQAEnv
from agentgym.envs.search_qa.tags import Tags
from agentgym.errors import UsageError
from agentgym.protocols import ParseError
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall, checker_for, tool, tools_of

TOOLS = SearchQAEnv._tool_methods
FORM = Tags.of(TOOLS)


def call(name: str, text: str) -> ToolCall:
    argument = {"search": "query", "read": "title", "answer": "text"}[name]
    return ToolCall(name, FrozenDict({argument: text}))


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("<think>I need more.</think>\n<search> who was it? </search>", call("search", "who was it?")),
        ("<answer>\nBeijing\n</answer>", call("answer", "Beijing")),
        ("<read>Oster</read>", call("read", "Oster")),
        ("<search></search>", call("search", "")),
        # What comes after the first call was cut off before anybody read it.
        ("<search>a</search><information>x</information><answer>b</answer>", call("search", "a")),
        ("<answer>a</answer><answer>b</answer>", call("answer", "a")),
        ("<answer>a</answer> or <search>b</search>", call("answer", "a")),
        ("<search>a <answer>b</answer>", call("answer", "b")),
        ("<answer>a <search>b</search>", call("search", "b")),
        ("<search>a <search>b</search>", call("search", "a <search>b")),
        ("</answer><search>a</search>", call("search", "a")),
    ],
)
def test_parse(action, expected):
    assert FORM.parse(action, checker_for(TOOLS)) == [expected]


@pytest.mark.parametrize(
    "action",
    ["", "Beijing", "<search>a", "<SEARCH>a</SEARCH>", "</search><answer>a</answer>", "<search >a</search>",
     "<search>" * 30_000, "</answer>" * 30_000],
)  # fmt: skip
def test_no_call(action):
    with pytest.raises(
        ParseError, match=r"expected <search>query</search> or <read>title</read> or <answer>"
    ):
        FORM.parse(action, checker_for(TOOLS))


@pytest.mark.parametrize("made", [call("search", "a <b> c"), call("answer", ""), call("read", "x\ny")])
def test_round_trip(made):
    assert FORM.parse(FORM.render_call(made), checker_for(TOOLS)) == [made]


@pytest.mark.parametrize(
    "made",
    [
        ToolCall("no_such"),
        ToolCall("search"),
        ToolCall("search", FrozenDict(query="a", more="b")),
        ToolCall("search", FrozenDict(query=3)),
        call("answer", "a</search>b"),
        call("answer", " a"),
    ],
)
def test_what_cannot_be_written(made):
    with pytest.raises(UsageError, match="protocol 'search-r1' can"):
        FORM.render_call(made)


def test_description_names_every_tag():
    text = FORM.describe(TOOLS)
    for tag in (
        "<think>",
        "<search>query</search>: Search for",
        "<answer>text</answer>: Give",
        "<information>",
    ):
        assert tag in text


def test_tools_with_other_arguments_are_refused():
    class Adding:
        @tool
        def add(self, number: int) -> str:
            """Add."""
            return str(number)

    with pytest.raises(UsageError, match="one text argument each, not add"):
        Tags.of(tools_of(Adding))
