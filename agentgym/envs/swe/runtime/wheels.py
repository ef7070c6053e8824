"""Wheels out of source trees: strangers' builds run in a sandbox without network, and never beside agentgym.

Pip only downloads and installs. Whatever has no wheel on the index, and every tree with extension modules or files
that its build generates, is built here.
"""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agentgym.errors import TaskError
from agentgym.sandbox import Sandbox, make_sandbox, python_binds
from agentgym.sandbox.base import Limits

BUILD_S = 900.0
_LIMITS = Limits(wall_s=BUILD_S, memory_mb=4096, output_bytes=1 << 20)

# Run by the interpreter of the build environment. What the back end prints may be anything; the answer is a file.
_HOOKS = """\
import sys
del sys.path[0]  # the tree, in which a json.py may lie
import importlib, json, os
order = json.load(sys.stdin)
sys.path[:0] = [os.path.abspath(path) for path in order["path"]]
module, _, attribute = order["backend"].partition(":")
backend = importlib.import_module(module)
for name in filter(None, attribute.split(".")):
    backend = getattr(backend, name)
if order["hook"] == "requires":
    ask = getattr(backend, "get_requires_for_build_wheel", lambda settings: [])
    answer = list(ask({}))
else:
    os.makedirs(order["target"])
    answer = backend.build_wheel(order["target"], {})
with open(order["answer"], "w") as file:
    json.dump(answer, file)
"""
_ANSWER = ".agentgym-answer.json"
_TARGET = ".agentgym-wheel"

_BUILD_FILES = ("setup.py", "setup.cfg", "pyproject.toml", "meson.build")
_VERSION_VARIABLES = (
    "SETUPTOOLS_SCM_PRETEND_VERSION",  # also read by hatch-vcs and flit-scm
    "PBR_VERSION",
    "PDM_BUILD_SCM_VERSION",
    "POETRY_DYNAMIC_VERSIONING_BYPASS",
    "UV_DYNAMIC_VERSIONING_BYPASS",
)
_LEGACY_BACKEND = "setuptools.build_meta:__legacy__"
_COMPILED = (".c", ".cc", ".cpp", ".cxx", ".pyx", ".rs", ".f90")
_COMPILES = re.compile(
    r"ext_modules|ext-modules|cffi_modules|rust_extensions|mesonpy|maturin|scikit[_-]build|cython|pybind11|nanobind",
    re.I,
)
_GENERATED = re.compile(r"""\b(?:write_to|version_file|version-file|build_file)\s*=\s*["']?([\w./-]+\.py)""")


@dataclass(frozen=True, slots=True)
class BuildSystem:
    """How a tree is built: the back end, what it needs, and where in the tree it lies if it brings its own."""

    backend: str
    requires: tuple[str, ...]
    path: tuple[str, ...] = ()


def build_system(tree: Path) -> BuildSystem:
    """What the tree's pyproject.toml says, or setuptools where it says nothing.

    Raises:
        TaskError: it cannot be read.
    """
    file = tree / "pyproject.toml"
    try:
        table = (
            tomllib.loads(file.read_text(encoding="utf-8")).get("build-system", {}) if file.is_file() else {}
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"its pyproject.toml cannot be read: {error}") from None
    return BuildSystem(
        backend=table.get("build-backend", _LEGACY_BACKEND),
        requires=tuple(table.get("requires", ("setuptools", "wheel"))),
        path=tuple(table.get("backend-path", ())),
    )


def must_be_built(tree: Path) -> str:
    """Why the tree cannot be used as it is; empty if it can."""
    texts = [(tree / name).read_text(errors="replace") for name in _BUILD_FILES if (tree / name).is_file()]
    for text in texts:
        for path in _GENERATED.findall(text):
            if not (tree / path).exists() and not (tree / "src" / path).exists():
                return f"its build generates {path}"
    if any(_COMPILES.search(text) for text in texts):
        compiled = [path for suffix in _COMPILED for path in tree.rglob(f"*{suffix}")]
        if compiled:
            return "it has extension modules"
    return ""


