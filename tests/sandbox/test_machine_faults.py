"""What the machine does to a sandbox is told as such: never as an error of a path, which a policy would answer for."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.errors import SandboxError
from agentgym.sandbox import Limits, Sandbox, TreeError, _scratch, machine_faults
from tests.descriptors import descriptors_left, open_files

from .conftest import MakeSandbox, _make

Use = Callable[[Sandbox, Path], object]
USES: dict[str, Use] = {
    "exec": lambda box, here: box.exec("true"),
    "shell": lambda box, here: box.shell(),
    "read": lambda box, here: box.read("kept"),
    "write": lambda box, here: box.write("new/file", "x"),
    "upload": lambda box, here: box.upload(here),
    "download": lambda box, here: box.download(".", here / "out"),
    "snapshot": lambda box, here: box.snapshot(),
}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_fault_of_the_machine_changes_its_kind(number: int) -> None:
    with (
        pytest.raises(SandboxError, match=r"could not read a file: .*x") as caught,
        machine_faults("read a file"),
    ):
        raise OSError(number, "x")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "x"), TreeError(errno.EFBIG, "x"), ValueError("x")])
def test_every_other_error_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, machine_faults("read a file"):
        raise error
    assert caught.value is error


def test_the_folder_is_gone(make: MakeSandbox, tmp_path: Path) -> None:
    """As after somebody cleaned up /tmp: no command could have done it."""
    box = make(limits=Limits(wall_s=60.0))
    box.write("kept", "x")
    saved = box.snapshot()
    shutil.rmtree(box._state.folder)  # type: ignore[attr-defined]
    for use in (*USES.values(), lambda box, here: box.restore(saved)):
        with pytest.raises(SandboxError, match="the sandbox's folder is gone"):
            use(box, tmp_path)


def test_a_closed_sandbox_says_so(make: MakeSandbox, tmp_path: Path) -> None:
    box = make(limits=Limits(wall_s=60.0))
    box.write("kept", "x")
    box.close()
    for use in USES.values():
        with pytest.raises(SandboxError, match="this sandbox is closed"):
            use(box, tmp_path)


def test_a_snapshot_is_gone(box: Sandbox) -> None:
    saved = box.snapshot()
    shutil.rmtree(saved.folder)
    with pytest.raises(SandboxError, match="the snapshot's folder is gone"):
        box.restore(saved)


@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a snapshot that cannot be deleted
def test_no_descriptor_is_left(backend: str, tmp_path: Path) -> None:
    """Whatever step of a use fails: the error is of one kind, and nothing stays open."""
    (tmp_path / "source").write_text("x")
    with _make(backend) as box:
        box.write("kept", "x")
        for name, use in USES.items():
            use(box, tmp_path)  # what is opened once
            for count in (0, 2, 3, 5):
                before = open_files()
                told = ""
                with descriptors_left(count):
                    try:
                        use(box, tmp_path)
                    except SandboxError as error:
                        told = str(error)
                assert "Too many open files" in told or (count and not told), (name, count)
                assert open_files() <= before, (name, count)
        with descriptors_left(0), pytest.raises(SandboxError, match="Too many open files"):
            _make(backend)
        assert box.exec("cat kept").stdout == "x"


def test_a_shared_folder_is_complete_or_made_again() -> None:
    def fail(folder: Path) -> None:
        (folder / "one").mkdir()
        raise OSError(errno.EMFILE, "x")

    def fill(folder: Path) -> None:
        for name in ("one", "two"):
            (folder / name).mkdir()

    with pytest.raises(OSError, match="x"):
        _scratch.shared_folder("for-this-test", fail)
    made = _scratch.shared_folder("for-this-test", fill)
    assert sorted(path.name for path in made.iterdir()) == ["one", "two"]
    assert _scratch.shared_folder("for-this-test", fail) == made
