"""Building, validating and grading tasks from a small source archive made here; no network."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.envs.swe.building import bugs, build
from agentgym.envs.swe.building.bugs import ANYWHERE, ONE_FILE, SEVERAL_FILES, Bug, group, places_for_bugs
from agentgym.envs.swe.building.build import build_tasks
from agentgym.envs.swe.building.candidates import KEPT, Candidate, Journal, Outcome, tree_digest
from agentgym.envs.swe.building.mutations import Site
from agentgym.envs.swe.building.statements import Failure, defect_statement
from agentgym.envs.swe.grading import gold_patch, grade, grade_patch, task_python, task_tree, validate_records
from agentgym.envs.swe.records import SweRecord, load_records, write_records
from agentgym.envs.swe.repo import apply_patch, tree_diff
from agentgym.envs.swe.runtime.prepared import Runtime, prepare_runtime
from agentgym.envs.swe.runtime.project import inspect_project
from agentgym.errors import InfrastructureError, TaskError, UsageError
from agentgym.verifiers.patches import list_tree
from agentgym.verifiers.tests import SuiteRun, TestSuite
from tests.envs.swe.tiny_package import PACKAGE, make_sdist, put_tree, use_this_python

WRITE = build._write


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    use_this_python(monkeypatch)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with two tasks."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_this_python(monkeypatch)
        build_tasks(str(make_sdist(folder, PACKAGE)), folder / "out", count=2, seed=3)
    return folder / "out"


@pytest.fixture
def records(built: Path) -> list[SweRecord]:
    return load_records(built / "tasks.jsonl")


@pytest.mark.slow
def test_what_a_built_task_looks_like(built: Path, records: list[SweRecord]) -> None:
    assert len(records) == 2
    assert len({record.instance_id for record in records}) == 2
    assert len({record.snapshot for record in records}) == 1
    names = ["journal.jsonl", "report.json", "snapshots", "tasks.jsonl"]
    assert sorted(path.name for path in built.iterdir()) == names
    for record in records:
        assert record.python_path == ("src",)
        assert record.test_targets == ("tests",)
        assert record.license == "MIT"
        assert record.python == ">=3.8"
        assert record.limits.time_s == 300.0
        assert re.fullmatch("[0-9a-f]{40}", record.base_commit)
        total = len(record.fail_to_pass) + len(record.pass_to_pass)
        assert total == 18  # the skipped one is in neither
        assert 1 <= len(record.fail_to_pass) <= 0.3 * total
        (bug,) = record.bugs
        assert bug["file"] in record.patch
        assert set(bug) == {"kind", "file", "line"}
        assert record.extra["difficulty"] == {"bugs": 1, "files": 1}
    assert len({record.bugs[0]["file"] for record in records}) == 2


@pytest.mark.slow
def test_the_statement_tells_what_was_seen_and_not_where_it_is(records: list[SweRecord]) -> None:
    for record in records:
        text = record.problem_statement
        bug = record.bugs[0]
        assert record.fail_to_pass[0].partition("::")[2].partition("[")[0] in text
        assert "Error" in text or "assert" in text
        for secret in (bug["file"], Path(bug["file"]).name, bug["kind"], bug["kind"].replace("_", " "), "@@"):
            assert secret not in text
        changed = [line[1:].strip() for line in record.patch.splitlines() if re.match(r"[+-](?![+-])", line)]
        assert not any(line in text for line in changed if len(line) > 8)


@pytest.mark.slow
def test_hidden_tests_are_nowhere_in_the_policy_s_tree(records: list[SweRecord]) -> None:
    for record in records:
        tree = task_tree(record)
        hidden = set(record.extra["hidden_paths"])
        assert hidden == {name.partition("::")[0] for r in records for name in r.fail_to_pass}
        assert not hidden & set(list_tree(tree))
        assert (tree / "tests/conftest.py").is_file()
        names = [name.partition("::")[2].partition("[")[0] for name in record.fail_to_pass]
        everything = b"".join(entry.content for entry in list_tree(tree).values()).decode()
        assert not any(f"def {name}" in everything for name in names)


@pytest.mark.slow
def test_gold_restores_the_clean_tree(records: list[SweRecord], tmp_path: Path) -> None:
    for record in records:
        tree = tmp_path / record.instance_id
        shutil.copytree(task_tree(record), tree)
        apply_patch(tree, gold_patch(record))
        apply_patch(tree, record.test_patch)
        for name, content in PACKAGE.items():
            assert (tree / name).read_text() == content


@pytest.mark.slow
def test_validate_and_grade(records: list[SweRecord]) -> None:
    answer = validate_records(records)
    assert (answer["n"], answer["ok"]) == (2, 2)
    keys = {"instance_id", "gold", "null", "ok", "seconds", "problem"}
    assert all(keys <= set(row) for row in answer["records"])
    assert all(
        row["gold"] == 1.0 and row["null"] == 0.0 and row["problem"] is None for row in answer["records"]
    )
    record = records[0]
    graded = grade_patch(records, record.instance_id, gold_patch(record))
    assert {"instance_id", "resolved", "score", "components", "seconds"} <= set(graded)
    assert graded["resolved"] is True
    assert graded["components"] == {"f2p": 1.0, "p2p": 1.0, "applied": True, "tests_touched": False}
    assert graded["components"]["applied"] is True
    with pytest.raises(TaskError, match="Did you mean"):
        grade_patch(records, record.instance_id[:-1], "")


@pytest.mark.slow
def test_unsound_records_are_told_apart(records: list[SweRecord], tmp_path: Path) -> None:
    record = replace(records[0], pass_to_pass=())
    anything = "--- /dev/null\n+++ b/extra.txt\n@@ -0,0 +1 @@\n+x\n"
    passing = records[0].pass_to_pass[:1]
    no_defect = replace(record, instance_id="no-defect", fail_to_pass=passing, patch=anything, bug_patch="")
    no_fix = replace(record, instance_id="no-fix", patch="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
    no_tests = replace(record, instance_id="no-tests", fail_to_pass=())
    no_snapshot = replace(record, instance_id="no-snapshot", snapshot="gone.tar.gz")
    answer = validate_records([no_defect, no_fix, no_tests, no_snapshot])
    assert answer["ok"] == 0
    problems = [row["problem"] for row in answer["records"]]
    assert "empty patch passes" in problems[0]
    assert "does not apply" in problems[1]
    assert "FAIL_TO_PASS is empty" in problems[2]
    assert "gone.tar.gz" in problems[3]


@pytest.mark.slow
def test_bug_in_one_task_is_fixed_by_its_own_patch_only(records: list[SweRecord]) -> None:
    report = grade(records[0], gold_patch(records[1]))
    assert not report.resolved


@pytest.mark.slow
def test_same_input_same_records(built: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    tree = put_tree(tmp_path / "tree", PACKAGE)
    build_tasks(str(tree), again, count=2, seed=3)
    assert (again / "tasks.jsonl").read_bytes() == (built / "tasks.jsonl").read_bytes()
    snapshots = [next((folder / "snapshots").iterdir()).read_bytes() for folder in (again, built)]
    assert snapshots[0] == snapshots[1]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tests/test_numbers.py": None, "tests/test_texts.py": None}, "holds no tests"),
        ({"PKG-INFO": None}, "names the project"),
        (
            {
                "src/tiny_pkg/numbers.py": None,
                "src/tiny_pkg/texts.py": None,
                "src/tiny_pkg/__init__.py": None,
            },
            "sources",
        ),
        ({"pyproject.toml": "not toml"}, "pyproject.toml"),
    ],
)
def test_unfit_archives_are_refused_in_one_line(
    tmp_path: Path, files: dict[str, str | None], expected: str
) -> None:
    tree = {name: text for name, text in {**PACKAGE, **files}.items() if text is not None}
    with pytest.raises(TaskError) as caught:
        build_tasks(str(make_sdist(tmp_path, tree)), tmp_path / "out", count=1)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_bad_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdist = str(make_sdist(tmp_path, PACKAGE))
    for argument, expected in [
        ("./nothing.tar.gz", "does not exist"),
        ("a b", "NAME==VERSION"),
        ("a==1; x", "NAME==VERSION"),
    ]:
        with pytest.raises(TaskError, match=expected):
            build_tasks(argument, tmp_path / "out")
    with pytest.raises(UsageError, match=">= 1"):
        build_tasks(sdist, tmp_path / "out", count=0)
    with pytest.raises(TaskError, match="there is no 'spec'"):
        build_tasks(sdist, tmp_path / "out", test_targets=["spec"])
    for settings, expected in [
        ({"bugs": (2, 1)}, "the most bugs"),
        ({"bugs": (0, 1)}, "the least number of bugs"),
        ({"jobs": 0}, "jobs"),
        ({"spread": "wide"}, "any, file, files"),
    ]:
        with pytest.raises(UsageError, match=expected):
            build_tasks(sdist, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_nothing_is_left_when_writing_is_interrupted(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "write_records", interrupt)
    bug = Bug(
        (("src/tiny_pkg/texts.py", Site(0, 0, "x", b"", 1)),), "", ("tests/test_texts.py::a",), ("b",), ()
    )
    tree = put_tree(tmp_path / "tree", PACKAGE)
    project = inspect_project(tree)
    suite = TestSuite(python=Path(sys.executable))
    with pytest.raises(KeyboardInterrupt):
        build._write(tmp_path / "out", tree, Runtime(project, (), suite, frozenset(), {}, 1.0), [bug])
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


# Many bugs, many jobs, interruptions: with a made-up test run, since the real one takes seconds


class Suite:
    """Stands for `run_suite` on a tree: each test fails when its line of code is gone from the tree."""

    TESTS = {  # test -> what it needs, file and text
        "t.py::test_low": ("numbers.py", "if value < low:"),
        "t.py::test_high": ("numbers.py", "if value > high:"),
        "t.py::test_range": ("numbers.py", "if low > high:"),
        "t.py::test_total": ("numbers.py", "result = result + value"),
        "t.py::test_middle": ("numbers.py", "values[1:len(values) - 1]"),
        "t.py::test_short": ("texts.py", "if len(text) <= limit:"),
        "t.py::test_cut": ("texts.py", "text[: limit - len(mark)] + mark"),
        "t.py::test_name": ("texts.py", "bool(text) and not text[0].isdigit()"),
    }

    def __init__(self) -> None:
        self.runs = 0
        self.problem = ""

    def __call__(self, tree: Path, suite: TestSuite) -> SuiteRun:
        self.runs += 1
        statuses, failures = {"t.py::test_import": "passed"}, {}
        for node, (file, text) in self.TESTS.items():
            good = text in (tree / "src/tiny_pkg" / file).read_text()
            statuses[node] = "passed" if good else "failed"
            if not good:
                failures[node] = ("assert it", f"AssertionError in /workspace/src/tiny_pkg/{file}:7")
        return SuiteRun(statuses, failures, self.problem, 1, "", 1.0, timed_out=bool(self.problem))


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Suite:
    suite = Suite()
    for module in ("runtime.attempt", "runtime.prepared", "building.bugs"):
        monkeypatch.setattr(f"agentgym.envs.swe.{module}.run_suite", suite)
    monkeypatch.setattr(build, "_write", lambda out, tree, runtime, found: list(found))
    monkeypatch.setattr(bugs, "MOST_FAILING", 0.5)
    monkeypatch.setattr(bugs, "tree_diff", lambda old, new: f"from {tree_digest(old)} to {tree_digest(new)}")
    monkeypatch.setattr(bugs, "library_files", set)
    return suite


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(put_tree(tmp_path / "tree", PACKAGE))


@pytest.mark.parametrize(("spread", "files"), [(ONE_FILE, 1), (SEVERAL_FILES, 2)])
def test_several_bugs_in_one_task(suite: Suite, source: str, tmp_path: Path, spread: str, files: int) -> None:
    found = build_tasks(source, tmp_path / "out", count=2, seed=1, bugs=(1, 2), spread=spread).records
    assert [len(bug.places) for bug in found] == [1, 2]
    assert len(found[1].files) == files
    failing = [set(bug.fail_to_pass) for bug in found]
    assert len(failing[1]) == 2  # each bug has a test of its own here, so neither hides the other
    assert not failing[0] & failing[1]


def test_any_number_of_jobs_gives_the_same(suite: Suite, source: str, tmp_path: Path) -> None:
    results = [
        build_tasks(source, tmp_path / f"out{jobs}", count=4, seed=2, bugs=(1, 2), jobs=jobs)
        for jobs in (1, 3)
    ]
    assert results[0].records == results[1].records
    rows = [[(r["candidate"], r["outcome"]) for r in found.report["candidates"]] for found in results]
    assert rows[0] == rows[1]


def test_an_interrupted_build_continues(
    suite: Suite, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build_tasks(source, tmp_path / "whole", count=4, seed=2)
    needed, suite.runs = suite.runs, 0
    seen: list[str] = []

    def stop(what: str, done: int, total: int) -> None:
        seen.append(what)
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_tasks(source, tmp_path / "out", count=4, seed=2, progress=stop)
    assert (tmp_path / "out/report.json").is_file()
    with open(tmp_path / "out/journal.jsonl", "a") as journal:
        journal.write('{"key": "torn')
    done = suite.runs
    again = build_tasks(source, tmp_path / "out", count=4, seed=2)
    assert again.records == whole.records
    assert suite.runs <= needed + 4  # two clean runs more, and a bug that had begun
    assert suite.runs > done
    lines = (tmp_path / "out/journal.jsonl").read_text().splitlines()
    assert all(json.loads(line)["key"] for line in lines)
    assert len({json.loads(line)["key"] for line in lines}) == len(lines)


def test_a_version_is_no_path(suite: Suite, tmp_path: Path) -> None:
    told = PACKAGE["PKG-INFO"].replace("1.5", "1/../../../ESCAPED")
    tree = put_tree(tmp_path / "tree", {**PACKAGE, "PKG-INFO": told})
    runtime = prepare_runtime(tree)
    assert runtime.project.version == "1/../../../ESCAPED"
    WRITE(tmp_path / "a/b/out", tree, runtime, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "tree"]
    (snapshot,) = (tmp_path / "a/b/out/snapshots").iterdir()
    assert snapshot.name.startswith("tiny-pkg-1_.._.._.._ESCAPED-")


@pytest.mark.parametrize(
    "broken",
    [
        b"\0\0\0",
        b"3",
        b"[]",
        b'{"key": "c"}',
        b"\xff",
        b"[" * 100_000,
        b'{"key": "b", "kind": 5, "detail": "", "data": {}, "seconds": 1.0}',
        b'{"key": "b", "kind": "kept", "detail": "", "data": {}, "seconds": "y"}',
        b'{"key": "b", "kind": "kept", "detail": null, "data": {}, "seconds": 1.0}',
        b'{"key": "b", "kind": "kept", "detail": "", "data": "x", "seconds": 1.0}',
    ],
    ids=lambda line: line[:60].decode("latin-1"),
)
def test_a_broken_line_of_a_journal_is_tried_again(tmp_path: Path, broken: bytes) -> None:
    tried: list[str] = []

    def candidate(key: str) -> Candidate:
        def attempt() -> Outcome:
            tried.append(key)
            return Outcome(KEPT, "", {"key": key})

        return Candidate(key, key, attempt)

    journal = Journal(tmp_path)
    for key in "abc":
        journal.outcome(candidate(key))
    file = tmp_path / "journal.jsonl"
    first, _, last = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([first, broken, last]) + b"\n")
    with pytest.warns(UserWarning, match=r"journal\.jsonl, line 2: skipped, it is no outcome"):
        again = Journal(tmp_path)
    assert [again.outcome(candidate(key)).data for key in "abc"] == [{"key": key} for key in "abc"]
    assert tried == ["a", "b", "c", "b"]


def test_the_report_tells_why_bugs_were_dropped(
    suite: Suite, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = build_tasks(source, tmp_path / "out", count=8, seed=0).report
    assert report == json.loads((tmp_path / "out/report.json").read_text())
    assert report["outcomes"]["kept"] == report["tasks"]
    assert report["outcomes"]["not noticed"] >= 1  # start=0 is needed by no test
    assert report["tried"] == sum(report["outcomes"].values()) == len(report["candidates"])
    assert report["inputs"]["seed"] == 0


def test_endless_and_broad_bugs_are_dropped(suite: Suite, source: str, tmp_path: Path) -> None:
    def endless(what: str, done: int, total: int) -> None:
        suite.problem = "" if what.startswith(("fetching", "running", "installing")) else "they did not end"

    with pytest.raises(TaskError, match="notice none of the bugs"):
        build_tasks(source, tmp_path / "out", count=1, seed=0, progress=endless)
    outcomes = json.loads((tmp_path / "out/report.json").read_text())["outcomes"]
    assert "never ends" in outcomes


def test_a_broken_sandbox_is_no_outcome(
    suite: Suite, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tree: Path, suite: TestSuite) -> SuiteRun:
        raise InfrastructureError("no sandbox")

    monkeypatch.setattr("agentgym.envs.swe.building.bugs.run_suite", broken)
    with pytest.raises(InfrastructureError, match="no sandbox"):
        build_tasks(source, tmp_path / "out", count=1, seed=2)
    assert (
        (tmp_path / "out/journal.jsonl").read_text() == ""
        if (tmp_path / "out/journal.jsonl").exists()
        else True
    )


def bug(file: str, start: int) -> Bug:
    return Bug(((file, Site(start, start + 5, "x", b"", 1)),), "", (), (), ())


@pytest.mark.parametrize(
    ("size", "spread", "expected"),
    [
        (1, ANYWHERE, [0]),
        (2, ANYWHERE, [0, 2]),  # 1 overlaps 0
        (2, ONE_FILE, [0, 3]),
        (2, SEVERAL_FILES, [0, 2]),
        (3, ONE_FILE, []),
        (3, ANYWHERE, [0, 2, 3]),
        (5, ANYWHERE, []),
    ],
)
def test_grouping(size: int, spread: str, expected: Sequence[int]) -> None:
    pool = [bug("a.py", 10), bug("a.py", 12), bug("b.py", 10), bug("a.py", 30)]
    assert group(pool, size, spread) == [pool[number] for number in expected]


def test_files_and_kinds_take_turns(tmp_path: Path, suite: Suite) -> None:
    tree = put_tree(tmp_path / "tree", PACKAGE)
    project = inspect_project(tree)
    places = list(places_for_bugs(tree, project, random.Random(0), ANYWHERE))
    assert places == list(places_for_bugs(tree, project, random.Random(0), ANYWHERE))
    assert len({file for file, _ in places[:2]}) == 2
    assert len({site.kind for _, site in places[:6]}) >= 5


def test_a_statement_names_neither_the_file_nor_one_cause_of_two() -> None:
    failures = [
        Failure(
            "t.py::test_a[1]",
            "f(1)  # x = <object at 0x7f877174ea90>",
            "ValueError: at 0x7f00aa11bb22 in /workspace/src/pkg/core.py:12",
        ),
        Failure("t.py::test_a[2]", "f(2)", "ValueError: again"),
        Failure("u.py::test_a", "g(1)", "KeyError: of another file"),
        Failure("t.py", "", "ImportError: cannot import name 'x' (core.py)"),
    ]
    text = defect_statement("pkg 1.0", failures, failing=5, causes=2, files=["src/pkg/core.py"])
    assert "core.py" not in text
    assert text.count("0x...") == 2  # addresses differ from run to run
    assert "more than one cause" in text
    assert "of another file" in text
    assert "again" not in text  # the same test function
    assert "2 more checks fail.\n" in text
    assert "for the same reason" in defect_statement("pkg 1.0", failures, failing=5, causes=1, files=[])


# Records of others


def test_python_versions() -> None:
    running = ".".join(map(str, sys.version_info[:2]))
    for fit in ("", ">=3.8", f"=={running}.*", f"~={running}", ">=3, <4", "!=3.9.*"):
        assert task_python(SweRecord("a", python=fit)) == Path(sys.executable)
    for unfit in (">=4", "<3.0", "==2.7.*"):
        with pytest.raises(TaskError, match="needs Python"):
            task_python(SweRecord("a", python=unfit))
    with pytest.raises(TaskError, match="range of Python versions"):
        task_python(SweRecord("a", python="recent"))


@pytest.mark.slow
def test_set_up_commands_run_once_in_the_tree(built: Path, records: list[SweRecord], tmp_path: Path) -> None:
    record = replace(records[0], setup=("echo made > generated.txt", ("touch", "other.txt")))
    tree = task_tree(record)
    assert (tree / "generated.txt").read_text() == "made\n"
    assert (tree / "other.txt").exists()
    with pytest.raises(TaskError, match=r"'exit 3' failed with exit status 3"):
        task_tree(replace(record, setup=("exit 3",)))


@pytest.mark.slow
def test_a_record_in_the_style_of_other_projects(tmp_path: Path) -> None:
    """Snapshot at the base, tests only in the test patch, ids as JUnit has them, gold patch given."""
    base = put_tree(tmp_path / "base", {"mod.py": "def one():\n    return 2\n", "README": "x\n"})
    fixed = put_tree(tmp_path / "fixed", {"mod.py": "def one():\n    return 1\n", "README": "x\n"})
    tests = "import mod\n\n\nclass TestIt:\n    def test_one(self):\n        assert mod.one() == 1\n"
    tested = put_tree(
        tmp_path / "tested",
        {"mod.py": "def one():\n    return 2\n", "README": "x\n", "tests/test_mod.py": tests},
    )
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as tar:
        tar.add(base, arcname=".")
    record = SweRecord(
        "other__repo-1",
        snapshot="s.tar.gz",
        snapshot_sha256=hashlib.sha256((tmp_path / "s.tar.gz").read_bytes()).hexdigest(),
        patch=tree_diff(base, fixed),
        test_patch=tree_diff(base, tested),
        fail_to_pass=("tests.test_mod.TestIt::test_one",),
    )
    write_records(tmp_path / "r.jsonl", [record])
    answer = validate_records(load_records(tmp_path / "r.jsonl"))
    assert answer["records"][0]["problem"] is None
    assert answer["ok"] == 1
