"""Harbor task folders: the tree in an image to build, and tests that grade as ours do, as far as one container can.

Harbor uploads ``tests/`` only after the agent is done: the hidden tests, the untouched tree and the record lie there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentgym.envs.swe.exporters.trees import node_id, policy_tree, tree_with_tests
from agentgym.envs.swe.grading import pytest_arguments
from agentgym.envs.swe.importers.harbor import CONFIG, INSTRUCTION, TASK_FILE, TREE
from agentgym.envs.swe.records import SweRecord, record_to_dict, write_atomic
from agentgym.envs.swe.repo import pack_tree
from agentgym.envs.swe.runtime.interpreters import version_range
from agentgym.envs.swe.runtime.names import requirement_name
from agentgym.envs.swe.trees import gold_diff
from agentgym.errors import TaskError
from agentgym.verifiers.log_parsers import PYTEST_IDS
from agentgym.verifiers.patches import Entry, list_tree
from agentgym.verifiers.suite import junit_id
from agentgym.verifiers.tests import Protected

WORKDIR = "/testbed"
TIME_S, MEMORY_MB = 600.0, 4096  # where a record sets nothing
_OLDEST_MINOR, _NEWEST_MINOR, _MOST_PATCHES = 6, 14, 30  # of the Pythons there are images of

_GRADER = Path(__file__).with_name("harbor_grade.py")

_DOCKERFILE = """\
FROM python:{python}-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir -r /tmp/requirements.txt
ADD tree.tar.gz /tmp/
RUN mv /tmp/tree {workdir}
WORKDIR {workdir}
{setup}RUN git init -q -b main && git add -A \\
 && git -c user.name=agentgym -c user.email=agentgym@localhost commit -q -m base
"""

_TEST = """\
#!/bin/bash
# Writes 1 to /logs/verifier/reward.txt if every expected test passes on the agent's changes, else 0.
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
python3 -I "$(dirname "$0")/grade.py" {workdir} > /logs/verifier/output.txt 2>&1 \\
 && echo 1 > /logs/verifier/reward.txt
"""

_SOLVE = """\
#!/bin/bash
set -e
cd {workdir}
git apply --whitespace=nowarn "$(dirname "$(readlink -f "$0")")/gold.patch"
"""

_SETTINGS = """\
version = "1.0"

[metadata]
source = "agentgym"
instance_id = {instance_id}
repo = {repo}
license = {license}

[verifier]
timeout_sec = {verifier_s:.1f}

[agent]
timeout_sec = 3600.0

[environment]
build_timeout_sec = 1800.0
cpus = 1
memory_mb = {memory_mb}
storage_mb = 10240
allow_internet = false
"""


def write(record: SweRecord, out: Path) -> Path:
    """Write the folder of one task.

    Raises:
        TaskError: it has no snapshot, or no tests, or they are not named as pytest names them.
    """
    if not record.fail_to_pass:
        raise TaskError(f"{record.instance_id}: FAIL_TO_PASS is empty, so nothing can be graded")
    words = pytest_arguments(record)
    if words is None:
        raise TaskError(f"{record.instance_id}: only tests that pytest runs can be exported to Harbor")
    if PYTEST_IDS.get(record.log_parser) is not str:
        raise TaskError(
            f"{record.instance_id}: only tests with pytest's own names can be exported to Harbor, these are as"
            f" {record.log_parser!r} reads them"
        )
    with policy_tree(record) as tree:
        tested = tree_with_tests(record, tree)
        gold = gold_diff(record, tree)
        files: dict[str, str | bytes] = {
            TREE: pack_tree(tree),
            "tests/tree.tar.gz": pack_tree(tested),
            "tests/grading.json": json.dumps(_grading(record, words, list_tree(tree), list_tree(tested))),
        }
    files |= {
        INSTRUCTION: record.problem_statement.strip() + "\n",
        TASK_FILE: _settings(record),
        "environment/Dockerfile": _dockerfile(record),
        "environment/requirements.txt": "\n".join(_requirements(record)) + "\n",
        "tests/test.sh": _TEST.format(workdir=WORKDIR),
        "tests/grade.py": _GRADER.read_text(),
        CONFIG: json.dumps(record_to_dict(_inside(record, gold))),
    }
    if gold:
        files |= {"solution/gold.patch": gold, "solution/solve.sh": _SOLVE.format(workdir=WORKDIR)}
    folder = out / _folder_name(record)
    if folder.exists():
        raise TaskError(f"{record.instance_id}: another record has the folder {folder.name}")
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        write_atomic(folder / name, data)
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
    return folder


def _folder_name(record: SweRecord) -> str:
    """The id without what a path may not have; a dot at its beginning could lead elsewhere."""
    return re.sub(r"^\.|[^A-Za-z0-9._-]", "-", record.instance_id)


def _requirements(record: SweRecord) -> list[str]:
    """What the tests need, with pytest."""
    there = "pytest" in map(requirement_name, record.requirements)
    return [*record.requirements, *([] if there else ["pytest"])]


def _inside(record: SweRecord, gold: str) -> SweRecord:
    """The record that goes with the folder: the tree in it has the bug, so the fix is a patch."""
    return dataclasses.replace(record, snapshot="", snapshot_sha256="", image="", bug_patch="", patch=gold)


def _grading(
    record: SweRecord, words: Sequence[str], base: Mapping[str, Entry], tested: Mapping[str, Entry]
) -> dict[str, object]:
    """What the grading script is told: see there."""
    hidden = {key for key in base.keys() | tested.keys() if base.get(key) != tested.get(key)}
    kept = [node_id(name, tested.keys()) for name in record.pass_to_pass]
    expected = [*(node_id(name, tested.keys()) for name in record.fail_to_pass), *kept]
    protected = Protected(record.test_targets, frozenset(hidden), expected, base)
    return {
        "expected": [junit_id(name) for name in expected],
        "kept": [junit_id(name) for name in kept],
        "base": {key: entry.digest.hex() for key, entry in base.items()},
        "protected": sorted({key for key in base if protected(key)} | protected.paths),
        "python_path": record.python_path,
        "arguments": [*words, *record.test_targets],
        "time_s": record.limits.time_s or TIME_S,
    }


def _settings(record: SweRecord) -> str:
    return _SETTINGS.format(
        # JSON's texts are TOML's, too.
        instance_id=json.dumps(record.instance_id),
        repo=json.dumps(record.repo),
        license=json.dumps(record.license),
        verifier_s=(record.limits.time_s or TIME_S) + 60,
        memory_mb=record.limits.memory_mb or MEMORY_MB,
    )


def _dockerfile(record: SweRecord) -> str:
    commands = [["bash", "-c", entry] if isinstance(entry, str) else list(entry) for entry in record.setup]
    return _DOCKERFILE.format(
        python=_python(record),
        workdir=WORKDIR,
        # In JSON, so that neither a line break nor Docker's own variables change what a command says.
        setup="".join(f"RUN {json.dumps(command)}\n" for command in commands),
    )


def _python(record: SweRecord) -> str:
    """Minor version of Python for the image: the running one, or else the newest that the record can do with."""
    wanted = version_range(record.python)
    minors = [sys.version_info.minor, *range(_NEWEST_MINOR, _OLDEST_MINOR - 1, -1)]
    for minor in minors:
        if any(wanted.contains(f"3.{minor}.{patch}") for patch in range(_MOST_PATCHES)):
            return f"3.{minor}"
    raise TaskError(
        f"{record.instance_id}: no image of Python is of the versions it needs, {record.python!r}"
    )
