"""A Python source as bytes, with the places of its syntax tree's nodes in them."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from dataclasses import dataclass

_COMMENT_ONLY = re.compile(rb"[ \t\f]*(#.*)?$")

Node = ast.expr | ast.stmt | ast.keyword | ast.excepthandler


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One place for a defect: bytes `start` to `end` of the source become `replacement`; `line` counts from 1."""

    start: int
    end: int
    kind: str
    replacement: bytes
    line: int


class Source:
    """Where things stand in a source; the byte offsets that `ast` gives per line become offsets in the whole."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: Node) -> int:
        """Offset of a node's first byte."""
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: Node) -> int:
        """Offset behind a node's last byte."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: Node) -> bytes:
        """The text of a node."""
        return self.text[self.start(node) : self.end(node)]

    def between(self, first: Node, second: Node) -> bytes:
        """What stands between two nodes."""
        return self.text[self.end(first) : self.start(second)]

    def site(self, kind: str, start: int, end: int, replacement: bytes) -> Site:
        """A site at these offsets."""
        return Site(start, end, kind, replacement, bisect_right(self._lines, start))

    def whole_lines(self, first: int, end: int) -> tuple[int, int] | None:
        """Start and end of the lines from offset `first` to `end`, if nothing but a comment stands beside it."""
        start = self.text.rfind(b"\n", 0, first) + 1
        stop = self.text.find(b"\n", end)
        stop = len(self.text) if stop < 0 else stop + 1
        rest = self.text[end:stop].rstrip(b"\r\n")
        return (start, stop) if not self.text[start:first].strip() and _COMMENT_ONLY.match(rest) else None
