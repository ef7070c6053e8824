"""SWE-bench Pro: a longer statement, images with the tree in /app, and per-task scripts that are not in the rows."""

from __future__ import annotations

from agentgym.envs.swe.fields import Row, ids_of, number_or_text_of, text_of
from agentgym.envs.swe.importers.common import converted, id_files, in_image, owner_and_name
from agentgym.errors import TaskError

IMAGES = "jefzda/sweap-images"
WORKDIR = "/app"

_MARKS = frozenset("dockerhub_tag selected_test_files_to_run before_repo_set_cmd".split())
_LONGEST_TAG = 128  # of Docker Hub
_EXCEPTION = "element-hq__element-web-ec0f940ef0e8e3b61078f145f34dc40d1938e6c5-vnan"


def matches(row: Row) -> bool:
    """Rows with a field only it has."""
    return not _MARKS.isdisjoint(row)


def convert(row: Row) -> Row:
    """The task in our own form.

    `before_repo_set_cmd` fetches the tests from the history in the image; `test_patch` brings the same ones, so it is
    kept and not run.
    """
    expected = {
        name: list(ids_of(row, name) or ids_of(row, name.lower()))
        for name in ("FAIL_TO_PASS", "PASS_TO_PASS")
    }
    named = [entry.partition("::")[0].split(" | ")[0] for entry in ids_of(row, "selected_test_files_to_run")]
    paths = [*named, *id_files([*expected["FAIL_TO_PASS"], *expected["PASS_TO_PASS"]])]
    return converted(
        row,
        without=("requirements", "interface", "fail_to_pass", "pass_to_pass", "dockerhub_tag"),
        **expected,
        version=number_or_text_of(row, "version"),
        problem_statement=_statement(row),
        test_targets=[path for path in dict.fromkeys(paths) if path.endswith(".py")],
        **in_image(row, f"{IMAGES}:{_tag(row)}", workdir=WORKDIR, python=""),
    )


def _statement(row: Row) -> str:
    """What its own runs show: the issue, what is required of a solution, and the names it must bring."""
    parts = [
        ("", text_of(row, "problem_statement")),
        ("Requirements:\n", text_of(row, "requirements")),
        ("New interfaces introduced:\n", text_of(row, "interface")),
    ]
    return "\n\n".join(head + text.strip() for head, text in parts if text.strip())


def _tag(row: Row) -> str:
    """The row's tag, else the one its helper script derives."""
    if text_of(row, "dockerhub_tag"):
        return text_of(row, "dockerhub_tag")
    owner, _, name = owner_and_name(row).lower().partition("/")
    rest = text_of(row, "instance_id").removeprefix("instance_")
    if rest == "":
        raise TaskError("expected `instance_id`, a non-empty text, it is empty or missing")
    if rest != _EXCEPTION:
        rest = rest.removesuffix("-vnan")
        name = "element" if (owner, name) == ("element-hq", "element-web") else name
    return f"{owner}.{name}-{rest}"[:_LONGEST_TAG]
