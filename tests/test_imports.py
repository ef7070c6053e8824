"""Who may import whom (docs: the design's layout), what importing the package may load, and how long a file may be."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 420

# A module may import its own layer and those before it. The longest name that fits decides.
LAYERS = [
    """
    agentgym agentgym.core agentgym.episode agentgym.chain agentgym.tools agentgym.spaces agentgym.messages
    agentgym.protocols agentgym.tasks agentgym.errors agentgym.endpoint agentgym.retrieval agentgym.registration
    agentgym.version agentgym.cache agentgym.trajectory.records agentgym.snapshots agentgym.parallel agentgym.texts
    """.split(),
    "agentgym.sandbox agentgym.trajectory".split(),
    "agentgym.verifiers agentgym.monitor agentgym.credit agentgym.delegation".split(),
    "agentgym.wrappers agentgym.envs agentgym.policies".split(),
    "agentgym.rollout agentgym.workers agentgym.gateway agentgym.blackbox agentgym.check".split(),
    "agentgym.cli agentgym.integrations agentgym.__main__".split(),
    ["baselines"],
    ["benchmarks"],
]

# Packages that cost seconds or are not always there, with the modules whose job they are.
HEAVY: dict[str, tuple[str, ...]] = {
    "torch": (
        "agentgym.policies.attention",
        "agentgym.policies.caches",
        "agentgym.policies.hf",
        "agentgym.policies.models",
        "baselines",
        "benchmarks.horizon",
    ),
    "transformers": ("agentgym.policies.hf", "agentgym.policies.models", "baselines"),
    "peft": ("baselines",),
    "vllm": ("agentgym.policies.engines",),
    "docker": ("agentgym.sandbox.docker",),
    "playwright": ("agentgym.verifiers.browser", "agentgym.envs.web"),
    "textworld": ("agentgym.envs.textworld",),
    "jericho": ("agentgym.envs.textworld",),
    "alfworld": ("agentgym.envs.alfworld",),
    "ray": ("agentgym.integrations.ray",),
    "openai": ("agentgym.endpoint",),
    "jinja2": (),
    "matplotlib": ("benchmarks",),
    "scipy": ("benchmarks",),
    "pyarrow": (),
    "datasets": (),
    "unidiff": (),
    "json_repair": (),
    "starlette": ("agentgym.gateway",),
    "uvicorn": ("agentgym.gateway",),
    "rapidfuzz": ("agentgym.envs.webshop",),
    "stable_baselines3": ("baselines", "benchmarks.sb3_textworld"),
    "tree_sitter": ("agentgym.monitor.syntax",),
    "tree_sitter_bash": ("agentgym.monitor.syntax",),
}


@dataclass(frozen=True)
class Import:
    """One import statement's target, resolved to a module of ours where it is one."""

    target: str
    line: int
    at_module_level: bool
    only_for_types: bool


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    files = [f for top in ("agentgym", "baselines", "benchmarks") for f in sorted((ROOT / top).rglob("*.py"))]
    return {
        name_of(path): path for path in files if "templates" not in path.parts and "data" not in path.parts
    }


@cache
def imports_of(name: str) -> tuple[Import, ...]:
    path = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return tuple(_walk(ast.parse(path.read_text(encoding="utf-8")), package, True, False))


def _walk(node: ast.AST, package: str, top: bool, types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, top, types)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                anchor = package.split(".")[: len(package.split(".")) - child.level + 1]
                base = ".".join([*anchor, base] if base else anchor)
            for alias in child.names:
                inner = f"{base}.{alias.name}"
                yield Import(inner if inner in modules() else base, child.lineno, top, types)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _walk(child, package, top and not inside, types or guarded)


def belongs(name: str, owner: str) -> bool:
    return name == owner or name.startswith(owner + ".")


def layer_of(name: str) -> int:
    fitting = [
        (len(owner), layer)
        for layer, owners in enumerate(LAYERS)
        for owner in owners
        if name == owner or (owner != "agentgym" and belongs(name, owner))
    ]
    assert fitting, f"{name} is in no layer: add it to LAYERS in {Path(__file__).name} and to the design"
    return max(fitting)[1]


def ours(name: str) -> bool:
    return name.split(".")[0] in ("agentgym", "baselines", "benchmarks")


