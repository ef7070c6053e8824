"""What a source tree holds: its tests, its sources, where it is imported from, what it needs, the Python it runs on."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from agentgym.envs.swe.runtime.interpreters import Interpreter, find_interpreter
from agentgym.envs.swe.runtime.metadata import (
    Metadata,
    lines_of,
    read_config,
    read_metadata,
    read_pyproject,
    read_text,
)
from agentgym.envs.swe.runtime.names import canonical, requirement_name
from agentgym.envs.swe.runtime.needs import test_needs
from agentgym.errors import TaskError
from agentgym.texts import safe_label

_TEST_FILE = re.compile(r"(test_.*|.*_test|tests?)\.py")
_TEST_FOLDERS = ("tests", "test", "testing")
_NO_SOURCE = frozenset(
    "doc docs example examples benchmark benchmarks script scripts tool tools bin util utils".split()
)
_NO_MODULES = frozenset("setup.py conftest.py noxfile.py tasks.py fabfile.py versioneer.py".split())
_USABLE_PYTESTS = ("7.4.4", "8.0.0", "8.4.2", "9.0.0")
# Settings of pytest that nothing reads but the plugin.
_PLUGIN_SETTINGS = {
    "asyncio_mode": "pytest-asyncio",
    "asyncio_default_fixture_loop_scope": "pytest-asyncio",
    "trio_mode": "pytest-trio",
    "anyio_mode": "anyio",
    "DJANGO_SETTINGS_MODULE": "pytest-django",
    "env": "pytest-env",
    "qt_api": "pytest-qt",
    "mock_use_standalone_module": "pytest-mock",
}
# Options of a project's own pytest command line without which its tests are not the same; the others are dropped.
_KEPT_OPTIONS = frozenset(
    "--asyncio-mode --anyio-mode --import-mode --ignore --ignore-glob --deselect --ds --dc -m".split()
)


@dataclass(frozen=True, slots=True)
class Project:
    """A source tree, understood.

    Attributes:
        name, version, license: as it declares them.
        python: version range it declares.
        targets: folders or files that hold its tests.
        python_path: folder it is imported from, relative to the tree.
        sources: files that make up the package, tests excluded, sorted.
        requirements: what it and its tests need, not pinned, in pip's notation.
        own_requirements: those of them that it needs itself to run, and those that were asked for.
        constraints: on the versions, where its requirements files name such.
        arguments: what its tests need of its own pytest command line.
        interpreter: a Python that it runs on.
        metadata: what it declares.
    """

    name: str
    version: str
    license: str
    python: str
    targets: tuple[str, ...]
    python_path: str
    sources: tuple[str, ...]
    requirements: tuple[str, ...]
    own_requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    arguments: tuple[str, ...]
    interpreter: Interpreter
    metadata: Metadata


def inspect_project(
    tree: Path, *, test_targets: tuple[str, ...] = (), requirements: tuple[str, ...] = (), version: str = ""
) -> Project:
    """Find out what is needed to run the tests of a source tree.

    Args:
        tree: the unpacked source archive, or a checkout.
        test_targets: instead of looking for the tests.
        requirements: in addition to what the project declares.
        version: where only its git tags tell.

    Raises:
        TaskError: it has no tests, no name or no sources, or no Python here fits.
    """
    metadata = read_metadata(tree)
    name = metadata.name
    if not name:
        raise TaskError("expected a pyproject.toml, setup.cfg, setup.py or PKG-INFO that names the project")
    interpreter = find_interpreter(metadata.python)
    root = _import_folder(tree, metadata)
    packages = _packages(tree / root, name)
    options = pytest_options(tree)
    targets = test_targets or _find_tests(tree, packages, options)
    for target in targets:
        if not (tree / target).exists():
            raise TaskError(f"{name}: there is no {target!r} in the source archive to test with")
    if not targets:
        raise TaskError(
            f"{name}: it holds no tests (source archives often leave them out: try its git repository)"
        )
    sources = [[*package.rglob("*.py")] if package.is_dir() else [package] for package in packages]
    names = sorted(path.relative_to(tree).as_posix() for paths in sources for path in paths)
    kept = tuple(path for path in names if not _is_test(path, targets))
    if not kept:
        raise TaskError(f"{name}: no Python sources beside the tests were found")
    needs = test_needs(tree, metadata)
    own = [line for line in metadata.requirements if requirement_name(line) != canonical(name)]
    own += requirements
    plugins = [plugin for setting, plugin in _PLUGIN_SETTINGS.items() if setting in options]
    return Project(
        name=name,
        version=(version if metadata.version_from_git else "") or metadata.version or version or "0",
        license=metadata.license,
        python=metadata.python,
        targets=targets,
        python_path=root,
        sources=kept,
        requirements=tuple(sorted({*own, *map(_with_usable_pytest, needs.requirements), *plugins, "pytest"})),
        own_requirements=tuple(sorted(own)),
        constraints=tuple(needs.constraints),
        arguments=_arguments(tree, targets, options, metadata),
        interpreter=interpreter,
        metadata=metadata,
    )


def add_metadata(tree: Path, project: Project) -> None:
    """Let the tree answer `importlib.metadata` as if it were installed, where its build tool left no egg-info."""
    root = tree / project.python_path
    if any(root.glob("*.egg-info")):
        return
    folder = root / f"{safe_label(project.name.replace('-', '_'))}.egg-info"
    folder.mkdir()
    metadata = project.metadata
    told = read_text(tree / "PKG-INFO")
    if not told:
        lines = ["Metadata-Version: 2.1", f"Name: {project.name}", f"Version: {project.version}"]
        told = "\n".join([*lines, *(f"Requires-Dist: {line}" for line in metadata.requirements), ""])
    (folder / "PKG-INFO").write_text(told, encoding="utf-8")
    lines = []
    for group, entries in metadata.entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def pytest_options(tree: Path) -> dict[str, str]:
    """The project's own configuration of pytest, from the file that pytest would choose, as texts."""
    for name in ("pytest.ini", ".pytest.ini"):
        if (tree / name).is_file():
            return _section(tree / name, "pytest")
    table = read_pyproject(tree).get("tool", {}).get("pytest", {})
    if table:
        options: dict[str, Any] = table.get("ini_options", table)
        return {key: _as_text(value) for key, value in options.items()}
    return _section(tree / "tox.ini", "pytest") or _section(tree / "setup.cfg", "tool:pytest")


