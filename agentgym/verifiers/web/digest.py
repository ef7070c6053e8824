"""What a language model is shown of a page in place of its source: an outline, and which events it listens to.

Comments, scripts, styles and text that is hidden by markup are left out: nobody sees them, so they are no evidence, and
they are where a page would speak to its judge. Length is bounded, so more source does not mean more to read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

_MOST_SOURCE = 200_000  # characters that are read: parsing what was made to be slow shall cost little
_MOST_LINES = 250
_MOST_DEPTH = 12
_TEXT = 80  # characters of one piece of text
_SHOWN = 4000  # characters of the rendered text
_ATTRIBUTES = ("data-testid", "id", "role", "aria-label", "type", "name", "for", "placeholder", "lang")
# Nothing in them is seen
_SILENT = ("script", "style", "template", "noscript", "title", "meta", "link", "base")
_SELF_CLOSING = ("li", "p", "option", "tr", "td", "th", "dt", "dd")  # end where the next one begins
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?:\.0*)?\s*(?:;|$)", re.IGNORECASE
)
_LISTENS = re.compile(r"addEventListener\(\s*[\"'`](\w{1,30})[\"'`]|\.on([a-z]{3,20})\s*=[^=]")


def digest(files: Mapping[str, bytes], *, shown: str = "") -> dict[str, Any]:
    """A page in short, as JSON values.

    Args:
        files: of the page, with index.html.
        shown: its rendered text, where a browser has been asked.
    """
    outline = _Outline()
    source = files["index.html"].decode("utf-8", "replace")
    outline.feed(source[:_MOST_SOURCE])
    outline.close()
    sources = [
        source.decode("utf-8", "replace")
        for name, source in files.items()
        if name.endswith((".html", ".js", ".mjs"))
    ]
    listens = Counter(first or second for source in sources for first, second in _LISTENS.findall(source))
    return {
        "title": " ".join(outline.title.split())[:_TEXT],
        "outline": outline.lines,
        "outline_cut": outline.cut or len(source) > _MOST_SOURCE,
        "listens_to": dict((listens + outline.handlers).most_common(30)),
        "rendered_text": shown[:_SHOWN],
        "rendered_text_cut": len(shown) > _SHOWN,
    }


class _Outline(HTMLParser):
    """Elements with their names and texts, a line each."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.cut = False
        self.title = ""
        self.handlers: Counter[str] = Counter()
        self._open: list[tuple[str, bool]] = []  # tag, and whether what is inside is seen
        self._depths: Counter[str] = Counter()  # how many of each tag are open
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.handlers.update(name[2:] for name in given if name.startswith("on"))
        self._in_title = tag == "title"
        if tag in _SELF_CLOSING and self._open and self._open[-1][0] == tag:
            self._close()
        seen = self._seen() and tag not in _SILENT and not self._is_hidden(given)
        if seen and tag not in ("html", "head", "body"):
            named = "".join(f"[{name}={value[:40]}]" for name in _ATTRIBUTES if (value := given.get(name)))
            self._add(tag + named)
        if tag not in _VOID:
            self._open.append((tag, seen))
            self._depths[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if self._depths[tag]:
            while self._close() != tag:
                pass

    def _close(self) -> str:
        tag, _ = self._open.pop()
        self._depths[tag] -= 1
        return tag

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if self._in_title:
            self.title += data
        elif text and self._seen():
            self._add(f'"{text[:_TEXT]}"')

    def _seen(self) -> bool:
        return not self._open or self._open[-1][1]

    @staticmethod
    def _is_hidden(given: Mapping[str, str | None]) -> bool:
        return "hidden" in given or _HIDDEN.search(given.get("style") or "") is not None

    def _add(self, line: str) -> None:
        if len(self.lines) < _MOST_LINES:
            self.lines.append("  " * min(len(self._open), _MOST_DEPTH) + line)
        else:
            self.cut = True
