"""What projects declare, in the notation of each build tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym.envs.swe.runtime.locks import locked_versions
from agentgym.envs.swe.runtime.metadata import read_metadata
from agentgym.envs.swe.runtime.poetry import poetry_fields
from agentgym.envs.swe.runtime.setup_script import setup_arguments
from agentgym.errors import TaskError
from tests.envs.swe.tiny_package import put_tree


def test_a_source_archive(tmp_path: Path) -> None:
    files = {
        "PKG-INFO": "Metadata-Version: 2.4\nName: Some.Thing\nVersion: 2\n"
        "Classifier: License :: OSI Approved :: MIT License\n"
        "Requires-Python: >=3.8\nRequires-Dist: dep>=1\n"
        "Requires-Dist: a; extra == 'test'\n"
        'Requires-Dist: b; python_version > "3" and extra == "test"\n'
        'Requires-Dist: c (>=2) ; (python_version > "3") and (extra == "test")\n'
        'Requires-Dist: d ; extra == "docs" or extra == "test"\n',
        "pyproject.toml": "[project]\nname = 'other'\nversion = '9'\ndependencies = ['never']\n",
    }
    found = read_metadata(put_tree(tmp_path, files))
    assert (found.name, found.version, found.license, found.python) == (
        "Some.Thing",
        "2",
        "MIT License",
        ">=3.8",
    )
    assert found.requirements == ("dep>=1",)
    assert found.extras == {
        "test": ("a", 'b; python_version > "3"', 'c (>=2) ; (python_version > "3")', "d"),
        "docs": ("d",),
    }


def test_an_archive_of_the_days_before_requirements_were_in_pkg_info(tmp_path: Path) -> None:
    files = {
        "PKG-INFO": "Metadata-Version: 1.1\nName: old\nVersion: 1\n",
        "old.egg-info/requires.txt": "six\n\n[:python_version < '3']\nfutures\n\n[test]\nmock>=1\n",
    }
    found = read_metadata(put_tree(tmp_path, files))
    assert found.requirements == ("six", "futures ; python_version < '3'")
    assert found.extras == {"test": ("mock>=1",)}


def test_standard_tables_and_groups(tmp_path: Path) -> None:
    text = """
[build-system]
requires = ["hatchling", "hatch-vcs"]
build-backend = "hatchling.build"
[project]
name = "new"
dynamic = ["version"]
requires-python = ">=3.9"
license = {text = "BSD"}
dependencies = ["click>=8"]
[project.optional-dependencies]
"Test_Extra" = ["x"]
[project.scripts]
new = "new:main"
[project.entry-points."some.group"]
key = "new.plugin:Plugin"
[dependency-groups]
Dev = ["ruff", {include-group = "tests"}]
tests = ["pytest", {include-group = "dev"}]
[tool.hatch.build.targets.wheel]
packages = ["python/new"]
"""
    found = read_metadata(
        put_tree(tmp_path, {"pyproject.toml": text, "src/new/__init__.py": '__version__ = "3.1"\n'})
    )
    assert (found.version, found.license, found.python, found.backend) == (
        "3.1",
        "BSD",
        ">=3.9",
        "hatchling.build",
    )
    assert found.version_from_git
    assert found.extras == {"test-extra": ("x",)}
    assert found.groups == {"dev": ("ruff", "pytest"), "tests": ("pytest", "ruff")}
    assert found.entry_points == {
        "console_scripts": {"new": "new:main"},
        "some.group": {"key": "new.plugin:Plugin"},
    }
    assert found.folders == ("python",)


def test_poetry() -> None:
    found = poetry_fields(
        {
            "name": "poem",
            "version": "1.2.3",
            "dependencies": {
                "python": "^3.8",
                "plain": "*",
                "caret": "^0.2.3",
                "tilde": "~1.4",
                "exact": "1.0",
                "rich": {"version": ">=10,<13", "extras": ["jupyter"], "python": "^3.8"},
                "maybe": {"version": "^2", "optional": True},
                "somewhere": {"git": "https://example.invalid/x.git"},
            },
            "extras": {"more": ["maybe"]},
            "group": {"test": {"dependencies": {"pytest": ">= 7, < 9"}}},
            "dev-dependencies": {"mock": "^4.0 || ^5.0"},
            "packages": [{"include": "poem", "from": "lib"}],
            "scripts": {"poem": "poem:main"},
        }
    )
    assert found["python"] == ">=3.8,<4"
    assert found["requirements"] == (
        "plain",
        "caret>=0.2.3,<0.3",
        "tilde>=1.4,<1.5",
        "exact==1.0",
        "rich[jupyter]>=10,<13 ; (python_version >= '3.8') and (python_version < '4')",
        "somewhere",
    )
    assert found["extras"] == {"more": ("maybe>=2,<3",)}
    assert found["groups"] == {"test": ("pytest>=7,<9",), "dev": ("mock>=5.0,<6",)}
    assert found["folders"] == ("lib",)
    assert found["entry_points"] == {"console_scripts": {"poem": "poem:main"}}


def test_flit_and_setup_cfg(tmp_path: Path) -> None:
    flit = "[tool.flit.metadata]\nmodule='leaf'\nrequires=['attrs']\nrequires-python='>=3'\n"
    flit += "[tool.flit.metadata.requires-extra]\ntest=['mock']\n"
    found = read_metadata(
        put_tree(tmp_path / "flit", {"pyproject.toml": flit, "leaf.py": "__version__ = '0.4'\n"})
    )
    assert (found.name, found.version, found.requirements, found.extras) == (
        "leaf",
        "0.4",
        ("attrs",),
        {"test": ("mock",)},
    )
    cfg = (
        "[metadata]\nname = cfg\nversion = attr: cfg.__version__\nlicense = MIT\n"
        "[options]\npython_requires = >=3.6\npackage_dir =\n    = source\n"
        "install_requires =\n    six  # why\n    idna>=2\n"
        "[options.extras_require]\ntests =\n    mock\n"
        "[options.entry_points]\nconsole_scripts =\n    cfg = cfg:main\n"
    )
    found = read_metadata(put_tree(tmp_path / "cfg", {"setup.cfg": cfg, "source/cfg/__init__.py": ""}))
    assert (found.name, found.version, found.license, found.python) == ("cfg", "", "MIT", ">=3.6")
    assert found.requirements == ("six", "idna>=2")
    assert found.extras == {"tests": ("mock",)}
    assert found.entry_points == {"console_scripts": {"cfg": "cfg:main"}}
    assert found.folders == ("source",)


SETUP = """
import os
from setuptools import setup, find_packages
assert False, "never run"
NAME = "script"
version: str = open("VERSION").read()
needs = ["six"]
if os.name == "nt":
    needs.append("colorama")
