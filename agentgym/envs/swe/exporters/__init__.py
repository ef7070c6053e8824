"""Our records in other projects' forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentgym.envs.swe.exporters import harbor, swebench
from agentgym.envs.swe.records import SweRecord
from agentgym.errors import TaskError, UsageError, nearest

__all__ = ["EXPORTERS", "ExportReport", "export_records"]

# name: writes one record below a folder, and says to which file or folder
EXPORTERS: Mapping[str, Callable[[SweRecord, Path], Path]] = {
    "harbor": harbor.write,
    "swebench": swebench.write,
}


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote.

    Attributes:
        exported: instance id -> where it was written.
        skipped: instance id -> why it cannot be had in that form.
    """

    exported: Mapping[str, Path]
    skipped: Mapping[str, str]


def export_records(
    records: Iterable[SweRecord],
    out: str | Path,
    *,
    to: str,
    progress: Callable[[str], None] = lambda name: None,
) -> ExportReport:
    """Write records in another project's form.

    Args:
        records: the tasks.
        out: a new or empty folder.
        to: a key of `EXPORTERS`.
        progress: called with the id of each record.

    Raises:
        UsageError: there is no such form, or the folder holds something.
        TaskError: none of the records can be had in that form.
    """
    if to not in EXPORTERS:
        raise UsageError(f"unknown form {to!r} to export to.{nearest(to, EXPORTERS)}")
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"expected a new or empty folder to export to, got {out}")
    exported: dict[str, Path] = {}
    skipped: dict[str, str] = {}
    for record in records:
        progress(record.instance_id)
        try:
            exported[record.instance_id] = EXPORTERS[to](record, out)
        except TaskError as error:
            skipped[record.instance_id] = str(error)
    if skipped and not exported:
        raise TaskError(f"none of the records can be exported to {to}: {next(iter(skipped.values()))}")
    return ExportReport(exported, skipped)
