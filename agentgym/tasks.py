"""Task records and sets of them: files in, selection by id, index or seed out."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np

from agentgym.errors import InfrastructureError, MissingDependency, TaskError, UsageError, nearest

ALL = "all"


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed: what a task's `data` is made of."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a task's data cannot be changed; copy it with dict(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenDict, (dict(self),))


def freeze(value: Any) -> Any:
    """The same JSON-like value out of `FrozenDict` and tuples."""
    if isinstance(value, FrozenDict):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({str(key): freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value


@dataclass(frozen=True, slots=True)
class Task:
    """One immutable problem.

    Attributes:
        id: unique in its set.
        prompt: what the policy reads first.
        split: "train", "test" or any other name.
        data: everything else, the solution included. Only the environment and the verifier read it.
    """

    id: str
    prompt: str = ""
    split: str = "train"
    data: Mapping[str, Any] = field(default_factory=FrozenDict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise TaskError(f"expected a task id that is a non-empty text, got {self.id!r}")
        object.__setattr__(self, "data", freeze(self.data))

    def __deepcopy__(self, memo: dict[int, Any]) -> Task:
        return self


class TaskSet(Sequence[Task]):
    """An immutable sequence of tasks with unique ids.

    Args:
        tasks: the tasks, in order.
        name: used in messages.
    """

    def __init__(self, tasks: Iterable[Task], *, name: str = "tasks") -> None:
        self.name = name
        self._tasks = tuple(tasks)
        self._by_id: dict[str, Task] = {}
        self._splits: dict[str, TaskSet] = {}
        for index, task in enumerate(self._tasks):
            if not isinstance(task, Task):
                raise TaskError(f"{name}: expected Task objects, item {index} is a {type(task).__name__}")
            if task.id in self._by_id:
                raise TaskError(f"{name}: task id {task.id!r} appears twice")
            self._by_id[task.id] = task

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __contains__(self, key: object) -> bool:
        return key in self._by_id if isinstance(key, str) else key in self._tasks

    @overload
    def __getitem__(self, key: int | str) -> Task: ...
    @overload
    def __getitem__(self, key: slice) -> TaskSet: ...
    def __getitem__(self, key: int | str | slice) -> Task | TaskSet:
        if isinstance(key, slice):
            return TaskSet(self._tasks[key], name=self.name)
        if isinstance(key, str):
            if key not in self._by_id:
                raise TaskError(f"no task {key!r} in {self.name}.{nearest(key, self._by_id)}")
            return self._by_id[key]
        try:
            return self._tasks[key]
        except IndexError:
            raise TaskError(f"{self.name} has {len(self)} tasks, there is no index {key}") from None

    def __deepcopy__(self, memo: dict[int, Any]) -> TaskSet:
        return self

    def __repr__(self) -> str:
        return f"TaskSet({self.name!r}, {len(self)} tasks, splits {list(self.splits)})"

    @functools.cached_property
    def splits(self) -> tuple[str, ...]:
        """The splits that occur, in order of appearance."""
        return tuple(dict.fromkeys(task.split for task in self._tasks))

    def split(self, name: str) -> TaskSet:
        """The tasks of one split; "all" means every task."""
        if name == ALL:
            return self
        if name not in self._splits:
            if name not in self.splits:
                raise TaskError(f"{self.name} has no split {name!r}.{nearest(name, (*self.splits, ALL))}")
            chosen = (task for task in self._tasks if task.split == name)
            self._splits[name] = TaskSet(chosen, name=f"{self.name}[{name}]")
        return self._splits[name]

    def draw(self, rng: np.random.Generator) -> Task:
        """One task, uniformly."""
        if not self._tasks:
            raise TaskError(f"{self.name} is empty")
        return self._tasks[int(rng.integers(len(self._tasks)))]

    # -- sources ---------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, source: TaskSource) -> TaskSet:
        """Tasks from a set, a sequence, or a file by its ending: ``.jsonl`` or ``.parquet``."""
        if isinstance(source, TaskSet):
            return source
        if not isinstance(source, str | Path):
            if not isinstance(source, Iterable):
                raise TaskError(f"expected tasks as a file, a sequence or a TaskSet, got {source!r:.60}")
            return cls(source)
        path = Path(source)
        if path.suffix == ".jsonl":
            return cls.from_jsonl(path)
        if path.suffix == ".parquet":
            return cls.from_parquet(path)
        raise TaskError(f"expected a .jsonl or .parquet file of tasks, got {str(path)!r}")

    @classmethod
    def from_jsonl(cls, path: str | Path) -> TaskSet:
        """One JSON object a line with `id`, and optionally `prompt` and `split`; other keys become `data`."""
        return cls((task_from_row(row, where) for row, where in read_jsonl(path)), name=Path(path).name)

    @classmethod
    def from_parquet(cls, path: str | Path) -> TaskSet:
        """The same columns as the keys of `from_jsonl`."""
        return cls(
            (task_from_row(row, f"{path}, row {number}") for number, row in enumerate(parquet_rows(path), 1)),
            name=Path(path).name,
        )

    @classmethod
    def from_dataset(
        cls, name: str, *, split: str, convert: Callable[[Mapping[str, Any]], Task] | None = None
    ) -> TaskSet:
        """Rows of a Hugging Face dataset, read with the columns of `from_jsonl` or through `convert`."""
        rows = dataset_rows(name, split=split)
        if convert is not None:
            return cls((convert(row) for row in rows), name=name)
        return cls(
            (
                task_from_row({"split": split} | row, f"{name}, row {number}")
                for number, row in enumerate(rows, 1)
            ),
            name=name,
        )


TaskSource: TypeAlias = TaskSet | Sequence[Task] | str | Path


def choose(wanted: object, tasks: TaskSet, pool: TaskSet, rng: np.random.Generator) -> Task:
    """The task that ``reset(options={"task": wanted})`` asks for.

    Args:
        wanted: an id of `tasks`, an index into `pool`, a task, or None: one of `pool` is drawn.
        tasks: every task.
        pool: those of the split.
        rng: draws.
    """
    if wanted is None:
        return pool.draw(rng)
    if isinstance(wanted, Task):
        return wanted
    if isinstance(wanted, str):
        return tasks[wanted]
    if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool):
        return pool[int(wanted)]
    raise UsageError(f"expected options['task'] to be an id, an index or a Task, got {wanted!r}")


def read_jsonl(path: str | Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Each object of a JSONL file with a text that says where it stands; empty lines are skipped.

    Raises:
        TaskError: the file is missing, or a line is not a JSON object; names file and line.
    """
    for number, line in jsonl_lines(path):
        where = f"{path}, line {number}"
        try:
            row = json_object(line)
        except TaskError as error:
            raise TaskError(f"{where}: {error}") from None
        yield row, where


