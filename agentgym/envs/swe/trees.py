"""Where a task lives: its interpreter, the sandbox or image it runs in, and its tree as the policy gets it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agentgym.envs.swe.records import SweRecord, write_atomic
from agentgym.envs.swe.repo import apply_patch, clean_tree, tree_diff, unpack
from agentgym.envs.swe.runtime.interpreters import find_interpreter
from agentgym.envs.swe.runtime.pythonenv import environment, publish, swe_cache
from agentgym.errors import TaskError
from agentgym.sandbox import make_sandbox, scratch_folder
from agentgym.sandbox.base import Limits
from agentgym.sandbox.docker import image_id
from agentgym.verifiers.suite import TestSuite, open_sandbox
from agentgym.verifiers.tests import Protected, copy_tree

REPORT_BYTES = 64 << 20  # a suite of some hundred thousand tests
TIME_S = 1800.0  # for one run of the tests whose length nobody knows yet
WORKDIR = "/testbed"  # where the images of SWE-bench and most others have the tree

# Interpreters to look for in an image, after the record's own: the environment that images of SWE tasks have, a virtual
# environment beside the tree, and what is on the path.
_PYTHONS = (
    "/opt/miniconda3/envs/testbed/bin/python /opt/conda/envs/testbed/bin/python .venv/bin/python python3 python"
).split()
_FIND_PYTHON = """\
places=$PYTHONPATH first=
unset PYTHONPATH
for name in "$@"; do
    path=$(command -v "$name") || continue
    case $path in /*) ;; *) path=$PWD/$path ;; esac
    "$path" -c '' || continue
    first=${first:-$path}
    "$path" -c 'import pytest' 2>/dev/null && first=$path && break
done
[ -n "$first" ] || exit 1
echo "$first"
"$first" -c 'import sys; print(list(sys.version_info[:2]))'
"$first" -c 'import pytest; print(int(pytest.__version__.split(".")[0]))' 2>/dev/null || echo 0
echo "$places"
"""
_OLDEST_PYTHON, _OLDEST_PYTEST = [3, 8], 7  # that our own runner works with


def task_suite(record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False) -> TestSuite:
    """Interpreter, sandbox and import path of a task, with limits for a run of unknown length.

    A record without a snapshot runs in its image, which needs the backend "docker"; one that has both does so where
    that backend is asked for.

    Raises:
        TaskError: the record wants another Python version or backend, or its image has no interpreter or tree.
        InfrastructureError: pip or the sandbox failed.
    """
    default = Limits()
    limits = Limits(
        wall_s=record.limits.time_s or TIME_S,
        memory_mb=record.limits.memory_mb or default.memory_mb,
        processes=record.limits.processes or default.processes,
        output_bytes=REPORT_BYTES,
    )
    image = record.image if record.image and (backend == "docker" or not record.snapshot) else ""
    if image and backend not in ("auto", "docker"):
        raise TaskError(f"{record.instance_id}: its image needs the backend 'docker', got {backend!r}")
    workspace = (record.workdir or WORKDIR) if image else ""
    facts = image_facts(image, workspace, record.image_python) if image else None
    more = facts.python_path if facts else ()
    return TestSuite(
        python=facts.python if facts else task_python(record),
        targets=record.test_targets,
        python_path=tuple(dict.fromkeys([*record.python_path, *more])),
        limits=limits,
        backend="docker" if image else backend,
        allow_unsafe=allow_unsafe,
        image=image,
        workspace=workspace,
    )


def task_python(record: SweRecord) -> Path:
    """Interpreter of the task's environment, installed on first use.

    The project itself is left out even if something there needs it: an installed copy would be the solution.

    Raises:
        TaskError: no installed Python is of the versions that the record wants, or pytest itself needs the project.
    """
    try:
        interpreter = find_interpreter(record.python)
    except TaskError as error:
        raise TaskError(f"{record.instance_id}: {error}") from None
    project = record.repo.rpartition("/")[2]
    return environment(record.requirements, interpreter=interpreter.path, without=project)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image has for the tests.

    Attributes:
        python: path of its interpreter.
        runner: whether our own pytest runner works with it.
        python_path: folders of the tree, relative to its root, that the image's PYTHONPATH names.
    """

    python: Path
    runner: bool
    python_path: tuple[str, ...] = ()


def image_facts(image: str, workspace: str, python: str = "") -> ImageFacts:
    """Look for the interpreter of an image, once; the answer is kept for as long as its name means the same image.

    Args:
        image: its name.
        workspace: where its tree lies.
        python: the interpreter to take; empty: the first that has pytest, or else the first.

    Raises:
        TaskError: there is no interpreter, or no such folder.
        InfrastructureError: the image could not be had or started.
    """
    kept = swe_cache() / "images" / f"{cache_key(image_id(image), workspace, python)}.txt"
    if not kept.is_file():
        with make_sandbox("docker", image=image, workspace=workspace) as sandbox:
            names = [python] if python else _PYTHONS
            found = sandbox.exec(["sh", "-c", _FIND_PYTHON, "sh", *names])
        if found.exit_code:
            raise TaskError(
                f"image {image}: expected an interpreter ({', '.join(names)}) that can be run in {workspace};"
                f" say where with `image_python` and `workdir`: {found.stderr.strip()[-200:]}"
            )
        write_atomic(kept, found.stdout.encode())
    path, version, pytest, places = kept.read_text().splitlines()
    runner = json.loads(version) >= _OLDEST_PYTHON and int(pytest) >= _OLDEST_PYTEST
    root = Path(workspace)
    entries = [Path(os.path.normpath(place)) for place in places.split(":") if place]
    inside = tuple(str(entry.relative_to(root)) for entry in entries if entry.is_relative_to(root))
    return ImageFacts(Path(path), runner, inside)


def task_tree(record: SweRecord, *, backend: str = "auto", allow_unsafe: bool = False) -> Path:
    """The tree as the policy gets it, without `.git`: snapshot or image, bug patch, set-up commands.

    Prepared once and kept in the cache folder: only read it, copy to use.

    Raises:
        TaskError: the snapshot is wrong, the bug patch does not apply, or a set-up command fails.
    """
    return prepared_tree(record, task_suite(record, backend=backend, allow_unsafe=allow_unsafe))


def prepared_tree(record: SweRecord, suite: TestSuite) -> Path:
    """`task_tree` for a suite that is at hand."""
    snapshot = None if suite.image else record.snapshot_path()
    # By its id: a name may stand for another image tomorrow.
    source = [image_id(suite.image), suite.workspace] if snapshot is None else _digest(snapshot.read_bytes())
    python = str(suite.python) if record.setup else ""
    place = swe_cache() / "trees" / cache_key(source, record.bug_patch, record.setup, python)
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=place.parent) as folder:
            tree = Path(folder, "tree")
            if snapshot is None:
                _take_out(suite, tree)
            else:
                unpack(snapshot, tree)
            add_defect(record, tree)
            if record.setup:
                tree = _set_up(record, tree, suite)
            publish(tree, place)
    return place


def add_defect(record: SweRecord, tree: Path) -> None:
    """Make a tree as it comes what the task is about: without what may be of another state, and with its bug.

    Raises:
        TaskError: the bug patch does not apply.
    """
    clean_tree(tree)
    try:
        apply_patch(tree, record.bug_patch)
    except TaskError as error:
        raise TaskError(f"{record.instance_id}: its bug patch: {error}") from None


def gold_diff(record: SweRecord, tree: Path) -> str:
    """The gold patch against the tree with the defect; for a synthetic task without one, what takes its bug back."""
    if record.patch or not record.bug_patch:
        return record.patch
    with scratch_folder("gold") as folder:
        clean = Path(folder, "clean")
        copy_tree(tree, clean)
        apply_patch(clean, record.bug_patch, reverse=True)
        return tree_diff(tree, clean)


def _take_out(suite: TestSuite, tree: Path) -> None:
    """Copy the tree out of its image, without the history and the caches it may lie there with."""
    with make_sandbox("docker", image=suite.image, workspace=suite.workspace) as sandbox:
        sandbox.download(".", tree, skip=Protected.noise)
    if not any(tree.iterdir()):
        raise TaskError(
            f"image {suite.image}: {suite.workspace} is empty; say where the tree lies with `workdir`"
        )


def _set_up(record: SweRecord, tree: Path, suite: TestSuite) -> Path:
    prepared = tree.with_name("prepared")
    with open_sandbox(suite, tree, env={**suite.env(), "HOME": "/tmp"}) as sandbox:
        for command in record.setup:
            result = sandbox.exec(command if isinstance(command, str) else list(command))
            if result.exit_code:
                text = command if isinstance(command, str) else shlex.join(command)
                raise TaskError(
                    f"{record.instance_id}: set-up command {text!r} failed with exit status {result.exit_code}:"
                    f" {(result.stderr or result.stdout).strip()[-300:]}"
                )
        sandbox.download(".", prepared)
    clean_tree(prepared)
    return prepared


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cache_key(*parts: object) -> str:
    """A short name for what is made of these values, all of which JSON can say."""
    return _digest(json.dumps(parts).encode())[:20]
