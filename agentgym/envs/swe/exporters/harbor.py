"""Harbor task folders: the tree in an image to build, and tests that grade as ours do, as far as one container can.

Harbor uploads ``tests/`` only after the agent is done: the hidden tests, the untouched tree and the record lie there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from agentgym.envs.swe.exporters.trees import gold_diff, node_id, policy_tree, tree_with_tests
from agentgym.envs.swe.importers.harbor import CONFIG, INSTRUCTION, TASK_FILE, TREE
from agentgym.envs.swe.names import requirement_name
from agentgym.envs.swe.records import SweRecord, record_to_dict, write_atomic
from agentgym.envs.swe.repo import pack_tree
from agentgym.errors import TaskError
from agentgym.verifiers.log_parsers import PYTEST_IDS
from agentgym.verifiers.patches import Entry, list_tree
from agentgym.verifiers.suite import junit_id
from agentgym.verifiers.tests import Protected

WORKDIR = "/testbed"
TIME_S, MEMORY_MB = 600.0, 4096  # where a record sets nothing

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
            "tests/grading.json": json.dumps(_grading(record, list_tree(tree), list_tree(tested))),
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
    folder = out / re.sub(r"[^A-Za-z0-9._-]", "-", record.instance_id)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        write_atomic(folder / name, data)
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
    return folder


def _requirements(record: SweRecord) -> list[str]:
    """What the tests need, with pytest."""
    there = "pytest" in map(requirement_name, record.requirements)
    return [*record.requirements, *([] if there else ["pytest"])]


def _inside(record: SweRecord, gold: str) -> SweRecord:
    """The record that goes with the folder: the tree in it has the bug, so the fix is a patch."""
    return dataclasses.replace(record, snapshot="", snapshot_sha256="", image="", bug_patch="", patch=gold)


def _grading(record: SweRecord, base: Mapping[str, Entry], tested: Mapping[str, Entry]) -> dict[str, object]:
    """What the grading script is told: see there."""
    hidden = {key for key in base.keys() | tested.keys() if base.get(key) != tested.get(key)}
    expected = [node_id(name, tested.keys()) for name in (*record.fail_to_pass, *record.pass_to_pass)]
    protected = Protected(record.test_targets, frozenset(hidden), expected, base)
    return {
        "expected": [junit_id(name) for name in expected],
        "base": {key: entry.digest.hex() for key, entry in base.items()},
        "protected": sorted({key for key in base if protected(key)} | hidden | set(record.test_targets)),
        "python_path": record.python_path,
        "arguments": [*_pytest_words(record), *record.test_targets],
        "time_s": record.limits.time_s or TIME_S,
    }


def _pytest_words(record: SweRecord) -> list[str]:
    """What the record's test command says to pytest, without the targets."""
    names = [word.rpartition("/")[2] for word in record.test_command]
    place = names.index("pytest") + 1 if "pytest" in names else len(names)
    return [
        word for word in record.test_command[place:] if word not in record.test_targets and "{" not in word
    ]


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
    lines = [entry if isinstance(entry, str) else shlex.join(entry) for entry in record.setup]
    return _DOCKERFILE.format(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        workdir=WORKDIR,
        setup="".join(f"RUN {line}\n" for line in lines),
    )
