"""What the tests of a project need besides the project, as far as its files say. They are read as data, never run.

Asked in turn, until one says something: the extras, dependency groups and requirements files for tests; those for
development; tox; nox; the workflows of its continuous integration.
"""

from __future__ import annotations

import ast
import configparser
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agentgym.envs.swe.runtime.metadata import (
    Metadata,
    is_requirement,
    lines_of,
    read_config,
    read_pyproject,
    read_text,
)
from agentgym.envs.swe.runtime.names import canonical, requirement_name

_TEST_NAMES = frozenset("test tests testing unittest unittests tests-require pytest test-deps".split())
_DEVELOPMENT_NAMES = frozenset("dev develop development ci devel".split())
_REQUIREMENT_FILES = ("*requirements*", "requirements/*", "*/requirements*", "*requires*", "requirements*/*")
_WORKFLOWS = (
    ".github/workflows/*.yml .github/workflows/*.yaml .travis.yml .gitlab-ci.yml .circleci/config.yml"
    " azure-pipelines.yml appveyor.yml .appveyor.yml"
).split()
_WITH_VALUE = frozenset(
    "-i --index-url --extra-index-url -f --find-links --trusted-host --progress-bar -t --target".split()
)
# Checkers, coverage and parallel runs: many projects ask for them, no test needs them (their options are not used).
_NOT_NEEDED = re.compile(
    r"(pip|tox.*|nox|ruff|mypy|black|isort|flake8.*|pylint|pyright|pre-commit|sphinx.*|furo|twine|build|wheel|codecov"
    r"|coveralls|coverage|coverage-enable-subprocess|types-.*|.*-stubs|pytest-(cov|xdist|black|ruff|mypy|enabler"
    r"|checkdocs|flake8|perf|ignore-flaky|home|randomly|sugar|timeout|rerunfailures|pretty|clarity|instafail|html"
    r"|codspeed|github-actions-annotate-failures|split|mypy-plugins|reportlog)|bump.*version|towncrier|mkdocs.*)"
)


@dataclass(slots=True)
class Needs:
    """Requirements and constraints in pip's notation."""

    requirements: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)

    def add(self, other: Needs) -> None:
        """Take over what another one holds."""
        self.requirements += other.requirements
        self.constraints += other.constraints


def test_needs(tree: Path, metadata: Metadata) -> Needs:
    """What the tests in `tree` need, without what only checkers and builds use, and without the project itself."""
    reader = _Reader(tree, metadata)
    sources: tuple[Callable[[], Needs], ...] = (
        lambda: reader.declared(_TEST_NAMES),
        lambda: reader.declared(_DEVELOPMENT_NAMES),
        reader.tox,
        reader.nox,
        reader.workflows,
    )
    for source in sources:
        found = source()
        wanted = [line for line in found.requirements if not _NOT_NEEDED.fullmatch(requirement_name(line))]
        if wanted:
            return Needs(list(dict.fromkeys(wanted)), list(dict.fromkeys(found.constraints)))
    return Needs()


