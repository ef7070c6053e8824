"""Bring records from elsewhere: read a source, write our own records file with the snapshots beside it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentgym.envs.swe.importers import AUTO
from agentgym.envs.swe.importers.reading import RECORDS, is_dataset_name, read_dataset, read_source
from agentgym.envs.swe.records import SweRecord, missing, read_record, write_atomic, write_records
from agentgym.errors import TaskError, whole_number

SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True)
class Imported:
    """A record that was brought, the form it was in, and what it lacks to be played."""

    record: SweRecord
    form: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import brought.

    Attributes:
        file: the records written.
        imported: in the order of the source.
        skipped: number of the row in its source, and what is wrong with it.
    """

    file: Path
    imported: tuple[Imported, ...]
    skipped: tuple[tuple[int, str], ...]

    @property
    def playable(self) -> int:
        """How many of the records lack nothing."""
        return sum(not entry.missing for entry in self.imported)


def import_records(
    source: str,
    out: str | Path,
    *,
    form: str = AUTO,
    split: str = "",
    limit: int | None = None,
    image_here: Callable[[str], bool] | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> ImportReport:
    """Read records in any known form and write them in ours, to tasks.jsonl in `out`.

    Args:
        source: a file or folder, see `read_source`, or the name of a dataset on the Hugging Face hub.
        out: folder for the records and copies of their snapshots.
        form: one of `FORMS`; "auto": told by each row's fields.
        split: only this one.
        limit: at most so many rows, broken ones included; those of another split do not count.
        image_here: see `missing`.
        progress: called with the id of each record.

    Raises:
        TaskError: there is no source, or no row of it is a record; a broken row alone is skipped.
        InfrastructureError: a dataset cannot be had.
    """
    if limit is not None:
        whole_number("limit", limit, least=1)
    rows = read_dataset(source, split=split) if is_dataset_name(source) else read_source(source, split=split)
    out = Path(out)
    imported: dict[str, Imported] = {}
    skipped: list[tuple[int, str]] = []
    for row in rows:
        try:
            record, name = read_record(row, form)
            if split and record.extra.get("split", split) != split:
                continue
            if record.instance_id in imported:
                raise TaskError(f"{row.where}: instance_id {record.instance_id!r} has come before")
            record = _with_snapshot(record, out)
            imported[record.instance_id] = Imported(
                record, name, tuple(missing(record, image_here=image_here))
            )
            progress(record.instance_id)
        except TaskError as error:
            skipped.append((row.number, str(error)))
        if len(imported) + len(skipped) == limit:
            break
    if not imported:
        raise TaskError(
            f"{source}: no record in it; {skipped[0][1]}" if skipped else f"{source}: no record in it"
        )
    write_records(out / RECORDS, (entry.record for entry in imported.values()))
    return ImportReport(out / RECORDS, tuple(imported.values()), tuple(skipped))


def _with_snapshot(record: SweRecord, out: Path) -> SweRecord:
    """The record with its snapshot copied below `out`; equal snapshots are kept once. As it is if there is no file.

    Raises:
        TaskError: the path leads out of the source's folder, whose author has no say in what else is on this machine.
    """
    folder = record.folder.resolve()
    if record.snapshot and not (folder / record.snapshot).resolve().is_relative_to(folder):
        raise TaskError(
            f"{record.instance_id}: expected `snapshot` to be inside the source's folder, got {record.snapshot!r:.80}"
        )
    if not record.snapshot or not (record.folder / record.snapshot).is_file():
        return dataclasses.replace(record, folder=out)
    content = record.snapshot_path().read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    name = f"{SNAPSHOTS}/{digest[:12]}-{Path(record.snapshot).name}"
    if not (out / name).is_file():
        write_atomic(out / name, content)
    return dataclasses.replace(record, snapshot=name, snapshot_sha256=digest, folder=out)
