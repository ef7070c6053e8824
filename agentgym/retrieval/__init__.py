"""BM25 exactly as Lucene ranks, in numpy, on an index that processes share.

    from agentgym.retrieval import Index

    index = Index.build([("a", "red running shoes"), ("b", "blue shoes")])
    for hit in index.search("running shoe", k=10):
        print(hit.id, hit.score)

`open_index` keeps the index of a corpus on disk, memory-mapped, so that a second process starts at once. Words are cut
and folded by `analyse`: Lucene's StandardTokenizer, possessives, lower case, 33 stop words, Porter's stemmer. Scores
and order are those of Lucene's BM25 as Anserini sets it (k1 = 0.9, b = 0.4; equal scores in the order of the ids).
"""

from agentgym.retrieval.analysis import STOP_WORDS, analyse, tokenize
from agentgym.retrieval.index import Hit, Index
from agentgym.retrieval.store import open_index

__all__ = ["STOP_WORDS", "Hit", "Index", "analyse", "open_index", "tokenize"]
