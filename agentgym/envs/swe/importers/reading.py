"""Where records come from: files, folders of files or of tasks, datasets of the Hugging Face hub; row by row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentgym.envs.swe.importers import harbor, swebench
from agentgym.envs.swe.importers.files import read_json
from agentgym.errors import TaskError
from agentgym.tasks import dataset_rows, json_object, jsonl_lines, parquet_rows

RECORDS = "tasks.jsonl"

_DATASET = re.compile(r"[\w.-]+/[\w.-]+")
_TASK_FOLDERS = {harbor.TASK_FILE: harbor.read_folder, swebench.TASK_FILE: swebench.read_folder}
_DEEPEST = 3  # folders below the one given in which tasks are looked for


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of a source.

    Attributes:
        number: of the row in its source, from 1; of a line in a file of lines.
        where: source and number of the row, or name of its folder, for errors.
        folder: what paths in the row are relative to.
        read: gives the row; raises a `TaskError` for a broken one, after which the next can still be read.
    """

    number: int
    where: str
    folder: Path
    read: Callable[[], Any]


def read_source(source: str | Path, *, split: str = "") -> Iterator[SourceRow]:
    """The rows of a file or folder.

    Args:
        source: a JSON Lines, JSON or parquet file; a folder with tasks.jsonl, or else with such files (also below
            data/), or else with SWE-bench or Harbor task folders; or such a task folder itself.
        split: of a folder of files only those whose names start so.

    Raises:
        TaskError: there is no such thing, or nothing in it that could be records.
    """
    path = Path(source)
    if not path.is_dir():
        return _file_rows(path)
    if (path / RECORDS).is_file():
        return _file_rows(path / RECORDS)
    if files := _files_in(path) or _files_in(path / "data"):
        return (row for file in files if file.name.startswith(split) for row in _file_rows(file))
    tasks = sorted(_task_folders(path, _DEEPEST))
    if not tasks:
        kinds = ", ".join([RECORDS, *(f"*{ending}" for ending in _READERS)])
        raise TaskError(f"{path}: expected {kinds} or task folders with {' or '.join(_TASK_FOLDERS)} in it")
    return (_task_row(path, folder, number) for number, folder in enumerate(tasks, start=1))


def read_dataset(name: str, *, split: str = "") -> Iterator[SourceRow]:
    """The rows of a dataset of the Hugging Face hub, or of its local cache.

    Raises:
        TaskError: `split` is not given and there are several, or there is no such split.
        InfrastructureError: it cannot be had.
    """
    # A dataset has no folder: whatever path a row names is not there, as nothing of the dataset's name is.
    return _rows(name, Path(name), dataset_rows(name, split=split or None))


def is_dataset_name(source: str) -> bool:
    """Whether this can only be a name on the hub: OWNER/NAME, and nothing on this machine."""
    path = Path(source)
    return bool(_DATASET.fullmatch(source)) and not path.exists() and path.suffix not in _READERS


def _jsonl(path: Path) -> Iterator[SourceRow]:
    for number, line in jsonl_lines(path):
        yield SourceRow(number, f"{path}, line {number}", path.parent, partial(json_object, line))


def _json(path: Path) -> Iterator[SourceRow]:
    """A list of rows, an object of rows by id, or one row."""
    data = read_json(path)
    if isinstance(data, dict) and "instance_id" not in data and all(map(_is_object, data.values())):
        data = [{"instance_id": name, **row} for name, row in data.items()]
    return _rows(str(path), path.parent, data if isinstance(data, list) else [data])


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _parquet(path: Path) -> Iterator[SourceRow]:
    return _rows(str(path), path.parent, parquet_rows(path))


_READERS: Mapping[str, Callable[[Path], Iterator[SourceRow]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}


def _file_rows(path: Path) -> Iterator[SourceRow]:
    return _READERS.get(path.suffix, _jsonl)(path)


def _files_in(folder: Path) -> list[Path]:
    """The files of rows in a folder; JSON ones may be anything and must be named."""
    return sorted(path for ending in (".jsonl", ".parquet") for path in folder.glob(f"*{ending}"))


def _rows(name: str, folder: Path, rows: Iterable[Any]) -> Iterator[SourceRow]:
    for number, row in enumerate(rows, start=1):
        yield SourceRow(number, f"{name}, row {number}", folder, partial(_plain, row))


def _plain(row: Any) -> Any:
    """The row as JSON has it: a table may hold dates and bytes."""
    return json.loads(json.dumps(row, default=str))


def _task_folders(path: Path, depth: int) -> Iterator[Path]:
    if any((path / name).is_file() for name in _TASK_FOLDERS):
        yield path
    elif depth:
        for folder in path.iterdir():
            if folder.is_dir() and not folder.is_symlink():
                yield from _task_folders(folder, depth - 1)


def _task_row(root: Path, folder: Path, number: int) -> SourceRow:
    read = next(read for name, read in _TASK_FOLDERS.items() if (folder / name).is_file())
    return SourceRow(number, f"{root}, folder {folder.name}", folder, partial(read, folder))
