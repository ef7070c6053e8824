"""JSON objects in files that are mapped into memory and read one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


class Rows:
    """The objects that `write_rows` wrote, by number."""

    def __init__(self, folder: Path) -> None:
        self._data = memoryview(np.load(folder / "rows.npy", mmap_mode="r"))
        self._ends = np.load(folder / "row_ends.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> dict[str, Any]:
        start = int(self._ends[number - 1]) if number else 0
        row: dict[str, Any] = json.loads(bytes(self._data[start : int(self._ends[number])]))
        return row


def write_rows(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write objects for `Rows`; only one of them is in memory."""
    ends = []
    with open(folder / "rows", "wb") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            ends.append(file.tell())
    np.save(folder / "row_ends.npy", np.array(ends, np.int64))
    if ends:
        out = np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=np.uint8, shape=(ends[-1],))
        out[:] = np.memmap(folder / "rows", np.uint8, mode="r")
    else:  # an empty file cannot be mapped
        np.save(folder / "rows.npy", np.empty(0, np.uint8))
    (folder / "rows").unlink()
