"""Goals as tasks: with ids and splits that do not depend on order, and a way to reach full reward."""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from agentgym.cache import made_once
from agentgym.envs.webshop.catalogue import Catalogue, shop_cache
from agentgym.envs.webshop.goals import Goal, human_goals, price_ceiling, synthetic_goals
from agentgym.envs.webshop.products import Product
from agentgym.envs.webshop.reward import alike, has_attribute, wanted_options
from agentgym.envs.webshop.rows import Rows, write_rows
from agentgym.errors import TaskError, UsageError, nearest
from agentgym.tasks import ALL, Task, TaskSet

GoalKind = Literal["human", "synthetic"]
GOAL_KINDS: tuple[str, ...] = get_args(GoalKind)

FORMAT = 1  # of the cached tasks; raise it whenever other tasks come of a catalogue

_TEST, _DEV = 0, 1  # of ten parts
_ORIGINAL_TEST, _ORIGINAL_DEV = 500, 1500  # where these splits end, by number, on the full data


class GoalTasks(TaskSet):
    """Tasks in files: each is read when it is asked for, so a hundred thousand cost nothing to open.

    Args:
        folder: where `stable_tasks` put them.
        name: used in messages.
        chosen: numbers of the rows; None: all.
    """

    def __init__(self, folder: Path, name: str, chosen: range | tuple[int, ...] | None = None) -> None:
        super().__init__((), name=name)
        self._folder = folder
        self._rows, self._ids, self._split_names = _open_rows(folder)
        self._chosen = range(len(self._ids)) if chosen is None else chosen

    def __reduce__(self) -> Any:
        return GoalTasks, (self._folder, self.name, self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)

    def __iter__(self) -> Iterator[Task]:
        return map(self._task, self._chosen)

    def __contains__(self, key: object) -> bool:
        return (key.id if isinstance(key, Task) else key) in self._numbers

    def __getitem__(self, key: int | str | slice) -> Any:
        if isinstance(key, slice):
            return GoalTasks(self._folder, self.name, tuple(self._chosen[key]))
        if isinstance(key, str):
            if key not in self._numbers:
                raise TaskError(f"no task {key!r} in {self.name}.{nearest(key, list(self._numbers)[:1000])}")
            return self._task(self._numbers[key])
        try:
            return self._task(self._chosen[key])
        except IndexError:
            raise TaskError(f"{self.name} has {len(self)} tasks, there is no index {key}") from None

    @functools.cached_property
    def splits(self) -> tuple[str, ...]:
        """The splits that occur, in order of appearance."""
        return tuple(dict.fromkeys(self._split_names[number] for number in self._chosen))

    def split(self, name: str) -> TaskSet:
        """The tasks of one split; "all" means every task."""
        if name == ALL:
            return self
        if name not in self._splits:
            if name not in self.splits:
                raise TaskError(f"{self.name} has no split {name!r}.{nearest(name, (*self.splits, ALL))}")
            chosen = tuple(number for number in self._chosen if self._split_names[number] == name)
            self._splits[name] = GoalTasks(self._folder, f"{self.name}[{name}]", chosen)
        return self._splits[name]

    def draw(self, rng: np.random.Generator) -> Task:
        """One task, uniformly."""
        return self._task(self._chosen[int(rng.integers(len(self._chosen)))])

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {self._ids[number]: number for number in self._chosen}

    def _task(self, number: int) -> Task:
        return _read_task(self._folder, number)


@functools.lru_cache(8)
def _open_rows(folder: Path) -> tuple[Rows, list[str], list[str]]:
    """Goals, ids and splits."""
    table = json.loads((folder / "tasks.json").read_text(encoding="ascii"))
    return Rows(folder), table["ids"], table["splits"]


@functools.lru_cache(1 << 14)
def _read_task(folder: Path, number: int) -> Task:
    rows, ids, splits = _open_rows(folder)
    row = rows[number]
    return Task(ids[number], row["instruction_text"], splits[number], {"goal": row})


