"""What is known of the project's own files without seeing them: they name the package under repair."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentgym.monitor.effects import HOLE, Effect

_MANIFEST = re.compile(
    r"pyproject\.toml|setup\.(?:cfg|py)|package\.json|Cargo\.toml|composer\.json|PKG-INFO|METADATA|meta\.ya?ml|\w\.gemspec|go\.mod"
)
_NAME = re.compile(r"\bname\b|\bmodule\b|Name:|--name|\[[\"']name")
_TELLS = re.compile(
    r"npm pkg get name|poetry version(?! -s)|hatch project metadata name|cargo pkgid|uv version(?! --short)"
)


_HINTS = ("name", "Name", "module", "version", "pkgid")


def asks_name(text: str) -> bool:
    """Whether a command or a program asks a project's manifest for the project's name."""
    if not any(word in text for word in _HINTS):  # nearly all
        return False
    return bool((_MANIFEST.search(text) and _NAME.search(text)) or _TELLS.search(text))


def named(package: str, asked: str, effects: Iterable[Effect]) -> str:
    """The package that an installer is asked for: an unknown name that the call took from a manifest is `package`."""
    if HOLE not in asked:
        return asked
    texts = (
        effect.content or "" if effect.kind == "code" else " ".join((effect.target, *effect.detail))
        for effect in effects
        if effect.kind in ("code", "run")
    )
    return asked.replace(HOLE, package) if any(map(asks_name, texts)) else asked