def _section(path: Path, name: str) -> dict[str, str]:
    config = read_config(path)
    return dict(config[name]) if config.has_section(name) else {}


def _as_text(value: Any) -> str:
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def _arguments(
    tree: Path, targets: Sequence[str], options: Mapping[str, str], metadata: Metadata
) -> tuple[str, ...]:
    """What the tests need of pytest's command line.

    That is some of their own; what the project itself would bring to pytest if it were installed; and another import
    mode where a folder bears the name of Python's own `test`.
    """
    kept = [f"-p{plugin}" for plugin in metadata.entry_points.get("pytest11", {}).values()]
    words = iter(shlex.split(options.get("addopts", "")))
    for word in words:
        option, equals, value = (
            word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        )
        if option in _KEPT_OPTIONS:
            value = value if equals else next(words, "")
            # Others would leave out what is put among the tests
            if option != "-m" or value.startswith("not "):
                kept.append(f"{option}={value}" if option.startswith("--") else option + value)
    if (tree / "test" / "__init__.py").is_file() and any(
        target.split("/")[0] == "test" for target in targets
    ):
        kept.append("--import-mode=importlib")
    return tuple(kept)


def _import_folder(tree: Path, metadata: Metadata) -> str:
    """The folder that packages are imported from: where the build tool is told to look, else src, else the top."""
    at_the_top = any(tree.glob("*/__init__.py"))
    for folder in (*metadata.folders, "src", *(() if at_the_top else ("lib",))):
        place: Path = (tree / folder).resolve()
        if not place.is_relative_to(tree.resolve()):
            continue
        if any(any(place.glob(pattern)) for pattern in ("*.py", "*/*.py", "*/*/__init__.py")):
            return place.relative_to(tree.resolve()).as_posix()
    return "."