needs += ["idna"]
extras = {"test": ["mock"], ":python_version < '3'": ["futures"]}
extras["docs"] = ["sphinx"] + extras["test"]
common = dict(license="MIT", python_requires=">=3.5")
setup(
    name=NAME,
    version=version,
    install_requires=needs + read("more.txt"),
    extras_require=extras,
    tests_require=["pytest-mock"],
    package_dir={"": "src"},
    entry_points={"console_scripts": ["script = script:main"]},
    **common,
)
"""


def test_setup_script_is_read_and_not_run(tmp_path: Path) -> None:
    tree = put_tree(tmp_path, {"setup.py": SETUP, "src/script/version.py": "version = '1.0'\n"})
    assert setup_arguments(tree)["extras_require"]["docs"] == ["sphinx", "mock"]
    found = read_metadata(tree)
    assert (found.name, found.version, found.license, found.python) == ("script", "1.0", "MIT", ">=3.5")
    assert found.requirements == ("six", "idna", "futures ; python_version < '3'")
    assert found.extras == {"test": ("mock",), "docs": ("sphinx", "mock"), "tests-require": ("pytest-mock",)}
    assert found.folders == ("src",)
    assert found.entry_points == {"console_scripts": {"script": "script:main"}}


@pytest.mark.parametrize("script", ["print 'Python 2'\n", "", "from setuptools import setup\nsetup()\n"])
def test_setup_scripts_that_tell_nothing(tmp_path: Path, script: str) -> None:
    assert setup_arguments(put_tree(tmp_path, {"setup.py": script})) == {}


def test_requirements_that_the_build_would_read_from_a_file(tmp_path: Path) -> None:
    text = "[project]\nname='x'\ndynamic=['dependencies']\n"
    text += "[tool.setuptools.dynamic]\ndependencies={file=['needs.in']}\n"
    found = read_metadata(
        put_tree(tmp_path, {"pyproject.toml": text, "needs.in": "# all\nsix\n", "requirements.txt": "no\n"})
    )
    assert found.requirements == ("six",)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"pyproject.toml": "[project"}, "pyproject.toml cannot be read"),
        ({"pyproject.toml": "project = 3\n"}, "not in the form"),
        ({"setup.cfg": "no section\n"}, "setup.cfg cannot be read"),
    ],
)
def test_broken_files_are_told_in_one_line(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    with pytest.raises(TaskError, match=reason) as caught:
        read_metadata(put_tree(tmp_path, files))
    assert "\n" not in str(caught.value)


def test_locked_versions(tmp_path: Path) -> None:
    entries = ['name = "A.b"\nversion = "1.9"', 'name = "a-b"\nversion = "1.10"', 'name = "itself"']
    lock = "".join(f"[[package]]\n{entry}\n" for entry in entries)
    assert locked_versions(put_tree(tmp_path / "uv", {"uv.lock": lock})) == ("a-b==1.10",)
    pipfile = '{"default": {"six": {"version": "==1.0"}}, "develop": {"x": {"git": "y"}}}'
    assert locked_versions(put_tree(tmp_path / "pip", {"Pipfile.lock": pipfile})) == ("six==1.0",)
    assert locked_versions(put_tree(tmp_path / "none", {"x.py": ""})) == ()
    with pytest.raises(TaskError, match=r"poetry\.lock cannot be read"):
        locked_versions(put_tree(tmp_path / "bad", {"poetry.lock": "[[package]\n"}))
