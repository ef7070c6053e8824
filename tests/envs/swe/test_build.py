"""Building, validating and grading tasks from a small source archive made here; no network."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.envs.swe import build, grading
from agentgym.envs.swe.build import build_tasks
from agentgym.envs.swe.grading import gold_patch, grade, grade_patch, task_python, task_tree, validate_records
from agentgym.envs.swe.project import add_metadata, inspect_project
from agentgym.envs.swe.pythonenv import canonical, download_sdist
from agentgym.envs.swe.records import SweRecord, load_records, write_records
from agentgym.envs.swe.repo import apply_patch, tree_diff
from agentgym.errors import TaskError
from agentgym.verifiers.patches import list_tree
from agentgym.verifiers.tests import SuiteRun, TestSuite

PACKAGE = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: tiny-pkg\nVersion: 1.5\nLicense: MIT\nRequires-Python: >=3.8\n",
    "src/tiny_pkg/__init__.py": "from tiny_pkg.numbers import clamp, middle, total\n",
    "src/tiny_pkg/numbers.py": """\
def clamp(value, low, high):
    if low > high:
        raise ValueError("empty range")
    if value < low:
        return low
    if value > high:
        return high
    return value


def total(values, start=0):
    result = start
    for value in values:
        result = result + value
    return result


def middle(values):
    return values[1:len(values) - 1]
""",
    "src/tiny_pkg/texts.py": """\
def shorten(text, limit, mark="..."):
    if len(text) <= limit:
        return text
    return text[: limit - len(mark)] + mark


def is_name(text):
    return bool(text) and not text[0].isdigit()
""",
    "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef some():\n    return [1, 2, 3]\n",
    "tests/test_numbers.py": """\
import importlib.metadata

import pytest

from tiny_pkg import clamp, middle, total


@pytest.mark.parametrize(("value", "expected"), [(0, 1), (1, 1), (2, 2), (4, 3)])
def test_clamp(value, expected):
    assert clamp(value, 1, 3) == expected


def test_clamp_empty():
    with pytest.raises(ValueError):
        clamp(1, 3, 2)


def test_clamp_point():
    assert clamp(5, 2, 2) == 2


def test_total(some):
    assert total(some) == 6


def test_total_start(some):
    assert total(some, start=10) == 16


def test_middle(some):
    assert middle(some) == [2]


def test_version():
    assert importlib.metadata.version("tiny-pkg") == "1.5"
""",
    "tests/test_texts.py": """\
import pytest

from tiny_pkg.texts import is_name, shorten


@pytest.mark.parametrize("text", ["", "a", "abcde"])
def test_short_stays(text):
    assert shorten(text, 5) == text


def test_shorten():
    assert shorten("abcdefgh", 5) == "ab..."


@pytest.mark.parametrize(("text", "expected"), [("a", True), ("", False), ("1", False), ("a1", True)])
def test_is_name(text, expected):
    assert is_name(text) is expected


@pytest.mark.skip(reason="never")
def test_skipped():
    assert False
""",
}


def make_sdist(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "tiny_pkg-1.5.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"tiny_pkg-1.5/{name}")
            info.size = len(content.encode())
            tar.addfile(info, io.BytesIO(content.encode()))
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The interpreter that runs these tests has pytest: no environment is installed."""
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr(build, "resolve", lambda requirements: ("pytest==0",))
    monkeypatch.setattr(build, "environment", lambda requirements: Path(sys.executable))
    monkeypatch.setattr(grading, "environment", lambda requirements: Path(sys.executable))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with two tasks."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(build, "resolve", lambda requirements: ("pytest==0",))
        monkeypatch.setattr(build, "environment", lambda requirements: Path(sys.executable))
        build_tasks(str(make_sdist(folder, PACKAGE)), folder / "out", count=2, seed=3)
    return folder / "out"


@pytest.fixture
def records(built: Path) -> list[SweRecord]:
    return load_records(built / "tasks.jsonl")


def put_tree(tree: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    return tree


def test_what_a_built_task_looks_like(built: Path, records: list[SweRecord]) -> None:
    assert len(records) == 2
    assert len({record.instance_id for record in records}) == 2
    assert len({record.snapshot for record in records}) == 1
    assert sorted(path.name for path in built.iterdir()) == ["snapshots", "tasks.jsonl"]
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
    assert len({record.bugs[0]["file"] for record in records}) == 2


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
    assert [set(row) for row in answer["records"]] == [
        {"instance_id", "gold", "null", "ok", "seconds", "problem"} for _ in records
    ]
    assert all(
        row["gold"] == 1.0 and row["null"] == 0.0 and row["problem"] is None for row in answer["records"]
    )
    record = records[0]
    graded = grade_patch(records, record.instance_id, gold_patch(record))
    assert set(graded) == {"instance_id", "resolved", "score", "components", "seconds"}
    assert graded["resolved"] is True
    assert graded["components"] == {"f2p": 1.0, "p2p": 1.0, "applied": True, "tests_touched": False}
    assert graded["components"]["applied"] is True
    with pytest.raises(TaskError, match="Did you mean"):
        grade_patch(records, record.instance_id[:-1], "")


@pytest.mark.slow
def test_unsound_records_are_told_apart(records: list[SweRecord], tmp_path: Path) -> None:
    record = replace(records[0], pass_to_pass=())
    no_defect = replace(
        record, instance_id="no-defect", fail_to_pass=records[0].pass_to_pass[:1], patch="", bug_patch=""
    )
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
        ({"tests/test_texts.py": "def test_red():\n    assert 1 == 2\n"}, "1 of its tests are red"),
        ({"tests/test_texts.py": "import nothing_such\n"}, "No module named 'nothing_such'"),
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
    with pytest.raises(TaskError, match="at least 1"):
        build_tasks(sdist, tmp_path / "out", count=0)
    with pytest.raises(TaskError, match="there is no 'spec'"):
        build_tasks(sdist, tmp_path / "out", test_targets=["spec"])
    monkeypatch.setattr(build, "resolve", lambda requirements: ("pytest==0", "tiny_pkg==1.5"))
    with pytest.raises(TaskError, match="need the package itself"):
        build_tasks(sdist, tmp_path / "out")


def test_nothing_is_left_when_writing_is_interrupted(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "write_records", interrupt)
    bug = build.Bug(
        "src/tiny_pkg/texts.py", build.Site(0, 0, "x", b"", 1), "", ("tests/test_texts.py::a",), ("b",), ()
    )
    tree = put_tree(tmp_path / "tree", PACKAGE)
    project = inspect_project(tree)
    with pytest.raises(KeyboardInterrupt):
        build._write(tmp_path / "out", tree, project, (), build.RecordLimits(), [bug])
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_tests_without_stable_ids_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shifting = ["t.py::test_a[0-x]", "t.py::test_a[1-x]"]
    runs = [
        SuiteRun(
            {"t.py::test_a[same]": "passed", node: "passed", "t.py::test_b": "passed"}, {}, "", 1, "", 1.0
        )
        for node in shifting
    ]
    monkeypatch.setattr(build, "run_suite", lambda tree, suite: runs.pop())
    project = inspect_project(put_tree(tmp_path / "tree", PACKAGE))
    suite = TestSuite(python=Path(sys.executable))
    assert build._clean_runs(project, tmp_path / "tree", suite) == ({"t.py::test_b"}, 1.0)


def test_time_limits_are_generous_and_coarse() -> None:
    assert [build._generous(seconds) for seconds in (0.0, 1.0, 29.9, 31.0, 130.0)] == [
        300,
        300,
        300,
        600,
        2400,
    ]


# What a tree tells about itself


def test_inspect_flat_layout_and_extras(tmp_path: Path) -> None:
    tree = put_tree(
        tmp_path / "tree",
        {
            "PKG-INFO": "Metadata-Version: 2.4\nName: Some.Thing\nVersion: 2\nLicense-Expression: BSD-3-Clause\n"
            "Requires-Dist: dep>=1\nRequires-Dist: old; python_version < '3.0'\nRequires-Dist: other; extra == 'docs'\n"
            "Requires-Dist: pytest-mock; extra == 'test'\nRequires-Dist: b; python_version > '3' and extra == 'test'\n"
            "Requires-Dist: pytest-cov; extra == 'test'\nRequires-Dist: some_thing[x]; extra == 'test'\n"
            "Provides-Extra: test\nProvides-Extra: docs\n",
            "some_thing/__init__.py": "",
            "some_thing/core.py": "x = 1\n",
            "some_thing/tests/test_core.py": "",
            "docs/conf.py": "",
            "setup.py": "",
            "helper.py": "",
            "requirements-test.txt": "# comment\nhypothesis>=6  # why\n-r other.txt\nruff\n",
            "pyproject.toml": "[dependency-groups]\ntest = ['syrupy', {include-group = 'x'}]\n",
        },
    )
    project = inspect_project(tree)
    assert project.targets == ("some_thing/tests",)
    assert project.python_path == "."
    assert project.sources == ("some_thing/__init__.py", "some_thing/core.py")
    assert project.license == "BSD-3-Clause"
    assert set(project.requirements) == {
        "pytest",
        "dep>=1",
        "old; python_version < '3.0'",
        "pytest-mock",
        "b; python_version > '3'",
        "hypothesis>=6",
        "syrupy",
    }
    assert canonical("Some.Thing_x") == "some-thing-x"


def test_inspect_a_single_module_with_tests_beside_it(tmp_path: Path) -> None:
    files = {"PKG-INFO": "Name: one\nVersion: 1\n", "one.py": "x = 1\n", "test_one.py": "", "setup.py": ""}
    project = inspect_project(put_tree(tmp_path / "tree", files))
    assert project.targets == ("test_one.py",)
    assert project.sources == ("one.py",)


def test_metadata_is_added_where_there_is_none(tmp_path: Path) -> None:
    tree = put_tree(
        tmp_path / "tree", {**PACKAGE, "pyproject.toml": "[project.scripts]\ntiny = 'tiny_pkg:main'\n"}
    )
    add_metadata(tree, inspect_project(tree))
    assert "tiny = tiny_pkg:main" in (tree / "src/tiny_pkg.egg-info/entry_points.txt").read_text()
    before = list_tree(tree)
    add_metadata(tree, inspect_project(tree))
    assert list_tree(tree) == before


# Records of others


def test_python_versions(records: list[SweRecord]) -> None:
    running = ".".join(map(str, sys.version_info[:2]))
    for fit in ("", ">=3.8", f"=={running}.*", f"~={running}", ">=3, <4", "!=3.9.*"):
        assert task_python(replace(records[0], python=fit)) == Path(sys.executable)
    for unfit in (">=4", "<3.0", "==2.7.*", f"!={running}.*"):
        with pytest.raises(TaskError, match="needs Python"):
            task_python(replace(records[0], python=unfit))
    with pytest.raises(TaskError, match="version range"):
        task_python(replace(records[0], python="recent"))


def test_test_commands() -> None:
    command = (
        "python -I -m pytest -q -x -n 4 --junitxml out.xml --maxfail=1 -k a -p no:randomly {targets} tests"
    )
    assert grading._command_arguments(SweRecord("a", test_command=tuple(command.split()))) == (
        "-q",
        "-k",
        "a",
        "-p",
        "no:randomly",
    )
    with pytest.raises(TaskError, match="to run pytest"):
        grading._command_arguments(SweRecord("a", test_command=("make", "test")))


def test_set_up_commands_run_once_in_the_tree(built: Path, records: list[SweRecord], tmp_path: Path) -> None:
    record = replace(records[0], setup=("echo made > generated.txt", ("touch", "other.txt")))
    tree = task_tree(record)
    assert (tree / "generated.txt").read_text() == "made\n"
    assert (tree / "other.txt").exists()
    with pytest.raises(TaskError, match=r"'exit 3' failed with exit status 3"):
        task_tree(replace(record, setup=("exit 3",)))


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


def test_download_refuses_what_is_no_name() -> None:
    for text in ("https://host/x.tar.gz", "-r file", "a>=1", ""):
        with pytest.raises(TaskError, match="NAME==VERSION"):
            download_sdist(text)
