"""Rows of tokens without padding: what several rows begin with stands once, and every trainable token is found again.

A batch of rows (segments of trajectories) becomes a few packs. Each pack is one forward pass over P tokens: the rows
one behind the other, without what a row shares with the one before it, be it the prompt of a group or the beginning of
an earlier segment. Because a token's state depends on what stands before it alone, sharing changes nothing but the
cost: states, log-probs and gradients are those of each row by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentgym.errors import UsageError
from agentgym.policies.attention import Tree
from agentgym.policies.caches import shared
from agentgym.trajectory.records import Segment


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The tokens of one segment.

    Attributes:
        ids: (T,) int64.
        mask: (T,) bool, True at trainable tokens. The first is never one: nothing stands before it.
        temperature: the trainable tokens were sampled at.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or self.ids.shape != self.mask.shape:
            raise UsageError(
                f"expected ids and mask of one length, got shapes {self.ids.shape} and {self.mask.shape}"
            )
        if len(self.mask) and self.mask[0]:
            raise UsageError("expected the first token of a row to be masked, since nothing stands before it")
        if not self.temperature > 0:
            raise UsageError(
                f"expected a row sampled at a temperature above 0, got {self.temperature}: nothing was sampled"
            )

    def first(self, tokens: int) -> Row:
        """Its beginning."""
        return Row(self.ids[:tokens], self.mask[:tokens], self.temperature)


def rows_of(segments: Sequence[Segment]) -> list[Row]:
    """One row for each segment.

    Raises:
        UsageError: a segment without token ids, or whose trainable tokens were sampled at several temperatures.
    """
    return [_row(segment) for segment in segments]


def _row(segment: Segment) -> Row:
    if not segment.token_ids:
        raise UsageError(
            f"segment {segment.index}: expected token ids, got none; its policy does not tell them"
        )
    temperatures = {s.temperature for s in segment.sampled if any(segment.mask[s.start : s.stop])} or {1.0}
    if len(temperatures) > 1 or None in temperatures:
        raise UsageError(
            f"segment {segment.index}: expected one temperature, got {sorted(map(str, temperatures))}"
        )
    (temperature,) = temperatures
    assert temperature is not None
    return Row(np.array(segment.token_ids, np.int64), np.array(segment.mask, np.bool_), temperature)


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """P tokens of R rows, M of them trainable; all tensors on the CPU.

    Attributes:
        ids: (P,) token ids.
        positions: (P,) of each token within its row.
        attention: who attends to whom.
        before: (M,) where the state lies that predicts each trainable token.
        targets: (M,) the trainable tokens.
        temperature: (M,) they were sampled at.
        row: (M,) number of the row, among all rows of the batch.
        token: (M,) index within the row.
        flat: (M,) index among all trainable tokens of the batch: rows in the order given, their tokens in order.
        rows: (R,) numbers of the rows in this pack.
        end: (R,) where the state after each row's last token lies.
    """

    ids: Tensor
    positions: Tensor
    attention: Tree
    before: Tensor
    targets: Tensor
    temperature: Tensor
    row: Tensor
    token: Tensor
    flat: Tensor
    rows: Tensor
    end: Tensor


def packs(rows: Sequence[Row], *, max_tokens: int, share_prefixes: bool = True) -> list[Pack]:
    """Put rows into packs.

    Args:
        rows: in any order; only the packs' order depends on it.
        max_tokens: most tokens of a pack, which bounds the memory of a pass. A group whose rows don't fit in one pack
            pays its prompt once in each.
        share_prefixes: False keeps each row whole, for comparison.

    Raises:
        UsageError: a row is longer than `max_tokens`.
    """
    numbers: list[int] = list(range(len(rows)))
    if share_prefixes:  # in lexicographic order a row shares the most with the one just before it
        numbers.sort(key=lambda number: rows[number].ids.astype(">i8").tobytes())
    # Flat index of each row's first trainable token
    first = np.cumsum([0, *(int(row.mask.sum()) for row in rows)])
    made: list[Pack] = []
    draft = _Draft()
    for number in numbers:
        row = rows[number]
        if len(row.ids) > max_tokens:
            raise UsageError(
                f"row {number} has {len(row.ids)} tokens; expected at most max_tokens={max_tokens}"
            )
        same = shared(draft.latest, row.ids) if share_prefixes else 0
        if draft.size + len(row.ids) - same > max_tokens:
            made.append(draft.pack())
            draft, same = _Draft(), 0
        draft.add(number, row, same, int(first[number]))
    return [*made, draft.pack()] if draft.size else made


class _Draft:
    """A pack in the making."""

    def __init__(self) -> None:
        self.size = 0
        self.latest = np.empty(0, np.int64)  # ids of the row that came last,
        self._places = np.empty(0, np.int64)  # where its tokens lie in the pack,
        self._path: list[slice] = []  # and the same as runs
        self._spans: list[tuple[slice, list[slice]]] = []
        self._rows: list[int] = []
        self._ends: list[int] = []
        # By token of the pack: id and position. By trainable token: the fields of `Pack`.
        self._tokens: list[tuple[np.ndarray, np.ndarray]] = []
        self._trainable: list[tuple[np.ndarray, ...]] = []
        self._temperature: list[np.ndarray] = []

    def add(self, number: int, row: Row, same: int, flat: int) -> None:
        """Take a row that shares its first `same` tokens with the one before it."""
        own = slice(self.size, self.size + len(row.ids) - same)
        beginning = _cut(self._path, same)
        self._places = np.concatenate([self._places[:same], np.arange(own.start, own.stop)])
        self._path = [*beginning, own]
        self.latest, self.size = row.ids, own.stop
        if own.stop > own.start:
            self._spans.append((own, beginning))
        self._tokens.append((row.ids[same:], np.arange(same, len(row.ids))))
        self._rows.append(number)
        self._ends.append(int(self._places[-1]))
        at = np.flatnonzero(row.mask)
        count = np.arange(len(at))
        self._trainable.append(
            (self._places[at - 1], row.ids[at], np.full(len(at), number), at, flat + count)
        )
        self._temperature.append(np.full(len(at), row.temperature, np.float32))

    def pack(self) -> Pack:
        ids, positions = (np.concatenate(part) for part in zip(*self._tokens, strict=True))
        before, targets, row, token, flat = (
            torch.from_numpy(np.concatenate(part)) for part in zip(*self._trainable, strict=True)
        )
        return Pack(
            torch.from_numpy(ids),
            torch.from_numpy(positions),
            Tree(self._spans),
            before,
            targets,
            torch.from_numpy(np.concatenate(self._temperature)),
            row,
            token,
            flat,
            torch.tensor(self._rows),
            torch.tensor(self._ends),
        )


def _cut(path: Sequence[slice], length: int) -> list[slice]:
    """The first `length` tokens of a path of runs."""
    cut: list[slice] = []
    for run in path:
        size = min(run.stop - run.start, length)
        if size <= 0:
            break
        cut.append(slice(run.start, run.start + size))
        length -= size
    return cut
