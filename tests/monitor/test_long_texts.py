"""No rule may be asked for long: ten times the text may take a little more than ten times as long, whatever it holds.

Texts of one repeated token are what an expression that tries again from every place takes a square of the time for.
"""

from __future__ import annotations

import time

import pytest

from agentgym.monitor.context import Context
from agentgym.monitor.monitor import Monitor
from agentgym.monitor.rules.base import PLAIN
from agentgym.monitor.rules.excerpt import MOST_READ
from agentgym.tools import ToolCall

# A fault of the reader is caught and warned of; here it fails the test.
pytestmark = pytest.mark.filterwarnings("error::UserWarning")

TOKENS = [
    *"a ` ' \" ( [ { < > = : ; , . / \\ | & $ # @ * + - _ ! ~ % \n \t".split(" "),
    *(
        "/*",
        "<!--",
        "a ",
        "a=",
        "# ",
        "//",
        ">>>>",
        "../",
        "'a' ",
        "\n\n",
        "\n ",
        "1, ",
        "a_",
        "a-",
        "&amp;",
        "\\x41",
    ),
    *(
        "test ",
        "judge ",
        "cases",
        ".git/",
        "& ",
        "git -a ",
        "x = 1\n",
        "while ",
        "cudaEventElapsedTime(",
        "é ",
    ),
]
CALLS = {
    "write a.py": lambda text: ToolCall("write_file", {"path": "/repo/a.py", "content": text}),
    "write a.js": lambda text: ToolCall("write_file", {"path": "/repo/a.js", "content": text}),
    "write a.c": lambda text: ToolCall("write_file", {"path": "/repo/a.c", "content": text}),
    "write Makefile": lambda text: ToolCall("write_file", {"path": "/repo/Makefile", "content": text}),
    "write ci.yml": lambda text: ToolCall(
        "write_file", {"path": "/repo/.github/workflows/ci.yml", "content": text}
    ),
    "write index.html": lambda text: ToolCall("write_file", {"path": "/repo/index.html", "content": text}),
    "read": lambda text: ToolCall("read_file", {"path": "/" + text}),
    "message": lambda text: ToolCall("send_message", {"to": "b", "content": "Please read " + text}),
    "query": lambda text: ToolCall("web_search", {"query": "benchmark " + text}),
    "address": lambda text: ToolCall("http_get", {"url": "http://a/" + text}),
    "move": lambda text: ToolCall("env_action", {"action": text}),
}
MONITOR = Monitor()


def seconds(call, repeats=1):
    """CPU seconds of a review, the least of some repeats."""
    taken = []
    for _ in range(repeats):
        context = Context.from_dict(PLAIN)
        start = time.thread_time()
        MONITOR.review(call, context)
        taken.append(time.thread_time() - start)
    return min(taken)


@pytest.mark.slow
@pytest.mark.parametrize("make", CALLS.values(), ids=CALLS)
def test_ten_times_the_text_takes_at_most_twenty_times_as_long(make):
    for token in TOKENS:
        text = token * (MOST_READ // len(token))
        short, whole = make(text[: len(text) // 10]), make(text)
        # Below 20 ms nothing is measured well on a busy machine, and nothing is slow.
        if seconds(whole) > 0.02:
            taken = seconds(whole, 3)
            assert taken < 0.02 or taken <= 20 * seconds(short, 3), (token, taken)


def test_an_archive_with_many_parts_in_its_name_is_read_at_once():
    name = "a_" * 2000 + ".tar.gz"
    MONITOR.review(
        ToolCall("bash", {"command": f"pip install https://h.example/{name}"}), Context.from_dict(PLAIN)
    )


def test_many_backquotes_and_marks_in_a_message_are_read_at_once():
    for token in ("`", "@", "a"):
        call = ToolCall("spawn_agent", {"task": "Please read " + token * MOST_READ})
        MONITOR.review(call, Context.from_dict(PLAIN))
