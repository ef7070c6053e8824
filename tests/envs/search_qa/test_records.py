"""Small files in the shapes of the field's data sets. The records are invented; the shapes are the data sets' own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym.envs.search_qa.documents import Document
from agentgym.envs.search_qa.records import documents_of, load_records, question_of
from agentgym.errors import TaskError

HOTPOTQA = {
    "_id": "5a8b57f2",
    "question": "Where was the author of Red Lamp born?",
    "answer": "Dunum",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Red Lamp", 0], ["Ada Vor", 0], ["Ada Vor", 1]],
    "context": [
        ["Other", ["Nothing."]],
        ["Red Lamp", ["A book by Ada Vor.", " It is long."]],
        ["Ada Vor", ["A writer.", " Born in Dunum."]],
    ],
}
HUB = HOTPOTQA | {
    "id": "hub-1",
    "supporting_facts": {"title": ["Red Lamp", "Ada Vor"], "sent_id": [0, 1]},
    "context": {"title": ["Red Lamp", "Ada Vor"], "sentences": [["A book by Ada Vor."], ["Born in Dunum."]]},
}
del HUB["_id"]
TWO_WIKI = HOTPOTQA | {"_id": "2w", "evidences": [["Red Lamp", "author", "Ada Vor"]], "type": "compositional"}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who taught the author of Red Lamp?",
    "answer": "Bo Sel",
    "answer_aliases": ["B. Sel", ""],
    "answerable": True,
    "question_decomposition": [{"id": 1, "question": "#", "answer": "Ada Vor", "paragraph_support_idx": 1}],
    "paragraphs": [
        {"idx": 0, "title": "Other", "paragraph_text": "Nothing.", "is_supporting": False},
        {"idx": 1, "title": "Red Lamp", "paragraph_text": "A book by Ada Vor.", "is_supporting": True},
        {"idx": 2, "title": "Ada Vor", "paragraph_text": "Taught by Bo Sel.", "is_supporting": True},
    ],
}
NQ = {"id": "test_0", "question": "who wrote red lamp", "golden_answers": ["Ada Vor", "Vor"]}
DPR = {
    "question": "who wrote red lamp",
    "answers": ["Ada Vor"],
    "positive_ctxs": [{"title": "Red Lamp", "text": "By Ada Vor.", "score": 1.0, "passage_id": "3"}],
    "hard_negative_ctxs": [{"title": "Blue Lamp", "text": "By Bo Sel."}],
}
OWN = {"id": "mine", "prompt": "Say it", "split": "test", "answers": ["it"]}


def write(path: Path, *rows) -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["q.json", "q.jsonl"])
def test_hotpotqa_and_2wiki(tmp_path, name):
    tasks = load_records(write(tmp_path / name, HOTPOTQA, HUB, TWO_WIKI))
    assert [task.id for task in tasks] == ["5a8b57f2", "hub-1", "2w"]
    assert tasks.splits == ("train",)
    question = question_of(tasks[0])
    assert question.text == "Where was the author of Red Lamp born?"
    assert question.answers == ("Dunum",)
    assert question.supporting == ("Red Lamp", "Ada Vor")
    assert question.kind == "bridge"
    assert documents_of(tasks[0]) == [
        Document("Other", "Nothing."),
        Document("Red Lamp", "A book by Ada Vor. It is long."),
        Document("Ada Vor", "A writer. Born in Dunum."),
    ]
    assert question_of(tasks[1]).supporting == ("Red Lamp", "Ada Vor")
    assert documents_of(tasks[1])[1] == Document("Ada Vor", "Born in Dunum.")


def test_musique(tmp_path):
    unanswerable = MUSIQUE | {"answerable": False}
    tasks = load_records(write(tmp_path / "q.jsonl", MUSIQUE, unanswerable))
    assert [task.id for task in tasks] == ["2hop__1_2", "2hop__1_2/unanswerable"]
    assert question_of(tasks[0]).answers == ("Bo Sel", "B. Sel")
    assert question_of(tasks[0]).supporting == ("Red Lamp", "Ada Vor")
    assert question_of(tasks[1]).answers[0] == "unanswerable"
    assert "Bo Sel" not in question_of(tasks[1]).answers
    assert len(documents_of(tasks[0])) == 3


def test_natural_questions(tmp_path):
    open_form = {"question": "who wrote red lamp?", "answer": ["Ada Vor"]}
    tasks = load_records(write(tmp_path / "q.jsonl", NQ, DPR, open_form, {**open_form, "answer": "Vor"}))
    assert [task.id for task in tasks] == ["test_0", "2", "3", "4"]
    assert {task.prompt for task in tasks} == {"who wrote red lamp?"}
    answers = [question_of(task).answers for task in tasks]
    assert answers == [("Ada Vor", "Vor"), ("Ada Vor",), ("Ada Vor",), ("Vor",)]
    assert [len(documents_of(task)) for task in tasks] == [0, 2, 0, 0]
    assert question_of(tasks[1]).supporting == ()


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([HUB]), tmp_path / "q.parquet")
    (task,) = load_records(tmp_path / "q.parquet")
    assert question_of(task).supporting == ("Red Lamp", "Ada Vor")


def test_our_own_form(tmp_path):
    (task,) = load_records(write(tmp_path / "q.jsonl", OWN))
    assert (task.id, task.prompt, task.split) == ("mine", "Say it", "test")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"a": 1}, "expected a question of a known form, got the keys a"),
        ({"question": "x"}, "expected 'golden_answers', 'answers' or 'answer', got the keys question"),
        (NQ | {"golden_answers": []}, r"expected 'golden_answers' to be a text or a list of texts, got \[\]"),
        (NQ | {"golden_answers": [" "]}, "expected 'golden_answers' to be a text or a list"),
        (NQ | {"question": None}, "expected 'question' to be a text, got None"),
        (NQ | {"id": 3}, "expected 'id' to be a text, got 3"),
        (DPR | {"positive_ctxs": [{"text": "x"}]}, "expected a document with texts 'title' and 'text'"),
        (HOTPOTQA | {"answer": None}, "expected 'answer' to be a text"),
        (HOTPOTQA | {"context": [["x", "y"]]}, r"expected each of 'context' as \[title, \[sentences\]\]"),
        (HOTPOTQA | {"context": 3}, "expected 'context' to be a list, got 3"),
        (HOTPOTQA | {"supporting_facts": ["x"]}, r"expected each of 'supporting_facts' as \[title, number\]"),
        (HUB | {"context": {"title": ["x"], "sentences": []}}, "expected 'context' with lists 'title' and"),
        (MUSIQUE | {"paragraphs": [{"title": "x"}]}, "expected each of 'paragraphs' with 'title'"),
        (MUSIQUE | {"answerable": "no"}, "expected 'answerable' to be true or false, got 'no'"),
        (OWN | {"answers": 3}, "expected 'answers' to be a text"),
    ],
)  # fmt: skip
def test_malformed_rows(tmp_path, row, said):
    path = write(tmp_path / "q.jsonl", NQ, row)
    with pytest.raises(TaskError, match=said) as caught:
        load_records(path)
    assert "line 2" in str(caught.value)
    with pytest.raises(TaskError, match=said) as caught:
        load_records(write(tmp_path / "q.json", NQ, row))
    assert "record 2" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("q.json", '{"data": []}', "expected a JSON list of records, got dict"),
        ("q.json", '[\n{"question": }]', "cannot read .*line 2"),
        ("q.json", "[3]", "record 1: expected a JSON object, got 3"),
        ("q.jsonl", "[]\n", "line 1: expected a JSON object"),
        ("q.txt", "", "expected questions in a .json, .jsonl or .parquet file"),
    ],
)
def test_files_of_another_form(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(TaskError, match=said):
        load_records(tmp_path / name)


def test_no_file():
    with pytest.raises(TaskError, match=r"cannot read nowhere\.json"):
        load_records("nowhere.json")


def test_the_same_id_twice(tmp_path):
    with pytest.raises(TaskError, match="'test_0' appears twice"):
        load_records(write(tmp_path / "q.jsonl", NQ, NQ))
