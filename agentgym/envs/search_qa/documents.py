"""What can be searched: documents in memory, or in a JSONL file of any size."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentgym.errors import InfrastructureError, TaskError
from agentgym.retrieval import Index, open_index
from agentgym.tasks import json_object
from agentgym.texts import repaired


@dataclass(frozen=True, slots=True)
class Document:
    """A passage. Half a surrogate pair, which JSON can escape and nothing after us can encode, becomes a question mark.

    Attributes:
        title: what it is about; what the policy asks for it by.
        text: without the title.
    """

    title: str
    text: str

    def __post_init__(self) -> None:
        for name in ("title", "text"):
            object.__setattr__(self, name, repaired(getattr(self, name)))

    @property
    def id(self) -> str:
        """Hash of title and text: the same passage has the same id wherever it comes from."""
        return hashlib.sha256(f"{self.title}\n{self.text}".encode()).hexdigest()[:16]

    @property
    def searchable(self) -> str:
        """Title and text, as they are indexed."""
        return f"{self.title}\n{self.text}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Document:
        return self


class Retriever(Protocol):
    """Finds documents."""

    def search(self, query: str, k: int, *, seconds: float = math.inf) -> list[Document]:
        """The best `k` documents or fewer, best first.

        Args:
            query: words.
            k: how many.
            seconds: how long to wait for a search engine elsewhere at most, all attempts together.

        Raises:
            InfrastructureError: the search engine failed; that says nothing about the query.
        """


class MemoryCorpus:
    """Documents in memory, searched with BM25. Never changes; threads may share it.

    Args:
        documents: kept in the order of their ids, each once, so that their order tells nothing.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        by_id = {document.id: document for document in documents}
        self.documents = tuple(by_id[key] for key in sorted(by_id))

    def search(self, query: str, k: int, *, seconds: float = math.inf) -> list[Document]:
        """See `Retriever`; nothing is waited for."""
        return [self.documents[int(hit.id)] for hit in self._index.search(query, k)]

    def shard(self, spread: Sequence[str], number: int, count: int) -> MemoryCorpus:
        """One of `count` disjoint parts, which together are the whole.

        Args:
            spread: titles whose documents are dealt to the parts in turn, so that no part has two of them that another
                part lacks. All other documents go to a part by their id.
            number: which part, from 0.
            count: how many.
        """
        dealt = [each for title in dict.fromkeys(spread) for each in self.documents if each.title == title]
        start = int(dealt[0].id, 16) if dealt else 0
        parts = {document: int(document.id, 16) % count for document in self.documents}
        parts |= {document: (start + turn) % count for turn, document in enumerate(dealt)}
        return MemoryCorpus(document for document, part in parts.items() if part == number)

    @functools.cached_property
    def _index(self) -> Index:
        return Index.build((f"{n:09}", document.searchable) for n, document in enumerate(self.documents))

    def __reduce__(self) -> Any:
        return MemoryCorpus, (self.documents,)

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryCorpus:
        return self


@dataclass(frozen=True)
class FileCorpus:
    r"""A JSONL file of documents, searched with BM25 through an index on disk that processes share.

    A line holds ``{"title": ..., "text": ...}``, or ``{"contents": "title\ntext"}`` as FlashRAG and Search-R1 have it;
    an ``id`` may stand beside. The index is kept in the cache under the file's path, size and time of change. The file
    is read where a hit points to and never written.

    Attributes:
        path: the file.
        index: finds the places of documents in it.
    """

    path: Path
    index: Index

    def search(self, query: str, k: int, *, seconds: float = math.inf) -> list[Document]:
        """See `Retriever`; nothing is waited for.

        Raises:
            InfrastructureError: the file is gone, or is not what was indexed.
        """
        hits = self.index.search(query, k)
        found = []
        try:
            with open(self.path, "rb") as file:
                for hit in hits:
                    file.seek(int(hit.id))
                    found.append(read_document(file.readline()))
        except (OSError, TaskError) as error:
            raise InfrastructureError(
                f"the corpus {self.path} has changed since it was indexed: {error}"
            ) from error
        return found


def open_corpus(path: str | Path) -> FileCorpus:
    """The corpus in a JSONL file; its index is made where the cache has none.

    Raises:
        TaskError: there is no such file, or a line has another form; names the line.
    """
    file = Path(path)
    if not file.is_file():
        raise TaskError(
            "expected corpus to be 'own', 'shared', the address of a retriever, or a JSONL file; "
            f"there is no file {str(path)!r}"
        )
    stat = file.stat()
    return _open_corpus(file.resolve(), stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(8)
def _open_corpus(path: Path, size: int, changed_ns: int) -> FileCorpus:
    name = f"{path} {size} {changed_ns}".encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(name).hexdigest()[:32]
    return FileCorpus(path, open_index(f"corpus-{digest}", lambda: _places(path)))


def _places(path: Path) -> Iterator[tuple[str, str]]:
    """Each document's place in the file, which is its id in the index, and its text."""
    place = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    yield f"{place:015}", read_document(line).searchable
                except TaskError as error:
                    raise TaskError(f"{path}, line {number}: {error}") from None
            place += len(line)


def read_document(line: bytes) -> Document:
    """The document of a line.

    Raises:
        TaskError: it has another form.
    """
    try:
        row = json_object(line.decode())
    except UnicodeDecodeError as error:
        raise TaskError(f"expected text in UTF-8 ({error})") from None
    match row:
        case {"title": str(title), "text": str(text)}:
            return Document(title, text)
        case {"contents": str(contents)}:
            return from_contents(contents)
    raise TaskError(f"expected texts 'title' and 'text', or 'contents', got the keys {sorted(row)}")


def from_contents(contents: str) -> Document:
    """A document whose first line is the title."""
    title, _, text = contents.partition("\n")
    return Document(title, text)
