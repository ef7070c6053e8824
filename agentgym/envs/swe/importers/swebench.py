"""SWE-bench: the classic rows (full, Verified, Lite), the newer ones that bring their run, and its task folders."""

from __future__ import annotations

from pathlib import Path

from agentgym.envs.swe.fields import Row, text_of
from agentgym.envs.swe.importers.common import (
    CONDA_PYTHON,
    converted,
    in_image,
    instance_image,
    pull_request,
    words_of,
)
from agentgym.envs.swe.importers.files import read_diff, read_json, read_text, read_yaml
from agentgym.envs.swe.importers.projects import PROJECTS, parser_name, run_of
from agentgym.errors import TaskError
from agentgym.verifiers.logged import label_of

TASK_FILE = "task.yaml"

_START, _END = ">>>>> Start Test Output", ">>>>> End Test Output"
_FILES = {
    "patch": "gold.patch",
    "test_patch": "test.patch",
    "problem_statement": "problem_statement.md",
    "hints_text": "hints.md",
    "eval_script": "eval.sh",
}


def matches(row: Row) -> bool:
    """Rows with a field only SWE-bench has, and pull requests that say nothing of where their tree is."""
    if not {"environment_setup_commit", "eval_script", "eval_type"}.isdisjoint(row):
        return True
    return {"repo", "base_commit", "patch"} <= row.keys() and {"snapshot", "image"}.isdisjoint(row)


def convert(row: Row) -> Row:
    """The task in our own form."""
    repo, fields = text_of(row, "repo"), pull_request(row)
    run = run_of(repo, fields["version"])
    image = text_of(row, "image")
    if run and not image:
        image = instance_image("swebench", text_of(row, "instance_id"))
    parser = parser_name(text_of(row, "log_parser")) or (run.log_parser if run else "")
    named = {label_of(path, parser) for path in fields["test_targets"]}
    command = _evaluated(text_of(row, "eval_script")) or (
        words_of(run.command, "test_command") if run else []
    )
    return converted(
        row,
        without=("eval_script", "eval_type", "image"),
        **fields,
        test_command=[word for word in command if word not in named],
        log_parser=parser,
        **in_image(row, image, python=CONDA_PYTHON if repo in PROJECTS else ""),
    )


def _evaluated(script: str) -> list[str]:
    """The test command of an evaluation script: what stands between its two markers."""
    _, start, rest = script.partition(_START)
    inside, end, _ = rest.partition(_END)
    if not start or not end:
        return []
    lines = [line for line in inside.split("\n")[1:-1] if line.strip()]
    return words_of("\n".join(lines), "eval_script")


def read_folder(path: Path) -> Row:
    """A task folder as a row.

    Raises:
        TaskError: a file is missing or broken.
    """
    row = read_yaml(path / TASK_FILE)
    for field, name in _FILES.items():
        if (path / name).exists():
            row[field] = (read_diff if name.endswith(".patch") else read_text)(path / name)
    tests = read_json(path / "tests.json")
    if not isinstance(tests, dict):
        raise TaskError(f"expected tests.json to hold an object, got {type(tests).__name__}")
    return {"instance_id": path.name, "eval_type": "", **row, **tests}