def stable_tasks(catalogue: Catalogue, kind: str) -> TaskSet:
    """A task for every goal that can be met.

    The id is a hash of what is asked for, the split one of ten parts by that hash: one test, one dev, eight train. The
    price ceiling, too, is drawn by the hash, above the price that the product's page names last.

    Args:
        catalogue: the products.
        kind: "human": instructions that people wrote; "synthetic": one choice of options for each product that has an
            instruction made by rule.
    """
    if kind not in GOAL_KINDS:
        raise UsageError(f"expected goals to be {' or '.join(map(repr, GOAL_KINDS))}, got {kind!r}")

    def fill(folder: Path) -> None:
        goals: dict[str, Goal] = {}
        for product, goal in _plain_goals(catalogue, kind):
            digest = _digest(goal)
            if digest not in goals and options_for(product, goal) is not None:
                ceiling, suffix = price_ceiling(max(product.pricing), random.Random(digest))
                text = goal.instruction_text + suffix
                goals[digest] = replace(goal, price_upper=ceiling, instruction_text=text)
        write_rows(folder, (goal.to_json() for goal in goals.values()))
        table = {"ids": [f"shop-{digest}" for digest in goals], "splits": list(map(_split, goals))}
        (folder / "tasks.json").write_text(json.dumps(table), encoding="ascii")

    folder = made_once(shop_cache() / f"{catalogue.folder.name}-{kind}-{FORMAT}", fill)
    return GoalTasks(folder, f"{kind} goals")


def original_tasks(goals: Sequence[Goal]) -> TaskSet:
    """The original's goals in its order, split by number as its baselines do where there are more than 1,500."""

    def split(number: int) -> str:
        if len(goals) <= _ORIGINAL_DEV or number >= _ORIGINAL_DEV:
            return "train"
        return "test" if number < _ORIGINAL_TEST else "dev"

    tasks = (
        Task(str(n), goal.instruction_text, split(n), {"goal": goal.to_json()})
        for n, goal in enumerate(goals)
    )
    return TaskSet(tasks, name="original goals")


def goal_of(task: Task) -> Goal:
    """The goal of a task.

    Raises:
        TaskError: the task carries none.
    """
    row: Any = task.data.get("goal")
    try:
        options = row["goal_options"]
        plain = dict(options) if isinstance(options, Mapping) else tuple(options)
        goal = Goal(**{**row, "attributes": tuple(row["attributes"]), "goal_options": plain})
    except (TypeError, KeyError):
        raise TaskError(
            f"expected a WebShop task with data={{'goal': {{...}}}}; {task.id!r} has {row!r:.80}"
        ) from None
    if not goal.attributes:
        raise TaskError(f"expected a goal with attributes; {task.id!r} has none")
    return goal


def options_for(product: Product, goal: Goal) -> dict[str, str] | None:
    """Option name -> value that give the goal's product full reward; None where it has not what is asked for.

    Each wanted value is looked for among options not used yet, equal ones before those that are alike.
    """
    if not all(has_attribute(product, attribute) for attribute in goal.attributes):
        return None
    chosen: dict[str, str] = {}
    for option in wanted_options(goal):
        wanted_name, value = ("", option) if isinstance(option, str) else option
        names = [wanted_name] if wanted_name in product.options else list(product.options)
        fitting = [(name, own) for name in names if name not in chosen for own in product.options[name]]
        found = next((pair for pair in fitting if pair[1] == value), None) or next(
            (pair for pair in fitting if alike(pair[1], value)), None
        )
        if found is None:
            return None
        chosen[found[0]] = found[1]
    return chosen


def _plain_goals(catalogue: Catalogue, kind: str) -> Iterator[tuple[Product, Goal]]:
    """Goals without price ceilings."""
    no_price = _NoCeiling()
    if kind == "human":
        instructions = catalogue.instructions
        for product in map(catalogue.product, instructions):
            for goal in human_goals([product], instructions, no_price, random.Random(0)):
                yield product, goal
    else:
        for product in map(catalogue.product, catalogue.instructed):
            few = replace(product, options={name: (_pick(product, name),) for name in product.options})
            for goal in synthetic_goals([few], no_price, random.Random(0)):
                yield product, replace(goal, weight=1)


class _NoCeiling(dict[str, float]):
    """Prices above every ceiling, so that goals come without one."""

    def __missing__(self, asin: str) -> float:
        return float("inf")


def _pick(product: Product, name: str) -> str:
    return random.Random(f"{product.asin}/{name}").choice(product.options[name])


def _digest(goal: Goal) -> str:
    options: Any = goal.to_json()["goal_options"]
    asked = json.dumps([goal.asin, goal.instruction_text, goal.attributes, options], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:12]


def _split(digest: str) -> str:
    part = int(digest, 16) % 10
    return {_TEST: "test", _DEV: "dev"}.get(part, "train")
