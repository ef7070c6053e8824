"""The browsers of this process, shared by all its environments."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentgym.verifiers.browser import BrowserPool

_pools: dict[int, BrowserPool] = {}  # by the number of browsers
_lock = threading.Lock()


def shared_pool(browsers: int) -> BrowserPool:
    """The pool with this many browsers; opened when first asked for, closed when the process ends.

    Raises:
        MissingDependency: playwright is not installed.
    """
    from agentgym.verifiers.browser import open_pool

    with _lock:
        if browsers not in _pools:
            _pools[browsers] = open_pool(browsers)
            atexit.register(_pools[browsers].close)
        return _pools[browsers]


def _forget() -> None:
    """A forked process has none of its parent's pools, and whoever held the lock is not in it."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)
