"""Which of the text of a reply counts as a call, where a program reads its commands out of the text."""

from __future__ import annotations

import json
import re

import pytest

from agentgym.blackbox.fences import ProgramProtocol
from agentgym.core import Tool
from agentgym.protocols import BashBlock, Hermes, ParseError
from agentgym.tools import ArgumentChecker

PROTOCOL = ProgramProtocol(Hermes())
NO_TOOLS = ArgumentChecker(())


def read(text: str) -> list[tuple[str, dict[str, str]]]:
    return [(call.name, dict(call.arguments)) for call in PROTOCOL.parse(text, NO_TOOLS)]


@pytest.mark.parametrize(
    "label", ["bash", "sh", "shell", "zsh", "", "mswea_bash_command", "Bash", "console", "bash title=x"]
)
def test_blocks_of_a_shell(label):
    assert read(f"So:\n```{label}\nls\necho a\n```\nThat is all.") == [
        (f"```{label}", {"command": "ls\necho a"})
    ]


@pytest.mark.parametrize("label", ["python", "python3", "py", "ipython"])
def test_blocks_of_python(label):
    assert read(f"```{label}\nprint(1)\n```") == [(f"```{label}", {"code": "print(1)"})]


@pytest.mark.parametrize("text", ["no block", "```json\n{}\n```", "`ls`", "```patch a.py\n+x\n```", ""])
def test_what_is_no_call(text):
    with pytest.raises(ParseError):
        read(text)


def test_everything_that_a_program_may_run_is_read():
    assert [
        arguments for _, arguments in read("```bash\na\n```\nand\n  ```sh\nb\n  ```\n~~~bash\nc\n~~~")
    ] == [
        {"command": "a"},
        {"command": "b"},
        {"command": "c"},
    ]
    assert read("```bash\ncut off") == [("```bash", {"command": "cut off"})]
    # A closing fence followed by something is one for programs that look for a line break and three backticks.
    assert read("```bash\na\n```and more") == [("```bash", {"command": "a"})]
    # A longer fence may hold a shorter one.
    assert read("````bash\na\n```\nb\n````") == [("````bash", {"command": "a\n```\nb"})]


@pytest.mark.parametrize(
    "text",
    [
        "I run ```bash\nls\n```",  # what a regular expression finds begins anywhere
        "```text\nlisted:\n```bash\nls\n```",
        "~~~text\n```bash\nls\n```\n~~~",
        "```json\n{}\n```bash\nls\n```",
    ],
)
def test_nothing_around_a_block_hides_it(text):
    assert re.findall(r"```bash\s*\n(.*?)\n```", text, re.DOTALL) == ["ls"], "as mini-swe-agent reads it"
    assert ("```bash", {"command": "ls"}) in read(text)
    for call in PROTOCOL.parse(text, NO_TOOLS):
        assert text.count(PROTOCOL.render_call(call)) == 1 or not call.arguments["command"]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("```bash\na\n```bash\nb\n```", ["a", "b", "a\n```bash\nb"]),
        ("```bash\na\n  ``` `\nb\n```", ["a", "", "a\n  ``` `\nb"]),
        ("```bash\na\n``` so\nb\n```", ["a", "", "a\n``` so\nb"]),
    ],
)
def test_where_a_block_may_end_early_both_are_read(text, commands):
    """A strict reader of Markdown, or one who looks for a fence at the beginning of a line, takes the longer one."""
    assert [arguments["command"] for _, arguments in read(text)] == commands


def test_a_call_is_written_as_it_was_read():
    text = "Look:\n```mswea_bash_command\ncat a\n```\nThen:\n```python\nprint()\n```"
    for call in PROTOCOL.parse(text, NO_TOOLS):
        assert text.count(PROTOCOL.render_call(call)) == 1


def test_with_tools_it_is_the_protocol_of_tools():
    schema = json.dumps({"type": "object", "properties": {"command": {"type": "string"}}, "required": []})
    checker = ArgumentChecker((Tool("bash", "Runs a command.", schema, "bash"),))
    text = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>\n```bash\nrm\n```'
    (call,) = PROTOCOL.parse(text, checker)
    assert (call.name, dict(call.arguments)) == ("bash", {"command": "ls"})
    assert PROTOCOL.render_call(call) == Hermes().render_call(call)


def test_without_tools_calls_in_the_protocols_own_form_count_too():
    call = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
    assert read(call) == [("bash", {"command": "ls"})]
    assert read(f"```sh\nrm\n```\n{call}") == [("```sh", {"command": "rm"}), ("bash", {"command": "ls"})]
    once = ProgramProtocol(BashBlock()).parse("```bash\nls\n```", NO_TOOLS)
    assert [call.name for call in once] == ["```bash"]


def test_a_long_text_of_fences():
    """In linear time; quadratic it would take minutes."""
    assert len(read("```bash\n" * 40_000)) == 40_000
    assert read("`" * 200_000 + "x`\n```sh\nls\n```") == [("```sh", {"command": "ls"})]
    (call,) = read("```bash\n" + "``\n" * 60_000)
    assert call[1]["command"].count("``") == 60_000
