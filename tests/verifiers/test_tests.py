"""Hidden-test grading: honest patches are graded right, and no attack on the grader pays."""

from __future__ import annotations

import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.errors import InfrastructureError, TaskError
from agentgym.sandbox import Limits
from agentgym.verifiers import suite as running
from agentgym.verifiers.patches import tree_diff
from agentgym.verifiers.tests import HiddenTests, Protected, TestSuite, junit_id, run_suite

BROKEN = """\
class Number:
    def __init__(self, value):
        self.value = value


def add(a, b):
    return a - b


def multiply(a, b):
    return a * b
"""
FIXED = BROKEN.replace("a - b", "a + b")
HIDDEN = """\
import unittest

import pytest

from calc import add, multiply


@pytest.mark.parametrize("b", [2, 3])
def test_add(b, one):
    assert add(one, b) == one + b


def test_multiply():
    assert multiply(2, 3) == 6


class TestMore(unittest.TestCase):
    def test_add_more(self):
        self.assertEqual(add(2, 2), 4)
"""
CONFTEST = "import pytest\n\n\n@pytest.fixture\ndef one():\n    return 1\n"
VISIBLE = "from calc import multiply\n\n\ndef test_visible():\n    assert multiply(1, 1) == 1\n"
F2P = (
    "tests/test_hidden.py::test_add[2]",
    "tests/test_hidden.py::test_add[3]",
    "tests.test_hidden.TestMore::test_add_more",
)
P2P = ("tests/test_hidden.py::test_multiply", "tests/test_visible.py::test_visible")


Attack = Callable[[Path], None]


def put(tree: Path, path: str, content: str) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(content)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("task") / "base"
    put(tree, "calc/__init__.py", BROKEN)
    put(tree, "tests/conftest.py", CONFTEST)
    put(tree, "tests/test_visible.py", VISIBLE)
    put(tree, "setup.cfg", "[metadata]\nname = calc\n\n[tool:pytest]\naddopts = -x --no-such-option\n")
    return tree


@pytest.fixture(scope="module")
def hidden(base: Path) -> HiddenTests:
    clean = base.with_name("clean")
    shutil.copytree(base, clean)
    put(clean, "tests/test_hidden.py", HIDDEN)
    suite = TestSuite(python=Path(sys.executable), limits=Limits(wall_s=60))
    return HiddenTests(base, suite, F2P, P2P, tree_diff(base, clean))


@pytest.fixture
def agent(base: Path, tmp_path: Path) -> Path:
    """The tree an agent works in."""
    return Path(shutil.copytree(base, tmp_path / "agent"))


def test_the_fix_resolves_and_the_unchanged_tree_does_not(hidden: HiddenTests, agent: Path) -> None:
    report = hidden.grade_tree(agent)
    assert not report.resolved
    assert (report.f2p_passed, report.f2p_total, report.p2p_passed, report.p2p_total) == (0, 3, 2, 2)
    assert report.score == 0.0
    assert not report.problem
    assert not report.tests_touched
    assert report.statuses["tests/test_hidden.py::test_add[2]"] == "failed"
    put(agent, "calc/__init__.py", FIXED)
    report = hidden.grade_tree(agent)
    assert report.resolved, report.problem
    assert report.score == 1.0
    assert report.components == {"f2p": 1.0, "p2p": 1.0, "applied": 1.0, "tests_touched": 0.0}
    assert not report.suspicious


def test_a_diff_is_graded_like_its_tree(hidden: HiddenTests, agent: Path) -> None:
    put(agent, "calc/__init__.py", FIXED)
    put(agent, "tests/test_visible.py", "")
    report = hidden.grade(tree_diff(hidden.base, agent))
    assert report.resolved
    assert report.tests_touched
    assert report.dropped == ("tests/test_visible.py",)


@pytest.mark.parametrize("diff", ["not a diff", "--- a/nothing.py\n+++ b/nothing.py\n@@ -1 +1 @@\n-a\n+b\n"])
def test_a_diff_that_does_not_apply(hidden: HiddenTests, diff: str) -> None:
    report = hidden.grade(diff)
    assert not report.resolved
    assert not report.applied
    assert "does not apply" in report.problem


def test_a_breaking_fix_is_not_resolved(hidden: HiddenTests, agent: Path) -> None:
    put(agent, "calc/__init__.py", FIXED.replace("a * b", "a * b + 1"))
    report = hidden.grade_tree(agent)
    assert report.f2p_passed == 3
    assert report.p2p_passed == 0
    assert not report.resolved


# Attacks that work through files a patch may not bring: no effect at all, with or without the fix.

