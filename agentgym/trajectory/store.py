"""Trajectories on disk: one JSON object a line, append-only, and nothing lost but a line that was being written.

The format is version 1 of `schema.json` beside this file; `docs/trajectories.md` explains it. A line is
written at once and flushed, under a lock that threads and processes share. A last line without its end is
what a crash leaves: readers skip it with a warning, and the next `append` moves it to ``<file>.torn``, so
that a rerun goes on cleanly.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np

from agentgym.errors import MissingDependency, UsageError
from agentgym.messages import Conversation, Message, MessageCall
from agentgym.trajectory.records import SCHEMA_VERSION, Call, Event, Sampled, Segment, Step, Trajectory
from agentgym.trajectory.typed import ARRAYS, check

T = TypeVar("T")

FILE_NAME = "trajectories.jsonl"
_HEAD = re.compile(rb'\{"schema_version": ?1, ?"id": ?("(?:[^"\\]|\\.)*")')


class TrajectoryStore:
    """A file of trajectories.

    Args:
        path: the file, or the folder in which it is called ``trajectories.jsonl``.
        tokens: where `append` puts token ids, masks, log-probs and rewards: "inline" in the line itself,
            "parquet" in one file per trajectory in the folder ``tokens`` beside it (columns trajectory_id,
            segment, token_ids, mask, logprobs, rewards). Both are read, whatever is said here.

    Raises:
        MissingDependency: "parquet" without pyarrow.
    """

    def __init__(self, path: str | Path, *, tokens: Literal["inline", "parquet"] = "inline") -> None:
        if tokens not in ("inline", "parquet"):
            raise UsageError(f"expected tokens to be 'inline' or 'parquet', got {tokens!r}")
        if tokens == "parquet":
            _pyarrow()
        path = Path(path)
        self.path = path if path.suffix == ".jsonl" else path / FILE_NAME
        self.tokens = tokens
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._pid = 0

    def open(self) -> None:
        """Make the file, and its folder, if they are not there; `append` does so too.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            self._open()

    def append(self, trajectory: Trajectory) -> None:
        """Write one trajectory.

        Raises:
            UsageError: it holds a number that is not finite, a value that JSON cannot hold, or one of another type than
                its field has, so that nobody could read the line again; says where.
        """
        row = _row_of(trajectory)
        if self.tokens == "parquet":
            row["tokens"] = self._write_tokens(trajectory.id, row["segments"])
        line = _encode(row, trajectory.id)
        with self._lock:
            file = self._open()
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                self._mend(file)
                file.write(line)
                file.flush()
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def __iter__(self) -> Iterator[Trajectory]:
        """Read the trajectories in order; a file that does not exist is empty.

        Raises:
            UsageError: a line other than a torn last one is no trajectory; names file and line.
        """
        for number, line, complete in self._lines():
            where = f"{self.path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                if not complete:
                    warnings.warn(f"{where}: skipped, it was not written to its end", stacklevel=2)
                    continue
                raise UsageError(f"{where}: expected a trajectory as JSON, got {line[:60]!r}") from error
            if isinstance(row, dict) and "tokens" in row:
                self._read_tokens(row, where)
            yield from_dict(row, where)

    def load(self) -> list[Trajectory]:
        """All trajectories, as by iterating."""
        return list(self)

    def latest(self) -> dict[str, Trajectory]:
        """The trajectories by id, in order. Of several lines with one id the last counts: a broken episode's rerun."""
        return {trajectory.id: trajectory for trajectory in self}

    def ids(self) -> set[str]:
        """The ids of the trajectories in the file. Does not read the rest of the lines."""
        found: set[str] = set()
        for number, line, complete in self._lines():
            head = _HEAD.match(line) if complete else None
            try:
                found.add(json.loads(head[1]) if head else json.loads(line)["id"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if complete:
                    where = f"{self.path}, line {number}"
                    raise UsageError(f"{where}: expected a trajectory as JSON, got {line[:60]!r}") from error
        return found

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "tokens": self.tokens}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["path"], tokens=state["tokens"])  # type: ignore[misc]

    def _open(self) -> BinaryIO:
        # A forked child would share the lock of its parent
        if self._file is None or self._pid != os.getpid():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+b")  # noqa: SIM115 - stays open from line to line
            self._pid = os.getpid()
        return self._file

    def _mend(self, file: BinaryIO) -> None:
        """Make the file end with a whole line. Whoever wrote the torn one is gone: we hold the lock."""
        end = file.seek(0, os.SEEK_END)
        if end == 0:
            return
        file.seek(end - 1)
        if file.read(1) == b"\n":
            return
        start = _last_line_start(file, end)
        file.seek(start)
        torn = file.read(end - start)
        try:
            json.loads(torn)
        except (ValueError, RecursionError):
            with open(f"{self.path}.torn", "ab") as aside:
                aside.write(torn + b"\n")
            file.truncate(start)
            warnings.warn(f"{self.path}: moved a torn last line to {self.path.name}.torn", stacklevel=3)
        else:
            file.write(b"\n")  # only the line's end was missing

    def _lines(self) -> Iterator[tuple[int, bytes, bool]]:
        """Number, content and whether its end was written, of each line that is not empty."""
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line, line.endswith(b"\n")

    def _write_tokens(self, trajectory_id: str, segments: list[dict[str, Any]]) -> str:
        pyarrow, parquet = _pyarrow()
        columns: dict[str, list[Any]] = {"trajectory_id": [], "segment": [], **{name: [] for name in ARRAYS}}
        for segment in segments:
            columns["trajectory_id"].append(trajectory_id)
            columns["segment"].append(segment["index"])
            for name in ARRAYS:
                columns[name].append(segment.pop(name))
        kinds = (pyarrow.string(), pyarrow.int32(), *(pyarrow.list_(t) for t in _array_types(pyarrow)))
        table = pyarrow.table(columns, schema=pyarrow.schema(list(zip(columns, kinds, strict=True))))
        digest = hashlib.sha256(trajectory_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        name = f"tokens/{digest}.parquet"
        target = self.path.parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, f"{target}.part")
        os.replace(f"{target}.part", target)  # whole before the line that refers to it
        return name

    def _read_tokens(self, row: dict[str, Any], where: str) -> None:
        pyarrow, parquet = _pyarrow()
        target = self.path.parent / str(row.pop("tokens"))
        if not target.exists():
            raise UsageError(f"{where}: its tokens are in {target}, which does not exist")
        try:
            with parquet.ParquetFile(target) as file:
                rows = {entry["segment"]: entry for entry in file.read().to_pylist()}
            for segment in row["segments"]:
                segment.update({name: rows[segment["index"]][name] for name in ARRAYS})
        except (TypeError, KeyError, AttributeError, ValueError, OSError, pyarrow.ArrowException) as error:
            raise UsageError(
                f"{where}: {target} does not hold the tokens of its segments: {error}"
            ) from error


