"""Harbor task folders: an instruction, settings, an environment, tests that write a reward, a solution.

A Harbor task is judged by its own script, which says nothing of single tests. Those of software benchmarks carry the
record they were made from as ``tests/config.json``: it is read in whatever form it is in. So do the folders that
``agentgym swe export`` writes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agentgym.envs.swe.fields import Row, object_of, text_of
from agentgym.envs.swe.importers.common import converted
from agentgym.envs.swe.importers.files import read_json, read_text, read_toml
from agentgym.errors import TaskError

TASK_FILE = "task.toml"
INSTRUCTION = "instruction.md"
CONFIG = "tests/config.json"
TREE = "environment/tree.tar.gz"  # of the folders that we write
WORKDIR = "/app"  # where Harbor's own tasks work, if their Dockerfile does not say

_WORKDIR = re.compile(r"^\s*WORKDIR\s+(\S+)", re.IGNORECASE | re.MULTILINE)
_SIZE = re.compile(r"(\d{1,9})\s*([mg])i?b?")


def matches(row: Row) -> bool:
    """Only what `read_folder` made of a folder."""
    return {"harbor_settings", "instruction"} <= row.keys()


def read_folder(path: Path) -> Row:
    """A task folder as a row.

    Raises:
        TaskError: a file is missing or broken.
    """
    row: Row = {
        "instance_id": path.name,
        "instruction": read_text(path / INSTRUCTION),
        "harbor_settings": read_toml(path / TASK_FILE),
    }
    for name, file in {"dockerfile": "environment/Dockerfile", "record": CONFIG}.items():
        if (path / file).exists():
            row[name] = read_json(path / file) if file == CONFIG else read_text(path / file)
    if (path / TREE).exists():
        row["snapshot"] = TREE
    return row


def convert(row: Row) -> Row:
    """The task in our own form; without a record in it, one that has no expected tests."""
    settings = object_of(row, "harbor_settings")
    environment, dockerfile = object_of(settings, "environment"), text_of(row, "dockerfile")
    record = _record(row)
    fields: Row = {
        "instance_id": text_of(row, "instance_id"),
        "problem_statement": text_of(row, "instruction"),
    }
    if "snapshot" in row:
        fields["snapshot"] = row["snapshot"]
    elif "image" not in record:
        fields |= _image(text_of(environment, "docker_image"), dockerfile)
    limits = {"time_s": object_of(settings, "verifier").get("timeout_sec"), "memory_mb": _memory(environment)}
    fields["limits"] = {key: value for key, value in limits.items() if value is not None}
    return converted({**fields, **record})


def _record(row: Row) -> Row:
    """The record in the folder, in our own form; empty where there is none."""
    from agentgym.envs.swe.importers import own_form  # which knows this module

    inside = row.get("record")
    if not isinstance(inside, dict) or "instance_id" not in inside:
        return {}
    if matches(inside):
        raise TaskError(f"{CONFIG}: expected a record, got another Harbor task")
    try:
        return own_form(inside)[0]
    except TaskError as error:
        raise TaskError(f"{CONFIG}: {error}") from None


def _image(named: str, dockerfile: str) -> Row:
    """The image the settings name; one that must be built first is none."""
    workdirs = _WORKDIR.findall(dockerfile)
    return {"image": named, "workdir": workdirs[-1] if workdirs else WORKDIR} if named else {}


def _memory(environment: Row) -> Any:
    """MiB: ``memory_mb``, or the older ``memory`` such as "4G"."""
    if "memory" not in environment:
        return environment.get("memory_mb")
    match = _SIZE.fullmatch(text_of(environment, "memory").strip().lower())
    if match is None:
        raise TaskError(
            f"expected `environment.memory` to be a size such as '4G', got {environment['memory']!r:.40}"
        )
    return int(match[1]) * {"m": 1, "g": 1024}[match[2]]
