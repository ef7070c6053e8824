"""Questions in the file formats of HotpotQA, 2WikiMultihopQA, MuSiQue and Natural Questions, as tasks.

Each record becomes a task with ``data={"answers": [...], "supporting": [titles], "documents": [{"title", "text"}]}``;
what a record does not have is left out. A file of such tasks, with `id`, `prompt` and `split` beside, is read as well.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym.envs.search_qa.documents import Document
from agentgym.envs.search_qa.questions import UNANSWERABLE, UNANSWERABLE_FORMS, Question
from agentgym.errors import TaskError
from agentgym.tasks import Task, TaskSet, parquet_rows, read_jsonl, task_from_row
from agentgym.texts import repaired

Row = Mapping[str, Any]


def load_records(path: str | Path) -> TaskSet:
    """The tasks of a ``.json`` list, a ``.jsonl`` or a ``.parquet`` file of questions.

    A file that was read before and is as it was gives the same set: the environments of a vector share it.

    Raises:
        TaskError: a record has another form; names the line, or the number of the record.
    """
    file = Path(path)
    try:
        stat = file.stat()
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error}") from None
    return _load_records(file.absolute(), stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(4)
def _load_records(path: Path, size: int, changed_ns: int) -> TaskSet:
    rows = enumerate(_rows(path), start=1)
    return TaskSet((_task(row, number, where) for number, (row, where) in rows), name=path.name)


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    if path.suffix == ".jsonl":
        yield from read_jsonl(path)
    elif path.suffix == ".parquet":
        yield from ((row, f"{path}, row {number}") for number, row in enumerate(parquet_rows(path), 1))
    elif path.suffix == ".json":
        try:
            rows = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise TaskError(f"cannot read {path}: {error}") from None
        if not isinstance(rows, list):
            raise TaskError(f"{path}: expected a JSON list of records, got {type(rows).__name__}")
        for number, row in enumerate(rows, 1):
            if not isinstance(row, dict):
                raise TaskError(f"{path}, record {number}: expected a JSON object, got {row!r:.60}")
            yield row, f"{path}, record {number}"
    else:
        raise TaskError(f"expected questions in a .json, .jsonl or .parquet file, got {str(path)!r}")


def _task(row: Row, number: int, where: str) -> Task:
    """A task from a record of any of the forms, known by its keys."""
    if "prompt" in row:
        task = task_from_row({"id": str(number)} | dict(row), where)
        try:
            question_of(task), documents_of(task)
        except TaskError as error:
            raise TaskError(f"{where}: {error}") from None
        return task
    try:
        if "paragraphs" in row:
            name, data = _musique(row)
        elif "context" in row:
            name, data = _hotpotqa(row)
        elif "question" in row:
            name, data = _open_question(row)
        else:
            raise TaskError(f"expected a question of a known form, got the keys {', '.join(sorted(row))}")
        question = repaired(_text(row, "question").strip())
        asked = question if question.endswith("?") else f"{question}?"  # as Search-R1 asks
        return Task(name or str(number), asked, _text(row, "split", "train"), data)
    except TaskError as error:
        raise TaskError(f"{where}: {error}") from None


def _hotpotqa(row: Row) -> tuple[str, dict[str, Any]]:
    """HotpotQA's and 2WikiMultihopQA's form, as their own files and the Hugging Face hub have it."""
    context, facts = row["context"], row.get("supporting_facts", [])
    if isinstance(context, Mapping):
        context = _zipped(context, "context", "title", "sentences")
    if isinstance(facts, Mapping):
        facts = _zipped(facts, "supporting_facts", "title", "sent_id")
    documents = []
    for each in _listed(context, "context"):
        match each:
            case [str(title), list(sentences)] if all(isinstance(sentence, str) for sentence in sentences):
                documents.append(
                    {"title": title, "text": " ".join(sentence.strip() for sentence in sentences)}
                )
            case _:
                raise TaskError(f"expected each of 'context' as [title, [sentences]], got {each!r:.80}")
    supporting = []
    for each in _listed(facts, "supporting_facts"):
        match each:
            case [str(title), int()]:
                supporting.append(title)
            case _:
                raise TaskError(f"expected each of 'supporting_facts' as [title, number], got {each!r:.80}")
    data = {
        "answers": _answers(row, "answer"),
        "supporting": list(dict.fromkeys(supporting)),
        "documents": documents,
        "kind": _text(row, "type", ""),
    }
    return _text(row, "_id", "") or _text(row, "id", ""), data


def _musique(row: Row) -> tuple[str, dict[str, Any]]:
    """MuSiQue's form. Its unanswerable questions share their ids with answerable ones, so they get a suffix."""
    documents, supporting = [], []
    for each in _listed(row["paragraphs"], "paragraphs"):
        match each:
            case {"title": str(title), "paragraph_text": str(text)}:
                documents.append({"title": title, "text": text})
                if each.get("is_supporting") is True:
                    supporting.append(title)
            case _:
                raise TaskError(
                    f"expected each of 'paragraphs' with 'title' and 'paragraph_text', got {each!r:.80}"
                )
    answerable = row.get("answerable", True)
    if not isinstance(answerable, bool):
        raise TaskError(f"expected 'answerable' to be true or false, got {answerable!r:.60}")
    if answerable:
        aliases = [each for each in _listed(row.get("answer_aliases", []), "answer_aliases") if each]
        answers = [
            *_answers(row, "answer"),
            *_answers({"answer_aliases": aliases}, "answer_aliases", least=0),
        ]
    else:
        answers = list(UNANSWERABLE_FORMS)
    name = _text(row, "id", "")
    data = {"answers": answers, "supporting": list(dict.fromkeys(supporting)), "documents": documents}
    return name if answerable or not name else f"{name}/{UNANSWERABLE}", data


