"""Lines as editors number them."""

from __future__ import annotations

import pytest

from agentgym.texts import split_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb\r\n\r\n", ["a", "b", ""]),
        ("a\n\n", ["a", ""]),
        ("a\x0cb\n\u2028c\x85\n", ["a\x0cb", "\u2028c\x85"]),
        ("a\rb\r\r\n", ["a\rb\r"]),
    ],
)
def test_only_line_feeds_end_lines(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines
