"""What a change of a project consists of: sources, tests, configuration and documents, told apart by their paths."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from agentgym.verifiers.patches import list_tree, write_entry

SOURCE, TESTS, CONFIG, DOCS = "source", "tests", "configuration", "documents"

# The bounds on what one task asks for.
MOST_SOURCE_FILES = 20
MOST_SOURCE_LINES = 1000  # added and removed
MOST_TEST_LINES = 4000

_TEST_NAME = re.compile(r"test_.*\.py|.*_test\.py|tests?\.py|conftest\.py")
_TEST_FOLDERS = frozenset({"tests", "test"})
_DOC_NAME = re.compile(
    r"(change|history|news|readme|authors|contributors|licen[cs]e|copying|notice|todo|release|whatsnew)[^/]*|.*\.(md|rst|adoc)",
    re.IGNORECASE,
)
_DOC_FOLDERS = frozenset(
    "doc docs changes changelog.d newsfragments news example examples benchmark benchmarks".split()
)
_CONFIG_NAMES = frozenset(
    "setup.py setup.cfg pyproject.toml tox.ini noxfile.py tasks.py fabfile.py pytest.ini PKG-INFO MANIFEST.in"
    " sitecustomize.py usercustomize.py versioneer.py _version.py version.py __about__.py".split()
)
_CONFIG_FOLDERS = re.compile(r"\..*|.*\.(egg-info|dist-info)|scripts?|tools?|ci")
_COMPILED = tuple(".c .cc .cpp .cxx .h .hpp .pyx .pxd .rs .f .f90 .go".split())
# The statement that tells the package's version.
_VERSION_LINE = re.compile(
    rb"^(?:__version__|__version_info__|version_info|VERSION)\b[ \t]*[:=].*$", re.MULTILINE
)


def kind_of(path: str) -> str:
    """`SOURCE`, `TESTS`, `CONFIG` or `DOCS`; files with the version are configuration."""
    *folders, name = path.split("/")
    if _TEST_FOLDERS & {*folders} or _TEST_NAME.fullmatch(name):
        return TESTS
    if name in _CONFIG_NAMES or name.startswith(".") or any(map(_CONFIG_FOLDERS.fullmatch, folders)):
        return CONFIG
    python = name.endswith((".py", ".pyi"))
    if _DOC_FOLDERS & {*folders} or (not python and _DOC_NAME.fullmatch(name)):
        return DOCS
    return SOURCE if python or folders else CONFIG  # other files at the top


def why_unfit(lines: Mapping[str, int]) -> tuple[str, str]:
    """Why a change cannot become a task, in a few words and in full; empty texts if it may.

    Args:
        lines: path of each changed file -> lines added and removed.
    """
    sources = paths_of(lines, SOURCE)
    if not any(path.endswith(".py") for path in sources):
        return "changes no source", ""
    if not any(path.endswith(".py") for path in paths_of(lines, TESTS)):
        return "changes no tests", ""
    compiled = [path for path in sources if path.endswith(_COMPILED)]
    if compiled:  # what is built from it, with the fix in it, would stand in the tree before the fix
        return "changes compiled code", ", ".join(compiled)
    amounts = (
        (len(sources), MOST_SOURCE_FILES, "source files"),
        (sum(lines[path] for path in sources), MOST_SOURCE_LINES, "source lines"),
        (sum(lines[path] for path in paths_of(lines, TESTS)), MOST_TEST_LINES, "test lines"),
    )
    for amount, most, what in amounts:
        if amount > most:
            return "too large", f"changes {amount} {what}; at most {most} make a task"
    return "", ""


def paths_of(paths: Collection[str], kind: str) -> list[str]:
    """Those of the paths that are of a kind, sorted."""
    return sorted(path for path in paths if kind_of(path) == kind)


def in_library(path: str, library: Collection[str]) -> bool:
    """Whether `library`, from `library_files`, has a file of this folder and name; ``__init__.py`` is no name."""
    place = "/".join(path.split("/")[-2:])
    return place in library and not place.endswith("/__init__.py")


def carry(source: Path, target: Path, paths: Collection[str]) -> None:
    """Give these paths of the tree `target` the state they have in the tree `source`."""
    entries = list_tree(source)
    for path in paths:
        write_entry(target, path, entries.get(path))


def keep_version(base: Path, tree: Path, paths: Collection[str]) -> None:
    """Let the version that sources of `tree` tell be that of `base`: a release raises it, and no task asks for that."""
    for path in paths:
        old, new = base / path, tree / path
        if old.is_file() and new.is_file() and not new.is_symlink():
            text = new.read_bytes()
            before = list(_VERSION_LINE.finditer(old.read_bytes()))
            after = list(_VERSION_LINE.finditer(text))
            if len(before) == len(after) == 1:
                new.write_bytes(text[: after[0].start()] + before[0].group() + text[after[0].end() :])
