"""SWE task records: one JSON object a line, field names as SWE-bench has them where it has them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.envs.swe.fields import ids_of, present, text_of, texts_of
from agentgym.envs.swe.importers import SourceRow, own_form, read_source
from agentgym.errors import TaskError
from agentgym.verifiers.log_parsers import PARSERS, PYTEST_IDS


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """What one run of the tests may use; None: the default of the grader."""

    time_s: float | None = None
    memory_mb: int | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class SweRecord:
    """One task: a tree with a defect, what to say about it, and the tests that tell whether it was repaired.

    Attributes:
        instance_id: unique in its file.
        repo, version, license, origin, fixed_in: where it comes from; for people.
        problem_statement: what the policy reads; `hints_text` only when asked for.
        snapshot: tar.gz of the tree at the base, without history; relative to `folder`.
        snapshot_sha256: checked whenever the snapshot is read.
        image: a container image that holds the tree, instead of or beside the snapshot.
        base_commit: commit of the one-commit repository; informative.
        patch: the gold patch; never shown to a policy. Empty with a `bug_patch`: its reverse.
        test_patch: the hidden tests; applied only where grading happens.
        bug_patch: applied to the snapshot to make the task.
        test_targets: what the test run gets.
        test_command: what runs the tests; of a pytest command only the arguments, for the grader's own runner. Empty:
            the default.
        python_path: where the tree is imported from, relative to its root.
        python: version range the tree needs, such as ">=3.9"; empty: any.
        requirements: what the tests need, in pip's notation, never the target itself.
        setup: commands run once in the prepared tree, without network.
        log_parser: what reads the log of the test command (`agentgym.verifiers.log_parsers`), for records that need it.
            Empty or one of pytest's: the grader's own runner, where the interpreter allows it.
        workdir: where the tree lies in the image, such as "/testbed".
        image_python: the interpreter in the image that has what the tests need; empty: looked for.
        fail_to_pass, pass_to_pass: node ids or ``classname::name``; `FAIL_TO_PASS`, `PASS_TO_PASS` in files.
        held_out: test ids that are run and reported and never part of the reward; `HELD_OUT` in files.
        limits: for one run of the tests.
        bugs: synthetic tasks: kind, file and line of each injected bug.
        extra: fields of the file this version does not know, kept as they are. `hidden_paths` is one that
            `build_tasks` writes: the files that only `test_patch` brings.
        folder: of the records file; not part of the record.
    """

    instance_id: str
    problem_statement: str = ""
    hints_text: str = ""
    repo: str = ""
    version: str = ""
    license: str = ""
    origin: str = ""
    fixed_in: str = ""
    snapshot: str = ""
    snapshot_sha256: str = ""
    image: str = ""
    base_commit: str = ""
    patch: str = field(default="", repr=False)
    test_patch: str = field(default="", repr=False)
    bug_patch: str = field(default="", repr=False)
    test_targets: tuple[str, ...] = ("tests",)
    test_command: tuple[str, ...] = ()
    python_path: tuple[str, ...] = (".",)
    python: str = ""
    requirements: tuple[str, ...] = ()
    setup: tuple[str | tuple[str, ...], ...] = ()
    log_parser: str = ""
    workdir: str = ""
    image_python: str = ""
    fail_to_pass: tuple[str, ...] = field(default=(), repr=False)
    pass_to_pass: tuple[str, ...] = field(default=(), repr=False)
    held_out: tuple[str, ...] = field(default=(), repr=False)
    limits: RecordLimits = RecordLimits()
    bugs: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    folder: Path = field(default=Path(), repr=False, compare=False)

    def snapshot_path(self) -> Path:
        """Absolute path of the snapshot, its checksum checked.

        Raises:
            TaskError: there is none, or its content is not what the record says.
        """
        if not self.snapshot:
            hint = f" (only the image {self.image!r}, which needs a container backend)" if self.image else ""
            raise TaskError(f"{self.instance_id}: expected a `snapshot`, the record has none{hint}")
        path = (self.folder / self.snapshot).absolute()
        if not path.is_file():
            raise TaskError(f"{self.instance_id}: its snapshot does not exist: {path}")
        if self.snapshot_sha256:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest != self.snapshot_sha256.lower():
                raise TaskError(
                    f"{self.instance_id}: snapshot {path.name} has sha256 {digest[:12]}..., the record says"
                    f" {self.snapshot_sha256[:12]}...: the file was changed or truncated"
                )
        return path


_ENDLESS = 1e12  # no limit any more
_TEXTS = [f.name for f in dataclasses.fields(SweRecord) if f.type == "str" and f.name != "instance_id"]
_FILE_NAMES = {"FAIL_TO_PASS": "fail_to_pass", "PASS_TO_PASS": "pass_to_pass", "HELD_OUT": "held_out"}
_OURS = {"extra", "folder", *_FILE_NAMES.values()}  # attributes that are no fields of a file by that name
_KNOWN = {f.name for f in dataclasses.fields(SweRecord)} - _OURS | set(_FILE_NAMES)


def load_records(path: str | Path, *, form: str = "auto") -> list[SweRecord]:
    """Read records: our own, or other projects' as they publish them.

    Args:
        path: a file (.jsonl, .json, .parquet) or a folder, see `agentgym.envs.swe.importers.read_source`.
        form: one of `agentgym.envs.swe.importers.FORMS`, or "auto": told by each row's fields.

    Raises:
        TaskError: the file is missing or a row is broken; names the file, the row and what was expected.
    """
    records: list[SweRecord] = []
    seen: dict[str, str] = {}
    for row in read_source(path):
        record, _ = read_record(row, form)
        name = record.instance_id
        if name in seen:
            raise TaskError(f"{row.where}: instance_id {name!r} is already on {seen[name]}")
        seen[name] = row.where.rpartition(", ")[2]
        records.append(record)
    if not records:
        raise TaskError(f"{path}: expected at least one record, there is none")
    return records


def read_record(row: SourceRow, form: str = "auto") -> tuple[SweRecord, str]:
    """The record of one row of a source, and the form the row was in.

    Raises:
        TaskError: it is broken; names the row and what was expected.
    """
    try:
        data, name = own_form(row.read(), form)
        return record_from_dict(data, folder=row.folder), name
    except TaskError as error:
        raise TaskError(f"{row.where}: {error}") from None


def missing(record: SweRecord, *, image_here: Callable[[str], bool] | None = None) -> list[str]:
    """What keeps a record from being played, in words; empty for one that can be.

    Args:
        record: as loaded.
        image_here: tells whether an image is on this machine; None: it is not asked.
    """
    found = []
    if not record.snapshot and not record.image:
        found.append("no snapshot and no image: nothing holds its tree")
    elif record.snapshot and not (record.folder / record.snapshot).is_file():
        found.append(f"its snapshot {record.snapshot} is not there")
    elif not record.snapshot and image_here is not None and not image_here(record.image):
        found.append(f"its image {record.image} is not on this machine; playing it would pull it")
    if not record.problem_statement.strip():
        found.append("no problem statement")
    if not record.fail_to_pass:
        found.append("no tests: FAIL_TO_PASS is empty")
    if record.log_parser and record.log_parser not in PARSERS:
        found.append(f"its log parser {record.log_parser.splitlines()[0][:60]!r} is not known")
    elif record.log_parser not in ("", *PYTEST_IDS) and not record.test_command:
        found.append(f"its log parser {record.log_parser!r} needs a `test_command`")
    foreign = [name for name in (*record.fail_to_pass, *record.pass_to_pass) if "::" not in name]
    if foreign and not record.log_parser:
        found.append(f"no log parser, and its tests are not pytest's, such as {foreign[0][:60]!r}")
    return found


def record_from_dict(data: Any, *, folder: Path = Path()) -> SweRecord:
    """One record in our own form from parsed JSON; null counts as absent.

    Raises:
        TaskError: a field has the wrong type; says which and what was expected.
    """
    data = present(data)
    instance_id = data.get("instance_id")
    if not isinstance(instance_id, str) or not instance_id:
        raise TaskError(f"expected `instance_id`, a non-empty text, got {instance_id!r:.80}")
    fields: dict[str, Any] = {"instance_id": instance_id, "folder": folder}
    for name in _TEXTS:
        if name in data:
            fields[name] = text_of(data, name)
    if isinstance(data.get("python_path"), str):
        data["python_path"] = [data["python_path"]]
    for name in ("test_targets", "test_command", "python_path", "requirements"):
        if name in data:
            fields[name] = texts_of(data, name)
    if not fields.get("test_targets", ("tests",)):
        del fields["test_targets"]
    for target in fields.get("test_targets", ()):
        if not target or target.startswith("/") or ".." in target.split("/"):
            raise TaskError(f"expected `test_targets` to be paths inside the tree, got {target!r:.80}")
    if "python_path" in fields:
        fields["python_path"] = tuple(_inside(entry) for entry in fields["python_path"]) or (".",)
    for name, attribute in _FILE_NAMES.items():
        if name in data:
            fields[attribute] = ids_of(data, name)
    if "setup" in data:
        fields["setup"] = _commands(data["setup"])
    if "limits" in data:
        fields["limits"] = _limits(data["limits"])
    if "bugs" in data:
        bugs = data["bugs"]
        if not isinstance(bugs, list) or not all(isinstance(bug, dict) for bug in bugs):
            raise TaskError(f"expected `bugs` to be a list of objects, got {bugs!r:.80}")
        fields["bugs"] = tuple(bugs)
    fields["extra"] = {key: value for key, value in data.items() if key not in _KNOWN}
    return SweRecord(**fields)


def record_to_dict(record: SweRecord) -> dict[str, Any]:
    """The record as it stands in a file: known fields under their file names, unset ones left out."""
    defaults = {f.name: f.default for f in dataclasses.fields(SweRecord)}
    names = {attribute: name for name, attribute in _FILE_NAMES.items()}
    result: dict[str, Any] = {}
    for f in dataclasses.fields(SweRecord):
        value = getattr(record, f.name)
        always = f.name in ("fail_to_pass", "pass_to_pass", "test_targets", "python_path")
        if f.name in ("extra", "folder") or (value == defaults[f.name] and not always):
            continue
        if f.name == "limits":
            value = {key: entry for key, entry in dataclasses.asdict(value).items() if entry is not None}
        elif f.name == "setup":
            value = [list(command) if isinstance(command, tuple) else command for command in value]
        elif isinstance(value, tuple):
            value = list(value)
        result[names.get(f.name, f.name)] = value
    return {**result, **record.extra}


def write_records(path: str | Path, records: Iterable[SweRecord]) -> None:
    """Write a records file in one step: readers see the old file or the whole new one."""
    text = "".join(json.dumps(record_to_dict(record)) + "\n" for record in records)
    write_atomic(Path(path), text.encode())


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _commands(value: Any) -> tuple[str | tuple[str, ...], ...]:
    if not isinstance(value, list):
        raise TaskError(f"expected `setup` to be a list of commands, got {value!r:.80}")
    return tuple(entry if isinstance(entry, str) else texts_of({"setup": entry}, "setup") for entry in value)


def _inside(entry: str) -> str:
    """`python_path` entries stay inside the tree; an absolute path means its root."""
    if entry.startswith("/") or entry == "":
        return "."
    if ".." in entry.split("/"):
        raise TaskError(f"expected `python_path` to stay inside the tree, got {entry!r}")
    return entry


def _limits(value: Any) -> RecordLimits:
    names = [f.name for f in dataclasses.fields(RecordLimits)]
    if not isinstance(value, dict):
        raise TaskError(f"expected `limits` to be an object with {', '.join(names)}, got {value!r:.80}")
    for name in names:
        number, least = value.get(name), 0 if name == "time_s" else 1
        if number is None:
            continue
        plain = isinstance(number, int | float) and not isinstance(number, bool)
        # The comparison also refuses NaN, which JSON as Python reads it may hold.
        if not plain or not least <= number < _ENDLESS or number == 0:
            raise TaskError(f"expected `limits.{name}` to be a positive, finite number, got {number!r:.40}")
    time_s, memory_mb, processes = (value.get(name) for name in names)
    return RecordLimits(
        time_s=None if time_s is None else float(time_s),
        memory_mb=None if memory_mb is None else int(memory_mb),
        processes=None if processes is None else int(processes),
    )
