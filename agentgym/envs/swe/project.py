"""What an unpacked source archive tells about itself: its tests, its sources, where it is imported from, its needs."""

from __future__ import annotations

import email
import re
import sys
import tomllib
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from agentgym.envs.swe.pythonenv import canonical
from agentgym.errors import TaskError

_TEST_FILE = re.compile(r"(test_.*|.*_test|tests?)\.py")
_TEST_FOLDERS = ("tests", "test", "testing")
_NO_SOURCE = frozenset(
    "doc docs example examples benchmark benchmarks script scripts tool tools bin util utils".split()
)
_NO_MODULES = frozenset("setup.py conftest.py noxfile.py tasks.py fabfile.py versioneer.py".split())
_EXTRAS = ("test", "tests", "testing")
_REQUIREMENT_FILES = (
    "requirements-test.txt requirements-tests.txt requirements_test.txt test-requirements.txt test_requirements.txt"
    " requirements/test.txt requirements/tests.txt tests/requirements.txt"
).split()
# Checkers, coverage and parallel runs: many projects ask for them, no test needs them (their options are not used).
_NOT_NEEDED = re.compile(
    r"(tox|nox|ruff|mypy|black|isort|flake8.*|pylint|pyright|pre-commit|sphinx.*|twine|build|wheel|codecov|coveralls"
    r"|coverage|types-.*|pytest-(cov|xdist|black|ruff|mypy|enabler|checkdocs|flake8|perf|ignore-flaky|home|randomly"
    r"|sugar|timeout|rerunfailures))"
)


@dataclass(frozen=True, slots=True)
class Project:
    """A source tree, understood.

    Attributes:
        name, version, license: from its PKG-INFO or pyproject.toml.
        python: version range it declares.
        targets: folders or files that hold its tests.
        python_path: folder it is imported from, relative to the tree.
        sources: files that make up the package, tests excluded, sorted.
        requirements: what it and its tests need, not pinned, in pip's notation.
    """

    name: str
    version: str
    license: str
    python: str
    targets: tuple[str, ...]
    python_path: str
    sources: tuple[str, ...]
    requirements: tuple[str, ...]


def inspect_project(
    tree: Path, *, test_targets: tuple[str, ...] = (), requirements: tuple[str, ...] = ()
) -> Project:
    """Find out what is needed to run the tests of a source tree.

    Args:
        tree: the unpacked source archive.
        test_targets: instead of looking for the tests.
        requirements: in addition to what the project declares.

    Raises:
        TaskError: it has no tests, no name or no sources.
    """
    pyproject = _pyproject(tree)
    table = pyproject.get("project", {})
    info = email.message_from_string(_read(tree / "PKG-INFO"))
    name = str(info["Name"] or table.get("name") or "")
    if not name:
        raise TaskError("expected a source archive with a PKG-INFO or pyproject.toml that names the project")
    root = "src" if any((tree / "src").glob("*/*.py")) or any((tree / "src").glob("*.py")) else "."
    packages = _packages(tree / root, name)
    targets = test_targets or _find_tests(tree, packages)
    for target in targets:
        if not (tree / target).exists():
            raise TaskError(f"{name}: there is no {target!r} in the source archive to test with")
    if not targets:
        raise TaskError(f"{name}: its source archive holds no tests; choose another project")
    sources = [[*package.rglob("*.py")] if package.is_dir() else [package] for package in packages]
    names = sorted(path.relative_to(tree).as_posix() for paths in sources for path in paths)
    kept = tuple(path for path in names if not _is_test(path, targets))
    if not kept:
        raise TaskError(f"{name}: no Python sources beside the tests were found")
    return Project(
        name=name,
        version=str(info["Version"] or table.get("version") or "0"),
        license=_license(info, table),
        python=str(info["Requires-Python"] or table.get("requires-python") or ""),
        targets=targets,
        python_path=root,
        sources=kept,
        requirements=tuple(sorted({*_requirements(tree, name, info, pyproject), *requirements, "pytest"})),
    )


