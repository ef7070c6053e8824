"""Invented worlds as tasks: a task names its world and its question, and both are made when they are needed."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from agentgym.envs.search_qa.documents import MemoryCorpus
from agentgym.envs.search_qa.questions import Asker, Question
from agentgym.envs.search_qa.reasoning import Program
from agentgym.envs.search_qa.world import SPLITS, VERSION, World, WorldOptions, make_world
from agentgym.envs.search_qa.writing import write_documents
from agentgym.errors import TaskError
from agentgym.tasks import Task, TaskSet

_WORLDS = {"train": 100, "dev": 15, "test": 25}
_QUESTIONS = 8  # of each world
_ATTEMPTS = 20  # at a world; one is enough but for the smallest
_KEPT = 160  # worlds kept ready: all of one choice of options; 0.2 MB each


@functools.lru_cache(8)
def invented_tasks(options: WorldOptions) -> TaskSet:
    """Eight questions about each of 100 worlds to train on, 15 for development and 25 to test."""
    key = asdict(options)
    return TaskSet(
        (
            Task(
                f"{split}/world-{number:03}/{question}",
                split=split,
                data={"world": key | {"split": split, "number": number}, "question": question},
            )
            for split, count in _WORLDS.items()
            for number in range(count)
            for question in range(_QUESTIONS)
        ),
        name="questions about invented worlds",
    )


def invented(task: Task) -> tuple[Question, MemoryCorpus]:
    """The question of a task, and the documents of its world.

    Raises:
        TaskError: the task names no question of a world.
    """
    key, number = _key(task)
    questions, corpus = _open(*key)
    return questions[number], corpus


def solution(task: Task) -> tuple[World, Program]:
    """The world of a task, and the program over its facts whose value is the answer; for studies of what is needed.

    Raises:
        TaskError: the task names no question of a world.
    """
    key, number = _key(task)
    world, questions, _ = _make(*key)
    return world, questions[number][1]


def _key(task: Task) -> tuple[tuple[WorldOptions, str, int], int]:
    """What a task names: a world, and the number of a question about it."""
    try:
        row: dict[str, Any] = dict(task.data["world"])
        split, number, question = row.pop("split"), row.pop("number"), task.data["question"]
        if split not in SPLITS or not isinstance(number, int) or question not in range(_QUESTIONS):
            raise ValueError(f"there is no question {question!r} of world {number!r} in split {split!r}")
        return (WorldOptions(**row), split, number), question
    except (KeyError, TypeError, ValueError) as error:
        raise TaskError(f"task {task.id!r} names no invented world: {error}") from None


@functools.lru_cache(_KEPT)
def _open(options: WorldOptions, split: str, number: int) -> tuple[tuple[Question, ...], MemoryCorpus]:
    world, questions, rng = _make(options, split, number)
    return tuple(question for question, _ in questions), MemoryCorpus(write_documents(world, rng))


def _make(
    options: WorldOptions, split: str, number: int
) -> tuple[World, tuple[tuple[Question, Program], ...], random.Random]:
    """A world and its questions; where a small one has too few questions, the next that has enough.

    The random generator is left where the documents are to be drawn.
    """
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"world {VERSION} {options} {split} {number} {attempt}")
        world = make_world(options, split, rng)
        try:
            questions = tuple(_questions(Asker(world, rng), options, number, rng))
        except TaskError:
            continue
        return world, questions, rng
    raise TaskError(f"found no world with questions enough for {options}; give worlds more documents")


def _questions(
    asker: Asker, options: WorldOptions, number: int, rng: random.Random
) -> Iterator[tuple[Question, Program]]:
    for position in range(_QUESTIONS):
        hops = options.hops[(position + number * _QUESTIONS) % len(options.hops)]
        yield asker.question(hops, answerable=rng.random() >= options.unanswerable)
