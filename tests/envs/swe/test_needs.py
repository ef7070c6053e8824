"""What tests need: where it is declared, and what of it is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym.envs.swe.runtime.metadata import Metadata
from agentgym.envs.swe.runtime.needs import test_needs as needs_of
from tests.envs.swe.tiny_package import put_tree

NAMED = Metadata(name="Some.Thing", extras={"all": ("numpy", "some-thing[yaml]"), "yaml": ("pyyaml",)})


def test_extras_groups_and_files_for_tests_go_together(tmp_path: Path) -> None:
    metadata = Metadata(
        name="Some.Thing",
        extras={"test": ("mock", "pytest-cov", "some_thing[yaml]"), "yaml": ("pyyaml",), "dev": ("no",)},
        groups={"tests": ("hypothesis", "ruff"), "docs": ("sphinx",)},
    )
    tree = put_tree(
        tmp_path,
        {
            "requirements-test.txt": "# all of them\nsix>=1 ; python_version > '3'  # why\n-r more/other.txt\n"
            "-c limits.txt\n--index-url https://example.invalid\nidna==3.4 \\\n    --hash=sha256:0\n"
            "git+https://example.invalid/x.git#egg=from_git\n-e .[yaml]\n./vendored\n",
            "more/other.txt": "trio\n-r ../requirements-test.txt\n-r gone.txt\n",
            "limits.txt": "trio<1\n",
            "requirements.txt": "no\n",
            "tests/requirements.in": "loose\n",
            "tests/requirements.txt": "loose==1\n",
        },
    )
    found = needs_of(tree, metadata)
    assert found.requirements == [
        "mock",
        "pyyaml",
        "hypothesis",
        "six>=1 ; python_version > '3'",
        "trio",
        "idna==3.4",
        "from_git",
        "loose",
    ]
    assert found.constraints == ["trio<1"]


def test_development_counts_where_tests_have_nothing_of_their_own(tmp_path: Path) -> None:
    tree = put_tree(tmp_path, {"dev-requirements.txt": "attrs\n", "tox.ini": "[testenv]\ndeps = no\n"})
    found = needs_of(
        tree, Metadata(name="x", groups={"dev": ("mock",), "lint": ("no",)}, extras={"test": ("ruff",)})
    )
    assert found.requirements == ["mock", "attrs"]


def test_tox(tmp_path: Path) -> None:
    text = (
        "[base]\ndeps =\n    six\n"
        "[testenv]\nextras = yaml\ndeps =\n    {[base]deps}\n    py27: futures\n    unit-!py315t: no\n"
        "    not a requirement!\n    mock ; python_version > '3'\n    -r{toxinidir}/needs.txt\n    tox\n"
        "[testenv:docs]\ndeps = sphinx\n"
    )
    tree = put_tree(tmp_path, {"tox.ini": text, "needs.txt": "idna\n"})
    assert needs_of(tree, NAMED).requirements == ["six", "mock ; python_version > '3'", "idna", "pyyaml"]


def test_nox(tmp_path: Path) -> None:
    text = """
import nox
PINNED = "x"
@nox.session
def tests(session):
    session.install("mock>=1", "-r", "needs.txt", ".[all]", PINNED, "-e", ".")
    session.run("pytest")
@nox.session
def lint(session):
    session.install("no")
"""
    tree = put_tree(tmp_path, {"noxfile.py": text, "needs.txt": "idna\n"})
    assert needs_of(tree, NAMED).requirements == ["mock>=1", "idna", "numpy", "pyyaml"]


@pytest.mark.parametrize("file", [".github/workflows/ci.yml", ".travis.yml", ".gitlab-ci.yml"])
def test_workflows_are_read_as_data(tmp_path: Path, file: str) -> None:
    text = """
steps:
  - run: pip install "mock>=1" pytest-cov && pip install -U pip; python -m pip install -e .[yaml] 'six<2'
  - run: pip3 install ${{ matrix.extra }} $DEPS --group test idna \\
        trio
  - run: echo `touch ran`
"""
    tree = put_tree(tmp_path, {file: text})
    assert needs_of(tree, NAMED).requirements == ["mock>=1", "pyyaml", "six<2", "idna", "trio"]
    assert not (tmp_path / "ran").exists()


def test_files_outside_the_tree_are_not_read(tmp_path: Path) -> None:
    put_tree(tmp_path, {"outside.txt": "no\n"})
    tree = put_tree(
        tmp_path / "tree", {"test-requirements.txt": f"six\n-r ../outside.txt\n-r {tmp_path}/outside.txt\n"}
    )
    assert needs_of(tree, NAMED).requirements == ["six"]


def test_nothing_declared(tmp_path: Path) -> None:
    assert needs_of(put_tree(tmp_path, {"x.py": ""}), NAMED).requirements == []
