"""Records out and in again; the exported Harbor tests really grade."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from agentgym.envs.swe.builtin import builtin_records
from agentgym.envs.swe.exporters import export_records, harbor_grade
from agentgym.envs.swe.exporters.trees import node_id, policy_tree
from agentgym.envs.swe.grading import grade
from agentgym.envs.swe.importers.writing import import_records
from agentgym.envs.swe.records import SweRecord, load_records, missing, write_records
from agentgym.envs.swe.repo import apply_patch, unpack
from agentgym.errors import TaskError, UsageError
from agentgym.sandbox import python_binds
from agentgym.verifiers.patches import list_tree
from agentgym.verifiers.suite import junit_id
from agentgym.verifiers.tests import Protected

SWEBENCH_COLUMNS = (
    "repo instance_id base_commit patch test_patch problem_statement hints_text created_at version FAIL_TO_PASS"
    " PASS_TO_PASS environment_setup_commit"
).split()


@pytest.fixture(scope="module")
def record() -> SweRecord:
    """A synthetic task: a clean snapshot and a bug."""
    return builtin_records()[0]


@pytest.fixture
def exported(record: SweRecord, tmp_path: Path) -> Path:
    """It as a Harbor task folder."""
    return export_records([record], tmp_path / "harbor", to="harbor").exported[record.instance_id]


def contents(tree: Path) -> dict[str, bytes]:
    return {key: entry.content for key, entry in list_tree(tree).items()}


def tree_of(archive: Path, place: Path) -> Path:
    unpack(archive, place)
    return place


def same_task(record: SweRecord, again: SweRecord, tmp_path: Path) -> None:
    """The tree, what is said of it, its tests and its fix are the same."""
    for name in (
        *("instance_id", "problem_statement", "repo", "license", "test_patch", "test_targets", "python_path"),
        *("requirements", "fail_to_pass", "pass_to_pass"),
    ):
        assert getattr(again, name) == getattr(record, name), name
    assert again.bug_patch == ""
    assert missing(again) == []
    clean = tree_of(record.snapshot_path(), tmp_path / "clean")
    with policy_tree(record) as broken:
        place = tree_of(again.snapshot_path(), tmp_path / "again")
        assert contents(place) == contents(broken) != contents(clean)
    apply_patch(place, again.patch)
    assert contents(place) == contents(clean)


def test_swebench_records_and_back(record: SweRecord, tmp_path: Path) -> None:
    two = builtin_records()[:2]
    report = export_records(two, tmp_path / "out", to="swebench")
    assert list(report.exported) == [record.instance_id for record in two]
    lines = (tmp_path / "out/swebench.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    assert list(row)[: len(SWEBENCH_COLUMNS)] == SWEBENCH_COLUMNS
    assert json.loads(row["FAIL_TO_PASS"]) == list(record.fail_to_pass)
    assert all(isinstance(row[name], str) for name in SWEBENCH_COLUMNS)
    assert "+    cents = " in row["patch"]
    imported = import_records(str(tmp_path / "out"), tmp_path / "in")
    assert [entry.form for entry in imported.imported] == ["own"] * 2
    same_task(record, imported.imported[0].record, tmp_path)


def test_harbor_folders_and_back(record: SweRecord, exported: Path, tmp_path: Path) -> None:
    assert exported.name == record.instance_id
    names = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert names == {
        *("instruction.md", "task.toml", "environment/Dockerfile", "environment/requirements.txt"),
        *("environment/tree.tar.gz", "tests/test.sh", "tests/grade.py", "tests/grading.json"),
        *("tests/tree.tar.gz", "tests/config.json", "solution/solve.sh", "solution/gold.patch"),
    }
    settings = tomllib.loads((exported / "task.toml").read_text())
    assert settings["verifier"]["timeout_sec"] == 660.0
    assert settings["environment"]["allow_internet"] is False
    assert settings["metadata"]["instance_id"] == record.instance_id
    assert (exported / "instruction.md").read_text().strip() == record.problem_statement
    for name in names:
        if name.startswith("environment/") and not name.endswith(".gz"):
            assert "int(fraction.ljust" not in (exported / name).read_text(), (
                "the agent's image tells the fix"
            )
    with tarfile.open(exported / "environment/tree.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["tree/ledger.py", "tree/tests/test_basics.py"]
    report = import_records(str(tmp_path / "harbor"), tmp_path / "in")
    assert report.imported[0].form == "harbor"
    same_task(record, report.imported[0].record, tmp_path)


def run_test_script(exported: Path, workdir: Path, place: Path, *, solve: bool = False) -> str:
    """The reward that tests/test.sh writes, run as Harbor would: its folders at their places, in a sandbox."""
    script = ("bash /solution/solve.sh && " if solve else "") + "bash /tests/test.sh"
    logs = place / "logs"
    logs.mkdir(parents=True)
    read_only = {path: path for path in ("/usr", "/etc/alternatives", *python_binds())}
    read_only |= {str(exported / name): f"/{name}" for name in ("tests", "solution")}
    words = "bwrap --unshare-all --die-with-parent --proc /proc --dev /dev --tmpfs /tmp".split()
    for name in ("bin", "lib", "lib64", "sbin"):
        words += ["--symlink", f"usr/{name}", f"/{name}"]
    for host, inside in read_only.items():
        words += ["--ro-bind-try", host, inside]
    words += ["--bind", str(workdir), "/testbed", "--bind", str(logs), "/logs"]
    words += ["--setenv", "PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin"]
    done = subprocess.run([*words, "bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert (logs / "verifier/reward.txt").is_file(), done.stderr
    return (logs / "verifier/reward.txt").read_text().strip()


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["sh", "-c", "bwrap --ro-bind / / true"], capture_output=True).returncode != 0,
    reason="bubblewrap does not work here",
)
def test_the_exported_tests_grade(record: SweRecord, exported: Path, tmp_path: Path) -> None:
    with policy_tree(record) as tree:
        broken = {key: entry.content for key, entry in list_tree(tree).items()}

    def reward(name: str, changes: dict[str, str | None], *, solve: bool = False) -> str:
        workdir = tmp_path / name / "testbed"
        for key, content in {**broken, **changes}.items():
            if content is not None:
                (workdir / key).parent.mkdir(parents=True, exist_ok=True)
                (workdir / key).write_bytes(content if isinstance(content, bytes) else content.encode())
        return run_test_script(exported, workdir, tmp_path / name, solve=solve)

    cheat = "def pytest_runtest_makereport(item, call):\n    import os\n    os._exit(0)\n"
    assert reward("gold", {}, solve=True) == "1"
    assert (
        reward("gold-and-more", {"more/new.py": "x = 1\n", "tests/test_basics.py": None}, solve=True) == "1"
    )
    assert reward("null", {}) == "0"
    files = {
        **{
            "conftest.py": cheat,
            "tests/conftest.py": cheat,
            "tests/test_ledger.py": "def test_undo(): pass\n",
        },
        **{"pytest.py": "def main(words): return 0\n", "xml.py": ""},
    }
    assert reward("files", files) == "0"
    assert reward("exit", {"ledger.py": "import os\nos._exit(0)\n"}) == "0"


@pytest.mark.slow
def test_an_exported_task_is_graded_as_the_original(
    record: SweRecord, exported: Path, tmp_path: Path
) -> None:
    (again,) = load_records(exported)
    assert [grade(again, again.patch).score, grade(again, "").score] == [1.0, 0.0]
    assert grade(again, again.patch).components == grade(record, again.patch).components


def test_names_as_pytest_has_them() -> None:
    files = {"tests/test_a.py", "src/pkg/test_b.py"}
    assert node_id("tests.test_a::test_x[a.b::c]", files) == "tests/test_a.py::test_x[a.b::c]"
    assert node_id("tests.test_a.TestIt.TestIn::test_x", files) == "tests/test_a.py::TestIt::TestIn::test_x"
    assert node_id("src.pkg.test_b::test_y", files) == "src/pkg/test_b.py::test_y"
    assert node_id("tests/test_a.py::test_x", files) == "tests/test_a.py::test_x"
    assert node_id("elsewhere.test_c::test_z", files) == "elsewhere.test_c::test_z"
    assert node_id("test_ascii (auth.Case)", files) == "test_ascii (auth.Case)"


def test_the_grading_script_protects_what_we_protect() -> None:
    protected = Protected(("tests",))
    places = ["{}", "pkg/{}"]
    for name in (
        *harbor_grade.PROTECTED_NAMES,
        *harbor_grade.NOISE,
        "a.pth",
        "x.egg-info/PKG",
        "a.pyc",
        "ok.py",
        "s.cfg",
    ):
        for place in places:
            path = place.format(name)
            assert harbor_grade.is_protected(path, {"tests"}) == protected(path), path
    assert harbor_grade.is_protected("tests/test_a.py", {"tests"})
    assert not harbor_grade.is_protected("testsuite/a.py", {"tests"})


def test_the_grading_script_carries_plain_changes_over(tmp_path: Path) -> None:
    base = {"a.py": b"1", "b.py": b"2", "gone/c.py": b"3", "tests/t.py": b"4"}
    work, tree = tmp_path / "work", tmp_path / "tree"
    for root in (work, tree):
        for key, content in base.items():
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(content)
    (work / "a.py").write_text("changed")
    (work / "tests/t.py").write_text("changed")
    (work / "gone/c.py").unlink()
    (work / "gone").rmdir()
    (work / "gone").write_text("a file now")
    (work / "link.py").symlink_to("/etc/passwd")
    (work / "__pycache__").mkdir()
    (work / "__pycache__/a.pyc").write_text("x")
    digests = {key: hashlib.sha256(content).hexdigest() for key, content in base.items()}
    harbor_grade.carry_over(work, tree, digests, ["tests"])
    assert contents(tree) == {"a.py": b"changed", "b.py": b"2", "gone": b"a file now", "tests/t.py": b"4"}


def test_reports_of_the_grading_script(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="t.test_a" name="good"><system-out>x</system-out></testcase>'
        '<testcase classname="t.test_a" name="bad"><failure/></testcase>'
        '<testcase classname="t.test_a" name="twice"/><testcase classname="t.test_a" name="twice"><error/></testcase>'
        '<testcase classname="t.test_a" name="p[a b]"/><testcase classname="t.test_a" name="left"><skipped/></testcase>'
        '<testcase classname="t.test_a" name="q[a b]"/>'
        '<testcase classname="t.test_a" name="q[a c]"><failure/></testcase>'
        '<testcase classname="t.test_a" name="r[[1] b]"/>'
        '<testcase classname="t.test_a" name="marked"><properties><property name="agentgym-expected-failure" '
        'value="true"/></properties><skipped type="pytest.xfail"/></testcase>'
        '<testcase classname="t.test_a" name="called"><skipped type="pytest.xfail"/></testcase>'
        "</testsuite></testsuites>"
    )
    results = harbor_grade.read_report(report)
    assert {name for name, status in results.items() if status == "passed"} == {
        *("t.test_a::good", "t.test_a::p[a b]", "t.test_a::q[a b]", "t.test_a::r[[1] b]")
    }
    assert {name for name, status in results.items() if status == "xfailed"} == {"t.test_a::marked"}
    assert harbor_grade.counts_as_passed("t.test_a::p[a", results, False)
    assert harbor_grade.counts_as_passed("t.test_a::r[[1]", results, False)
    assert not harbor_grade.counts_as_passed("t.test_a::q[a", results, True), "one that it stands for failed"
    assert not harbor_grade.counts_as_passed("t.test_a::p[a b] ", results, True)
    assert not harbor_grade.counts_as_passed("t.test_a::goo", results, True)
    assert harbor_grade.counts_as_passed("t.test_a::marked", results, True)
    assert not harbor_grade.counts_as_passed("t.test_a::marked", results, False), "it was to pass now"
    assert not harbor_grade.counts_as_passed("t.test_a::called", results, True)


@pytest.mark.slow
def test_the_grading_script_tells_marks_from_calls(tmp_path: Path) -> None:
    """As `HiddenTests` does: a test that fails as it is marked is kept, code that calls pytest.xfail hides nothing."""
    tests = (
        "import pytest\nfrom calc import add, give_up\n\n\n"
        "@pytest.mark.xfail\ndef test_marked():\n    assert add(1, 1) == 3\n\n\n"
        "@pytest.mark.xfail\ndef test_marked_and_called():\n    give_up()\n\n\n"
        "def test_called():\n    give_up()\n\n\n"
        "def test_plain():\n    assert add(1, 1) == 2\n"
    )
    (tmp_path / "test_x.py").write_text(tests)
    code = "import pytest\n\n\ndef add(a, b):\n    return a + b\n\n\ndef give_up():\n    pytest.xfail('no')\n"
    (tmp_path / "calc.py").write_text(code)
    report = tmp_path / "report.xml"
    settings = {"python_path": ["."], "arguments": ["test_x.py"], "time_s": 60}
    assert harbor_grade.run_pytest(tmp_path, report, settings) == 0
    assert harbor_grade.read_report(report) == {
        "test_x::test_marked": "xfailed",
        "test_x::test_marked_and_called": "failed",
        "test_x::test_called": "failed",
        "test_x::test_plain": "passed",
    }


def test_the_grading_script_knows_what_tests_import(record: SweRecord, tmp_path: Path) -> None:
    named = dataclasses.replace(record, test_targets=("tests/test_basics.py",))
    folder = export_records([named], tmp_path / "out", to="harbor").exported[record.instance_id]
    grading = json.loads((folder / "tests/grading.json").read_text())
    assert grading["kept"] == [junit_id(name) for name in record.pass_to_pass]
    assert grading["expected"] == [*map(junit_id, record.fail_to_pass), *grading["kept"]]
    protected = set(grading["protected"])
    assert harbor_grade.is_protected("tests/helpers/__init__.py", protected)
    assert not harbor_grade.is_protected("ledger.py", protected)


@pytest.mark.parametrize(("name", "folder"), [("..", "-."), (".", "-"), ("a/b", "a-b"), (".git", "-git")])
def test_ids_are_no_paths(record: SweRecord, tmp_path: Path, name: str, folder: str) -> None:
    other = dataclasses.replace(record, instance_id=name)
    report = export_records(
        [other, dataclasses.replace(other, instance_id=folder)], tmp_path / "out", to="harbor"
    )
    assert report.exported == {name: tmp_path / "out" / folder}
    assert f"another record has the folder {folder}" in report.skipped[folder]


def test_the_image_of_an_export(record: SweRecord, tmp_path: Path) -> None:
    setup = ("echo one\necho $HOME", ("python", "-m", "build"))
    old = dataclasses.replace(record, python=">=3.8,<3.10", setup=setup)
    folder = export_records([old], tmp_path / "out", to="harbor").exported[record.instance_id]
    lines = (folder / "environment/Dockerfile").read_text().splitlines()
    assert lines[0] == "FROM python:3.9-slim"
    assert r'RUN ["bash", "-c", "echo one\necho $HOME"]' in lines
    assert 'RUN ["python", "-m", "build"]' in lines
    exact = dataclasses.replace(record, instance_id="exact", python="==3.8.2")
    assert (
        "FROM python:3.8-slim"
        in (
            (export_records([exact], tmp_path / "b", to="harbor").exported["exact"])
            / "environment/Dockerfile"
        ).read_text()
    )
    with pytest.raises(TaskError, match="no image of Python is of the versions it needs, '<3'"):
        export_records([dataclasses.replace(record, python="<3")], tmp_path / "c", to="harbor")


def test_what_cannot_be_exported_is_named(record: SweRecord, tmp_path: Path) -> None:
    image = SweRecord("only-image", image="some/image", bug_patch="--- a\n", fail_to_pass=("t::a",))
    django = dataclasses.replace(record, instance_id="other-parser", log_parser="django")
    untested = dataclasses.replace(record, instance_id="untested", fail_to_pass=())
    other = dataclasses.replace(record, instance_id="other-runner", test_command=("python", "run.py"))
    misfit = dataclasses.replace(
        record, instance_id="misfit", test_patch="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n"
    )
    unsolved = dataclasses.replace(
        record, instance_id="unsolved", bug_patch="", patch="", requirements=("attrs==1",)
    )
    tasks = [image, django, other, untested, misfit, unsolved, record]
    report = export_records(tasks, tmp_path / "a", to="harbor")
    assert list(report.exported) == ["unsolved", record.instance_id]
    assert not (report.exported["unsolved"] / "solution").exists()
    needed = (report.exported["unsolved"] / "environment/requirements.txt").read_text()
    assert needed == "attrs==1\npytest\n"
    assert "untested: FAIL_TO_PASS is empty" in report.skipped["untested"]
    assert "misfit: its test patch: the diff does not apply" in report.skipped["misfit"]
    assert "only-image: expected a `snapshot`" in report.skipped["only-image"]
    assert "other-runner: only tests that pytest runs" in report.skipped["other-runner"]
    assert "other-parser: only tests with pytest's own names" in report.skipped["other-parser"]
    with pytest.raises(TaskError, match=r"none of the records .*: its fix is the reverse of its bug"):
        export_records([image], tmp_path / "b", to="swebench")
    with pytest.raises(UsageError, match="Did you mean 'harbor'"):
        export_records([record], tmp_path / "c", to="harbour")
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        export_records([record], tmp_path / "a", to="harbor")


def test_a_record_with_only_an_image_is_a_swebench_record(tmp_path: Path) -> None:
    record = SweRecord(
        "a__b-1",
        repo="a/b",
        image="some/image:1",
        workdir="/src",
        base_commit="c0ffee",
        patch="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n",
        fail_to_pass=("t.py::a[x",),
        held_out=("t.py::b",),
        problem_statement="p",
    )
    write_records(tmp_path / "tasks.jsonl", [record])
    export_records(load_records(tmp_path / "tasks.jsonl"), tmp_path / "out", to="swebench")
    assert load_records(tmp_path / "out")[0] == dataclasses.replace(
        record, extra={"created_at": "", "environment_setup_commit": "c0ffee"}
    )
