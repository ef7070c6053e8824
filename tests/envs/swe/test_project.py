"""Where a source tree keeps its package and its tests, and on which Python it runs."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from agentgym.envs.swe.runtime import interpreters
from agentgym.envs.swe.runtime.interpreters import Interpreter, find_interpreter, version_range
from agentgym.envs.swe.runtime.project import add_metadata, inspect_project
from agentgym.errors import TaskError
from agentgym.verifiers.patches import list_tree
from tests.envs.swe.tiny_package import put_tree

NAMED = "[project]\nname = 'some-thing'\nversion = '1.5'\n"
TEST = "def test_x():\n    pass\n"


@pytest.mark.parametrize(
    ("files", "targets", "python_path", "sources"),
    [
        (  # the package in src, tests beside it
            ["src/some_thing/__init__.py", "src/some_thing/core.py", "tests/test_core.py"],
            ("tests",),
            "src",
            ("src/some_thing/__init__.py", "src/some_thing/core.py"),
        ),
        (  # a namespace package
            ["src/ns/some/__init__.py", "test/test_x.py"],
            ("test",),
            "src",
            ("src/ns/some/__init__.py",),
        ),
        (  # tests in every part of the package; another package and documentation beside it
            [
                "some_thing/__init__.py",
                "some_thing/tests/test_a.py",
                "some_thing/part/__init__.py",
                "some_thing/part/tests/test_b.py",
                "docs/conf.py",
                "other/__init__.py",
            ],
            ("some_thing/part/tests", "some_thing/tests"),
            ".",
            ("some_thing/__init__.py", "some_thing/part/__init__.py"),
        ),
        (  # a single module with its test file
            ["some_thing.py", "test_some_thing.py", "setup.py"],
            ("test_some_thing.py",),
            ".",
            ("some_thing.py",),
        ),
        (  # test files among the sources
            ["some_thing/__init__.py", "some_thing/core.py", "some_thing/test_core.py"],
            ("some_thing/test_core.py",),
            ".",
            ("some_thing/__init__.py", "some_thing/core.py"),
        ),
        (  # a package of another name than its project
            ["lib/thing/__init__.py", "tests/test_x.py"],
            ("tests",),
            "lib",
            ("lib/thing/__init__.py",),
        ),
    ],
)
def test_layouts(
    tmp_path: Path, files: list[str], targets: tuple[str, ...], python_path: str, sources: tuple[str, ...]
) -> None:
    project = inspect_project(put_tree(tmp_path, {"pyproject.toml": NAMED, **dict.fromkeys(files, "")}))
    assert sorted(project.targets) == sorted(targets)
    assert project.python_path == python_path
    assert project.sources == sources


def test_what_pytest_is_told_counts(tmp_path: Path) -> None:
    config = """
