"""Poetry's tables of pyproject.toml, in the words of the standard ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBER = re.compile(r"\d+")
_CLAUSE = re.compile(r"(\^|~=|~|===?|!=|<=|>=|<|>)?\s*([\w.*+!-]+)")


def poetry_fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Metadata` that ``[tool.poetry]`` declares."""
    dependencies = dict(table.get("dependencies", {}))
    python = dependencies.pop("python", "")
    groups = {name: group.get("dependencies", {}) for name, group in table.get("group", {}).items()}
    if "dev-dependencies" in table:
        groups["dev"] = {**groups.get("dev", {}), **table["dev-dependencies"]}
    scripts = {name: entry for name, entry in table.get("scripts", {}).items() if isinstance(entry, str)}
    return {
        "name": str(table.get("name", "")),
        "version": str(table.get("version", "")).replace("0.0.0", ""),  # stands for: the build asks git
        "license": str(table.get("license", "")),
        "python": ",".join(_range(python)) if isinstance(python, str) else "",
        "requirements": _requirements(
            {name: spec for name, spec in dependencies.items() if not _optional(spec)}
        ),
        "extras": {
            name: tuple(
                line for entry in entries for line in _requirements({entry: dependencies.get(entry, "*")})
            )
            for name, entries in table.get("extras", {}).items()
        },
        "groups": {name: _requirements(group) for name, group in groups.items()},
        "entry_points": {
            **({"console_scripts": scripts} if scripts else {}),
            **table.get("plugins", {}),
        },
        "folders": tuple(
            dict.fromkeys(
                entry.get("from", ".") for entry in table.get("packages", []) if isinstance(entry, dict)
            )
        ),
    }


def _optional(specification: Any) -> bool:
    return isinstance(specification, dict) and bool(specification.get("optional"))


def _requirements(table: Mapping[str, Any]) -> tuple[str, ...]:
    lines = []
    for name, specification in table.items():
        for each in specification if isinstance(specification, list) else [specification]:
            lines.append(_requirement(name, each))
    return tuple(lines)


def _requirement(name: str, specification: Any) -> str:
    """One dependency in pip's notation. Where it comes from a folder or a repository, any version will do."""
    if isinstance(specification, str):
        return name + ",".join(_range(specification))
    extras = ",".join(specification.get("extras", []))
    line = name + (f"[{extras}]" if extras else "") + ",".join(_range(specification.get("version", "*")))
    markers = [specification["markers"]] if "markers" in specification else []
    for sign, version in (_CLAUSE.findall(clause)[0] for clause in _range(specification.get("python", "*"))):
        markers.append(f"python_version {sign} '{version}'")
    return line + (" ; " + " and ".join(f"({marker})" for marker in markers) if markers else "")


def _range(text: str) -> list[str]:
    """Clauses of a version range; of alternatives (``||``) the last, which is the newest."""
    clauses: list[str] = []
    for sign, version in _CLAUSE.findall(text.split("|")[-1]):
        if sign in ("^", "~"):
            clauses += _between(sign, version)
        elif version != "*":
            clauses.append((sign or "==") + version)
    return clauses


def _between(sign: str, version: str) -> list[str]:
    """``^``: up to the next change of the first number that is not 0; ``~``: of the second number."""
    numbers = [int(number) for number in _NUMBER.findall(version)[:3]]
    if sign == "~":
        last = min(1, len(numbers) - 1)
    else:
        last = next((i for i, number in enumerate(numbers) if number), len(numbers) - 1)
    upper = [*numbers[:last], numbers[last] + 1]
    return [f">={version}", f"<{'.'.join(map(str, upper))}"]
