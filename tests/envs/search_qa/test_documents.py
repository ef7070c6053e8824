"""Corpora: in memory and in files."""

from __future__ import annotations

import copy
import json
import os
import pickle

import pytest

from agentgym.envs.search_qa.documents import Document, MemoryCorpus, open_corpus
from agentgym.errors import InfrastructureError, TaskError

DOCUMENTS = [
    Document("Heron", "A grey bird that stands in rivers."),
    Document("Oster", "A river full of eels.\nAnd of herons: é 中🙂."),
    Document("Eel", "A fish like a snake."),
]


def test_memory():
    corpus = MemoryCorpus([*DOCUMENTS, DOCUMENTS[0]])
    assert len(corpus.documents) == 3  # each once
    assert [each.title for each in corpus.search("rivers with eels", 2)] == ["Oster", "Eel"]
    assert corpus.search("zebra", 2) == []
    assert corpus.documents == MemoryCorpus(reversed(DOCUMENTS)).documents  # order tells nothing
    assert copy.deepcopy(corpus) is corpus
    assert pickle.loads(pickle.dumps(corpus)).search("snake", 1) == [DOCUMENTS[2]]


def test_one_file_in_both_forms(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [
        {"id": 7, "title": "Heron", "text": DOCUMENTS[0].text},
        {"id": "x", "contents": f"Oster\n{DOCUMENTS[1].text}"},
        {"title": "Eel", "text": DOCUMENTS[2].text, "url": "about:blank"},
    ]
    lines = [json.dumps(row, ensure_ascii=number % 2 == 0) for number, row in enumerate(rows)]
    path.write_bytes(("\n\n".join(lines) + "\r\n").encode())
    before = path.read_bytes(), os.stat(path).st_mtime_ns
    corpus = open_corpus(path)
    assert corpus.search("eels in a river", 2) == [DOCUMENTS[1], DOCUMENTS[2]]
    assert corpus.search("grey bird", 5) == [DOCUMENTS[0]]
    assert open_corpus(str(path)) is corpus
    assert pickle.loads(pickle.dumps(corpus)).search("snake", 1) == [DOCUMENTS[2]]
    assert (path.read_bytes(), os.stat(path).st_mtime_ns) == before

    path.write_text(json.dumps({"contents": "Zebra\nStripes."}))
    assert open_corpus(path).search("stripes", 3) == [Document("Zebra", "Stripes.")]


def test_a_file_that_is_gone_or_another_is_a_broken_search_engine(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"contents": "Heron\\nA bird."}\n{"contents": "Eel\\nA fish."}\n')
    corpus = open_corpus(path)
    path.write_text('{"contents": "Heron\\nA grey bird."}\n{"contents": "Eel\\nA fish."}\n')
    with pytest.raises(InfrastructureError, match=r"corpus\.jsonl has changed .* expected a JSON object"):
        corpus.search("fish", 1)  # whose line began five characters before
    path.unlink()
    with pytest.raises(InfrastructureError, match=r"corpus\.jsonl has changed .* No such file"):
        corpus.search("fish", 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"title": "x"}', r"corpus.jsonl, line 3: expected texts 'title' and 'text', or 'contents', got"),
        (b'{"contents": 3}', r"line 3: expected texts"),
        (b"[1]", r"line 3: expected a JSON object, got list"),
        (b'{"title', r"line 3: expected a JSON object, got '\{.title"),
        (b"\xff", r"line 3: expected text in UTF-8"),
    ],
)
def test_malformed_lines(tmp_path, line, said):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"contents": "a"}\n\n' + line + b"\n")
    with pytest.raises(TaskError, match=said):
        open_corpus(path)


def test_no_file(tmp_path):
    with pytest.raises(TaskError, match=r"expected corpus to be 'own', .* there is no file 'sharde'"):
        open_corpus("sharde")
    with pytest.raises(TaskError, match="there is no file"):
        open_corpus(tmp_path)


def test_half_of_a_surrogate_pair(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"title": "a\\ud800", "text": "b é"}\n')
    assert open_corpus(path).search("b", 1) == [Document("a?", "b é")]
