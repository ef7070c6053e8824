"""R2E-Gym: a commit and an image per task, the expected result of every test, and hidden tests inside the image."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentgym.envs.swe.fields import Row, object_of, present, text_of, texts_of
from agentgym.envs.swe.importers.common import TESTBED, converted, in_image, new_file_diff
from agentgym.errors import TaskError

PARSER = "r2egym"

_TESTS = "r2e_tests"  # where its images have the hidden tests while they run
_SUMMARY = "short test summary info"
_RESULT = re.compile(r"^(PASSED|FAILED|ERROR) (\S+?::.*)$", re.MULTILINE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ISSUE = re.compile(r"\[ISSUE\](.*)\[/ISSUE\]", re.DOTALL)
_SIGNS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}
_HEAVY = ("parsed_commit_content", "execution_result_content", "modified_entity_summaries", "prompt")


def matches(row: Row) -> bool:
    """Rows with a field only it has."""
    return not {"expected_output_json", "parsed_commit_content"}.isdisjoint(row)


def convert(row: Row) -> Row:
    """The task in our own form: every test that passes after the fix is expected to."""
    commit, repo = text_of(row, "commit_hash"), text_of(row, "repo_name") or text_of(row, "repo")
    if not repo or not commit:
        raise TaskError("expected `repo_name` and `commit_hash`, texts that say which commit it is")
    statement = text_of(row, "problem_statement")
    issue = _ISSUE.search(statement)
    return converted(
        row,
        without=("repo_name", "docker_image", "commit_hash", "expected_output_json", *_HEAVY),
        instance_id=text_of(row, "instance_id") or f"{repo.replace('/', '__')}-{commit}",
        repo=repo,
        fixed_in=commit,
        problem_statement=(issue[1] if issue else statement).strip(),
        patch=text_of(row, "patch") or commit_diff(object_of(row, "parsed_commit_content")),
        test_targets=[_TESTS],
        **_tests(row),
        **in_image(row, text_of(row, "docker_image"), python=f"{TESTBED}/.venv/bin/python"),
    )


def _tests(row: Row) -> Row:
    """The hidden tests as a patch, and the expected ones by what they were before the fix.

    Both stand in the record of the runs that made the task. Without it the names lack their files and nobody knows
    which tests failed before: they all go to FAIL_TO_PASS, with the name of the parser that would read them.
    """
    expected = object_of(row, "expected_output_json")
    passing = {_plain(name) for name, status in expected.items() if status == "PASSED"}
    runs = object_of(row, "execution_result_content")
    after = _statuses(text_of(runs, "new_commit_res_stdout"))
    nodes = {_plain(_short(node)): node for node in after}
    if not passing <= nodes.keys():
        return {"FAIL_TO_PASS": sorted(passing), "log_parser": PARSER}
    before = _statuses(text_of(runs, "old_commit_res_stdout"))
    ids = [node for name, node in nodes.items() if name in passing]
    files = zip(texts_of(runs, "test_file_names"), texts_of(runs, "test_file_codes"), strict=False)
    return {
        "FAIL_TO_PASS": [node for node in ids if before.get(node) != "PASSED"],
        "PASS_TO_PASS": [node for node in ids if before.get(node) == "PASSED"],
        "test_patch": "".join(new_file_diff(f"{_TESTS}/{name}", code) for name, code in files),
    }


def _statuses(output: str) -> dict[str, str]:
    """Status by node id, from the summary at the end of what pytest printed."""
    _, found, summary = output.rpartition(_SUMMARY)
    lines = _RESULT.findall(_COLOURS.sub("", summary)) if found else []
    return {node if status == "PASSED" else _plain(node): status for status, node in lines}


def _short(node: str) -> str:
    """A node id as its own parser names it: the parts after the file, joined by dots."""
    return ".".join(node.split("::")[1:])


def _plain(name: str) -> str:
    """A test's name without colours and without what pytest adds behind a dash."""
    return _COLOURS.sub("", name).partition(" - ")[0].strip()


def commit_diff(commit: Row) -> str:
    """The diff of a parsed commit, its test files left out.

    Raises:
        TaskError: it is not in the form of `ParsedCommit`.
    """
    try:
        return "".join("".join(_file_diff(present(diff))) for diff in commit.get("file_diffs", []))
    except (KeyError, TypeError, AttributeError, TaskError) as error:
        raise TaskError(
            f"expected `parsed_commit_content` to be a parsed commit as R2E-Gym writes it ({error!r:.60})"
        ) from None


def _file_diff(diff: Row) -> Iterator[str]:
    path = diff["header"]["file"]["path"]
    if _is_test(path):
        return
    yield f"diff --git a/{path} b/{path}\n"
    if diff["header"].get("misc_line"):
        yield diff["header"]["misc_line"] + "\n"
    if index := diff.get("index_line"):
        mode = f" {index['mode']}" if index.get("mode") else ""
        yield f"index {index['old_commit_hash']}..{index['new_commit_hash']}{mode}\n"
    if "minus_file" in diff and "plus_file" in diff:
        yield f"--- {diff['minus_file']['path']}\n+++ {diff['plus_file']['path']}\n"
    for hunk in diff.get("hunks", []):
        where = hunk["descriptor"]
        section = f" {where['section']}" if where.get("section") else ""
        yield f"@@ -{_range(where['old_range'])} +{_range(where['new_range'])} @@{section}\n"
        for line in hunk["line_group"]["all_lines"]:
            yield f"{_SIGNS[line['type']]}{line['content']}\n"


def _range(span: Any) -> str:
    return str(span["start"]) if span.get("length") is None else f"{span['start']},{span['length']}"


def _is_test(path: str) -> bool:
    *folders, name = path.lower().split("/")
    return bool({"test", "tests"} & set(folders)) or name.startswith("test_") or name.endswith("_test.py")
