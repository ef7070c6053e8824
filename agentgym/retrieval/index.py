"""An inverted index and BM25 over it, number for number as Lucene computes it.

What makes scores equal to Lucene's and not only close: idf and length factors are 32-bit floats; a document's length
is kept in one byte, exact up to 40 words and in steps of up to an eighth beyond; the scores of a query's terms are
summed in 64 bits and rounded to 32 once; equal scores stand in the order of the ids.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentgym.errors import InfrastructureError, whole_number
from agentgym.retrieval.analysis import analyse
from agentgym.retrieval.building import write

FORMAT = 1  # of the files; raise it whenever they, the analysis or the scores change
_KNOWN = 1 << 16  # terms whose place is remembered


class Hit(NamedTuple):
    """One document found, with its score."""

    id: str
    score: float


class Index:
    """Documents, ready to be searched. Never changes; any number of threads may search it.

    Args:
        folder: what `write` made.
        mapped: leave the arrays on disk and share their pages with other processes; else read them.
    """

    def __init__(self, folder: str | Path, *, mapped: bool = True) -> None:
        self.folder = Path(folder)

        def read(name: str) -> NDArray[Any]:
            path = self.folder / f"{name}.npy"
            try:
                return np.asarray(np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))
            except (OSError, ValueError) as error:
                raise InfrastructureError(f"the index {self.folder} cannot be read: {error}") from None

        self._ids = _Texts(read("ids"), read("id_ends"))
        self._terms = _Texts(read("terms"), read("term_ends"))
        self._idf = read("idf")  # by term
        self._ends = read("posting_ends")  # by term: where its postings end
        self._documents = read("posting_documents")
        self._factors = read("posting_factors")  # 1 + frequency * length factor
        self._mapped = mapped

    @classmethod
    def build(cls, documents: Iterable[tuple[str, str]]) -> Index:
        """An index in memory.

        Args:
            documents: an id and a text each.

        Raises:
            UsageError: an id stands twice.
        """
        with tempfile.TemporaryDirectory(prefix="agentgym-index-") as folder:
            write(documents, Path(folder))
            return cls(folder, mapped=False)

    def __len__(self) -> int:
        return len(self._ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> Index:
        return self

    def __reduce__(self) -> Any:
        # A mapped index is opened again where it is unpickled; its pages are not copied.
        return (Index, (self.folder,)) if self._mapped else super().__reduce__()

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best `k` documents with any of the query's words, best first.

        A word that stands twice in the query counts twice. Scores are Lucene's BM25 with k1 = 0.9, b = 0.4.
        """
        whole_number("k", k, least=1)
        parts = [
            self._scores(number, times)
            for text, times in Counter(analyse(query)).items()
            if (number := self._terms.find(text)) is not None
        ]
        if not parts:
            return []
        documents = np.concatenate([documents for documents, _ in parts])
        scores = np.concatenate([scores for _, scores in parts])
        totals = np.bincount(documents, weights=scores).astype(np.float32)
        best = _best(totals, k)
        return list(map(Hit, self._ids.take(best), totals[best].tolist()))

    def _scores(self, term: int, times: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The documents that hold a term, and what it adds to the score of each."""
        start, end = int(self._ends[term - 1]) if term else 0, int(self._ends[term])
        weight = np.float32(times) * self._idf[term]
        return self._documents[start:end], weight - weight / self._factors[start:end]


def _best(totals: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The numbers of the `k` largest positive totals, largest first, smaller number first where equal."""
    if len(totals) > k:
        least = np.partition(totals, len(totals) - k)[len(totals) - k]
        found = np.flatnonzero(totals >= least) if least > 0 else np.flatnonzero(totals > 0)
    else:
        found = np.flatnonzero(totals > 0)
    # Numbers grow, so equal totals keep the order of the ids
    order = np.argsort(-totals[found], kind="stable")
    return found[order[:k]]


class _Texts:
    """Sorted texts end to end in one array of bytes, which can stay on disk."""

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._data = data
        self._ends = ends
        self._view = data.data  # cheaper to cut than an array
        self._known: dict[str, int | None] = {}  # what `find` has said

    def __reduce__(self) -> Any:
        return _Texts, (self._data, self._ends)

    def __len__(self) -> int:
        return len(self._ends)

    def take(self, numbers: NDArray[np.int64]) -> list[str]:
        """The texts of these numbers."""
        ends = self._ends[numbers].tolist()
        starts = np.where(numbers > 0, self._ends[numbers - 1], 0).tolist()
        return [str(self._view[a:b], "utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True)]

    def find(self, text: str) -> int | None:
        """The number of a text."""
        if text in self._known:
            return self._known[text]
        wanted = text.encode("utf-8", "surrogatepass")
        place = bisect_left(range(len(self)), wanted, key=self._bytes)
        number = place if place < len(self) and self._bytes(place) == wanted else None
        if len(self._known) < _KNOWN:
            self._known[text] = number
        return number

    def _bytes(self, number: int) -> bytes:
        start = int(self._ends[number - 1]) if number else 0
        return self._view[start : int(self._ends[number])].tobytes()
