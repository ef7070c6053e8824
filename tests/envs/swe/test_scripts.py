"""What runs inside a task's sandbox is run by the task's interpreter, which may be older than ours."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from agentgym.envs.swe import audit, tools
from agentgym.verifiers.suite import RUNNER

SCRIPTS = {"runner": (RUNNER, (3, 8)), "audit": (audit.PROBE, (3, 6)), "search": (tools._SEARCH, (3, 6))}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_syntax_is_old_enough(name: str) -> None:
    path, version = SCRIPTS[name]
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=version)
    future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    assert not (future and version < (3, 7))
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not methods & {"removeprefix", "removesuffix", "is_relative_to", "orig_argv"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_only_the_standard_library_and_pytest_are_imported(name: str) -> None:
    path: Path = SCRIPTS[name][0]
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names | {"pytest"}
