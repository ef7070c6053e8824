"""Web-v0: build a page from a brief, with tools over many turns or in one message."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core import tool
from agentgym.envs.web.base import INDEX, PageTasks
from agentgym.envs.web.browsers import shared_pool
from agentgym.envs.web.looking import actions_of, describe
from agentgym.errors import ToolError, whole_number
from agentgym.tasks import FrozenDict
from agentgym.texts import split_lines
from agentgym.tools import ToolCall

MOST_BYTES = 1 << 20  # of all files together
MOST_FILES = 40
_PATH = re.compile(r"[A-Za-z0-9_-][\w.-]*(/[A-Za-z0-9_-][\w.-]*){0,5}")
_SHOWN_LINES = 400
# The last block, up to its closing fence or to the end of a message that was cut off.
_BLOCK = re.compile(r"```html[ \t]*\n((?:(?!^```html).)*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


class WebEnv(PageTasks):
    """Build a web page from a brief, look at it, hand it in; a real browser uses it and decides.

    ## Description
    The first observation is the brief. It names what the page must do and the `data-testid` of every part that will be
    used. The policy writes files, looks at the page as often as it likes, and submits. Then a browser plays scripts
    that the policy never saw, with words and numbers drawn anew for each episode: it clicks, types, drags, reloads,
    and reads what a person would see. Looks count only as far as the page works.

    ## Actions
    Calls of the tools ``write_file``, ``edit_file``, ``read_file``, ``preview`` and ``submit``. With ``max_turns=1``
    the environment is single-shot (`PageEnv`): the action is the page.

    ## Observations
    What the tools answer. ``preview`` shows the page's accessibility tree, its text, its console and what it was
    refused, after actions of the policy's choice. It knows nothing of the task.

    ## Reward
    0 before the end; then the score of docs/web-judge.md, in [0, 1]. `verdict.passed`: every rubric item holds.
    `verdict.components` holds the shares of functionality, of all else, and of each category. A page that asks for
    anything from the network gets 0 unless `zero_on_network` is False. A missing image, style, script, font, medium or
    manifest of its own costs no more than what does not work without it.

    ## Episode end
    Terminated by ``submit``; truncated after `max_turns` (default 20), then the page is judged as it is.

    ## Tasks
    By default 24 recipes, each a kind of page: 16 to train on, 4 in the split dev, 4 in test, with names and numbers
    drawn from seeds. `tasks` also takes a file or a folder of web tasks (docs/web-judge.md).

    Args:
        output_chars: longest answer of a tool.
        **kwargs: see `AgentEnv`, and two more: ``zero_on_network`` (True: a page that asks for anything from the
            network gets 0, see above; the request fails in any case) and ``browsers`` (pages judged at a time in this
            process).

    ## Version history
    v0: first.
    """

    default_max_turns = 20
    instructions = (
        "You build a web page. Write index.html, look at it with preview, repair what is wrong, then submit. The page"
        " is judged by using it in a browser, by scripts you cannot see; what it shows without working counts nothing."
    )

    def __init__(self, *, output_chars: int = 12_000, **kwargs: Any) -> None:
        self.output_chars = whole_number("output_chars", output_chars, least=1)
        super().__init__(**kwargs)

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Write a file of the page, new or in place of the old one.

        Args:
            path: relative, such as index.html.
            content: the file's whole text.
        """
        if len(path) > 200 or not _PATH.fullmatch(path):
            raise ToolError(f"expected a relative path such as index.html or js/app.js, got {path!r:.80}")
        if path not in self.files and len(self.files) >= MOST_FILES:
            raise ToolError(f"the page has {MOST_FILES} files already, which is the most")
        self._store(path, content)
        return f"Wrote {path}, {len(split_lines(content))} lines."

    @tool
    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a piece of a file's text. The old text must occur exactly once, white space included.

        Args:
            path: of the file.
            old: the text to replace.
            new: the text to put there.
        """
        text = self._file(path)
        count = text.count(old) if old else 0
        if count != 1:
            raise ToolError(f"expected the old text to occur exactly once in {path}, it occurs {count} times")
        self._store(path, text.replace(old, new))
        return f"Edited {path} at line {text[: text.index(old)].count(chr(10)) + 1}."

    @tool(read_only=True)
    def read_file(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Show a file with line numbers.

        Args:
            path: of the file.
            start: first line to show.
            end: last line to show; by default 400 lines from the first.
        """
        lines = split_lines(self._file(path))
        if not lines:
            return f"{path} is empty."
        last = min(len(lines), start + _SHOWN_LINES - 1 if end is None else end)
        if not 1 <= start <= len(lines):
            raise ToolError(f"{path} has {len(lines)} lines; expected start between 1 and that, got {start}")
        rows = [f"{number:5}\t{lines[number - 1]}" for number in range(start, last + 1)]
        rest = [f"... {len(lines) - last} more lines"] if last < len(lines) else []
        return self._cut("\n".join(rows + rest))

    @tool(read_only=True)
    def preview(
        self, actions: list[dict[str, Any]] | None = None, width: int = 1280, height: int = 800
    ) -> str:
        """Load the page in a browser, do some actions, and show its accessibility tree, text and console.

        Args:
            actions: objects such as {"op": "click", "target": {"css": "[data-testid=add]"}},
                {"op": "fill", "target": ..., "value": "x"}, {"op": "press", "key": "Enter"}, {"op": "reload"}.
            width: of the window, in CSS pixels.
            height: of the window, in CSS pixels.
        """
        self._file(INDEX)
        if not (200 <= width <= 4000 and 200 <= height <= 4000):
            raise ToolError(f"expected a window of 200 to 4000 pixels, got {width} x {height}")
        planned = actions_of(actions or [])
        shown = shared_pool(self.browsers).preview(self._content(), viewport=(width, height), actions=planned)
        return self._cut(describe(shown))

    @tool
    def submit(self) -> str:
        """Hand in the page as it is now. This ends the task."""
        self.finish()
        return "Submitted."

    def actions_to_hand_in(self, page: str) -> Sequence[str]:
        """Write it, submit."""
        write = ToolCall("write_file", FrozenDict(path=INDEX, content=page))
        return [self.protocol.render_call(call) for call in (write, ToolCall("submit"))]

    def lend_files(self) -> dict[str, str]:
        """The page, for an agent program that works on files (docs/black-box-agents.md)."""
        return dict(self.files)

    def take_files(self, files: Mapping[str, bytes]) -> None:
        """The page as a program left it, without what ``write_file`` would refuse."""
        self.files = {}
        for path in sorted(files, key=lambda path: (path != INDEX, path)):
            with contextlib.suppress(ToolError, UnicodeDecodeError):
                self.write_file(path, files[path].decode())

    def _file(self, path: str) -> str:
        if path not in self.files:
            there = ", ".join(sorted(self.files)) or "none"
            raise ToolError(f"there is no file {path!r:.80}; files: {there}")
        return self.files[path]

    def _store(self, path: str, text: str) -> None:
        others = sum(len(each.encode()) for name, each in self.files.items() if name != path)
        if others + len(text.encode()) > MOST_BYTES:
            raise ToolError(f"the page's files may have {MOST_BYTES:,} bytes together; this would be more")
        self.files[path] = text

    def _cut(self, text: str) -> str:
        more = len(text) - self.output_chars
        return text if more <= 0 else f"{text[: self.output_chars]}\n[... {more} more characters]"


