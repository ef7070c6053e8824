"""Texts as environments show and keep them."""

from __future__ import annotations


def split_lines(text: str) -> list[str]:
    r"""The lines of a text, numbered as Python, grep and editors number them.

    A line ends at a line feed, with or without a carriage return before it; the last one needs none. `str.splitlines`
    also breaks at form feeds, U+2028 and others, which stand within lines.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def repaired(text: str) -> str:
    """The text, with a question mark for every half of a surrogate pair, so that it can be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
