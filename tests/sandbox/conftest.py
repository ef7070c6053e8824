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

from .dockerd import free_port, running_daemon, why_not

MakeSandbox = Callable[..., Sandbox]
# Tests that take more than a second with Docker, where each command takes a tenth of one.
SLOW_WITH_DOCKER = """
    test_files_of_a_killed_parent_are_swept test_nothing_survives_a_killed_parent test_close_removes_whatever_was_made
    test_memory_of_all_processes_together test_a_shell_that_uses_up_the_processes_is_no_failure_of_ours
    test_files_variables_and_mounts test_a_folder_swapped_for_a_link_again_and_again test_processor_bomb_ends
    test_restore_in_another_sandbox_after_the_first_is_gone test_a_download_stops_at_its_bounds
    test_the_search_above_can_find test_too_many_levels_is_an_error_not_a_crash
""".split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters and "docker" in parameters.params.values() and item.originalname in SLOW_WITH_DOCKER:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.slow)


def _make(backend: str, **options: Any) -> Sandbox:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the process backend's, tested where it belongs
        return make_sandbox(backend, allow_unsafe=True, **options)


@pytest.fixture(scope="session")
def daemon() -> Iterator[str]:
    """The tests' own Docker daemon, one for each worker; DOCKER_HOST names it. The value is its other address."""
    pytest.importorskip("docker", reason="the package docker is not installed")
    if reason := why_not():
        pytest.skip(reason)
    over_tcp = f"tcp://127.0.0.1:{free_port()}"
    with running_daemon(over_tcp) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        yield over_tcp


class _Spare:
    """The last default Docker sandbox that a test left open, emptied: starting one takes most of a quick test."""

    def __init__(self) -> None:
        self._held: Sandbox | None = None
        self._empty: Any = None

    def take(self) -> Sandbox | None:
        held, self._held = self._held, None
        return held

    def keep(self, box: Sandbox) -> None:
        """Keep it if it is open and nothing is kept yet, else close it."""
        if self._held is not None or box._state.closed:  # type: ignore[attr-defined]
            box.close()
            return
        if self._empty is None:
            with _make("docker") as fresh:
                self._empty = fresh.snapshot()
        box.restore(self._empty)
        self._held = box


@pytest.fixture(scope="session")
def spare() -> Iterator[_Spare]:
    held = _Spare()
    yield held
    if box := held.take():
        box.close()


def _factory(backend: str, request: pytest.FixtureRequest) -> Iterator[MakeSandbox]:
    if backend == "docker":
        request.getfixturevalue("daemon")
    spare: _Spare | None = request.getfixturevalue("spare") if backend == "docker" else None
    plain: list[Sandbox] = []
    special: list[Sandbox] = []

    def make(**options: Any) -> Sandbox:
        box = spare.take() if spare and not options else None
        try:
            box = box or _make(backend, **options)
        except (MissingDependency, SandboxError) as error:
            if backend == "docker":
                raise  # its daemon is ours
            pytest.skip(f"{backend} cannot run here: {error}")
        (special if options else plain).append(box)
        return box

    yield make
    for box in special:
        box.close()
    for box in plain:
        if spare:
            spare.keep(box)
        else:
            box.close()


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Iterator[MakeSandbox]:
    """Makes sandboxes of one backend, closed at the end of the test."""
    yield from _factory(request.param, request)


@pytest.fixture
def box(make: MakeSandbox) -> Sandbox:
    return make()


@pytest.fixture(params=[name for name, (_, isolates) in BACKENDS.items() if isolates])
def make_isolated(request: pytest.FixtureRequest) -> Iterator[MakeSandbox]:
    """Makes sandboxes of one backend that isolates."""
    yield from _factory(request.param, request)


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