def jsonl_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Each line of a JSONL file that is not empty, after its number.

    Raises:
        TaskError: the file is missing, or no text.
    """
    try:
        # Only line feeds end a line: JSON texts may hold the other characters that Python splits at.
        with open(path, encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.removesuffix("\n")
    except (OSError, ValueError) as error:  # the second: no UTF-8, or a path with a NUL
        raise TaskError(f"cannot read {path}: {error}") from None


def json_object(line: str) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        TaskError: it holds something else.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and deep nesting
        raise TaskError(f"expected a JSON object, got {line[:60]!r} ({error})") from None
    if not isinstance(row, dict):
        raise TaskError(f"expected a JSON object, got {type(row).__name__}")
    return row


def parquet_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    """Each row of a parquet file; only some of them are in memory at a time.

    Raises:
        TaskError: the file is missing, or no parquet.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingDependency("reading parquet needs pyarrow: pip install 'agentgym-suite[data]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except (OSError, ArrowException) as error:
        raise TaskError(f"cannot read {path} as parquet: {error}") from None


def dataset_rows(name: str, *, split: str | None) -> Iterator[dict[str, Any]]:
    """Each row of a dataset of the Hugging Face hub, or of its local cache.

    Args:
        name: OWNER/NAME.
        split: None: the only one there is.

    Raises:
        TaskError: there is no such split, or several and none was named.
        InfrastructureError: the dataset cannot be had.
    """
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise MissingDependency(
            "reading a Hugging Face dataset needs datasets: pip install 'agentgym-suite[data]'"
        ) from None
    try:
        loaded = datasets.load_dataset(name, split=split)
    # Whatever the hub, its client, the file system or a dataset's own script raises
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        # ValueError: no such split
        kind = TaskError if isinstance(error, ValueError) else InfrastructureError
        raise kind(f"the dataset {name} cannot be had: {reason}") from None
    if split is None:
        if len(loaded) != 1:
            raise TaskError(f"{name}: expected one of its splits {', '.join(loaded)} to be named")
        loaded = next(iter(loaded.values()))
    yield from loaded


def task_from_row(row: Mapping[str, Any], where: str) -> Task:
    """A task from a row with `id`, `prompt` and `split`; `where` names the row in errors."""
    rest = dict(row)
    values = {}
    for key, default in (("id", None), ("prompt", ""), ("split", "train")):
        values[key] = rest.pop(key, default)
        if not isinstance(values[key], str):
            raise TaskError(f"{where}: expected {key!r} to be a text, got {values[key]!r}")
    if values["id"] == "":
        raise TaskError(f"{where}: expected a non-empty 'id'")
    return Task(values["id"], values["prompt"], values["split"], rest)