def _open_question(row: Row) -> tuple[str, dict[str, Any]]:
    """Natural Questions in the forms of FlashRAG and Search-R1, NQ-open, and DPR (with passages)."""
    key = next((key for key in ("golden_answers", "answers", "answer") if key in row), None)
    if key is None:
        raise TaskError(
            f"expected 'golden_answers', 'answers' or 'answer', got the keys {', '.join(sorted(row))}"
        )
    data: dict[str, Any] = {"answers": _answers(row, key)}
    passages = [
        each
        for name in ("positive_ctxs", "negative_ctxs", "hard_negative_ctxs", "ctxs")
        for each in _listed(row.get(name, []), name)
    ]
    if passages:
        data["documents"] = [_document(each) for each in passages]
    return _text(row, "id", ""), data


# -- from task to question -----------------------------------------------------------------------------------------


def question_of(task: Task) -> Question:
    """The question of a task made here, or by hand.

    Raises:
        TaskError: it has no answers, or something in its data has another type.
    """
    data = task.data
    try:
        answers = tuple(_answers(data, "answers"))
        supporting = tuple(_answers(data, "supporting", least=0)) if "supporting" in data else ()
        return Question(task.prompt, answers, supporting, _text(data, "kind", ""))
    except TaskError as error:
        raise TaskError(f"task {task.id!r}: {error}") from None


def documents_of(task: Task) -> list[Document]:
    """The documents that came with a question; none where it came alone.

    Raises:
        TaskError: one has another form.
    """
    try:
        rows = _listed(task.data.get("documents", ()), "documents")
        return [Document(**_document(row)) for row in rows]
    except TaskError as error:
        raise TaskError(f"task {task.id!r}: {error}") from None


# -- checks --------------------------------------------------------------------------------------------------------


def _document(row: Any) -> dict[str, str]:
    match row:
        case {"title": str(title), "text": str(text)}:
            return {"title": title, "text": text}
    raise TaskError(f"expected a document with texts 'title' and 'text', got {row!r:.80}")


def _text(row: Row, key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str):
        raise TaskError(f"expected {key!r} to be a text, got {value!r:.60}")
    return value


def _listed(value: Any, key: str) -> Iterable[Any]:
    if not isinstance(value, list | tuple):
        raise TaskError(f"expected {key!r} to be a list, got {value!r:.60}")
    return value


def _answers(row: Row, key: str, *, least: int = 1) -> list[str]:
    """A text, or a list of texts, none of them blank."""
    value = row.get(key)
    texts = [value] if isinstance(value, str) else value
    if (
        not isinstance(texts, list | tuple)
        or len(texts) < least
        or not all(isinstance(text, str) and text.strip() for text in texts)
    ):
        raise TaskError(f"expected {key!r} to be a text or a list of texts, got {value!r:.60}")
    return list(texts)


def _zipped(value: Row, key: str, first: str, second: str) -> list[list[Any]]:
    """A list of pairs from a dict of two columns."""
    try:
        return [list(pair) for pair in zip(value[first], value[second], strict=True)]
    except (KeyError, TypeError, ValueError):
        raise TaskError(
            f"expected {key!r} with lists {first!r} and {second!r} of one length, got {value!r:.80}"
        ) from None
