"""Where what is made once is kept: converted models, environments of tests, prepared trees."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """``$AGENTGYM_CACHE``, or ``~/.cache/agentgym``. It can be deleted at any time when nothing runs."""
    return Path(os.environ.get("AGENTGYM_CACHE") or Path.home() / ".cache" / "agentgym")


def made_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """`folder`; where it is missing it is filled aside and moved there, so nobody sees half of it.

    Args:
        folder: somewhere in the cache.
        fill: puts the files into an empty folder. Where several processes fill at once, the first to finish stays.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        fill(fresh)
        os.rename(fresh, folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder
