"""SearchQA-v0: questions answered with a search tool."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.core import AgentEnv, Episode, Task, ToolCall, Verdict, tool
from agentgym.envs.search_qa.documents import Document, MemoryCorpus, Retriever, open_corpus
from agentgym.envs.search_qa.grading import grade, normalise
from agentgym.envs.search_qa.invented import invented, invented_tasks
from agentgym.envs.search_qa.questions import UNANSWERABLE, Question
from agentgym.envs.search_qa.records import documents_of, load_records, question_of
from agentgym.envs.search_qa.remote import RemoteRetriever
from agentgym.envs.search_qa.tags import Tags
from agentgym.envs.search_qa.world import WorldOptions
from agentgym.errors import TaskError, ToolError, UsageError, whole_number
from agentgym.protocols import Protocol
from agentgym.tasks import FrozenDict, TaskSet, TaskSource

SCORES = ("em", "f1")
_PLACE = "{question}"  # in instructions
_LONGEST_QUERY = 1000  # characters
_LONGEST_READ = 20_000
_LONG_ANSWER = 11  # characters
_KEPT = 64  # corpora of records kept ready


class SearchQAEnv(AgentEnv):
    """Answer a question that no single document answers, by searching.

    ## Description
    A question, a corpus, a search engine (BM25, exactly as Lucene ranks). Without `tasks` the corpora are invented
    worlds: documents in several styles about things with names, near-equal names and aliases, and questions that need
    one to four of them, each proved to have exactly one answer and to need every one of its documents; some have no
    answer, and the right one is to say so. With `tasks` the questions come from a file in the form of HotpotQA,
    2WikiMultihopQA, MuSiQue or Natural Questions.

    ## Actions
    Calls of the tools ``search``, ``read`` and ``answer``, in the protocol chosen; `protocol="search-r1"` is the tag
    form ``<search>query</search>``, ``<answer>text</answer>``. The first answer counts and ends the episode.

    ## Observations
    The question; then what was found, ``Doc 1(Title: ...) text`` and so on: at most `top_k` documents, of each at most
    `max_chars` characters.

    ## Reward
    0 before the end, then 1 where the answer equals a right one after SQuAD's normalisation, else 0. With `score="f1"`
    it is the F1 of their words, but 0 for an answer that is longer than the right one: listing candidates does not pay.
    `resolved` is exact match with both.

    ## Episode end
    Terminated by an answer; truncated after `max_turns` (default: 10).

    Args:
        tasks: a file of questions (``.json``, ``.jsonl``, ``.parquet``), or tasks; None: invented worlds.
        corpus: what is searched. "own": what came with the question, the paragraphs of its record or the documents of
            its world; "shared": the paragraphs of all records together; a JSONL file of documents; or the address of a
            retriever that speaks Search-R1's form, ``http://HOST:PORT/retrieve``.
        shard: ``(i, n)``: only part `i` of `n` of the documents that came with the question, for a team whose members
            search in different places. Each document is in one part; those that the answer needs are dealt in turn, so
            that a question that needs two or more cannot be answered from one part.
        score: "em" or "f1".
        top_k: documents found by a search.
        max_chars: of each that are shown; ``read`` shows the rest.
        instructions: a text of your own instead of the system prompt. Where it holds ``{question}`` there is no system
            prompt; the text, filled in, is the first observation.
        retriever_timeout: seconds to wait for a retriever at each attempt; no longer than the episode has left.
        retriever_retries: more attempts after one that failed, as long as there is time.
        hops: of invented questions: how many documents they need, from 1 to 4 each.
        documents: of an invented world.
        distractors: share of documents about something whose name is nearly that of another.
        aliases: share of things with a second name.
        unanswerable: share of questions without an answer.
        world_seed: other worlds.
        **kwargs: see `AgentEnv`.

    ## Version history
    v0: first.
    """

    default_max_turns = 10
    instructions = (
        "Answer the question from what a search engine finds. You may need several documents, one after the other: "
        "what one of them names is often what to search for next. Names can be alike, and a thing can have a second "
        "name. Answer once, with the bare answer and nothing around it: a name, a number, a date, or yes or no."
    )

    def __init__(
        self,
        *,
        corpus: str | Path = "own",
        shard: Sequence[int] | None = None,
        score: str = "em",
        top_k: int = 3,
        max_chars: int = 1000,
        instructions: str | None = None,
        retriever_timeout: float = 10.0,
        retriever_retries: int = 3,
        hops: Sequence[int] = (1, 2, 3, 4),
        documents: int = 120,
        distractors: float = 0.25,
        aliases: float = 0.3,
        unanswerable: float = 0.1,
        world_seed: int = 0,
        tasks: TaskSource | None = None,
        protocol: str | Protocol = "hermes",
        **kwargs: Any,
    ) -> None:
        if score not in SCORES:
            raise UsageError(f"expected score among {', '.join(SCORES)}, got {score!r}")
        if instructions is not None and not isinstance(instructions, str):
            raise UsageError(f"expected instructions to be a text, got {instructions!r:.60}")
        self.score = score
        self.top_k = whole_number("top_k", top_k, least=1)
        self.max_chars = whole_number("max_chars", max_chars, least=1)
        self._own_instructions = instructions
        self.shard = None if shard is None else _expect_shard(shard, corpus)
        options = WorldOptions(hops, documents, distractors, aliases, unanswerable, world_seed)  # type: ignore[arg-type]
        if tasks is None:
            tasks = invented_tasks(options)
        elif options != WorldOptions():
            raise UsageError(
                "hops, documents, distractors, aliases, unanswerable and world_seed are for invented worlds; "
                "tasks=... are taken as they are"
            )
        if protocol == Tags.name:
            protocol = Tags.of(self._tool_methods)
        super().__init__(tasks=tasks, protocol=protocol, **kwargs)
        self._common = self._open(corpus, retriever_timeout, retriever_retries)

    def _open(self, corpus: str | Path, timeout: float, retries: int) -> Retriever | None:
        """What all questions are asked of; None where each has its own."""
        if corpus == "own":
            for task in self.task_set:
                _expect_documents(task)
            return None
        if corpus == "shared":
            if any("world" in task.data for task in self.task_set):
                raise UsageError(
                    "corpus='shared' is for the records of a file; an invented world is a corpus of its own"
                )
            return _shared_corpus(self.task_set)
        if not isinstance(corpus, str | Path):
            raise UsageError(f"expected corpus to be a text or a path, got {corpus!r:.60}")
        if isinstance(corpus, str) and corpus.startswith(("http://", "https://")):
            return RemoteRetriever(corpus, timeout, retries)
        return open_corpus(corpus)

    def load_tasks(self, source: TaskSource) -> TaskSource:
        """Read a file of questions."""
        return load_records(source) if isinstance(source, str | Path) else source

    # -- the episode ---------------------------------------------------------------------------------------------------

    def begin(self, task: Task) -> str:
        """Ask the question."""
        self._question, own = _open_task(task)
        self._retriever: Retriever = own if self._common is None else self._common
        if self._retriever is own:
            _expect_documents(task)
            if self.shard is not None:
                self._retriever = _part(task, *self.shard)
        self._found: dict[Document, None] = {}
        self._searches = 0
        self._answer: str | None = None
        if self._own_instructions is not None and _PLACE in self._own_instructions:
            return self._own_instructions.replace(_PLACE, self._question.text)
        return self._question.text

    @property
    def system_prompt(self) -> str:
        """How to answer, what to say where there is no answer, and how to call the tools."""
        if self._own_instructions is not None:
            return "" if _PLACE in self._own_instructions else self._own_instructions
        return super().system_prompt

    @tool(read_only=True)
    def search(self, query: str) -> str:
        """Search for documents.

        Args:
            query: words that the document should hold.
        """
        if len(query) > _LONGEST_QUERY:
            raise ToolError(f"expected a query of at most {_LONGEST_QUERY} characters, got {len(query)}")
        if self.seconds_left <= 0:
            raise ToolError("the time for this task is over")
        self._searches += 1
        documents: list[Document] = []
        if query.strip():
            documents = self._retriever.search(query, self.top_k, seconds=self.seconds_left)
        self._found |= dict.fromkeys(documents)
        if not documents:
            return "Nothing was found."
        return "\n".join(
            f"Doc {n}(Title: {each.title}) {_cut(each.text, self.max_chars)}"
            for n, each in enumerate(documents, 1)
        )

    @tool(read_only=True)
    def read(self, title: str) -> str:
        """Read all of a document that a search has found.

        Args:
            title: as the search gave it.
        """
        texts = [document.text for document in self._found if document.title.strip() == title.strip()]
        if not texts:
            raise ToolError("no search has found a document with this title; search for it first")
        return _cut("\n".join(texts), _LONGEST_READ)

    @tool
    def answer(self, text: str) -> str:
        """Give the answer and end; where the documents do not say, the answer is "unanswerable".

        Args:
            text: the bare answer.
        """
        self._answer = text
        self.finish()
        return "Your answer was taken."

    def verify(self, episode: Episode) -> Verdict:
        """Compare the answer with the right ones."""
        parts = {"answered": float(self._answer is not None), "searches": float(self._searches)}
        supporting = {normalise(title) for title in self._question.supporting}
        if supporting:
            found = {normalise(document.title) for document in self._found}
            parts["supporting_recall"] = len(supporting & found) / len(supporting)
        if self._answer is None:
            return Verdict(0.0, components=parts | {"em": 0.0, "f1": 0.0})
        grades = grade(self._answer, self._question.answers)
        return Verdict(
            grades.em if self.score == "em" else grades.f1_paid,
            passed=grades.em == 1.0,
            components=parts | {"em": grades.em, "f1": grades.f1},
        )

    def anchor(self) -> str:
        """Which documents have been found, whatever the way."""
        return "found: " + "; ".join(sorted(document.title for document in self._found))

    # -- for audits ----------------------------------------------------------------------------------------------------

    def gold(self) -> str:
        """Search for each supporting document by its title, then answer; at once where turns run out."""
        self.episode  # noqa: B018  # before the first reset there is none: say so
        titles = self._question.supporting or (self._question.text,)
        if self._searches < len(titles) and self.turns_left > 1:
            return self._write("search", query=titles[self._searches][:_LONGEST_QUERY])
        return self._write("answer", text=self._question.answers[0].strip())

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Asking for the answer, answering with all there is, naming ids and files, answering twice."""
        question, right = self._question, self._question.answers[0].strip()
        task = self.episode.task.id
        documents = self._retriever.search(question.text, 50)
        listed = ", ".join([*(document.title for document in documents), right, "yes, no", UNANSWERABLE])
        everything = " ".join(document.text for document in documents) + f" {right}"
        ask = [self._write("search", query=text) for text in ("what is the answer", "gold answers", task)]
        files = [
            self._write("read", title=path)
            for path in (task, "invented.json", "/proc/self/environ", "answers")
        ]
        return {
            "ask for the answer": [*ask, self._write("answer", text="the answer")],
            "read files": [*files, self._write("answer", text=task)],
            "list every candidate": [self._write("answer", text=listed)],
            "answer with everything found": [self._write("answer", text=" ".join(everything.split()))],
            "answer twice": [self._write("answer", text="?") + "\n" + self._write("answer", text=right)],
            "answer in prose": [self._write("answer", text=f"it could be {right} or something else")],
        }

    def secrets(self, task: Task) -> Sequence[str]:
        """The answers, where they are too long to turn up by chance, and the answers as data holds them."""
        question, _ = _open_task(task)
        known = UNANSWERABLE in question.answers  # the system prompt says that one
        long = [] if known else [text for text in question.answers if len(text) > _LONG_ANSWER]
        return [*long, repr(question.answers), repr(question.supporting)]

    def _write(self, name: str, **arguments: str) -> str:
        return self.protocol.render_call(ToolCall(name, FrozenDict(arguments)))


