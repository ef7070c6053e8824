"""A small package with green tests, for everything that makes tasks; no network, no environment is installed."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

PACKAGE = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: tiny-pkg\nVersion: 1.5\nLicense: MIT\nRequires-Python: >=3.8\n",
    "src/tiny_pkg/__init__.py": "from tiny_pkg.numbers import clamp, middle, total\n",
    "src/tiny_pkg/numbers.py": """\
def clamp(value, low, high):
    if low > high:
        raise ValueError("empty range")
    if value < low:
        return low
    if value > high:
        return high
    return value


def total(values, start=0):
    result = start
    for value in values:
        result = result + value
    return result


def middle(values):
    return values[1:len(values) - 1]
""",
    "src/tiny_pkg/texts.py": """\
def shorten(text, limit, mark="..."):
    if len(text) <= limit:
        return text
    return text[: limit - len(mark)] + mark


def is_name(text):
    return bool(text) and not text[0].isdigit()
""",
    "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef some():\n    return [1, 2, 3]\n",
    "tests/test_numbers.py": """\
import importlib.metadata

import pytest

from tiny_pkg import clamp, middle, total


@pytest.mark.parametrize(("value", "expected"), [(0, 1), (1, 1), (2, 2), (4, 3)])
def test_clamp(value, expected):
    assert clamp(value, 1, 3) == expected


def test_clamp_empty():
    with pytest.raises(ValueError):
        clamp(1, 3, 2)


def test_clamp_point():
    assert clamp(5, 2, 2) == 2


def test_total(some):
    assert total(some) == 6


def test_total_start(some):
    assert total(some, start=10) == 16


def test_middle(some):
    assert middle(some) == [2]


def test_version():
    assert importlib.metadata.version("tiny-pkg") == "1.5"
""",
    "tests/test_texts.py": """\
import pytest

from tiny_pkg.texts import is_name, shorten


@pytest.mark.parametrize("text", ["", "a", "abcde"])
def test_short_stays(text):
    assert shorten(text, 5) == text


def test_shorten():
    assert shorten("abcdefgh", 5) == "ab..."


@pytest.mark.parametrize(("text", "expected"), [("a", True), ("", False), ("1", False), ("a1", True)])
def test_is_name(text, expected):
    assert is_name(text) is expected


@pytest.mark.skip(reason="never")
def test_skipped():
    assert False
""",
}


def make_sdist(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "tiny_pkg-1.5.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"tiny_pkg-1.5/{name}")
            info.size = len(content.encode())
            tar.addfile(info, io.BytesIO(content.encode()))
    return path


def put_tree(tree: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    return tree


def use_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter that runs these tests has pytest: nothing is resolved or installed."""
    monkeypatch.setattr("agentgym.envs.swe.runtime.attempt.resolve", lambda *args, **kwargs: ("pytest==0",))
    for module in ("runtime.attempt", "trees"):
        monkeypatch.setattr(
            f"agentgym.envs.swe.{module}.environment", lambda *args, **kwargs: Path(sys.executable)
        )