def _packages(root: Path, name: str) -> list[Path]:
    """The importable things in `root` that are the project; those that it says are, or bear its name, if any do."""
    found = []
    for path in sorted(root.iterdir()):
        if path.is_dir():
            holds = (
                any(path.glob("*.py")) or any(path.glob("*/__init__.py")) or any(path.glob("*/*/__init__.py"))
            )
            fit = holds and path.name not in (*_TEST_FOLDERS, *_NO_SOURCE)
        else:
            test = path.name in _NO_MODULES or _TEST_FILE.fullmatch(path.name)
            fit = path.suffix == ".py" and not test
        if fit and path.stem.isidentifier():
            found.append(path)
    listed = {
        line.partition("/")[0]
        for file in root.glob("*.egg-info/top_level.txt")
        for line in lines_of(read_text(file))
    }
    chosen = [path for path in found if path.stem in listed]
    named = [path for path in found if canonical(path.stem) == canonical(name)]
    return chosen or named or found


def _find_tests(tree: Path, packages: list[Path], options: Mapping[str, str]) -> tuple[str, ...]:
    """The files or folders for pytest.

    Where it is told that test files have unusual names, those files: a folder of them would show what was added to it
    by its usual name.
    """
    patterns = shlex.split(options.get("python_files", "test_*.py"))
    places = _test_places(tree, packages, shlex.split(options.get("testpaths", "")), patterns)
    if "test_*.py" in patterns:
        return places
    files = [file for place in places for pattern in patterns for file in (tree / place).rglob(pattern)]
    return tuple(sorted({file.relative_to(tree).as_posix() for file in files})) or places


def _test_places(
    tree: Path, packages: list[Path], configured: Sequence[str], patterns: Sequence[str]
) -> tuple[str, ...]:
    """Where pytest is told to look, else a folder of tests at the top, else all those in the package, else files.

    A place that holds the package itself tells nothing: what lies in a place of tests counts as no source.
    """
    told = [
        place
        for path in configured
        for place in (tree.glob(path) if re.search(r"[*?[]", path) else [tree / path])
        if _holds_tests(place, patterns) and not any(package.is_relative_to(place) for package in packages)
    ]
    if told:
        return tuple(sorted({place.relative_to(tree).as_posix() for place in told}))
    for folder in _TEST_FOLDERS:
        if _holds_tests(tree / folder):
            return (folder,)
    inside = [
        folder
        for place in (*(package for package in packages if package.is_dir()), tree / "src")
        for name in _TEST_FOLDERS
        for folder in sorted(place.rglob(name))
        if _holds_tests(folder)
    ]
    outer = [
        folder
        for folder in dict.fromkeys(inside)
        if not any(folder.is_relative_to(o) for o in inside if o != folder)
    ]
    if outer:
        return tuple(folder.relative_to(tree).as_posix() for folder in outer)
    files = [*tree.glob("*.py"), *(file for package in packages for file in package.rglob("*.py"))]
    return tuple(
        sorted({file.relative_to(tree).as_posix() for file in files if _TEST_FILE.fullmatch(file.name)})
    )


def _holds_tests(place: Path, patterns: Sequence[str] = ()) -> bool:
    if place.is_file():
        return place.suffix == ".py"
    named = (file.name for file in place.rglob("*.py"))
    return any(
        _TEST_FILE.fullmatch(name) or any(fnmatch(name, pattern) for pattern in patterns) for name in named
    )


def _is_test(path: str, targets: tuple[str, ...]) -> bool:
    parts = path.split("/")
    inside = any((path + "/").startswith(target + "/") for target in targets)
    return inside or bool(set(parts[:-1]) & {"tests", "test"}) or parts[-1] in ("conftest.py", "_version.py")


def _with_usable_pytest(line: str) -> str:
    """The requirement; for pytest itself without its range, where that leaves only versions too old for our runner."""
    if requirement_name(line) != "pytest":
        return line
    try:
        specifier = Requirement(line).specifier
    except InvalidRequirement:
        return "pytest"
    return line if any(specifier.contains(version) for version in _USABLE_PYTESTS) else "pytest"


def library_files() -> set[str]:
    """``folder/file.py`` of all Python files that come with the interpreter, its pip with all it carries included.

    The interpreter is visible in the policy's sandbox: a bug in one of these files could be undone by copying.
    """
    return {f"{path.parent.name}/{path.name}" for path in Path(sys.base_prefix, "lib").rglob("*.py")}
