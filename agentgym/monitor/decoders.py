"""Text out of encodings."""

from __future__ import annotations

import base64
import re

MAX_DECODED = 256 * 1024
"""Bytes of decoded text that are followed."""


def as_text(raw: bytes) -> str:
    """Decoded bytes as text."""
    return raw[:MAX_DECODED].decode("utf-8", "replace").replace("\0", "")


def decode_base64(text: str) -> str:
    """`text` out of base64, standard or URL alphabet, padding optional.

    Raises:
        ValueError: it is none.
    """
    compact = re.sub(r"[^A-Za-z0-9+/_-]", "", text).replace("-", "+").replace("_", "/")
    if len(compact) % 4 == 1:
        compact = compact[:-1]
    return as_text(base64.b64decode(compact + "=" * (-len(compact) % 4)))