[tool.pytest.ini_options]
testpaths = ["checks", "docs"]
python_files = ["check_*.py"]
asyncio_mode = "auto"
addopts = ["--cov=x", "-m", "not slow", "--import-mode", "importlib", "--ignore=checks/old", "-n2", "-x"]
"""
    files = {
        "pyproject.toml": NAMED + config,
        "some_thing.py": "",
        "checks/check_a.py": TEST,
        "docs/conf.py": "",
    }
    project = inspect_project(put_tree(tmp_path, {**files, "tests/test_other.py": TEST}))
    assert project.targets == ("checks/check_a.py",)
    assert project.arguments == ("-mnot slow", "--import-mode=importlib", "--ignore=checks/old")
    assert project.requirements == ("pytest", "pytest-asyncio")


@pytest.mark.parametrize("place", ["some_thing", "."])
def test_a_place_of_tests_that_holds_the_package_too(tmp_path: Path, place: str) -> None:
    files = {"some_thing/__init__.py": "", "some_thing/core.py": "", "some_thing/tests/test_a.py": TEST}
    config = f"[tool.pytest.ini_options]\ntestpaths = ['{place}']\n"
    project = inspect_project(put_tree(tmp_path, {"pyproject.toml": NAMED + config, **files}))
    assert project.targets == ("some_thing/tests",)
    assert project.sources == ("some_thing/__init__.py", "some_thing/core.py")


def test_a_marker_that_chooses_is_dropped(tmp_path: Path) -> None:
    files = {"pyproject.toml": NAMED, "some_thing.py": "", "tests/test_a.py": TEST}
    project = inspect_project(put_tree(tmp_path, {**files, "pytest.ini": "[pytest]\naddopts = -m unit -v\n"}))
    assert project.arguments == ()


def test_a_folder_named_as_python_s_own_tests(tmp_path: Path) -> None:
    files = {"some_thing.py": "", "test/__init__.py": "", "test/test_a.py": TEST}
    project = inspect_project(put_tree(tmp_path, {"pyproject.toml": NAMED, **files}))
    assert project.arguments == ("--import-mode=importlib",)


def test_a_pytest_plugin_is_loaded(tmp_path: Path) -> None:
    text = NAMED + "[project.entry-points.pytest11]\nsome = 'some_thing.plugin'\n"
    files = {"pyproject.toml": text, "some_thing/plugin.py": "", "tests/test_a.py": TEST}
    assert inspect_project(put_tree(tmp_path, files)).arguments == ("-psome_thing.plugin",)


def test_versions_of_pytest_that_are_too_old_are_left_open(tmp_path: Path) -> None:
    files = {"pyproject.toml": NAMED, "some_thing.py": "", "tests/test_a.py": TEST}
    old = put_tree(tmp_path / "old", {**files, "test-requirements.txt": "pytest==4.6\nsix\n"})
    assert inspect_project(old).requirements == ("pytest", "six")
    new = put_tree(tmp_path / "new", {**files, "test-requirements.txt": "pytest<9\n"})
    assert set(inspect_project(new).requirements) == {"pytest", "pytest<9"}


def test_own_requirements_are_told_apart_and_itself_is_none(tmp_path: Path) -> None:
    text = NAMED + "dependencies = ['six', 'some_thing[x]']\noptional-dependencies.test = ['mock']\n"
    files = {"pyproject.toml": text, "some_thing.py": "", "tests/test_a.py": TEST}
    project = inspect_project(put_tree(tmp_path, files), requirements=("idna",))
    assert project.own_requirements == ("idna", "six")
    assert project.requirements == ("idna", "mock", "pytest", "six")


@pytest.mark.parametrize(
    ("tool", "version"), [("setuptools", "0.0.0"), ("setuptools_scm[toml]>=8", "2.5"), ("hatch-vcs", "2.5")]
)
def test_whose_version_counts(tmp_path: Path, tool: str, version: str) -> None:
    text = f"[build-system]\nrequires = ['{tool}']\n[project]\nname = 'some-thing'\ndynamic = ['version']\n"
    files = {"some_thing.py": "__version__ = '0.0.0'\n", "tests/test_a.py": TEST}
    project = inspect_project(put_tree(tmp_path, {"pyproject.toml": text, **files}), version="2.5")
    assert project.version == version


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"some_thing.py": "", "tests/test_a.py": ""}, "names the project"),
        ({"pyproject.toml": NAMED, "some_thing.py": ""}, "holds no tests"),
        ({"pyproject.toml": NAMED, "tests/test_a.py": ""}, "no Python sources"),
        (
            {
                "pyproject.toml": NAMED + "requires-python = '<3'\n",
                "some_thing.py": "",
                "tests/test_a.py": "",
            },
            "needs Python <3; installed are 3",
        ),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        inspect_project(put_tree(tmp_path, files))


def test_metadata_for_a_tree_that_was_never_built(tmp_path: Path) -> None:
    text = NAMED + "dependencies = ['six']\n[project.scripts]\nsome = 'some_thing:main'\n"
    tree = put_tree(
        tmp_path, {"pyproject.toml": text, "src/some_thing/__init__.py": "", "tests/test_a.py": ""}
    )
    add_metadata(tree, inspect_project(tree))
    info = tree / "src/some_thing.egg-info"
    told = "Metadata-Version: 2.1\nName: some-thing\nVersion: 1.5\nRequires-Dist: six\n"
    assert (info / "PKG-INFO").read_text() == told
    assert (info / "entry_points.txt").read_text() == "[console_scripts]\nsome = some_thing:main\n"
    before = list_tree(tree)
    add_metadata(tree, inspect_project(tree))
    assert list_tree(tree) == before


def test_a_name_is_no_path(tmp_path: Path) -> None:
    named = "[project]\nname = '../../there/x'\ndynamic = ['version']\n"
    (tmp_path / "there").mkdir()
    (tmp_path / "there/x.py").write_text("version = '9'\n")
    tree = put_tree(tmp_path / "in/tree", {"pyproject.toml": named, "some.py": "", "tests/test_x.py": TEST})
    project = inspect_project(tree)
    assert project.version == "0"
    add_metadata(tree, project)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["x.py"]
    assert len([*tree.glob("*.egg-info/PKG-INFO")]) == 1


def test_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Interpreter(Path("/opt/python3.14"), "3.14.1")
    older = Interpreter(Path("/opt/python3.9"), "3.9.2")
    monkeypatch.setattr(interpreters, "installed_interpreters", lambda: (newer, older))
    running = Interpreter(None, platform.python_version())
    assert find_interpreter("") == find_interpreter(">=3.*") == running
    assert find_interpreter("<3.10") == older
    assert find_interpreter(">=3.14") == newer
    with pytest.raises(TaskError, match=r"needs Python >=4; installed are .*3\.14\.1, 3\.9\.2"):
        find_interpreter(">=4")
    with pytest.raises(TaskError, match="expected a range"):
        version_range("three")


def test_installed_interpreters_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "bin/python3.14": 'echo \'["/x/python", "3.14.0"]\'',
        "bin/python3.12": "exit 127",
        ".pyenv/versions/3.12.1/bin/python3.12": 'echo \'["/y/python", "3.12.1"]\'',
    }
    for name, text in answers.items():
        put_tree(tmp_path, {name: f"#!/bin/sh\n{text}\n"})
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    interpreters.installed_interpreters.cache_clear()
    try:
        assert interpreters.installed_interpreters() == (
            Interpreter(Path("/x/python"), "3.14.0"),
            Interpreter(Path("/y/python"), "3.12.1"),
        )
    finally:
        interpreters.installed_interpreters.cache_clear()
