"""A process that has used up its file descriptors."""

from __future__ import annotations

import os
import resource
import tracemalloc  # noqa: F401  pytest imports it when a finalizer fails, which needs a descriptor
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """While it is open, this process can open so many files and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 160, hard))
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for descriptor in held[:count]:
            os.close(descriptor)
        del held[:count]
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


def open_files() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))
