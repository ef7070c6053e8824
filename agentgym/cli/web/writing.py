"""Files the verbs of ``agentgym web`` write."""

from __future__ import annotations

from pathlib import Path

from agentgym.errors import UsageError


def write(path: str, content: str | bytes, what: str) -> None:
    """Write a file.

    Args:
        path: where.
        content: text is written as UTF-8.
        what: it is, for the error.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        Path(path).write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(f"cannot write the {what} {path}: {error.strerror}") from None
