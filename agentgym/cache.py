"""Where what is made once is kept: converted models, environments of tests, prepared trees."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$AGENTGYM_CACHE``, or ``~/.cache/agentgym``. It can be deleted at any time when nothing runs."""
    return Path(os.environ.get("AGENTGYM_CACHE") or Path.home() / ".cache" / "agentgym")
