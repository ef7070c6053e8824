"""The versions that a project locked for its own development."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from agentgym.envs.swe.runtime.names import canonical
from agentgym.errors import TaskError

_TOML_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")


def locked_versions(tree: Path) -> tuple[str, ...]:
    """``NAME==VERSION`` of what the first lock file of the tree names, sorted; of several versions the newest.

    Raises:
        TaskError: the file cannot be read.
    """
    for name in (*_TOML_LOCKS, "Pipfile.lock"):
        path = tree / name
        if path.is_file():
            newest: dict[str, str] = {}
            try:
                for package, version in sorted(_entries(path), key=lambda entry: Version(entry[1])):
                    newest[canonical(package)] = version
            except (ValueError, AttributeError, TypeError, KeyError) as error:
                raise TaskError(f"its {name} cannot be read: {error}") from None
            return tuple(sorted(f"{package}=={version}" for package, version in newest.items()))
    return ()


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".lock" and text.lstrip().startswith("{"):
        data = json.loads(text)
        for section in ("default", "develop"):
            for name, entry in data.get(section, {}).items():
                if "version" in entry:
                    yield name, entry["version"].removeprefix("==")
        return
    data = tomllib.loads(text)
    for entry in (*data.get("package", []), *data.get("packages", [])):
        if "version" in entry:
            yield entry["name"], entry["version"]
