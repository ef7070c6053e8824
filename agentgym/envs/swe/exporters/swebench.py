"""SWE-bench records: its columns, lists of tests as JSON in a text, and our own columns so that they can be run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from agentgym.envs.swe.exporters.trees import node_id, policy_tree, tree_with_tests
from agentgym.envs.swe.records import SweRecord, record_to_dict, write_atomic
from agentgym.envs.swe.repo import pack_tree
from agentgym.envs.swe.trees import gold_diff
from agentgym.errors import TaskError
from agentgym.verifiers.patches import list_tree

FILE = "swebench.jsonl"

# SWE-bench's columns in its own order; each stands in every row.
_COLUMNS = (
    "repo instance_id base_commit patch test_patch problem_statement hints_text created_at version FAIL_TO_PASS"
    " PASS_TO_PASS environment_setup_commit"
).split()


def write(record: SweRecord, out: Path) -> Path:
    """Append a record to the file, its tree beside it.

    Raises:
        TaskError: it is a synthetic task without a snapshot, whose fix cannot be told.
    """
    if record.snapshot:
        record = _with_tree(record, out)
    elif record.bug_patch:
        raise TaskError(
            f"{record.instance_id}: its fix is the reverse of its bug, which needs the tree; it has only an image"
        )
    row = dict.fromkeys(_COLUMNS, "") | record_to_dict(record)
    row["FAIL_TO_PASS"], row["PASS_TO_PASS"] = (
        json.dumps(record.fail_to_pass),
        json.dumps(record.pass_to_pass),
    )
    row["environment_setup_commit"] = row["environment_setup_commit"] or record.base_commit
    out.mkdir(parents=True, exist_ok=True)
    with open(out / FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return out / FILE


def _with_tree(record: SweRecord, out: Path) -> SweRecord:
    """The record with a snapshot that has the defect, a gold patch of its own, and node ids."""
    with policy_tree(record) as tree:
        content = pack_tree(tree)
        gold = gold_diff(record, tree)
        files = list_tree(tree_with_tests(record, tree)).keys()
    digest = hashlib.sha256(content).hexdigest()
    snapshot = f"snapshots/{digest[:12]}.tar.gz"
    write_atomic(out / snapshot, content)
    return dataclasses.replace(
        record,
        snapshot=snapshot,
        snapshot_sha256=digest,
        bug_patch="",
        patch=gold,
        fail_to_pass=tuple(node_id(name, files) for name in record.fail_to_pass),
        pass_to_pass=tuple(node_id(name, files) for name in record.pass_to_pass),
        held_out=tuple(node_id(name, files) for name in record.held_out),
    )
