"""Records of other projects in our own form: which form a row is in is told by its fields, in the order of `FAMILIES`.

A family is a module with two functions: ``matches(row)`` says whether a row is of its form, ``convert(row)`` gives the
same task in our own form, as a row of a records file. Both get rows without absent values and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agentgym.envs.swe.fields import Row, ids_of, present
from agentgym.envs.swe.importers import harbor, live, pro, r2egym, rebench, swebench, swegym, swesmith
from agentgym.envs.swe.importers.common import id_files
from agentgym.envs.swe.importers.reading import SourceRow, read_source
from agentgym.errors import UsageError, nearest

__all__ = ["FAMILIES", "FORMS", "OWN", "SourceRow", "form_of", "own_form", "read_source"]

OWN = "own"
AUTO = "auto"


class Family(Protocol):
    """What each module of a family gives."""

    def matches(self, row: Row, /) -> bool:
        """Whether the row is of this form."""

    def convert(self, row: Row, /) -> Row:
        """The task in our own form."""


# The first that matches decides: those with fields of their own come before those that only look like SWE-bench.
FAMILIES: Mapping[str, Family] = {
    "harbor": harbor,
    "r2egym": r2egym,
    "pro": pro,
    "swesmith": swesmith,
    "live": live,
    "rebench": rebench,
    "swegym": swegym,
    "swebench": swebench,
}
FORMS = (AUTO, OWN, *FAMILIES)

# Fields that only our own form has, two of which stand in every row that `write_records` wrote.
_OURS = frozenset(
    "snapshot_sha256 bug_patch test_targets test_command python_path setup workdir image_python HELD_OUT bugs".split()
)


def form_of(row: Mapping[str, Any]) -> str:
    """Name of the form a row is in; a row that no family knows is taken to be in our own."""
    known = present(row)
    if not _OURS.isdisjoint(known):
        return OWN
    return next((name for name, family in FAMILIES.items() if family.matches(known)), OWN)


def own_form(row: Any, form: str = AUTO) -> tuple[Row, str]:
    """The row in our own form, and the name of the form it was in.

    Args:
        row: parsed JSON.
        form: one of `FORMS`.

    Raises:
        TaskError: a field that the form needs is missing or wrong; names it.
        UsageError: there is no such form.
    """
    if form not in FORMS:
        raise UsageError(f"unknown format of records {form!r}.{nearest(form, FORMS)}")
    known = present(row)
    name = form_of(known) if form == AUTO else form
    return (_with_targets(known) if name == OWN else FAMILIES[name].convert(known)), name


def _with_targets(row: Row) -> Row:
    """A row of ours that names no targets gets, besides the default, the files of its expected tests elsewhere."""
    files = id_files([*ids_of(row, "FAIL_TO_PASS"), *ids_of(row, "PASS_TO_PASS")])
    elsewhere = [path for path in files if not path.startswith("tests/")]
    if "test_targets" in row or not elsewhere:
        return row
    return row | {"test_targets": [*(["tests"] if len(elsewhere) < len(files) else []), *elsewhere]}