def further_requires(tree: Path, system: BuildSystem, python: Path, *, version: str = "") -> tuple[str, ...]:
    """What the back end asks for besides `BuildSystem.requires`, told by itself; arguments as of `build_wheel`."""
    with _hook_run("requires", tree, system, python, version) as sandbox:
        try:
            return tuple(map(str, json.loads(sandbox.read(_ANSWER, most=1 << 20))))
        except (OSError, ValueError, TypeError) as error:
            raise TaskError(f"its build did not say what it needs: {error}") from None


def build_wheel(tree: Path, system: BuildSystem, python: Path, target: Path, *, version: str = "") -> Path:
    """Build the wheel of a tree in a sandbox without network.

    Args:
        tree: only read.
        system: how.
        python: interpreter of an environment that holds what the build needs.
        target: folder for the wheel; new.
        version: what tools that ask git for the version are told instead.

    Raises:
        TaskError: the build failed; says how it ended.
        InfrastructureError: the sandbox failed.
    """
    with _hook_run("wheel", tree, system, python, version) as sandbox:
        sandbox.download(_TARGET, target)
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise TaskError(f"its build made {len(wheels)} wheels instead of one")
    return wheels[0]


@contextmanager
def _hook_run(hook: str, tree: Path, system: BuildSystem, python: Path, version: str) -> Iterator[Sandbox]:
    """A sandbox in which the back end has answered."""
    env = {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
    if version:
        env |= dict.fromkeys(_VERSION_VARIABLES, version)
    with make_sandbox(limits=_LIMITS, binds=python_binds(str(python))) as sandbox:
        sandbox.upload(tree)
        order = {
            "hook": hook,
            "backend": system.backend,
            "path": system.path,
            "target": f"{sandbox.workspace}/{_TARGET}",
            "answer": f"{sandbox.workspace}/{_ANSWER}",
        }
        result = sandbox.exec([str(python), "-c", _HOOKS], env=env, stdin=json.dumps(order).encode())
        if result.timed_out:
            raise TaskError(f"its build did not end within {BUILD_S:g} s")
        if result.exit_code:
            raise TaskError(f"its build failed: {_reason(result.stderr or result.stdout)}")
        yield sandbox


def _reason(output: str) -> str:
    """The line that says most of why a build failed: a compiler's or Python's error, else the last."""
    lines = [line.strip() for line in output.strip().splitlines() if line.strip()] or ["it said nothing"]
    errors = [line for line in lines if re.search(r"\bfatal error\b|: error:|^\w*(Error|Exception)\b", line)]
    return (errors[0] if errors else lines[-1])[:200]


def take_from_wheel(wheel: Path, tree: Path, folder: str) -> list[str]:
    """Put what a build made into the tree: extension modules, generated modules, metadata; nothing is replaced.

    A module that is there as Python stays Python, so that a change of its source has an effect.

    Args:
        wheel: of the tree.
        tree: where to.
        folder: that the tree is imported from, relative to it.

    Returns:
        The files added, metadata aside, relative to the tree.
    """
    added = []
    root = tree / folder
    with zipfile.ZipFile(wheel) as zipped:
        for name in zipped.namelist():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or name.endswith("/"):
                continue
            top = path.parts[0]
            if top.endswith(".dist-info"):
                _take_metadata(zipped, name, root / (top.split("-")[0] + ".egg-info"))
                continue
            if top.endswith(".data") and path.parts[1:2] in (("purelib",), ("platlib",)):
                path = PurePosixPath(*path.parts[2:])
            place = root / path
            as_python = place.with_name(place.name.partition(".")[0] + ".py")
            if place.exists() or (path.suffix == ".so" and as_python.exists()):
                continue
            if path.suffix in (".so", ".py") and (place.parent.is_dir() or len(path.parts) == 1):
                place.write_bytes(zipped.read(name))
                added.append(place.relative_to(tree).as_posix())
    return sorted(added)


def _take_metadata(zipped: zipfile.ZipFile, name: str, folder: Path) -> None:
    wanted = {"METADATA": "PKG-INFO", "entry_points.txt": "entry_points.txt"}
    file = wanted.get(PurePosixPath(name).name)
    if file and not (folder / file).exists():
        folder.mkdir(exist_ok=True)
        (folder / file).write_bytes(zipped.read(name))
