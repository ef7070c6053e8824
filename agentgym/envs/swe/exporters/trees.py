"""A record's tree and gold patch for other people's use: nothing is installed or run for them."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from agentgym.envs.swe.records import SweRecord
from agentgym.envs.swe.repo import apply_patch, unpack
from agentgym.envs.swe.trees import add_defect
from agentgym.errors import TaskError
from agentgym.sandbox import scratch_folder
from agentgym.verifiers.tests import copy_tree


@contextmanager
def policy_tree(record: SweRecord) -> Iterator[Path]:
    """The tree with its defect, before any set-up command; gone afterwards.

    Raises:
        TaskError: the record has no snapshot, or its bug patch does not apply.
    """
    with scratch_folder("export") as folder:
        tree = Path(folder, "tree")
        unpack(record.snapshot_path(), tree)
        add_defect(record, tree)
        yield tree


def tree_with_tests(record: SweRecord, tree: Path) -> Path:
    """A copy of the tree of `policy_tree`, beside it, with the hidden tests.

    Raises:
        TaskError: the test patch does not fit the tree.
    """
    tested = tree.with_name("tested")
    copy_tree(tree, tested)
    try:
        apply_patch(tested, record.test_patch)
    except TaskError as error:
        raise TaskError(f"{record.instance_id}: its test patch: {error}") from None
    return tested


def node_id(name: str, files: Set[str]) -> str:
    """A test id as pytest prints it: ``tests.test_a.Case::test_x`` becomes ``tests/test_a.py::Case::test_x``.

    Args:
        name: a node id or ``classname::name``.
        files: of the tree with its tests; tell which part of a class name is a file.
    """
    place, colons, rest = name.partition("::")
    if not colons or "/" in place or place.endswith(".py"):
        return name
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length]) + ".py"
        if path in files:
            return "::".join([path, *parts[length:], rest])
    return name
