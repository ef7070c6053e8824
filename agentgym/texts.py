"""Texts as environments show and keep them."""

from __future__ import annotations

import hashlib
import re

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LIKE_DIGEST = re.compile(r"(?:^|-)[0-9a-f]{8}$")
_LONGEST = 120  # letters of a label, before its digest: names of files may have 255


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


def short_digest(text: str) -> str:
    """Eight hexadecimal digits that tell one text from another."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def safe_label(*parts: str) -> str:
    """The parts, joined by hyphens, as the name of one file or folder, whatever stands in them.

    Nothing in it leads elsewhere, hides the file or looks like a flag. A name that had to be changed for that ends in a
    digest of the parts. So does one that could be taken for another's: it looks as if it had a digest, or a later part
    holds a hyphen. Hence two names of as many parts are equal only where eight digits of a digest are, by chance.
    """
    whole = "-".join(parts)
    clean = _UNSAFE.sub("_", whole).lstrip(".-")[:_LONGEST]
    ambiguous = _LIKE_DIGEST.search(whole) or any("-" in part for part in parts[1:])
    if clean and clean == whole and not ambiguous:
        return clean
    return "-".join(filter(None, (clean, short_digest("\0".join(parts)))))