def add_metadata(tree: Path, project: Project) -> None:
    """Let the tree answer `importlib.metadata` as if it were installed, where its build tool left no egg-info."""
    root = tree / project.python_path
    if any(root.glob("*.egg-info")) or not (tree / "PKG-INFO").is_file():
        return
    folder = root / f"{project.name.replace('-', '_')}.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_bytes((tree / "PKG-INFO").read_bytes())
    lines: list[str] = []
    table = _pyproject(tree).get("project", {})
    groups = {"console_scripts": table.get("scripts", {}), **table.get("entry-points", {})}
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _pyproject(tree: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read(tree / "pyproject.toml"))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"its pyproject.toml cannot be read: {error}") from None


def _license(info: Message, table: dict[str, Any]) -> str:
    lines = [line for line in info.get_all("Classifier", []) if line.startswith("License ::")]
    classified = lines[0].rpartition(" :: ")[2] if lines else ""
    text = str(info["License-Expression"] or info["License"] or classified or table.get("license") or "")
    return (text.splitlines() or [""])[0][:80]


def _packages(root: Path, name: str) -> list[Path]:
    """The importable things in `root` that are the project; those that bear its name, if any does."""
    found = []
    for path in sorted(root.iterdir()):
        if path.is_dir():
            fit = any(path.glob("*.py")) and path.name not in (*_TEST_FOLDERS, *_NO_SOURCE)
        else:
            test = path.name in _NO_MODULES or _TEST_FILE.fullmatch(path.name)
            fit = path.suffix == ".py" and not test
        if fit and path.stem.isidentifier():
            found.append(path)
    named = [path for path in found if canonical(path.stem) == canonical(name)]
    return named or found


def _find_tests(tree: Path, packages: list[Path]) -> tuple[str, ...]:
    """Folders named for tests, at the top or inside the package; else test files at the top."""
    for place in (tree, *packages, tree / "src"):
        for folder in _TEST_FOLDERS:
            path = place / folder
            if path.is_dir() and any(_TEST_FILE.fullmatch(file.name) for file in path.rglob("*.py")):
                return (path.relative_to(tree).as_posix(),)
    return tuple(sorted(file.name for file in tree.glob("*.py") if _TEST_FILE.fullmatch(file.name)))


def _is_test(path: str, targets: tuple[str, ...]) -> bool:
    parts = path.split("/")
    inside = any((path + "/").startswith(target + "/") for target in targets)
    return inside or bool(set(parts[:-1]) & {"tests", "test"}) or parts[-1] in ("conftest.py", "_version.py")


def _requirements(tree: Path, name: str, info: Message, pyproject: dict[str, Any]) -> set[str]:
    found: list[str] = []
    extras = [extra for extra in info.get_all("Provides-Extra", []) if canonical(extra) in _EXTRAS]
    for line in info.get_all("Requires-Dist", []):
        wanted = "|".join(extras) or "-"
        bare = re.sub(rf"""(and\s+)?\(?extra\s*==\s*["']({wanted})["']\)?(\s+and)?""", "", line)
        if "extra" not in bare:
            found.append(bare.strip().removesuffix(";").strip())
    groups = pyproject.get("dependency-groups", {})
    if isinstance(groups, dict):
        for group in _EXTRAS:
            found += [entry for entry in groups.get(group, []) if isinstance(entry, str)]
    for file in _REQUIREMENT_FILES:
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in _read(tree / file).splitlines()]
        found += [line for line in lines if line and not line.startswith("-")]
    result = set()
    for requirement in found:
        bare_name = canonical(re.split(r"[\s\[<>=!~;(@]", requirement, maxsplit=1)[0])
        if bare_name != canonical(name) and not _NOT_NEEDED.fullmatch(bare_name):
            result.add(requirement)
    return result


def library_files() -> set[str]:
    """``folder/file.py`` of all Python files that come with the interpreter, its pip with all it carries included.

    The interpreter is visible in the policy's sandbox: a bug in one of these files could be undone by copying.
    """
    return {f"{path.parent.name}/{path.name}" for path in Path(sys.base_prefix, "lib").rglob("*.py")}
