"""Indexes on disk: built once for a corpus, mapped into memory by every process after that."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentgym.cache import cache_folder, made_once
from agentgym.retrieval.building import write
from agentgym.retrieval.index import FORMAT, Index


def open_index(digest: str, documents: Callable[[], Iterable[tuple[str, str]]]) -> Index:
    """The index of a corpus, from the cache where it is there.

    Args:
        digest: names the corpus's content, for example by the SHA-256 of its files and of how they are read.
        documents: gives an id and a text each; called only where the index has to be built.
    """
    folder = cache_folder() / "indexes" / f"{digest}-{FORMAT}"
    return Index(made_once(folder, lambda fresh: write(documents(), fresh)))
