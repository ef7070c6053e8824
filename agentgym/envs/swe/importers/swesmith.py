"""SWE-smith: ``patch`` is the bug, the fix its reverse; one image per commit of a repository holds the clean tree."""

from __future__ import annotations

import re

from agentgym.envs.swe.fields import Row, ids_of, text_of
from agentgym.envs.swe.importers.common import converted, id_files, in_image
from agentgym.errors import TaskError

NAMESPACE = "jyangballin"  # where the images are published

_MIRROR = re.compile(r"(?:[\w.-]+/)?([\w.-]+?)__([\w.-]+)\.([0-9a-f]{8})")
_IMAGE = re.compile(r"\bswesmith\.(?:x86_64|arm64)\.([\w.-]+?)(?:__|_1776_)([\w.-]+)\.([0-9a-f]{6,40})\b")

# Projects whose tests pytest does not run: command and log parser. A line for a shell: they take no files behind it.
_OTHER_RUNS = {
    "tornadoweb/tornado": (["bash", "-c", "python -m tornado.test --verbose"], "unittest"),
    "un33k/python-slugify": (["bash", "-c", "python test.py --verbose"], "unittest"),
}


def matches(row: Row) -> bool:
    """Rows with its image, or with a repository of its mirrors and a patch but no tests that come with it."""
    image, repo = row.get("image_name"), row.get("repo")
    if isinstance(image, str) and _IMAGE.search(image):
        return True
    mirror = isinstance(repo, str) and bool(_MIRROR.fullmatch(repo))
    return mirror and "patch" in row and not row.get("test_patch")


def convert(row: Row) -> Row:
    """The task in our own form: the bug as `bug_patch`, and no `patch`, since that is its reverse."""
    repo, named = text_of(row, "repo"), text_of(row, "image_name")
    mirror = _MIRROR.fullmatch(repo) or _IMAGE.search(named)
    if mirror is None:
        raise TaskError(f"expected `repo` to be a mirror OWNER__NAME.COMMIT8, got {repo!r:.80}")
    owner, name, commit = mirror.groups()
    if not text_of(row, "patch").strip():
        raise TaskError("expected `patch`, the diff that makes the bug, it is empty or missing")
    expected = {field: list(ids_of(row, field)) for field in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    command, parser = _OTHER_RUNS.get(f"{owner}/{name}", ([], ""))
    return converted(
        row,
        without=("patch", "image_name", "test_patch"),
        **expected,
        repo=f"{owner}/{name}",
        origin=f"SWE-smith, {repo}",
        version=text_of(row, "version") or commit,
        bug_patch=text_of(row, "patch"),
        test_targets=id_files([*expected["FAIL_TO_PASS"], *expected["PASS_TO_PASS"]]),
        test_command=command,
        log_parser=parser,
        **in_image(row, _image(named, owner, name, commit)),
    )


def _image(named: str, owner: str, name: str, commit: str) -> str:
    """The published name: older rows say it without a namespace, and with the ``__`` that Docker Hub refuses."""
    if "/" in named:
        return named
    short = named or f"swesmith.x86_64.{owner}__{name}.{commit}"
    return f"{NAMESPACE}/{short.replace('__', '_1776_')}".lower()