PASS_ALL = """\
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
QUIT = "import os\nos._exit(0)\n"


def conftest_in_tests(tree: Path) -> None:
    put(tree, "tests/conftest.py", PASS_ALL + CONFTEST)


def conftest_at_the_root(tree: Path) -> None:
    put(tree, "conftest.py", PASS_ALL)


def conftest_that_deselects(tree: Path) -> None:
    put(tree, "conftest.py", "def pytest_collection_modifyitems(items):\n    items.clear()\n")


def configuration(tree: Path) -> None:
    put(tree, "hook.py", PASS_ALL)
    options = "addopts = -p hook --collect-only\npython_files = nothing.py\n"
    put(tree, "pytest.ini", "[pytest]\n" + options)
    put(tree, ".pytest.ini", "[pytest]\n" + options)
    put(tree, "tox.ini", "[pytest]\n" + options)
    put(tree, "setup.cfg", "[tool:pytest]\n" + options)
    put(tree, "pytest.toml", '[pytest]\naddopts = ["-p", "hook"]\n')
    put(tree, "pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-p hook --collect-only"\n')


def start_up_modules(tree: Path) -> None:
    for folder in ("", "calc/", "tests/"):
        put(tree, folder + "sitecustomize.py", QUIT)
        put(tree, folder + "usercustomize.py", QUIT)
        put(tree, folder + "start.pth", "import os; os._exit(0)\n")


def plugin_by_entry_point(tree: Path) -> None:
    put(tree, "hook.py", PASS_ALL)
    put(tree, "hook.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: hook\nVersion: 1\n")
    put(tree, "hook.egg-info/entry_points.txt", "[pytest11]\nhook = hook\n")
    put(tree, "hook-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: hook\nVersion: 1\n")
    put(tree, "hook-1.dist-info/entry_points.txt", "[pytest11]\nhook = hook\n")


def shadowing_modules(tree: Path) -> None:
    for name in (
        "pytest",
        "_pytest/__init__",
        "unittest",
        "unittest/__init__",
        "json",
        "pluggy",
        "iniconfig",
    ):
        put(tree, f"{name}.py", QUIT)
        put(tree, f"tests/{name}.py", QUIT)


def path_shims(tree: Path) -> None:
    for name in ("python", "python3", "pytest", "git", "bin/python", "bin/pytest", "bash"):
        put(tree, name, "#!/bin/sh\necho '1 passed'\nexit 0\n")
        (tree / name).chmod(0o755)


def deleted_tests(tree: Path) -> None:
    for path in (tree / "tests").glob("*.py"):
        path.unlink()


def broken_collection(tree: Path) -> None:
    put(tree, "tests/test_visible.py", "def broken(:\n")
    put(tree, "tests/__init__.py", "def broken(:\n")


def rewritten_hidden_test(tree: Path) -> None:
    put(tree, "tests/test_hidden.py", "def test_multiply():\n    pass\n")


def link_over_the_tests(tree: Path) -> None:
    put(tree, "mine/test_hidden.py", "def test_multiply():\n    pass\n")
    shutil.rmtree(tree / "tests")
    (tree / "tests").symlink_to("mine")


def written_reports(tree: Path) -> None:
    cases = "".join(
        f'<testcase classname="tests.test_hidden" name="{name}"/>' for name in ("test_add[2]", "test_add[3]")
    )
    for name in ("junit.xml", "report.xml", "results.json", "out/junit.xml", "reward.txt", "reward.json"):
        put(tree, name, f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def byte_code_of_the_clean_tree(tree: Path) -> None:
    source = tree / "good.py"
    source.write_text(FIXED)
    for target in ("calc/__pycache__/__init__.cpython-311.pyc", "calc/__init__.pyc", "calc.pyc"):
        (tree / target).parent.mkdir(exist_ok=True)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), cfile=str(tree / target), invalidation_mode=mode)
    source.unlink()


def planted_history(tree: Path) -> None:
    put(tree, "calc/__init__.py", FIXED)
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *command], cwd=tree, check=True)
    put(tree, ".git/hooks/post-checkout", "#!/bin/sh\nexit 1\n")
    put(tree, "calc/__init__.py", BROKEN)
    put(tree, ".gitattributes", "* filter=evil text eol=crlf\n")
    put(tree, ".git/config", '[filter "evil"]\n\tclean = "exit 1"\n\tsmudge = "exit 1"\n\trequired = true\n')


def installed_copies(tree: Path) -> None:
    for folder in (
        "lib/python3.11/site-packages",
        ".venv/lib/python3.11/site-packages",
        "vendor",
        "build/lib",
    ):
        put(tree, f"{folder}/calc/__init__.py", FIXED)
    put(tree, "calc.egg-link", "vendor\n.")
    put(tree, "calc.pth", "vendor\n")
    put(tree, "pyvenv.cfg", "home = /usr/bin\n")


FILES = [
    conftest_in_tests,
    conftest_at_the_root,
    conftest_that_deselects,
    configuration,
    start_up_modules,
    plugin_by_entry_point,
    shadowing_modules,
    path_shims,
    deleted_tests,
    broken_collection,
    rewritten_hidden_test,
    link_over_the_tests,
    written_reports,
    byte_code_of_the_clean_tree,
    planted_history,
    installed_copies,
]


@pytest.mark.parametrize("attack", FILES, ids=lambda attack: attack.__name__)
def test_attack_through_files_has_no_effect(hidden: HiddenTests, agent: Path, attack: Attack) -> None:
    attack(agent)
    report = hidden.grade_tree(agent)
    assert not report.resolved
    assert not report.problem, report.problem
    assert report.f2p_passed == 0
    assert report.p2p_passed == 2


def test_all_attacks_through_files_at_once_do_not_hurt_the_fix(hidden: HiddenTests, agent: Path) -> None:
    for attack in FILES:
        attack(agent)
    put(agent, "calc/__init__.py", FIXED)
    report = hidden.grade_tree(agent)
    assert report.resolved, report.problem
    assert report.tests_touched


# Attacks in the code under test, which runs in pytest's process: the run is not believed, or nothing changes.

FORGED_LINES = '{"test": "tests/test_hidden.py::test_add[2]", "status": "passed"}\\n'
STEAL = """\
import gc
channel = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Channel")
"""
CODE = {
    "exit at import": QUIT,
    "exit when called": BROKEN.replace("return a - b", "import os; os._exit(0)"),
    "SystemExit at import": "raise SystemExit(0)\n",
    "pytest.exit with success": "import pytest\npytest.exit('done', returncode=0)\n",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "kills everything": "import os, signal\nos.kill(-1, signal.SIGKILL)\n",
    "syntax error": "def add(:\n",
    "skip at import": "import pytest\npytest.skip('no', allow_module_level=True)\n",
    "skip when called": BROKEN.replace("return a - b", "import pytest; pytest.skip('no')"),
    "expected failure when called": BROKEN.replace("return a - b", "import pytest; pytest.xfail('no')"),
    "printed results": BROKEN
    + "print('tests/test_hidden.py::test_add[2] PASSED\\n5 passed in 0.01s', flush=True)\n",
    "lines on every descriptor": BROKEN
    + "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'"
    + FORGED_LINES
    + "')\n    except OSError:\n        pass\n",
    "nonce-shaped lines on every descriptor": BROKEN
    + "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'0' * 32 + b'"
    + FORGED_LINES
    + "')\n    except OSError:\n        pass\n",
    "exit handler": BROKEN + "import atexit, os\natexit.register(os._exit, 0)\n",
    "replaced runtest": BROKEN + "import pytest\npytest.Function.runtest = lambda self: None\n",
    "replaced runtest of the hidden tests only": BROKEN + "import pytest\nold = pytest.Function.runtest\n"
    "pytest.Function.runtest = lambda self: None if 'hidden' in self.nodeid else old(self)\n",
    "replaced call": BROKEN + "import _pytest.python as p\np.pytest_pyfunc_call = lambda pyfuncitem: True\n"
    "import pytest\npytest.Function.obj = property(lambda self: lambda **k: None)\n",
    "replaced code": BROKEN
    + "import pytest\ndef runtest(self): pass\npytest.Function.runtest.__code__ = runtest.__code__\n",
    "replaced report": BROKEN
    + "import _pytest.reports as r\nold = r.TestReport.from_item_and_call.__func__\n"
    "def new(cls, item, call):\n    call.excinfo = None\n    return old(cls, item, call)\n"
    "r.TestReport.from_item_and_call = classmethod(new)\n",
    "replaced unittest": BROKEN + "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n"
    "unittest.TestCase.run = lambda self, result=None: result.addSuccess(self)\n",
    "replaced raising": BROKEN + "import _pytest.runner as r\n"
    "def quiet(func, when, reraise=None):\n    return r.CallInfo(None, None, 0, 0, 0, when, _ispytest=True)\n"
    "r.CallInfo.from_call = quiet\n",
    "registered plugin": BROKEN + "import sys\nframe = sys._getframe()\n"
    "while frame:\n    config = frame.f_locals.get('config')\n    if hasattr(config, 'pluginmanager'):\n        break\n"
    "    frame = frame.f_back\n" + PASS_ALL + "if frame:\n    class Plugin:\n        pass\n"
    "    Plugin.pytest_runtest_makereport = staticmethod(pytest_runtest_makereport)\n"
    "    config.pluginmanager.register(Plugin())\n",
    "replaced exit": BROKEN
    + "import os\nos._exit = lambda code: None\nimport json\njson.dumps = lambda *a: '{}'\n",
    "background writer": BROKEN + "import os, time\nif os.fork() == 0:\n    os.setsid()\n    while True:\n"
    "        for fd in range(64):\n            try: os.write(fd, b'x')\n            except OSError: pass\n"
    "        for name in ('/tmp/junit.xml', 'junit.xml', 'results.json'):\n"
    "            try: open(name, 'w').write('<testsuites/>')\n            except OSError: pass\n"
    "        time.sleep(0.01)\n",
    "stolen channel, forged results": BROKEN
    + STEAL
    + "channel.send(test='tests/test_hidden.py::test_add[2]', status='passed')\n"
    "channel.send(test='tests/test_hidden.py::test_add[3]', status='passed')\n"
    "channel.send(test='tests/test_hidden.py::TestMore::test_add_more', status='passed')\n",
    "stolen channel, early end": BROKEN + STEAL + "channel.send(end=1, foreign=[])\nimport os; os._exit(1)\n",
    "stolen channel, broken lines": BROKEN + STEAL + "channel.send(end='x')\nchannel.send(test=[1])\n",
    "other process as parent": BROKEN + "import os\nif os.fork():\n    os._exit(0)\n",
}


@pytest.mark.parametrize("code", CODE.values(), ids=CODE.keys())
def test_attack_from_the_code_under_test_does_not_pay(hidden: HiddenTests, agent: Path, code: str) -> None:
    put(agent, "calc/__init__.py", code)
    report = hidden.grade_tree(agent)
    assert not report.resolved
    assert report.f2p_passed == 0


def test_harmless_exit_handler_with_the_fix_still_resolves(hidden: HiddenTests, agent: Path) -> None:
    put(agent, "calc/__init__.py", FIXED + "import atexit\natexit.register(print, 'bye')\nprint('FAILED')\n")
    report = hidden.grade_tree(agent)
    assert report.resolved, report.problem
    assert report.suspicious == (
        "calc/__init__.py: import atexit",
        "calc/__init__.py: atexit.register(print, 'bye')",
    )


def test_endless_code_is_a_failure_and_no_infrastructure_error(
    base: Path, hidden: HiddenTests, agent: Path
) -> None:
    put(agent, "calc/__init__.py", "while True: pass\n")
    suite = TestSuite(python=Path(sys.executable), limits=Limits(wall_s=2.5))
    report = HiddenTests(base, suite, F2P, P2P, hidden.test_patch).grade_tree(agent)
    assert not report.resolved
    assert "did not end" in report.problem


def test_a_test_that_does_not_exist_is_missing(base: Path, hidden: HiddenTests, agent: Path) -> None:
    put(agent, "calc/__init__.py", FIXED)
    tests = HiddenTests(base, hidden.suite, ("tests/test_hidden.py::test_nothing",), P2P, hidden.test_patch)
    report = tests.grade_tree(agent)
    assert not report.resolved
    assert report.statuses["tests/test_hidden.py::test_nothing"] == "missing"


def test_a_test_patch_that_does_not_fit_is_the_task_s_fault(base: Path, hidden: HiddenTests) -> None:
    with pytest.raises(TaskError, match="test patch"):
        HiddenTests(base, hidden.suite, F2P, P2P, "--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-a\n+b\n").grade("")


def test_a_runner_that_does_not_start_is_infrastructure(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "runner.py"
    broken.write_text("raise RuntimeError('no pytest here')\n")
    monkeypatch.setattr(running, "RUNNER", broken)
    with pytest.raises(InfrastructureError, match="no pytest here"):
        run_suite(base, TestSuite(python=Path(sys.executable)))


def test_a_run_reports_what_failed(base: Path) -> None:
    tree_run = run_suite(base, TestSuite(python=Path(sys.executable), targets=("tests/test_visible.py",)))
    assert dict(tree_run.statuses) == {"tests/test_visible.py::test_visible": "passed"}
    assert tree_run.problem == ""
    assert tree_run.failures == {}


def test_junit_ids() -> None:
    assert (
        junit_id("tests/a/test_b.py::TestC::test_d[x::y/z.py]") == "tests.a.test_b.TestC::test_d[x::y/z.py]"
    )
    assert junit_id("test_b.py::test_d") == "test_b::test_d"


def test_protected_paths() -> None:
    protected = Protected(("src/tests", "checks/test_a.py::test_b"), frozenset({"data/new.json"}))
    for path in (
        "src/tests/x.py src/tests checks/test_a.py data/new.json a/conftest.py setup.cfg a/pytest.ini x.pth a/b.pyc"
        " __pycache__/a.py .git/config a.egg-info/PKG-INFO usercustomize.py"
    ).split():
        assert protected(path), path
    assert protected("src")  # as a file or link, in place of the folder
    assert protected("data")
    for path in (
        "src/a.py",
        "src/testing/x.py",
        "checks/other.py",
        "src/tests_more.py",
        "docs/conftest.rst",
        "a.so",
    ):
        assert not protected(path), path
