"""Lines as editors number them, and names of files."""

from __future__ import annotations

import pytest

from agentgym.texts import safe_label, split_lines


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


@pytest.mark.parametrize(
    ("parts", "label"),
    [  # digests as sha256sum prints them, of the parts with NUL between them
        (("tiny-pkg", "1.5"), "tiny-pkg-1.5"),
        (("a", "1.0.post3+g12_3"), "a-1.0.post3+g12_3"),
        (("m/a:1",), "m_a_1-0b55ab4d"),
        (("m_a_1",), "m_a_1"),
        (("x", "1/../../../ESCAPED"), "x-1_.._.._.._ESCAPED-ab192452"),
        (("x-1", "2"), "x-1-2"),
        (("x", "1-2"), "x-1-2-8e4adbab"),
        (("a/b",), "a_b-c14cddc0"),
        (("a_b-c14cddc0",), "a_b-c14cddc0-10ed7bd6"),
        (("e3b0c442",), "e3b0c442-ead31da8"),
        (("tiny", "0123456789"), "tiny-0123456789"),
        (("..",), "5ec1f7e7"),
        (("",), "e3b0c442"),
    ],
)
def test_labels_are_names_of_files(parts: tuple[str, ...], label: str) -> None:
    assert safe_label(*parts) == label


def test_long_labels_and_halves_of_surrogates() -> None:
    one, other = safe_label("x" * 300 + "1"), safe_label("x" * 300 + "2")
    assert one != other
    assert len(one) == len(other) == 120 + 1 + 8
    assert safe_label("a\udc80").startswith("a_-")