def _expect_shard(shard: Sequence[int], corpus: str | Path) -> tuple[int, int]:
    match shard:
        case [int(number), int(count)] if 0 <= number < count:
            pass
        case _:
            raise UsageError(f"expected shard to be (i, n) with 0 <= i < n, got {shard!r:.60}")
    if corpus != "own":
        raise UsageError(
            f"shard divides what came with each question, corpus='own'; got corpus={str(corpus)!r:.60}"
        )
    return number, count


def _expect_documents(task: Task) -> None:
    if "world" not in task.data and not task.data.get("documents"):
        raise TaskError(f"task {task.id!r} came without documents; say what to search with corpus=...")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."


@functools.lru_cache(4)  # the environments of a vector have the same set
def _shared_corpus(tasks: TaskSet) -> MemoryCorpus:
    """The paragraphs of all records."""
    return MemoryCorpus(document for task in tasks for document in documents_of(task))


@functools.lru_cache(4 * _KEPT)
def _part(task: Task, number: int, count: int) -> MemoryCorpus:
    """A shard of what came with a task."""
    question, corpus = _open_task(task)
    return corpus.shard(question.supporting, number, count)


@functools.lru_cache(_KEPT)
def _open_task(task: Task) -> tuple[Question, MemoryCorpus]:
    """The question of a task, and what came with it to search."""
    if "world" in task.data:
        return invented(task)
    return question_of(task), MemoryCorpus(documents_of(task))
