"""What a Python project declares about itself, whatever it is built with. Files are read as data; nothing is run.

Read are PKG-INFO and the egg-info beside it (what a source archive carries), pyproject.toml (the standard tables, then
those of flit, poetry, pdm and hatch), setup.cfg and setup.py. Of each field the first counts that says something.
"""

from __future__ import annotations

import configparser
import email
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from email.message import Message
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from agentgym.envs.swe.runtime.names import canonical, requirement_name
from agentgym.envs.swe.runtime.poetry import poetry_fields
from agentgym.envs.swe.runtime.setup_script import setup_arguments
from agentgym.errors import TaskError
from agentgym.texts import safe_label

_VERSION_LINE = re.compile(
    r"""^(?:__version__|version|VERSION)\s*(?::[^=\n]*)?=\s*["']([^"'\n]+)["']""", re.MULTILINE
)
_VERSION_FILES = ("__init__", "_version", "version", "__about__", "__version__", "about")
_EXTRA_NAME = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_EXTRA_MARKER = re.compile(
    r"""(\band\s+)?\(?\s*extra\s*==\s*["'][^"']+["'](\s+or\s+extra\s*==\s*["'][^"']+["'])*\s*\)?(\s+and\b)?"""
)
_ASKS_GIT = re.compile(
    r"setuptools-scm|hatch-vcs|flit-scm|versioningit|setuptools-git-versioning|pbr|.*dynamic-versioning|versioneer"
    r"|vcs-versioning"
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What is declared; empty where nothing is.

    Attributes:
        name, version, license: of the project.
        python: the range of versions it runs on.
        requirements: what it needs to run, in pip's notation, with markers.
        extras: name of an extra, normalised -> its requirements.
        groups: name of a dependency group, normalised -> its requirements, those of included groups among them.
        entry_points: group -> name -> object.
        backend: the build back end.
        build_requires: what its build needs.
        folders: where its packages lie, relative to the tree, as its build tool is told.
    """

    name: str = ""
    version: str = ""
    license: str = ""
    python: str = ""
    requirements: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    entry_points: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    backend: str = ""
    build_requires: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def version_from_git(self) -> bool:
        """Whether its build asks git for the version."""
        names = (requirement_name(line) for line in self.build_requires)
        return any(_ASKS_GIT.fullmatch(name) for name in names)


def read_metadata(tree: Path) -> Metadata:
    """Read what the project in `tree` declares.

    Raises:
        TaskError: a file cannot be parsed.
    """
    try:
        return _merged(tree)
    except (AttributeError, TypeError) as error:  # a table where there should be a list, or the like
        raise TaskError(
            f"what it declares of itself is not in the form that its build tool reads: {error}"
        ) from None


def _merged(tree: Path) -> Metadata:
    pyproject = read_pyproject(tree)
    tool = pyproject.get("tool", {})
    config = read_config(tree / "setup.cfg")
    parts = [
        _archive_fields(tree),
        _standard_fields(pyproject),
        _flit_fields(tool.get("flit", {}).get("metadata", {})),
        poetry_fields(tool.get("poetry", {})),
        _setup_fields(_setup_cfg_arguments(config)),
        _setup_fields(setup_arguments(tree)),
        _tool_fields(tool, config),
    ]
    merged: dict[str, Any] = {}
    for name in (entry.name for entry in fields(Metadata)):
        values = [part[name] for part in parts if part.get(name)]
        if values and isinstance(values[0], Mapping):
            merged[name] = {key: value for each in reversed(values) for key, value in each.items()}
        elif values:
            merged[name] = values[0]
    if not merged.get("requirements") and not (tree / "PKG-INFO").is_file():
        merged["requirements"] = _dynamic_requirements(tree, pyproject)
    if not merged.get("version"):
        merged["version"] = _version_in_sources(tree, merged.get("name", ""))
    merged["extras"] = _normalised(merged.get("extras", {}))
    merged["groups"] = _normalised(merged.get("groups", {}))
    return Metadata(**merged)


def read_text(path: Path) -> str:
    """A file's text; empty where there is none."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def read_pyproject(tree: Path) -> dict[str, Any]:
    """The tree's pyproject.toml; empty where there is none."""
    try:
        return tomllib.loads(read_text(tree / "pyproject.toml"))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"its pyproject.toml cannot be read: {error}") from None