# -- JSON values ---------------------------------------------------------------------------------------------


def to_dict(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory as JSON values, in the form of `schema.json`."""
    row: dict[str, Any] = {"schema_version": trajectory.schema_version, "id": trajectory.id}
    row |= _shallow(trajectory)
    row["steps"] = [
        _shallow(step) | {"calls": [_shallow(call) for call in step.calls]} for step in trajectory.steps
    ]
    row["segments"] = [
        _shallow(segment)
        | {
            "messages": messages_to_rows(segment.messages),
            "sampled": [_shallow(sampled) for sampled in segment.sampled],
            "dropped": messages_to_rows(segment.dropped),
        }
        for segment in trajectory.segments
    ]
    row["events"] = [_shallow(event) for event in trajectory.events]
    row["verdict"] = {**trajectory.verdict}
    return row


def from_dict(row: Any, where: str = "trajectory") -> Trajectory:
    """The trajectory that `to_dict` wrote.

    Args:
        row: JSON values.
        where: names the row in errors.

    Raises:
        UsageError: another schema version, or not in the form of the schema.
    """
    if not isinstance(row, Mapping):
        raise UsageError(f"{where}: expected a JSON object, got {type(row).__name__}")
    version = row.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{where}: expected schema_version {SCHEMA_VERSION}, got {version!r}; "
            "a newer agentgym-suite may have written it"
        )
    try:
        values = dict(row)
        values["steps"] = [_step(step) for step in _rows(row, "steps")]
        values["segments"] = [_segment(segment) for segment in _rows(row, "segments")]
        values["events"] = [Event(**event) for event in _rows(row, "events")]
        trajectory = Trajectory(**values)
        check(trajectory)
        return trajectory
    except (TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{where}: not in the form of version {SCHEMA_VERSION}: {error}") from error


def _rows(row: Mapping[str, Any], name: str) -> list[Any]:
    rows = row[name]
    if not isinstance(rows, list):
        raise TypeError(f"expected {name} to be a list, got {rows!r:.60}")
    return rows


def _step(row: Mapping[str, Any]) -> Step:
    calls = [Call(**call) for call in _rows(row, "calls")]
    step = Step(**row)
    step.calls = calls
    return step


def _segment(row: Mapping[str, Any]) -> Segment:
    segment = Segment(**row)
    segment.messages = messages_from_rows(_rows(row, "messages"))
    segment.sampled = [Sampled(**sampled) for sampled in _rows(row, "sampled")]
    segment.dropped = messages_from_rows(_rows(row, "dropped"))
    return segment


def messages_to_rows(messages: Conversation) -> list[dict[str, Any]]:
    """Messages as JSON objects; fields that are empty are left out, except role and content."""
    rows = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.name:
            row["name"] = message.name
        if message.tool_calls:
            row["tool_calls"] = [
                {"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls
            ]
        if message.tool_call_id:
            row["tool_call_id"] = message.tool_call_id
        rows.append(row)
    return rows


def messages_from_rows(rows: list[dict[str, Any]]) -> Conversation:
    """The messages that `messages_to_rows` wrote."""
    return tuple([Message(**row) if "tool_calls" not in row else _calling(row) for row in rows])


def _calling(row: dict[str, Any]) -> Message:
    return Message(**row | {"tool_calls": tuple(MessageCall(**call) for call in _rows(row, "tool_calls"))})


def jsonable(value: Any) -> Any:
    """The same value out of dicts, lists and Python numbers: what a record holds must come back equal from disk."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _shallow(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _field_names(type(record))}


_FIELD_NAMES: dict[type, tuple[str, ...]] = {}


def _field_names(cls: type) -> tuple[str, ...]:
    if cls not in _FIELD_NAMES:
        _FIELD_NAMES[cls] = tuple(field.name for field in fields(cls))
    return _FIELD_NAMES[cls]


def _row_of(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory as `to_dict` gives it, if what is written of it can be read again."""
    where = f"trajectory {trajectory.id!r} cannot be written"
    try:
        row = to_dict(trajectory)
        try:
            check(trajectory)
        except TypeError:  # a number of numpy's, for one, is Python's once it is written: look at that
            from_dict(json.loads(_encode(row, trajectory.id)), where)
    except (TypeError, AttributeError, KeyError) as error:
        raise UsageError(f"{where}: {error}") from error
    return row


def _encode(row: dict[str, Any], trajectory_id: str) -> bytes:
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
        try:
            return text.encode() + b"\n"
        except UnicodeEncodeError:  # a lone surrogate: only its escape can be written
            return json.dumps(row, allow_nan=False, default=_plain).encode() + b"\n"
    except RecursionError:
        raise UsageError(f"trajectory {trajectory_id!r} cannot be written: it is nested too deeply") from None
    except (ValueError, TypeError) as error:
        problem = _problem(row, "") or str(error)
        raise UsageError(f"trajectory {trajectory_id!r} cannot be written: {problem}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"expected JSON values, got {type(value).__name__}")


def _problem(value: Any, path: str) -> str | None:
    """Where in a row the value stands that JSON cannot hold."""
    if isinstance(value, Mapping):
        items = [(f"{path}.{key}".lstrip("."), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, float | np.floating):
        return None if np.isfinite(value) else f"expected a finite number at {path}, got {value}"
    elif value is None or isinstance(value, str | int | np.generic):
        return None
    else:
        return f"expected a JSON value at {path}, got {type(value).__name__}"
    return next((found for where, item in items if (found := _problem(item, where))), None)


def _last_line_start(file: BinaryIO, end: int) -> int:
    """Offset of the first byte after the last line break before `end`."""
    block = 1 << 16
    while end > 0:
        start = max(0, end - block)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _array_types(pyarrow: Any) -> tuple[Any, ...]:
    return pyarrow.int64(), pyarrow.int8(), pyarrow.float64(), pyarrow.float64()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingDependency(
            "token arrays in parquet need pyarrow: pip install 'agentgym-suite[data]'"
        ) from None
    return pyarrow, parquet
