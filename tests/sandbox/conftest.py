"""Fixtures of the sandbox tests: each conformance test runs once per backend that works here."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from agentgym.errors import MissingDependency, SandboxError
from agentgym.sandbox import BACKENDS, Sandbox, make_sandbox

MakeSandbox = Callable[..., Sandbox]


def _make(backend: str, **options: Any) -> Sandbox:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the process backend's, tested where it belongs
        return make_sandbox(backend, allow_unsafe=True, **options)


def _factory(backend: str) -> Iterator[MakeSandbox]:
    try:
        _make(backend).close()
    except (MissingDependency, SandboxError) as error:
        pytest.skip(f"{backend} cannot run here: {error}")
    made: list[Sandbox] = []

    def make(**options: Any) -> Sandbox:
        made.append(_make(backend, **options))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Iterator[MakeSandbox]:
    """Makes sandboxes of one backend, closed at the end of the test."""
    yield from _factory(request.param)


@pytest.fixture
def box(make: MakeSandbox) -> Sandbox:
    return make()


@pytest.fixture
def make_isolated() -> Iterator[MakeSandbox]:
    yield from _factory("bubblewrap")


@pytest.fixture
def isolated(make_isolated: MakeSandbox) -> Sandbox:
    """A sandbox of the default backend, for what only isolation gives."""
    return make_isolated()


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


class Sleeper:
    """A `sleep` whose argument nobody else uses, so that the host can look for its processes."""

    def __init__(self) -> None:
        self.seconds = f"9{secrets.randbelow(10**8):08d}"
        self.command = f"sleep {self.seconds}"

    def alive(self) -> int:
        """How many processes of it are on the machine, zombies not counted."""
        found = 0
        for process in psutil.process_iter():
            try:
                if self.seconds in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    found += 1
            except psutil.NoSuchProcess:
                continue
        return found

    def wait_for(self, count: int, seconds: float = 20.0) -> None:
        """Wait until exactly `count` are there; the bound only keeps a broken test from hanging."""
        deadline = time.monotonic() + seconds
        while (alive := self.alive()) != count:
            assert time.monotonic() < deadline, f"expected {count} processes {self.command!r}, found {alive}"
            time.sleep(0.02)
