"""Choosing a backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.errors import MissingDependency, UsageError
from agentgym.sandbox import BACKENDS, choose_backend, make_sandbox, python_binds
from agentgym.sandbox.process import IsolationWarning


def test_auto_is_bubblewrap_or_an_error_that_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingDependency, match="apt-get install bubblewrap") as caught:
        make_sandbox(allow_unsafe=True)
    assert "\n" not in str(caught.value)


def test_process_needs_consent() -> None:
    with pytest.raises(UsageError, match="allow_unsafe=True"):
        make_sandbox("process")


def test_unknown_backend_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'bubblewrap'"):
        make_sandbox("bublewrap")


def test_a_backend_is_chosen_without_making_one() -> None:
    assert choose_backend("auto") == choose_backend("bubblewrap") == "bubblewrap"
    assert choose_backend("process", allow_unsafe=True) == "process"
    with pytest.raises(UsageError, match="allow_unsafe=True"):
        choose_backend("process")


def test_process_warns_and_says_what_is_not_enforced() -> None:
    with (
        pytest.warns(IsolationWarning, match="NOT isolate"),
        make_sandbox("process", allow_unsafe=True) as box,
    ):
        said = box.limits_in_force
    assert {name for name, how in said.items() if how.startswith("not enforced")} == {
        "processes",
        "network",
        "files",
    }


def test_process_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    for wrong in ({"workspace": "/workspace"}, {"binds": {str(tmp_path): "/elsewhere"}}):
        with pytest.raises(UsageError, match="cannot"):
            make_sandbox("process", allow_unsafe=True, **wrong)  # type: ignore[arg-type]


def test_import_is_cheap() -> None:
    program = "import sys, agentgym.sandbox; print(*sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    for backend, _ in BACKENDS.values():
        assert backend.partition(":")[0] not in shown.split()


def test_python_binds_of_a_virtual_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    binds = python_binds(str(tmp_path / "venv" / "bin" / "python"))
    assert str(tmp_path / "venv") in binds
    assert all(host == inside for host, inside in binds.items())
    assert all(
        host in (str(tmp_path / "venv"), sys.base_prefix, os.path.realpath(sys.base_prefix)) for host in binds
    )


def test_python_binds_of_something_else() -> None:
    with pytest.raises(UsageError, match="expected the path of a Python"):
        python_binds("/bin/false")
