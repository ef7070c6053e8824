"""One pool for each number of browsers in a process, and none that a forked process has from its parent."""

from __future__ import annotations

import os

import pytest

from agentgym.envs.web import browsers


@pytest.fixture
def opened(monkeypatch):
    """Stands in for pools: (process, number of browsers) of each that was opened."""
    import agentgym.verifiers.browser as real

    class Pool:
        def __init__(self, workers: int) -> None:
            self.made_by = os.getpid(), workers

        def close(self) -> None:
            pass

    monkeypatch.setattr(browsers, "_pools", {})
    monkeypatch.setattr(real, "open_pool", Pool)
    return Pool


def test_environments_share_a_pool_of_one_size(opened):
    one, again, two = (browsers.shared_pool(count) for count in (1, 1, 2))
    assert one is again is not two
    assert (one.made_by[1], two.made_by[1]) == (1, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_opens_its_own(opened):
    parent = browsers.shared_pool(1).made_by
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(browsers.shared_pool(1).made_by == (os.getpid(), 1)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"True"
    assert browsers.shared_pool(1).made_by == parent == (os.getpid(), 1)
    os.close(reader)
    os.close(writer)