every_module = pytest.mark.parametrize("name", sorted(modules()))


@every_module
def test_imports_go_down(name):
    wrong = [
        f"line {i.line} imports {i.target}"
        for i in imports_of(name)
        if ours(i.target) and layer_of(i.target) > layer_of(name)
    ]
    assert not wrong, f"{name} imports a layer above its own: {wrong}"


@every_module
def test_families_and_wrappers_do_not_know_each_other(name):
    def family(module: str) -> str | None:
        parts = module.split(".")
        return parts[2] if parts[:2] == ["agentgym", "envs"] and len(parts) > 2 else None

    for i in imports_of(name):
        if belongs(name, "agentgym.envs"):
            assert not belongs(i.target, "agentgym.wrappers"), f"{name}, line {i.line}"
            if family(i.target) and family(name):
                assert family(i.target) == family(name), f"{name}, line {i.line}: no import between families"
        if belongs(name, "agentgym.wrappers"):
            assert not belongs(i.target, "agentgym.envs"), f"{name}, line {i.line}"


@every_module
def test_the_package_does_not_know_baselines_or_benchmarks(name):
    for i in imports_of(name):
        if belongs(name, "agentgym"):
            assert i.target.split(".")[0] not in ("baselines", "benchmarks", "tests"), (
                f"{name}, line {i.line}"
            )


@every_module
def test_heavy_packages_only_where_they_belong(name):
    for i in imports_of(name):
        package = i.target.split(".")[0]
        if package in HEAVY and i.at_module_level and not i.only_for_types:
            assert any(belongs(name, owner) for owner in HEAVY[package]), (
                f"{name}, line {i.line}: import {package} inside the function that needs it"
            )


@every_module
def test_modules_are_short(name):
    lines = len(modules()[name].read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{name} has {lines} lines; split it"


def test_no_cycles_at_module_level():
    graph = {
        name: {
            i.target
            for i in imports_of(name)
            if i.at_module_level and not i.only_for_types and i.target in modules() and i.target != name
        }
        for name in modules()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def loaded_by(code: str) -> set[str]:
    code += "; import json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import agentgym",
        "import gymnasium, agentgym; gymnasium.make('agentgym/Relay-v0').reset(seed=0)",
    ],
)
def test_importing_loads_nothing_heavy(code):
    loaded = loaded_by(code)
    assert not loaded & (HEAVY.keys() | {"tyro", "rich", "pandas", "httpx", "requests"})


def test_importing_registers_without_importing_environments():
    code = "import agentgym, sys; assert not [n for n in sys.modules if n.startswith('agentgym.envs.')]"
    assert "agentgym" in loaded_by(code)


class TestTheReaderItself:
    """The rules above hold nothing if imports are overlooked."""

    def read(self, source: str, package: str = "agentgym.envs.swe") -> list[tuple[str, bool, bool]]:
        found = _walk(ast.parse(source), package, True, False)
        return [(i.target, i.at_module_level, i.only_for_types) for i in found]

    def test_forms(self):
        assert self.read("import torch.nn as nn, os") == [("torch.nn", True, False), ("os", True, False)]
        assert self.read("from agentgym.envs import relay") == [("agentgym.envs.relay", True, False)]
        assert self.read("from agentgym.core import AgentEnv") == [("agentgym.core", True, False)]
        assert self.read("from .. import relay") == [("agentgym.envs.relay", True, False)]
        assert self.read("from ..relay import WORDS") == [("agentgym.envs.relay", True, False)]
        assert self.read("from . import x") == [("agentgym.envs.swe", True, False)]

    def test_places(self):
        assert self.read("def f():\n    import torch") == [("torch", False, False)]
        assert self.read("class A:\n    import torch") == [("torch", True, False)]
        assert self.read("try:\n    import torch\nexcept ImportError:\n    pass") == [("torch", True, False)]
        assert self.read("if TYPE_CHECKING:\n    import torch") == [("torch", True, True)]

    def test_layers(self):
        assert (
            layer_of("agentgym") == layer_of("agentgym.core") == layer_of("agentgym.trajectory.records") == 0
        )
        assert layer_of("agentgym.trajectory.store") == 1
        assert layer_of("agentgym.envs.swe.env") == 3
        with pytest.raises(AssertionError, match="in no layer"):
            layer_of("agentgym.corelike")
