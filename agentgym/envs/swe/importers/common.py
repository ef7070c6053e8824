"""What the families share: which files a diff touches, which tests are run, where a tree lies in an image."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from typing import Any

from agentgym.envs.swe.fields import Row, ids_of, number_or_text_of, text_of
from agentgym.errors import TaskError

CONDA_PYTHON = "/opt/miniconda3/envs/testbed/bin/python"  # of every image that SWE-bench's scripts build
TESTBED = "/testbed"

# What the suite of a project in its own image may take. How long a run may take is measured when a task is prepared.
_LIMITS = {"memory_mb": 8192, "processes": 1024}

_NEW_FILE = re.compile(r"^--- .*\n\+\+\+ ([^\t\n\r]+)", re.MULTILINE)
_NO_TESTS = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")
_SHELL = re.compile(r"[;&|<>`$*~\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def converted(row: Row, *, without: Collection[str] = (), **fields: Any) -> Row:
    """The row with `fields` put in where they say something, and the fields `without` left out."""
    kept = {key: value for key, value in row.items() if key not in without}
    return kept | {key: value for key, value in fields.items() if value not in ("", [], (), {}, None)}


def in_image(row: Row, image: str, *, workdir: str = TESTBED, python: str = CONDA_PYTHON) -> Row:
    """The fields that say where the tree is and what a run in it may take; none for a row that brings a snapshot."""
    if row.get("snapshot") or not image:
        return {}
    return {"image": image, "workdir": workdir, "image_python": python, "limits": row.get("limits", _LIMITS)}


def instance_image(namespace: str, instance_id: str, *, separator: str = "_1776_") -> str:
    """Name of the image of one task, as SWE-bench and its descendants build it: Docker Hub allows no ``__``."""
    return f"{namespace}/sweb.eval.x86_64.{instance_id.replace('__', separator)}:latest".lower()


def owner_and_name(row: Row) -> str:
    """The repository as ``owner/name``."""
    repo = text_of(row, "repo")
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", repo):
        raise TaskError(f"expected `repo` to be OWNER/NAME, got {repo!r:.80}")
    return repo


def changed_files(test_patch: str) -> list[str]:
    """The files a diff changes or adds, without those that hold data: what SWE-bench gives its test commands."""
    paths = [path.strip('"').removeprefix("b/") for path in _NEW_FILE.findall(test_patch)]
    return list(dict.fromkeys(path for path in paths if path != "/dev/null" and not path.endswith(_NO_TESTS)))


def id_files(ids: Iterable[str]) -> list[str]:
    """The files that pytest node ids name."""
    places = (name.partition("[")[0].partition("::") for name in ids)
    return list(dict.fromkeys(file for file, colons, _ in places if colons and file.endswith(".py")))


def targets(row: Row) -> list[str]:
    """What the test command gets: the files of the test patch, and those of the expected tests.

    Where there are Python files, they alone: pytest runs nothing at all if it is given a template or a page of text.
    """
    ids = [*ids_of(row, "FAIL_TO_PASS"), *ids_of(row, "PASS_TO_PASS")]
    paths = [*changed_files(text_of(row, "test_patch")), *id_files(ids)]
    inside = [
        path for path in dict.fromkeys(paths) if not path.startswith("/") and ".." not in path.split("/")
    ]
    return [path for path in inside if path.endswith(".py")] or inside


def pull_request(row: Row) -> Row:
    """What all forms after SWE-bench share: version, expected tests, and the files the test command gets."""
    return {
        "version": number_or_text_of(row, "version"),
        "FAIL_TO_PASS": list(ids_of(row, "FAIL_TO_PASS")),
        "PASS_TO_PASS": list(ids_of(row, "PASS_TO_PASS")),
        "test_targets": targets(row),
    }


def words_of(line: str, field: str) -> list[str]:
    """A shell line as a command's words; a line that needs a shell gets one.

    Raises:
        TaskError: a quote is not closed.
    """
    if _SHELL.search(line):
        return ["bash", "-c", line]
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise TaskError(f"expected `{field}` to be a shell line, got {line!r:.80} ({error})") from None
    return ["env", *words] if words and _ASSIGNMENT.match(words[0]) else words


def new_file_diff(path: str, text: str) -> str:
    """The diff that adds a text file."""
    lines = text.split("\n")
    last = lines.pop()
    body = "".join(f"+{line}\n" for line in lines)
    if last:
        body += f"+{last}\n\\ No newline at end of file\n"
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
    count = len(lines) + bool(last)
    return head + (f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{count} @@\n{body}" if count else "")