def read_config(path: Path) -> configparser.ConfigParser:
    """A file in the form of setup.cfg and tox.ini; empty where there is none."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        config.read_string(read_text(path))
    except configparser.Error as error:
        raise TaskError(f"its {path.name} cannot be read: {str(error).splitlines()[0]}") from None
    return config


def lines_of(value: Any) -> tuple[str, ...]:
    """Lines of a text, or the texts of a list; comments and empty ones are left out."""
    lines = value.splitlines() if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    texts = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines if isinstance(line, str))
    return tuple(text for text in texts if text)


def _archive_fields(tree: Path) -> dict[str, Any]:
    info = email.message_from_string(read_text(tree / "PKG-INFO"))
    requirements, extras = _split_extras(info.get_all("Requires-Dist", []))
    folders = [*tree.glob("*.egg-info"), *tree.glob("src/*.egg-info"), *tree.glob("lib/*.egg-info")]
    needs = read_text(folders[0] / "requires.txt") if folders else ""
    if needs and not requirements and not extras:  # an archive of the days when PKG-INFO did not tell
        requirements, extras = _egg_requirements(needs)
    return {
        "name": str(info["Name"] or ""),
        "version": str(info["Version"] or ""),
        "license": _license(info),
        "python": str(info["Requires-Python"] or ""),
        "requirements": requirements,
        "extras": extras,
    }


def _split_extras(lines: Iterable[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Requirements that no extra brings, and those of each extra, without the part of the marker that names it."""
    plain: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in lines:
        names = _EXTRA_NAME.findall(line)
        bare = _EXTRA_MARKER.sub("", line).strip().removesuffix(";").strip()
        for name in names:
            extras.setdefault(name, []).append(
                bare if is_requirement(bare) else line.partition(";")[0].strip()
            )
        if not names:
            plain.append(line)
    return tuple(plain), {name: tuple(entries) for name, entries in extras.items()}


def is_requirement(line: str) -> bool:
    """Whether a line is in pip's notation of a requirement; paths and repositories are not."""
    try:
        Requirement(line)
    except InvalidRequirement:
        return False
    return True


def _egg_requirements(text: str) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The sections of a requires.txt: ``[extra:marker]``, either of which may be empty."""
    plain: list[str] = []
    extras: dict[str, list[str]] = {}
    extra = marker = ""
    for line in lines_of(text):
        if line.startswith("["):
            extra, _, marker = line.strip("[]").partition(":")
        else:
            (extras.setdefault(extra, []) if extra else plain).append(
                line + (f" ; {marker}" if marker else "")
            )
    return tuple(plain), {name: tuple(entries) for name, entries in extras.items()}


def _license(info: Message) -> str:
    lines = [line for line in info.get_all("Classifier", []) if line.startswith("License ::")]
    classified = lines[0].rpartition(" :: ")[2] if lines else ""
    text = str(info["License-Expression"] or info["License"] or classified)
    return (text.splitlines() or [""])[0][:80]


def _standard_fields(pyproject: Mapping[str, Any]) -> dict[str, Any]:
    table = pyproject.get("project", {})
    build = pyproject.get("build-system", {})
    license_ = table.get("license", "")
    scripts = {"console_scripts": table.get("scripts", {}), "gui_scripts": table.get("gui-scripts", {})}
    return {
        "name": str(table.get("name", "")),
        "version": str(table.get("version", "")),
        "license": license_ if isinstance(license_, str) else str(license_.get("text", ""))[:80],
        "python": str(table.get("requires-python", "")),
        "requirements": lines_of(table.get("dependencies")),
        "extras": {name: lines_of(lines) for name, lines in table.get("optional-dependencies", {}).items()},
        "groups": _groups(pyproject.get("dependency-groups", {})),
        "entry_points": {
            key: value for key, value in (scripts | table.get("entry-points", {})).items() if value
        },
        "backend": str(build.get("build-backend", "")),
        "build_requires": lines_of(build.get("requires")),
    }


def _groups(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    by_name = {canonical(name): entries for name, entries in table.items() if isinstance(entries, list)}

    def spelled_out(name: str, above: tuple[str, ...]) -> list[str]:
        lines = []
        for entry in by_name.get(name, []):
            if isinstance(entry, str):
                lines.append(entry)
            elif (
                isinstance(entry, dict)
                and (inner := canonical(str(entry.get("include-group", "")))) not in above
            ):
                lines += spelled_out(inner, (*above, inner))
        return lines

    return {name: tuple(dict.fromkeys(spelled_out(name, (name,)))) for name in by_name}


def _flit_fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """The tables flit had before there were standard ones."""
    return {
        "name": str(table.get("dist-name") or table.get("module", "")),
        "license": str(table.get("license", "")),
        "python": str(table.get("requires-python", "")),
        "requirements": lines_of(table.get("requires")),
        "extras": {name: lines_of(lines) for name, lines in table.get("requires-extra", {}).items()},
    }


def _setup_cfg_arguments(config: configparser.ConfigParser) -> dict[str, Any]:
    """What setup.cfg says, as the arguments of `setup` that it stands for."""

    def section(name: str) -> dict[str, str]:
        return dict(config[name]) if config.has_section(name) else {}

    result: dict[str, Any] = {**section("metadata"), **section("options")}
    result["extras_require"] = section("options.extras_require")
    result["entry_points"] = {
        group: list(lines_of(text)) for group, text in section("options.entry_points").items()
    }
    result["package_dir"] = _pairs(result.get("package_dir", ""))
    return result


def _setup_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Fields out of the arguments of `setup`."""
    text = {key: value for key, value in arguments.items() if isinstance(value, str)}
    extras = arguments.get("extras_require") or {}
    points = arguments.get("entry_points") or {}
    folder = arguments.get("package_dir") or {}
    version = text.get("version", "")
    plain = lines_of(arguments.get("install_requires"))
    found: dict[str, list[str]] = {}
    for name, lines in extras.items() if isinstance(extras, dict) else []:
        extra, _, marker = name.partition(":")
        entries = [line + (f" ; {marker}" if marker else "") for line in lines_of(lines)]
        if extra:
            found.setdefault(extra, []).extend(entries)
        else:
            plain += tuple(entries)
    tests = lines_of(arguments.get("tests_require"))
    return {
        "name": text.get("name", ""),
        "version": "" if re.match(r"(attr|file):", version) else version,
        "license": text.get("license", "").partition("\n")[0][:80],
        "python": text.get("python_requires", ""),
        "requirements": plain,
        "extras": {name: tuple(entries) for name, entries in found.items()}
        | ({"tests-require": tests} if tests else {}),
        "entry_points": {
            group: _pairs(lines) for group, lines in (points.items() if isinstance(points, dict) else [])
        },
        "build_requires": lines_of(arguments.get("setup_requires")),
        "folders": (folder[""],) if isinstance(folder, dict) and isinstance(folder.get(""), str) else (),
    }


