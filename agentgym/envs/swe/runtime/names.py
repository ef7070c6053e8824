"""Names of distributions, as the index and requirements write them."""

from __future__ import annotations

import re


def canonical(name: str) -> str:
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(line: str) -> str:
    """The normalised name that a requirement begins with; empty if it is none."""
    match = re.match(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)", line)
    return canonical(match.group(1)) if match else ""