class PageEnv(PageTasks):
    """Web-v0 in one message: the action is the page, as an ```html block or as the whole text.

    Everything else is as in `WebEnv`. `agentgym/Web-v0` is this class when it is made with ``max_turns=1``.

    Args:
        **kwargs: see `WebEnv`; the arguments of its tools are not among them.
    """

    default_max_turns = 1
    instructions = (
        "You build a web page. Answer with the whole page, one HTML file, in one ```html block. The page is judged by"
        " using it in a browser, by scripts you cannot see; what it shows without working counts nothing."
    )

    def respond(self, action: str) -> str:
        """Take the page out of the message."""
        blocks = _BLOCK.findall(action)
        page = blocks[-1] if blocks else action
        if "<" not in page:
            raise ToolError("expected a page: an ```html block, or the whole message as HTML")
        if len(page.encode()) > MOST_BYTES:
            raise ToolError(f"a page may have {MOST_BYTES:,} bytes, this has more")
        self.files[INDEX] = page
        self.finish()
        return "Submitted."

    def actions_to_hand_in(self, page: str) -> Sequence[str]:
        """Send it."""
        return [f"```html\n{page}\n```"]


def make(**kwargs: Any) -> WebEnv | PageEnv:
    """Web-v0: single-shot with ``max_turns=1``, else with tools; see `WebEnv` for the keywords."""
    if kwargs.get("max_turns") == 1:
        return PageEnv(**kwargs)
    return WebEnv(**kwargs)
