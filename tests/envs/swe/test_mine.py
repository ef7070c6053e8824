"""Tasks from a history made here; no network."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentgym.envs.swe.building import mine
from agentgym.envs.swe.building.candidates import KEPT
from agentgym.envs.swe.building.changes import (
    CONFIG,
    DOCS,
    SOURCE,
    TESTS,
    in_library,
    keep_version,
    kind_of,
    why_unfit,
)
from agentgym.envs.swe.building.history import Change, History, history_of_sdists, last_versions
from agentgym.envs.swe.building.mine import mine_repository, mine_sdists
from agentgym.envs.swe.building.statements import Failure, change_statement, problem_text
from agentgym.envs.swe.grading import gold_patch, task_tree, validate_records
from agentgym.envs.swe.records import load_records
from agentgym.envs.swe.runtime.prepared import Runtime
from agentgym.envs.swe.runtime.project import inspect_project
from agentgym.errors import InfrastructureError, TaskError
from agentgym.verifiers.patches import list_tree
from agentgym.verifiers.tests import SuiteRun, TestSuite
from tests.envs.swe.tiny_package import PACKAGE, make_sdist, put_tree, use_this_python

PYPROJECT = '[project]\nname = "tiny-pkg"\nversion = "1.5"\n'
BASE = {**{name: text for name, text in PACKAGE.items() if name != "PKG-INFO"}, "pyproject.toml": PYPROJECT}
NUMBERS, TESTS_OF = "src/tiny_pkg/numbers.py", "tests/test_numbers.py"
FIX = {
    NUMBERS: BASE[NUMBERS].replace(
        "    result = start\n", "    if values is None:\n        return start\n    result = start\n"
    ),
    TESTS_OF: BASE[TESTS_OF] + "\n\ndef test_total_of_nothing():\n    assert total(None, 3) == 3\n",
    "CHANGELOG.md": "Return the start value early when there are no values.\n",
}
MESSAGE = """\
Total of no values at all raises a TypeError (#12)

One would expect the start value. This patch returns early.

Signed-off-by: Somebody <somebody@example.org>
"""


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    use_this_python(monkeypatch)


class Repository:
    """A git repository in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(
            command, cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, message: str, files: Mapping[str, str]) -> str:
        put_tree(self.folder, dict(files))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", BASE)
    return repository


# The whole way


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tasks of a small history."""
    folder = tmp_path_factory.mktemp("mined")
    repository = Repository(folder / "repository")
    repository.commit("first", BASE)
    repository.commit(MESSAGE, FIX)
    renamed = FIX[NUMBERS].replace("result", "whole")
    repository.commit(
        "tidy",
        {NUMBERS: renamed, TESTS_OF: FIX[TESTS_OF] + "\n\ndef test_more():\n    assert total([]) == 0\n"},
    )
    repository.commit("docs", {"README.md": "x\n"})
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_this_python(monkeypatch)
        mine_repository(repository.folder, folder / "out", jobs=2)
    return folder / "out"


@pytest.mark.slow
def test_a_fix_becomes_a_task(mined: Path) -> None:
    (record,) = load_records(mined / "tasks.jsonl")
    assert record.fail_to_pass == ("tests/test_numbers.py::test_total_of_nothing",)
    assert len(record.pass_to_pass) == 18
    assert "+    if values is None:" in record.patch
    assert all(name not in record.patch for name in ("tests/", "CHANGELOG"))
    assert "test_total_of_nothing" in record.test_patch
    tree = task_tree(record)
    assert "CHANGELOG.md" not in list_tree(tree)
    assert (tree / TESTS_OF).read_text() == BASE[TESTS_OF]
    assert (tree / NUMBERS).read_text() == BASE[NUMBERS]
    text = record.problem_statement
    assert "Total of no values at all raises a TypeError" in text
    assert "assert total(None, 3) == 3" in text
    assert all(secret not in text for secret in ("#12", "Signed-off", "early", "numbers.py"))
    answer = validate_records([record])
    assert (answer["n"], answer["ok"]) == (1, 1)
    assert gold_patch(record) == record.patch


@pytest.mark.slow
def test_the_report_tells_why_changes_were_dropped(mined: Path) -> None:
    report = json.loads((mined / "report.json").read_text())
    rows = {row["candidate"].split(" ", 1)[1]: row["outcome"] for row in report["candidates"]}
    assert rows == {
        "docs": "changes no source",
        "tidy": "its tests pass without it",
        "Total of no values at all raises a TypeError (#12)": "kept",
    }
    assert (report["tasks"], report["tried"]) == (1, 3)


@pytest.mark.slow
def test_an_interrupted_run_continues(mined: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (mined / "tasks.jsonl").read_bytes()
    (mined / "tasks.jsonl").unlink()

    def run(*args: object, **kwargs: object) -> None:
        raise AssertionError("nothing is left to run")

    monkeypatch.setattr("agentgym.envs.swe.building.mine.prepare_runtime", run)
    mine_repository(mined.parent / "repository", mined)
    assert (mined / "tasks.jsonl").read_bytes() == before


@pytest.mark.slow
def test_two_source_archives(tmp_path: Path) -> None:
    version = {"src/tiny_pkg/__init__.py": PACKAGE["src/tiny_pkg/__init__.py"] + '__version__ = "1.5"\n'}
    old = {**PACKAGE, **version, "CHANGELOG.rst": "1.5\n---\n\n- First release.\n"}
    new = {
        **old,
        **FIX,
        "src/tiny_pkg/__init__.py": old["src/tiny_pkg/__init__.py"].replace('"1.5"', '"1.6"'),
        "PKG-INFO": PACKAGE["PKG-INFO"].replace("1.5", "1.6"),
        "CHANGELOG.rst": "1.6 (2024-01-01)\n---\n\n- The total of missing values is the start value.\n\n"
        + old["CHANGELOG.rst"],
    }
    del new["CHANGELOG.md"]
    archives = [named_sdist(tmp_path, "1.5", old), named_sdist(tmp_path, "1.6", new)]
    found = mine_sdists(archives, tmp_path / "out")
    (record,) = found.records
    assert record.version == "1.5"
    assert "The total of missing values is the start value." in record.problem_statement
    assert "__version__" not in record.patch
    tree = task_tree(record)
    assert "1.6" not in (tree / "CHANGELOG.rst").read_text() + (tree / "PKG-INFO").read_text()
    assert validate_records([record])["ok"] == 1


def test_a_name_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = BASE | {"pyproject.toml": PYPROJECT.replace("tiny-pkg", "x/../../../ESCAPED")}
    visible, broken, fixed = (
        put_tree(tmp_path / "trees" / name, old | changed)
        for name, changed in {"visible": {}, "broken": {TESTS_OF: FIX[TESTS_OF]}, "fixed": FIX}.items()
    )
    run = SuiteRun(
        {"t::new": "failed", "t::old": "passed"}, {"t::new": ("", "AssertionError")}, "", 1, "", 1.0
    )
    monkeypatch.setattr(mine, "run_suite", lambda tree, suite: run)
    project = inspect_project(fixed)
    suite = TestSuite(Path("python"), project.targets)
    outcome = mine._compare(
        SimpleNamespace(out=tmp_path / "a/b/out", origin="x"),
        Change("c" * 40, "p" * 40, "Give back the start value where there are no values"),
        Runtime(project, (), suite, frozenset(run.statuses), {}, 1.0),
        mine._Trees(visible, broken, fixed),
        [NUMBERS],
        [TESTS_OF],
    )
    assert outcome.kind == KEPT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "trees"]
    (snapshot,) = (tmp_path / "a/b/out/snapshots").iterdir()
    assert snapshot.name.startswith("x_-_-_-_escaped-cccccccccc-")


def named_sdist(folder: Path, version: str, files: dict[str, str]) -> str:
    return str(make_sdist(folder, files).rename(folder / f"tiny_pkg_of_{version}.tar.gz"))


def test_pip_trouble_drops_nothing_for_good(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise InfrastructureError("pip failed")

    repository.commit(MESSAGE, FIX)
    monkeypatch.setattr("agentgym.envs.swe.building.mine.prepare_runtime", fail)
    with pytest.raises(InfrastructureError, match="pip failed"):
        mine_repository(repository.folder, tmp_path / "out")
    assert not (tmp_path / "out/journal.jsonl").exists()
    assert json.loads((tmp_path / "out/report.json").read_text())["outcomes"] == {"infrastructure failed": 1}


# Reading a history


def test_merges_count_as_one_change(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "topic")
    repository.commit("Total breaks on nothing", {NUMBERS: FIX[NUMBERS]})
    repository.commit("wip", {TESTS_OF: FIX[TESTS_OF]})
    repository.git("checkout", "--quiet", "main")
    middle = repository.commit("between", {"other.txt": "x"})
    repository.git("merge", "--quiet", "--no-ff", "-m", "Merge pull request #3 from a/topic", "topic")
    history = History(repository.folder)
    merge, between = history.changes()
    assert between.commit == merge.parent == middle
    assert "Total breaks on nothing" in merge.message
    assert set(history.changed_paths(merge)) == {NUMBERS, TESTS_OF}
    assert history.changed_paths(merge)[NUMBERS] == 2
    assert [change.commit for change in history.changes(since=middle)] == [merge.commit]
    with pytest.raises(TaskError, match="no commit called 'nowhere'"):
        history.changes(since="nowhere")


def test_a_repository_is_read_as_its_objects_are(repository: Repository, tmp_path: Path) -> None:
    """Neither its configuration, attributes and hooks nor the working tree decide anything, and nothing is written."""
    trap = tmp_path / "trap"
    repository.git("config", "filter.trap.smudge", f"touch {trap}; cat")
    repository.git("config", "diff.trap.textconv", f"touch {trap}; cat")
    repository.git("config", "core.fsmonitor", f"touch {trap} && :")
    files = {
        ".gitattributes": "*.txt filter=trap diff=trap\n*.md export-ignore\n",
        "ü a.txt": "one\r\n",
        "b.md": "x",
    }
    commit = repository.commit("odd", files)
    os.symlink("b.md", repository.folder / "link")
    commit = repository.commit("link", {"b.md": "y"})
    put_tree(repository.folder, {"b.md": "not committed"})
    trap.unlink(missing_ok=True)
    before = {path: path.stat().st_mtime_ns for path in (repository.folder / ".git").rglob("*")}
    history = History(repository.folder)
    change = history.changes()[0]
    assert history.changed_paths(change) == {"b.md": 2, "link": 1}
    history.export(commit, tmp_path / "tree")
    assert (tmp_path / "tree/ü a.txt").read_bytes() == b"one\r\n"
    assert (tmp_path / "tree/b.md").read_text() == "y"
    assert os.readlink(tmp_path / "tree/link") == "b.md"
    assert not trap.exists()
    assert {path: path.stat().st_mtime_ns for path in (repository.folder / ".git").rglob("*")} == before


def test_bare_repositories_and_further_working_trees(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit("second", {"a.txt": "x"})
    repository.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    repository.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "other"))
    for place in (tmp_path / "bare.git", tmp_path / "other"):
        assert [change.commit for change in History(place).changes()] == [commit]
    with pytest.raises(TaskError, match="expected the folder of a git repository"):
        History(tmp_path)


def test_versions_that_only_tags_tell(repository: Repository) -> None:
    history = History(repository.folder)
    commit = repository.commit("second", {"a.txt": "x"})
    assert history.version(commit) == ""
    repository.git("tag", "v2.1.0", commit)
    assert history.version(commit) == "2.1.0"


def test_archives_become_a_history(tmp_path: Path) -> None:
    news = ["1.5\n- a\n", "1.6\n- b\n\n1.5\n- a\n", "1.7\n- c\n\n1.6\n- b\n\n1.5\n- a\n"]
    archives = [
        named_sdist(tmp_path, text[:3], {**PACKAGE, "NEWS.txt": text, "src/tiny_pkg/__pycache__/x.pyc": text})
        for text in news
    ]
    history = history_of_sdists(archives, tmp_path / "one")
    newest, older = history.changes()
    assert "- c" in newest.message
    assert "- b" not in newest.message
    assert history.changed_paths(older) == {"NEWS.txt": 3}
    again = history_of_sdists(archives, tmp_path / "two")
    assert again.changes() == history.changes()  # the same hashes, so that a rerun finds its journal's lines
    with pytest.raises(TaskError, match="at least two"):
        history_of_sdists(archives[:1], tmp_path / "three")


def test_versions_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "tiny (1.10)\nAvailable versions: 1.10, 1.9.1, 1.9\n"
    monkeypatch.setattr(
        "agentgym.envs.swe.building.history.subprocess.run",
        lambda *a, **k: subprocess.CompletedProcess([], 0, answer, ""),
    )
    assert last_versions("Tiny", 2) == ["tiny==1.9.1", "tiny==1.10"]
    assert len(last_versions("Tiny", 9)) == 3
    answer = "Available versions: 1.0\n"
    with pytest.raises(TaskError, match="1 source archives"):
        last_versions("Tiny", 2)


# What a change consists of


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("src/pkg/core.py", SOURCE),
        ("pkg/data/table.json", SOURCE),
        ("pkg/stubs.pyi", SOURCE),
        ("mod.py", SOURCE),
        ("pkg/history.py", SOURCE),
        ("tests/data/x.json", TESTS),
        ("pkg/tests/test_a.py", TESTS),
        ("conftest.py", TESTS),
        ("pkg/core_test.py", TESTS),
        ("setup.py", CONFIG),
        ("pyproject.toml", CONFIG),
        ("requirements.txt", CONFIG),
        (".github/workflows/ci.yml", CONFIG),
        ("PKG-INFO", CONFIG),
        ("pkg.egg-info/SOURCES.txt", CONFIG),
        ("pkg/_version.py", CONFIG),
        ("docs/conf.py", DOCS),
        ("CHANGES", DOCS),
        ("HISTORY.rst", DOCS),
        ("pkg/README.md", DOCS),
    ],
)  # fmt: skip
def test_kinds_of_files(path: str, kind: str) -> None:
    assert kind_of(path) == kind


def test_bounds() -> None:
    assert why_unfit({"a.py": 1000, "test_a.py": 4000, "docs/x.md": 9999}) == ("", "")
    assert why_unfit({"a.py": 1001, "test_a.py": 1})[0] == "too large"
    assert "4001 test lines" in why_unfit({"a.py": 1, "test_a.py": 4001})[1]
    assert "21 source files" in why_unfit({**{f"a{n}.py": 1 for n in range(21)}, "test_a.py": 1})[1]
    assert why_unfit({"a.json": 1, "test_a.py": 1})[0] == "changes no source"
    assert why_unfit({"a.py": 1, "pkg/a.pyx": 1, "test_a.py": 1}) == ("changes compiled code", "pkg/a.pyx")
    assert why_unfit({"a.py": 1, "tests/a.json": 1})[0] == "changes no tests"


def test_copies_in_the_library() -> None:
    library = {"filters/__init__.py", "idna/core.py"}
    assert in_library("src/idna/core.py", library)
    assert not in_library("pkg/filters/__init__.py", library)  # another package's, as it happens
    assert not in_library("core.py", library)


def test_the_version_stays(tmp_path: Path) -> None:
    old = put_tree(
        tmp_path / "old", {"a.py": '__version__ = "1"\nx = 1\n', "b.py": "VERSION = (1,)\n", "c.py": "x\n"}
    )
    new = put_tree(
        tmp_path / "new", {"a.py": 'import y\n__version__ = "2"\nx = 2\n', "b.py": "", "c.py": "y\n"}
    )
    keep_version(old, new, ["a.py", "b.py", "c.py", "gone.py"])
    assert (new / "a.py").read_text() == 'import y\n__version__ = "1"\nx = 2\n'
    assert (new / "b.py").read_text() == ""


# What the maintainers said

GOLD = """\
--- a/pkg/core.py
+++ b/pkg/core.py
@@ -1,2 +1,3 @@
-    return text[0]
+    if not text:
+        return None
+    return text[0].casefold()
"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("fix #12", ""),
        ("wip", ""),
        ("Release 1.2.3", ""),
        ("Bump version to 1.3.0", ""),
        ("update tests", ""),
        ("Merge branch 'main' of example.org:a/b into topic", ""),
        ("Merge pull request #12 from a/b\n\nEmpty texts crash first()", "Empty texts crash first()"),
        ("Empty texts crash first() by accident (#12)", "Empty texts crash first() by accident"),
        ("Fix #4: Convert first() of texts to a class", ""),
        ("Bug: empty texts crash first()\n\nIssue: #4\nSee https://example.org/4", "Bug: empty texts crash first()"),
        ("Fix crash of first() on empty texts by checking for None", "Fix crash of first() on empty texts."),
        ("Empty texts crash first()\n\nThe fix is to look before.", "Empty texts crash first()"),
        ("Empty texts crash first()\n\nUse `casefold` instead.", "Empty texts crash first()"),
        ("Empty texts crash first()\n\n    return text[0].casefold()\n", "Empty texts crash first()"),
        ("Empty texts crash first(): now `text[0].casefold()`. Seen quite often.", "Seen quite often."),
        ("Empty texts crash first()\n\ndiff --git a/x b/x\n+all of it is told here\n", "Empty texts crash first()"),
        (
            "Empty texts crash first()\n\nCo-authored-by: A <a@b>\nChange-Id: I123\nCloses: #4",
            "Empty texts crash first()",
        ),
        (
            "Empty texts crash first(), see 0a1b2c3d4e and https://example.org/x/12\nfor more about it.",
            "Empty texts crash first(), see and for more about it.",
        ),
        (
            "pkg 1.2\n\n1.2 (2024-05-06)\n================\n\n"
            "* Empty texts crash first (`#3 <https://x.org/3>`_)\n* Add tests",
            "* Empty texts crash first",
        ),
    ],
)  # fmt: skip
def test_problem_texts(message: str, expected: str) -> None:
    assert problem_text(message, GOLD) == expected


def test_a_change_is_told_by_what_is_seen_where_the_message_is_poor() -> None:
    failures = [Failure(f"t.py::test_{n}[1]", f"f({n})", "ValueError: in core.py:3") for n in range(5)]
    failures.append(
        Failure("t.py::test_0[2]", "f(9)", "ValueError")
    )  # shows no more than the first of test_0
    text = change_statement("pkg 1.0", "", failures, failing=6, files=["pkg/core.py"])
    assert "maintainers" not in text
    assert "core.py" not in text
    assert "f(2)" in text
    assert "f(3)" not in text
    assert "3 more checks fail, in `test_3`, `test_4`." in text
    told = change_statement("pkg 1.0", "It breaks.", failures, failing=5, files=[])
    assert "It breaks." in told
    assert "f(0)" in told
