"""How games call their objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def number_names(objects: Iterable[str]) -> dict[str, str]:
    """How a game calls its objects: ``cup_bar_..`` becomes ``cup 2``.

    Like objects are numbered downwards in the order of their ids.
    """
    kinds = {name: _kind(name) for name in sorted(objects)}
    left = Counter(kind for kind in kinds.values() if kind is not None)
    names = {}
    for name, kind in kinds.items():
        if kind is None:
            names[name] = f"{name} "  # the blank stands where the number would
        else:
            names[name] = f"{kind} {left[kind]}"
            left[kind] -= 1
    return names


def _kind(name: str) -> str | None:
    kind, bar, _ = name.partition("_bar_")
    if not bar:
        return None
    return f"{kind}basin" if "basin" in name else kind
