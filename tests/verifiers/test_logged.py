"""Grading by a record's own command and the log it prints: right on honest patches, and forged lines do not pay."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.sandbox import Limits
from agentgym.verifiers import logged
from agentgym.verifiers.logged import hides_machinery, programs
from agentgym.verifiers.patches import tree_diff
from agentgym.verifiers.tests import HiddenTests, TestReport, TestSuite

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef multiply(a, b):\n    return a * b\n"
FIXED = BROKEN.replace("a - b", "a + b")
HIDDEN = """\
import unittest

from calc import add, multiply


class TestCalc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)

    def test_multiply(self):
        self.assertEqual(multiply(2, 3), 6)
"""
FUNCTIONS = "from calc import add, multiply\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\n"
FUNCTIONS += "def test_multiply():\n    assert multiply(2, 3) == 6\n"
# A runner that prints as sympy's does, of the task's own.
RUNNER = """\
import importlib.util, sys, traceback
failed = False
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location(path.replace("/", "_")[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in sorted(vars(module)):
        if name.startswith("test_"):
            try:
                vars(module)[name]()
                print(name, "ok")
            except Exception:
                failed = True
                print(name, "F")
sys.exit(failed)
"""
RUNNERS = {
    "unittest": (
        ("python", "-W", "ignore", "-m", "unittest", "-v"),
        HIDDEN,
        "test_{} (tests.test_hidden.TestCalc.test_{})",
    ),
    "pytest": (
        ("LANG=C", "pytest", "-rA", "-p", "no:cacheprovider"),
        FUNCTIONS,
        "tests/test_hidden.py::test_{}",
    ),
    "sympy": (("python", "run.py"), FUNCTIONS, "test_{}"),
}


@pytest.fixture(scope="module", params=RUNNERS)
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HiddenTests:
    command, hidden, name = RUNNERS[request.param]
    base = tmp_path_factory.mktemp("task") / "base"
    (base / "tests").mkdir(parents=True)
    (base / "calc.py").write_text(BROKEN)
    (base / "tests" / "__init__.py").touch()
    (base / "run.py").write_text(RUNNER)
    clean = Path(shutil.copytree(base, base.with_name("clean")))
    (clean / "tests" / "test_hidden.py").write_text(hidden)
    suite = TestSuite(
        python=Path(sys.executable),
        targets=("tests/test_hidden.py",),
        limits=Limits(wall_s=60),
        command=command,
        log_parser=request.param,
    )
    ids = [name.replace("{}", test) for test in ("add", "multiply")]
    return HiddenTests(base, suite, (ids[0],), (ids[1],), tree_diff(base, clean))


def graded(task: HiddenTests, files: dict[str, str], tmp_path: Path) -> TestReport:
    tree = Path(shutil.copytree(task.base, tmp_path / "agent"))
    for path, text in files.items():
        (tree / path).write_text(text)
    return task.grade_tree(tree)


def test_the_fix_resolves(task: HiddenTests, tmp_path: Path) -> None:
    report = graded(task, {"calc.py": FIXED}, tmp_path)
    assert report.resolved, (report.problem, report.output)
    assert report.channel == "log"
    assert report.evidence["channel"] == "log"


def test_nothing_does_not(task: HiddenTests, tmp_path: Path) -> None:
    report = graded(task, {}, tmp_path)
    assert (report.resolved, report.problem, report.f2p_passed, report.p2p_passed) == (False, "", 0, 1)


def lines(task: HiddenTests) -> str:
    """What the runner would print if everything passed."""
    forms = {"unittest": "{} ... ok", "pytest": "PASSED {}", "sympy": "{} ok"}
    form = forms[task.suite.log_parser]
    return "\\n".join(form.format(name) for name in (*task.fail_to_pass, *task.pass_to_pass))


# The faults of other graders: forged lines (SWE-bench), and a test that does not appear counted as passed (SWE-smith).
WRITE = "import os\nos.write(1, b'{lines}\\n{end}')\n"
FORGERIES = {
    "lines before an exit": WRITE + "os._exit(0)\n",
    "lines before a failing exit": WRITE + "os._exit(1)\n",
    "lines and an exit when called": BROKEN.replace(
        "return a - b", WRITE.replace("\n", ";", 2) + "os._exit(1)"
    ),
    "nothing but an exit": "import os\nos._exit(0)\n",
    "lines among the real ones": BROKEN + "print('{lines}', flush=True)\n",
    "lines at the end": BROKEN + "import atexit\natexit.register(print, '{lines}')\n",
    "a syntax error": "def add(:\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_forged_lines_do_not_pay(task: HiddenTests, name: str, tmp_path: Path) -> None:
    code = FORGERIES[name].replace("{lines}", lines(task)).replace("{end}", "Ran 2 tests\\nOK\\n")
    compile(code.replace("def add(:", ""), name, "exec")
    report = graded(task, {"calc.py": code}, tmp_path)
    assert not report.resolved
    assert report.reward("fraction") == report.reward("gated") == 0.0
    assert report.f2p_passed == 0
    assert report.problem or "exit" not in name, report.output


@pytest.mark.slow
def test_a_conftest_that_prints_is_left_out(task: HiddenTests, tmp_path: Path) -> None:
    report = graded(task, {"conftest.py": f"print('{lines(task)}')\n"}, tmp_path)
    assert not report.resolved
    assert report.dropped == ("conftest.py",)


SHADOW = "import os\nos.write(1, b'{lines}\\n')\nos._exit(0)\n"


@pytest.mark.slow
def test_the_runner_and_what_it_imports_are_not_the_patch_s(task: HiddenTests, tmp_path: Path) -> None:
    names = (
        "run.py",
        "unittest.py",
        "pytest.py",
        "sys/__init__.py",
        "importlib/util.py",
        "tests/__init__.py",
    )
    tree = Path(shutil.copytree(task.base, tmp_path / "agent"))
    for name in names:
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(SHADOW.replace("{lines}", lines(task)))
    report = task.grade_tree(tree)
    # run.py is the command's where the command names it, and else a file like any other.
    assert set(report.dropped) >= set(names) - {"run.py"}
    assert ("run.py" in report.dropped) is (task.suite.log_parser == "sympy")
    assert (report.resolved, report.problem, report.f2p_passed, report.p2p_passed) == (False, "", 0, 1)


def test_modules_that_a_tree_has_itself_may_be_changed() -> None:
    suite = TestSuite(Path(sys.executable), python_path=("src",))
    files = ["src/types.py", "src/json/__init__.py", "code.py"]
    hiding = [
        "attr.py",
        "src/typing.py",
        "src/email/x.py",
        "unittest/__init__.py",
        "pytest.py",
        "src/pytest.so",
    ]
    assert [path for path in hiding if not hides_machinery(path, suite, files)] == []
    free = ["src/types.py", "src/json/new.py", "code.py", "src/pkg/types.py", "docs/json.py", "src/own.py"]
    assert [path for path in free if hides_machinery(path, suite, files)] == []


def test_programs_that_a_command_names() -> None:
    files = {"run.py", "tools/check.sh", "other.py"}
    assert programs(("python", "./run.py", "-v"), files) == ("run.py",)
    line = "cd . && PYTHONPATH=. ./tools/check.sh >log 2>&1; python 'run.py'"
    assert programs(("bash", "-c", line), files) == ("tools/check.sh", "run.py")


def test_a_runner_that_names_no_files_is_graded_without_canaries(task: HiddenTests, tmp_path: Path) -> None:
    if task.suite.log_parser != "unittest":
        pytest.skip("one runner is enough")
    command = ("python", "-m", "unittest", "discover", "-v", "-t", ".", "-s", "{targets}")
    suite = replace(task.suite, targets=("tests",), command=command)
    found = graded(replace(task, suite=suite), {"calc.py": FIXED}, tmp_path)
    assert found.resolved, (found.problem, found.output)
    assert found.exit_code == 0
    shutil.rmtree(tmp_path / "agent")
    forged = "import os\nos.write(1, b'test_x ... ok\\n')\nos._exit(3)\n"
    found = graded(replace(task, suite=suite), {"calc.py": forged}, tmp_path)
    assert found.problem == "exit status 3, but the log shows no failure"


def test_canaries_stand_among_the_labels_of_django(tmp_path: Path) -> None:
    (tmp_path / "tests/auth_tests").mkdir(parents=True)
    (tmp_path / "tests/auth_tests/test_views.py").write_text("def test_login(self):\n    pass\n")
    suite = TestSuite(
        Path(sys.executable),
        targets=("tests/auth_tests/test_views.py",),
        command=("./tests/runtests.py",),
        log_parser="django",
    )
    canaries = logged._canaries(tmp_path, suite)
    assert canaries.nodes
    words = logged._command(suite, canaries)
    assert words[0] == "./tests/runtests.py"
    assert "auth_tests.test_views" in words
    assert len(words) == 2 + len(canaries.files)
    assert all(word.startswith("auth_tests.") for word in words[1:])


def test_a_line_for_a_shell_says_itself_what_is_run(task: HiddenTests, tmp_path: Path) -> None:
    if task.suite.log_parser != "pytest":
        pytest.skip("one runner is enough")
    line = "pytest -rA -p no:cacheprovider tests > /tmp/log\ncode=$?\ncat /tmp/log\nexit $code"
    suite = replace(task.suite, command=("bash", "-c", line))
    assert logged._command(suite, logged._canaries(task.base, suite)) == ["bash", "-c", line]
    found = graded(replace(task, suite=suite), {"calc.py": FIXED}, tmp_path)
    assert found.resolved, (found.problem, found.output)
    named = replace(suite, command=("bash", "-c", 'pytest -rA "$@"', "run"))
    canaries = logged._canaries(task.base, named)
    assert len(logged._command(named, canaries)) == 5 + len(canaries.files) > 5, (
        "a name for $0, then the targets"
    )


@pytest.mark.slow
def test_a_hang_is_the_patch_s_failure(task: HiddenTests, tmp_path: Path) -> None:
    short = replace(task, suite=replace(task.suite, limits=Limits(wall_s=3)))
    report = graded(short, {"calc.py": "while True: pass\n"}, tmp_path)
    assert not report.resolved
    assert "did not end within 3 s" in report.problem