class _Reader:
    """Reads the files of one tree."""

    def __init__(self, tree: Path, metadata: Metadata) -> None:
        self.tree = tree
        self.metadata = metadata

    def declared(self, names: frozenset[str]) -> Needs:
        """Extras, groups and requirements files of these names."""
        needs = Needs()
        for lists in (self.metadata.extras, self.metadata.groups):
            for name in sorted(names & lists.keys()):
                needs.add(self.lines(lists[name]))
        for path in self._files(names):
            needs.add(self.file(path, frozenset()))
        return needs

    def _files(self, names: frozenset[str]) -> list[Path]:
        """Requirements files with one of the names among the words of their path; of .in and .txt the looser one."""
        found: dict[Path, Path] = {}
        for pattern in _REQUIREMENT_FILES:
            for path in sorted(self.tree.glob(pattern)):
                words = set(re.split(r"[^a-z]+", path.relative_to(self.tree).as_posix().lower()))
                if path.suffix in (".in", ".txt") and names & words:
                    found.setdefault(path.with_suffix(""), path)  # .in sorts first
        return list(found.values())

    def file(self, path: Path, above: frozenset[Path]) -> Needs:
        """A requirements file and those it includes."""
        needs = Needs()
        if path in above or not path.is_file():
            return needs
        text = re.sub(r"\\\n", " ", read_text(path))
        for line in lines_of(text):
            if line.startswith("-"):
                needs.add(self.words(_split(line), above | {path}, path.parent))
            else:
                needs.add(self.lines([re.sub(r"\s+--\w.*", "", line)]))
        return needs

    def lines(self, lines: Iterable[str]) -> Needs:
        """Requirements; of the project itself, those of the extras named."""
        needs = Needs()
        for line in lines:
            if requirement_name(line) == canonical(self.metadata.name) or line.startswith("."):
                needs.add(self._extras(line, set()))
            elif egg := re.search(r"[#&]egg=([\w.-]+)", line):
                needs.requirements.append(egg.group(1))
            elif is_requirement(line):
                needs.requirements.append(line)
        return needs

    def _extras(self, line: str, seen: set[str]) -> Needs:
        needs = Needs()
        match = re.match(r"[^\[;]*\[([^\]]*)\]", line)
        for name in map(canonical, map(str.strip, match.group(1).split(",") if match else [])):
            if name in seen:
                continue
            seen.add(name)
            for inner in self.metadata.extras.get(name, ()):
                itself = requirement_name(inner) == canonical(self.metadata.name)
                needs.add(self._extras(inner, seen) if itself else Needs([inner]))
        return needs

    def words(
        self, words: Sequence[str], above: frozenset[Path] = frozenset(), folder: Path | None = None
    ) -> Needs:
        """Arguments of ``pip install``; files are looked for beside `folder`'s, and at the top."""
        needs = Needs()
        rest = iter(words)
        for word in rest:
            option, _, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:])
            if not word.startswith("-"):
                needs.add(self.lines([word]))
            elif option in ("-r", "--requirement", "-c", "--constraint"):
                path = self._find(value or next(rest, ""), folder)
                inner = self.file(path, above) if path else Needs()
                if option in ("-c", "--constraint"):
                    inner = Needs([], [*inner.requirements, *inner.constraints])
                needs.add(inner)
            elif option in ("-e", "--editable"):
                needs.add(self.lines([value or next(rest, "")]))
            elif option == "--group":
                name = canonical((value or next(rest, "")).rpartition(":")[2])
                needs.add(self.lines(self.metadata.groups.get(name, ())))
            elif option in _WITH_VALUE and not value:
                next(rest, "")
        return needs

    def _find(self, name: str, folder: Path | None) -> Path | None:
        name = re.sub(r"^\{(toxinidir|tox_root)\}/|^\$\{?\w+\}?/", "", name)
        if not name or PurePosixPath(name).is_absolute():
            return None
        for place in (folder or self.tree, self.tree):
            path = (place / name).resolve()
            if path.is_file() and path.is_relative_to(self.tree.resolve()):
                return path
        return None

    def tox(self) -> Needs:
        """Dependencies of tox's environment for tests."""
        legacy = read_pyproject(self.tree).get("tool", {}).get("tox", {}).get("legacy_tox_ini", "")
        config = read_config(self.tree / "tox.ini")
        if legacy and not config.has_section("testenv"):
            config.read_string(legacy)
        needs = Needs()
        for section in ("testenv", "testenv:tests", "testenv:test", "testenv:py"):
            if not config.has_section(section):
                continue
            table = config[section]
            for line in lines_of(self._substituted(config, table.get("deps", ""))):
                if not re.match(r"[\w{},.!-]+:(\s|$)", line):  # of some versions only
                    needs.add(self.words(_split(line)) if line.startswith("-") else self.lines([line]))
            for name in re.split(r"[,\s]+", table.get("extras", "")):
                needs.add(self.lines(self.metadata.extras.get(canonical(name), ())))
            for name in re.split(r"[,\s]+", table.get("dependency_groups", "")):
                needs.add(self.lines(self.metadata.groups.get(canonical(name), ())))
        return needs

    @staticmethod
    def _substituted(config: configparser.ConfigParser, text: str) -> str:
        """The text with what it takes over from other sections."""

        def value(match: re.Match[str]) -> str:
            return config.get(match.group(1), match.group(2), fallback="")

        return re.sub(r"\{\[([^\]]+)\](\w+)\}", value, text)

    def nox(self) -> Needs:
        """What the sessions for tests of a noxfile install."""
        needs = Needs()
        try:
            module = ast.parse(read_text(self.tree / "noxfile.py"))
        except (SyntaxError, ValueError):
            return needs
        for function in module.body:
            if not isinstance(function, ast.FunctionDef) or not re.search("test|unit", function.name):
                continue
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "install"
                ):
                    needs.add(
                        self.words(
                            [
                                arg.value
                                for arg in node.args
                                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                            ]
                        )
                    )
        return needs

    def workflows(self) -> Needs:
        """What the files of continuous integration install with pip."""
        needs = Needs()
        for pattern in _WORKFLOWS:
            for path in sorted(self.tree.glob(pattern)):
                text = re.sub(r"\\\n", " ", read_text(path))
                for command in re.findall(r"\bpip3? install ([^\n&;|]*)", text):
                    words = _split(re.sub(r"\$\{\{.*?\}\}", "$", command))
                    needs.add(self.words([word for word in words if not re.search("[$%`{]|^[0-9]?>", word)]))
        return needs


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.replace('"', " ").replace("'", " ").split()