def _pairs(lines: Any) -> dict[str, str]:
    split = (line.partition("=") for line in lines_of(lines))
    return {key.strip(): value.strip() for key, _, value in split}


def _tool_fields(tool: Mapping[str, Any], config: configparser.ConfigParser) -> dict[str, Any]:
    """What tools of their own say of groups and of the place of the packages."""
    hatch, pdm, setuptools = (tool.get(name, {}) for name in ("hatch", "pdm", "setuptools"))
    groups: dict[str, tuple[str, ...]] = {}
    for name, lines in {
        **pdm.get("dev-dependencies", {}),
        **tool.get("uv", {}).get("dependency-groups", {}),
    }.items():
        groups[name] = lines_of(lines)
    groups["dev"] = groups.get("dev", ()) + lines_of(tool.get("uv", {}).get("dev-dependencies"))
    for name, table in hatch.get("envs", {}).items():
        wanted = (*lines_of(table.get("dependencies")), *lines_of(table.get("extra-dependencies")))
        if name in ("default", "test", "tests", "hatch-test", "dev"):
            groups["test" if name in ("default", "hatch-test") else name] = (*groups.get(name, ()), *wanted)
    folders: list[str] = list(
        setuptools.get("packages", {}).get("find", {}).get("where", [])
        if isinstance(setuptools.get("packages"), dict)
        else []
    )
    folders += [setuptools.get("package-dir", {}).get("", "")]
    folders += lines_of(config.get("options.packages.find", "where", fallback=""))
    wheel = hatch.get("build", {}).get("targets", {}).get("wheel", {})
    folders += [str(Path(package).parent) for package in wheel.get("packages", [])]
    folders += [str(source) for source in wheel.get("sources", []) if isinstance(source, str)]
    folders += [pdm.get("build", {}).get("package-dir", "")]
    return {
        "groups": {name: lines for name, lines in groups.items() if lines},
        "folders": tuple(dict.fromkeys(folder for folder in folders if folder)),
    }


def _dynamic_requirements(tree: Path, pyproject: Mapping[str, Any]) -> tuple[str, ...]:
    """Run-time requirements that the build would read from a file."""
    table = pyproject.get("tool", {}).get("setuptools", {}).get("dynamic", {}).get("dependencies", {})
    named = table.get("file", []) if isinstance(table, dict) else []
    files = [named] if isinstance(named, str) else [*named]
    return tuple(line for file in files or ["requirements.txt"] for line in lines_of(read_text(tree / file)))


def _version_in_sources(tree: Path, name: str) -> str:
    """The version that a module of the tree assigns; the one nearest to its top."""
    stems = (safe_label(canonical(name)).replace("-", "_"), *_VERSION_FILES)
    folders = ("", "*/", "src/", "src/*/", "lib/*/", "src/*/*/")
    paths = [path for stem in stems for folder in folders for path in tree.glob(f"{folder}{stem}.py")]
    for path in sorted(paths, key=lambda path: (len(path.parts), path)):
        if match := _VERSION_LINE.search(read_text(path)):
            return match.group(1)
    return ""


def _normalised(lists: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {canonical(name): tuple(lines) for name, lines in lists.items()}
