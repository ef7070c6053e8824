"""The state of an object as a copy, and back: what `snapshot` and `restore` are made of."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol


class Keeper(Protocol):
    """An environment or wrapper whose state can be kept.

    Attributes:
        snapshot_exclude: attributes that are left alone.
        _settings: the same, for what the constructor sets once.
    """

    @property
    def snapshot_exclude(self) -> frozenset[str]: ...
    @property
    def _settings(self) -> frozenset[str]: ...


def state_of(owner: Keeper) -> dict[str, Any]:
    """Copies of the attributes that change."""
    kept = owner._settings | owner.snapshot_exclude
    return copy.deepcopy({key: value for key, value in owner.__dict__.items() if key not in kept})


def put_back(owner: Keeper, state: Mapping[str, Any]) -> None:
    """Set them to copies of `state`; attributes that came since are gone."""
    for key in owner.__dict__.keys() - state.keys() - owner._settings - owner.snapshot_exclude:
        del owner.__dict__[key]
    owner.__dict__.update(copy.deepcopy(dict(state)))
