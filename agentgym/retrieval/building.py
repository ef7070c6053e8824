"""Writing an index: documents in, sorted postings out, with bounded memory.

Postings are collected in chunks that go to disk as they fill; at the end each chunk is sorted by term and spread over
the final arrays, which are files mapped into memory. What stays in memory is the vocabulary, the ids, and one chunk.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentgym.errors import UsageError
from agentgym.retrieval.analysis import term, tokenize

K1 = np.float32(0.9)
B = np.float32(0.4)

# Postings collected before they go to disk; a chunk takes 12 bytes for each, and as much to sort
_CHUNK = 1 << 22
_EXACT = 24  # lengths below are their own code


def write(documents: Iterable[tuple[str, str]], folder: Path) -> None:
    """Write the files of an `Index` of `documents` (an id and a text each) into an empty folder.

    Raises:
        UsageError: an id stands twice.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        collected = _Collected(Path(scratch))
        for name, text in documents:
            collected.add(name, text)
        collected.spill()
        _write_arrays(collected, folder)


class _Collected:
    """The documents so far: vocabulary and ids in order of appearance, postings in chunks."""

    def __init__(self, scratch: Path) -> None:
        self.ids: dict[str, int] = {}
        self.vocabulary: dict[str, int] = {}
        self.lengths = array("i")
        self._scratch = scratch
        self._chunks = 0
        # A word as it stands in a text -> its term's number, -1 for a stop word
        self._words: dict[str, int] = {}
        self._postings = (array("i"), array("i"), array("i"))  # term, document, frequency

    def add(self, name: str, text: str) -> None:
        number = self.ids.setdefault(name, len(self.ids))
        if number != len(self.lengths):
            raise UsageError(f"expected documents with ids of their own, {name!r} stands twice")
        counts = Counter(map(self._term, tokenize(text)))
        counts.pop(-1, None)
        self.lengths.append(counts.total())
        terms, documents, frequencies = self._postings
        terms.extend(counts.keys())
        documents.extend([number] * len(counts))
        frequencies.extend(counts.values())
        if len(terms) >= _CHUNK:
            self.spill()

    def _term(self, word: str) -> int:
        number = self._words.get(word)
        if number is None:
            found = term(word)
            number = self.vocabulary.setdefault(found, len(self.vocabulary)) if found else -1
            self._words[word] = number
        return number

    def spill(self) -> None:
        """Put the chunk away."""
        np.save(
            self._scratch / f"{self._chunks}.npy", np.array([np.asarray(part) for part in self._postings])
        )
        self._chunks += 1
        for part in self._postings:
            del part[:]

    def chunks(self) -> Iterator[NDArray[np.int32]]:
        """Terms, documents and frequencies, a chunk at a time."""
        for number in range(self._chunks):
            yield np.load(self._scratch / f"{number}.npy")


def _write_arrays(collected: _Collected, folder: Path) -> None:
    counts = np.zeros(len(collected.vocabulary), np.int64)
    for terms, _, _ in collected.chunks():
        counts += np.bincount(terms, minlength=len(counts))
    term_ranks = _write_texts(folder, "terms", "term_ends", collected.vocabulary)
    document_ranks = _write_texts(folder, "ids", "id_ends", collected.ids)
    by_rank = np.empty_like(counts)
    by_rank[term_ranks] = counts
    ends = np.cumsum(by_rank)
    np.save(folder / "posting_ends.npy", ends)

    lengths = np.asarray(collected.lengths, dtype=np.int32)
    filled = int(np.count_nonzero(lengths))  # Lucene counts the documents that have any term
    ratio = 1 + (filled - by_rank + 0.5) / (by_rank + 0.5)
    np.save(folder / "idf.npy", np.log(ratio).astype(np.float32))
    codes = length_codes(lengths)
    factors = length_factors(np.float32(lengths.sum(dtype=np.int64) / max(filled, 1)))

    total = int(ends[-1]) if len(ends) else 0
    documents_out = _new_file(folder / "posting_documents.npy", np.int32, total)
    factors_out = _new_file(folder / "posting_factors.npy", np.float32, total)
    cursors = ends - by_rank
    for terms, documents, frequencies in collected.chunks():
        ranks = term_ranks[terms]
        order = np.argsort(ranks, kind="stable")
        here, sizes = np.unique(ranks, return_counts=True)
        places = np.arange(len(ranks)) + np.repeat(cursors[here] - (np.cumsum(sizes) - sizes), sizes)
        cursors[here] += sizes
        documents_out[places] = document_ranks[documents[order]]
        factor = factors[codes[documents[order]]]
        factors_out[places] = np.float32(1) + frequencies[order].astype(np.float32) * factor


def _write_texts(folder: Path, name: str, ends: str, numbers: dict[str, int]) -> NDArray[np.int64]:
    """Write texts sorted, as bytes end to end and where each ends; returns the rank of each old number."""
    ordered = sorted(numbers)  # by code point, which is also the order of the UTF-8 bytes
    ranks = np.empty(len(ordered), np.int64)
    ranks[np.fromiter((numbers[text] for text in ordered), np.int64, len(ordered))] = np.arange(len(ordered))
    encoded = [text.encode("utf-8", "surrogatepass") for text in ordered]
    np.save(folder / f"{ends}.npy", np.cumsum([len(text) for text in encoded], dtype=np.int64))
    np.save(folder / f"{name}.npy", np.frombuffer(b"".join(encoded), np.uint8))
    return ranks


def _new_file(path: Path, kind: type[np.generic], size: int) -> NDArray[Any]:
    if size == 0:  # an empty file cannot be mapped
        np.save(path, np.empty(0, kind))
        return np.empty(0, kind)
    return np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=(size,))


# -- lengths in one byte -------------------------------------------------------------------------------------------


def length_codes(lengths: NDArray[np.int32]) -> NDArray[np.uint8]:
    """The byte that stands for each length: the code of the largest length with a code that is not larger."""
    return (np.searchsorted(coded_lengths(), lengths, side="right") - 1).astype(np.uint8)


def coded_lengths() -> NDArray[np.int64]:
    """The length that each of the 256 bytes stands for.

    Below 24 it is the byte itself. Beyond, three bits of mantissa and the rest exponent, counted from 24 on.
    """
    rest = np.arange(256 - _EXACT)
    mantissa, shift = rest & 7, (rest >> 3) - 1
    beyond = np.where(shift < 0, mantissa, (mantissa | 8) << np.maximum(shift, 0))
    return np.concatenate([np.arange(_EXACT), _EXACT + beyond])


def length_factors(average: np.float32) -> NDArray[np.float32]:
    """For each byte, what a term's frequency is multiplied by: 1 / (k1 * (1 - b + b * length / average))."""
    lengths = coded_lengths().astype(np.float32)
    one = np.float32(1)
    factors: NDArray[np.float32] = one / (K1 * ((one - B) + B * lengths / max(average, np.float32(1e-9))))
    return factors
