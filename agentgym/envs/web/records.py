"""Web tasks as tasks of an environment."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.core import Task, TaskSet
from agentgym.envs.web.tasks import RECIPES, SEEDS, make
from agentgym.errors import TaskError
from agentgym.verifiers.web.reading import load_task, parse_task
from agentgym.verifiers.web.task import WebTask


@functools.cache
def bundled_tasks() -> TaskSet:
    """Every recipe with every seed of its split."""
    return TaskSet(
        [
            to_task(problem.task, split=split, gold=problem.gold)
            for split, recipes in RECIPES.items()
            for seed in SEEDS[split]
            for recipe in recipes
            for problem in [make(recipe, seed)]
        ],
        name="web",
    )


def tasks_of_files(path: Path) -> TaskSet:
    """A web task's JSON file, or a folder of them (also one folder for each task, with a ``task.json``).

    Raises:
        TaskError: there is none, or one of them is no web task; names the file.
    """
    files = [path] if path.is_file() else sorted([*path.glob("*.json"), *path.glob("*/task.json")])
    if not files:
        raise TaskError(f"expected a web task's JSON file or a folder of them, {path} is none")
    for file in files:
        load_task(file)  # which names the file in its errors
    rows = [json.loads(file.read_bytes()) for file in files]
    return TaskSet([to_task(row) for row in rows], name=path.name)


def to_task(data: Mapping[str, Any], *, split: str = "test", gold: str | None = None) -> Task:
    """A task of the environment out of an object of the web task format; `gold` is a page that meets it.

    The object is kept as JSON text: it is only read when an episode begins.
    """
    pages = {} if gold is None else {"gold": gold}
    return Task(data["id"], data["prompt"], split, {"task": json.dumps(data), **pages})


def web_task_of(task: Task) -> WebTask:
    """The web task that a task carries.

    Raises:
        TaskError: it carries none.
    """
    text = task.data.get("task")
    if not isinstance(text, str):
        raise TaskError(
            f"task {task.id!r}: expected data['task'] to be a web task as JSON text, got {text!r:.60}"
        )
    return _parsed(text)


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> WebTask:
    return parse_task(json.loads(text))


def secrets_of(task: Task) -> Sequence[str]:
    """What would give a task away: rubric lines that the brief does not say itself, asserts, and the gold page."""
    data = json.loads(task.data["task"])
    texts = [item["text"] for item in data["items"] if item["text"] not in task.prompt]
    texts += [
        json.dumps(step)
        for scenario in data["scenarios"]
        for step in scenario["steps"]
        if step["op"] == "assert"
    ]
    return [*texts, task.data["gold"]] if "gold" in task.data else texts
