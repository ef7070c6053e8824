"""What is true: immutable relations with indexes that are made when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from agentgym.envs.alfworld.pddl import Row

Key: TypeAlias = Any  # a name, or a row of names where several positions are asked for


class Relation:
    """An immutable set of rows, sorted.

    Attributes:
        rows: the rows; a row without names is the truth of a predicate without terms.
    """

    __slots__ = ("_groups", "rows")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = frozenset(rows)
        self._groups: dict[tuple[int, ...], dict[Key, tuple[Row, ...]]] = {}

    def by(self, positions: tuple[int, ...]) -> Mapping[Key, tuple[Row, ...]]:
        """The rows in order, grouped by what stands at the positions.

        The key is a name for one position, a row for several, and ``()`` for none. Two threads that ask at once
        make the same groups, so nothing is locked.
        """
        groups = self._groups.get(positions)
        if groups is None:
            key = itemgetter(*positions) if positions else lambda row: ()
            lists: dict[Key, list[Row]] = {}
            for row in sorted(self.rows):
                lists.setdefault(key(row), []).append(row)
            groups = self._groups[positions] = {name: tuple(rows) for name, rows in lists.items()}
        return groups

    def __deepcopy__(self, memo: dict[int, Any]) -> Relation:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Relation, (self.rows,))

    def changed(self, removed: Iterable[Row], added: Iterable[Row]) -> Relation:
        """The relation without some rows and with others."""
        return Relation((self.rows - frozenset(removed)) | frozenset(added))


EMPTY = Relation()


class State(dict[str, Relation]):
    """Relations by name, never changed in place, so a snapshot is a reference. What has no row may be absent."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        return self

    def __missing__(self, name: str) -> Relation:
        return EMPTY
