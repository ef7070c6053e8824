"""Hidden-test grading: honest patches are graded right, and no attack on the grader pays."""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.errors import InfrastructureError, TaskError
from agentgym.sandbox import Limits
from agentgym.verifiers import suite as running
from agentgym.verifiers.canaries import make_canaries
from agentgym.verifiers.patches import tree_diff
from agentgym.verifiers.tests import (
    HiddenTests,
    Protected,
    SuiteRun,
    TestSuite,
    expected_statuses,
    junit_id,
    run_suite,
)

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


@pytest.mark.slow
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


@pytest.mark.slow
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


QUICK_FILES = [conftest_in_tests]  # one through files and two in code in the quick suite, all in the slow one


@pytest.mark.parametrize(
    "attack",
    [pytest.param(a, marks=() if a in QUICK_FILES else pytest.mark.slow, id=a.__name__) for a in FILES],
)
def test_attack_through_files_has_no_effect(hidden: HiddenTests, agent: Path, attack: Attack) -> None:
    attack(agent)
    report = hidden.grade_tree(agent)
    assert not report.resolved
    assert not report.problem, report.problem
    assert report.f2p_passed == 0
    assert report.p2p_passed == 2


@pytest.mark.slow
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
HIDDEN_FILE = "HIDDEN = 'tests/test_hidden.py'\n"  # what a cheat may guess from the statement or a former run
FIND_CONFIG = (
    HIDDEN_FILE
    + """\
import sys
frame = sys._getframe()
while not hasattr(frame.f_locals.get("config"), "pluginmanager"):
    frame = frame.f_back
config = frame.f_locals["config"]
"""
)
PASS_HIDDEN = """\
import pytest
class Plugin:
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        if item.nodeid.startswith(HIDDEN):
            outcome.get_result().outcome = "passed"
"""
SPOIL = (
    HIDDEN_FILE
    + """\
import sys
def spoil(change):
    frame = sys._getframe()
    while "item" not in frame.f_locals:
        frame = frame.f_back
    for item in frame.f_locals["item"].session.items:
        if item.nodeid.startswith(HIDDEN):
            change(item)
"""
)
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
    "plugin that spares what looks like a canary": BROKEN
    + FIND_CONFIG
    + PASS_HIDDEN
    + "config.pluginmanager.register(Plugin())\n",
    "hook implementation put in place": BROKEN
    + FIND_CONFIG
    + PASS_HIDDEN
    + "caller = config.pluginmanager.hook.pytest_runtest_makereport\n"
    "for impl in caller.get_hookimpls():\n    if impl.plugin_name == 'runner':\n"
    "        old = impl.function\n        def makereport(item, call):\n"
    "            report = old(item, call)\n            if item.nodeid.startswith(HIDDEN): report.outcome = 'passed'\n"
    "            return report\n        impl.function = makereport\n",
    "wrapped calling of hooks": BROKEN + FIND_CONFIG + "pm = config.pluginmanager\nold = pm._inner_hookexec\n"
    "def call(name, impls, kwargs, first):\n    result = old(name, impls, kwargs, first)\n"
    "    if name == 'pytest_runtest_makereport' and kwargs['item'].nodeid.startswith(HIDDEN):\n"
    "        result.outcome = 'passed'\n    return result\npm._inner_hookexec = call\n",
    "wrapped calling of one hook": BROKEN
    + FIND_CONFIG
    + "caller = config.pluginmanager.hook.pytest_runtest_makereport\nold = caller._hookexec\n"
    "def call(name, impls, kwargs, first):\n    result = old(name, impls, kwargs, first)\n"
    "    if kwargs['item'].nodeid.startswith(HIDDEN): result.outcome = 'passed'\n    return result\n"
    "caller._hookexec = call\n",
    "replaced hook caller": BROKEN + FIND_CONFIG + "relay = config.pluginmanager.hook\n"
    "class Caller:\n    def __getattr__(self, name): return getattr(old, name)\n"
    "    def __call__(self, **kwargs):\n        report = old(**kwargs)\n"
    "        if kwargs['item'].nodeid.startswith(HIDDEN): report.outcome = 'passed'\n        return report\n"
    "old = relay.pytest_runtest_makereport\nrelay.pytest_runtest_makereport = Caller()\n",
    "replaced runtest of the items": BROKEN.replace(
        "return a - b", "spoil(lambda item: setattr(item, 'runtest', lambda: None))\n    return a - b"
    )
    + SPOIL,
    "a builtin as runtest of the items": BROKEN.replace(
        "return a - b", "spoil(lambda item: setattr(item, 'runtest', dict))\n    return a - b"
    )
    + SPOIL,
    "other functions behind the items": BROKEN.replace(
        "return a - b", "spoil(lambda item: setattr(item, 'obj', lambda **k: None))\n    return a - b"
    )
    + SPOIL,
    "other code in the test functions": BROKEN.replace(
        "return a - b",
        "spoil(lambda item: setattr(item.function, '__code__', (lambda *a, **k: None).__code__))\n    return a - b",
    )
    + SPOIL,
    "other class of the items": BROKEN.replace(
        "return a - b",
        "spoil(lambda item: setattr(item, '__class__', "
        "type('Function', (type(item),), {'runtest': lambda self: None})))\n    return a - b",
    )
    + SPOIL,
    "report of the hidden tests only": BROKEN
    + "import _pytest.reports as r\nold = r.TestReport.from_item_and_call.__func__\n"
    "def new(cls, item, call):\n    if item.nodeid.startswith('tests/test_hidden.py'): call.excinfo = None\n"
    "    return old(cls, item, call)\nr.TestReport.from_item_and_call = classmethod(new)\n",
    "other report class": BROKEN + "import _pytest.runner as r\nclass TestReport(r.TestReport):\n"
    "    @classmethod\n    def from_item_and_call(cls, item, call):\n"
    "        if item.nodeid.startswith('tests/test_hidden.py'): call.excinfo = None\n"
    "        return super().from_item_and_call(item, call)\nr.TestReport = TestReport\n",
    "property of the report": BROKEN + "import _pytest.reports as r\ndef get(self):\n"
    "    return 'passed' if self.nodeid.startswith('tests/test_hidden.py') else vars(self)['outcome']\n"
    "r.TestReport.outcome = property(get, lambda self, value: vars(self).update(outcome=value))\n",
    "raising for other tests only": BROKEN
    + "import _pytest.runner as r\nold = r.CallInfo.from_call.__func__\n"
    "def new(cls, func, when, reraise=None):\n    info = old(cls, func, when, reraise)\n"
    "    if when == 'call' and 'test_hidden.py' in repr(info.excinfo and info.excinfo.traceback):\n"
    "        info.excinfo, info._result = None, []\n    return info\nr.CallInfo.from_call = classmethod(new)\n",
    "method of the reporter": BROKEN + "import gc\n"
    "reporter = next(thing for thing in gc.get_objects() if type(thing).__name__ == 'Reporter')\n"
    "def status(reports):\n    return 'passed' if reports[0].nodeid.startswith('tests/test_hidden.py') else 'failed'\n"
    "type(reporter).pytest_runtest_logfinish.__globals__['status'] = status\n",
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


QUICK_CODE = ("plugin that spares what looks like a canary", "replaced runtest of the items")


@pytest.mark.parametrize(
    "code",
    [pytest.param(CODE[n], marks=() if n in QUICK_CODE else pytest.mark.slow, id=n) for n in CODE],
)
def test_attack_from_the_code_under_test_does_not_pay(hidden: HiddenTests, agent: Path, code: str) -> None:
    put(agent, "calc/__init__.py", code)
    report = hidden.grade_tree(agent)
    assert not report.resolved
    assert report.f2p_passed == 0


@pytest.mark.slow
def test_harmless_exit_handler_with_the_fix_still_resolves(hidden: HiddenTests, agent: Path) -> None:
    put(agent, "calc/__init__.py", FIXED + "import atexit\natexit.register(print, 'bye')\nprint('FAILED')\n")
    report = hidden.grade_tree(agent)
    assert report.resolved, report.problem
    assert report.suspicious == (
        "calc/__init__.py: import atexit",
        "calc/__init__.py: atexit.register(print, 'bye')",
    )


@pytest.mark.slow
def test_endless_code_is_a_failure_and_no_infrastructure_error(
    base: Path, hidden: HiddenTests, agent: Path
) -> None:
    put(agent, "calc/__init__.py", "while True: pass\n")
    suite = TestSuite(python=Path(sys.executable), limits=Limits(wall_s=2.5))
    report = HiddenTests(base, suite, F2P, P2P, hidden.test_patch).grade_tree(agent)
    assert not report.resolved
    assert "did not end" in report.problem


@pytest.mark.slow
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


@pytest.mark.slow
def test_hooks_of_the_tree_s_own_tests_are_no_tampering(base: Path, tmp_path: Path) -> None:
    tree = Path(shutil.copytree(base, tmp_path / "tree"))
    conftest = """
import pytest
import calc

class Late:
    def pytest_runtest_teardown(self, item):
        pass

def pytest_configure(config):
    config.pluginmanager.register(Late())

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    item.runtest = item.runtest
    yield

class Own(pytest.Function):
    def runtest(self):
        super().runtest()

def pytest_pycollect_makeitem(collector, name, obj):
    if name == "own":
        return Own.from_parent(collector, name=name)
"""
    put(tree, "tests/conftest.py", conftest)
    put(tree, "tests/inner/__init__.py", "")  # else both conftest files have one name
    put(tree, "tests/inner/conftest.py", "def pytest_runtest_setup(item):\n    pass\n")
    put(
        tree,
        "tests/inner/test_inner.py",
        "def own():\n    pass\n\ndef test_x(pytestconfig):\n"
        "    from unittest import mock\n    with mock.patch('os.getcwd'):\n        pass\n",
    )
    run = run_suite(tree, TestSuite(python=Path(sys.executable)))
    assert run.problem == ""
    assert set(run.statuses.values()) == {"passed"}
    assert len(run.statuses) == 3


# Targets that are no folder of tests


PLAIN = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
TEST_F = "from mod import f\n\n\ndef test_f():\n    assert f() == 5\n"
TEST_G = "from mod import g\n\n\ndef test_g():\n    assert g() == 2\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("targets", "p2p"),
    [
        ((".",), "test_p2p.py::test_g"),
        (("test_f2p.py", "checks.py"), "checks.py::test_g"),
        (("test_f2p.py", "./checks.py"), "checks::test_g"),
    ],
)
def test_a_visible_test_that_counts_cannot_be_rewritten(
    targets: tuple[str, ...], p2p: str, tmp_path: Path
) -> None:
    base, clean, agent = (tmp_path / name for name in ("base", "clean", "agent"))
    put(base, "mod.py", PLAIN)
    file = "test_p2p.py" if "test_p2p" in p2p else "checks.py"
    put(base, file, TEST_G)
    shutil.copytree(base, clean)
    put(clean, "test_f2p.py", TEST_F)
    suite = TestSuite(Path(sys.executable), targets=targets)
    tests = HiddenTests(base, suite, ("test_f2p.py::test_f",), (p2p,), tree_diff(base, clean))
    shutil.copytree(base, agent)
    put(agent, "mod.py", PLAIN.replace("1", "5").replace("2", "3"))  # repairs f and breaks g
    put(agent, file, "def test_g():\n    pass\n")
    report = tests.grade_tree(agent)
    assert not report.resolved
    assert report.dropped == (file,)
    assert (report.f2p_passed, report.p2p_passed) == (1, 0)
    put(agent, "mod.py", PLAIN.replace("1", "5"))
    assert tests.grade_tree(agent).resolved


# Trees that cannot be read


def deep(tree: Path) -> None:
    names = "/".join(["y" * 200] * 18)  # 3617 bytes, which one call of the system still takes
    subprocess.run(["mkdir", "-p", names], cwd=tree, check=True)


def many_files(tree: Path) -> None:
    for number in range(60):
        put(tree, f"many/{number}", "")


def large_files(tree: Path) -> None:
    for number in range(3):
        put(tree, f"large/{number}", "x" * 20_000)


def hard_links(tree: Path) -> None:
    put(tree, "large", "x" * 20_000)
    for number in range(3):
        (tree / f"again{number}").hardlink_to(tree / "large")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (deep, "a path of more than 3000 bytes"),
        (many_files, "files and folders"),
        (large_files, "bytes in files"),
        (hard_links, "bytes in files"),
    ],
)
def test_a_tree_beyond_bounds_resolves_nothing(
    hidden: HiddenTests, agent: Path, spoil: Attack, said: str
) -> None:
    put(agent, "calc/__init__.py", FIXED)
    spoil(agent)
    tests = HiddenTests(
        hidden.base, hidden.suite, F2P, P2P, hidden.test_patch, most_entries=60, most_bytes=50_000
    )
    report = tests.grade_tree(agent)
    assert not report.resolved
    assert report.problem.startswith("the tree cannot be read: ")
    assert said in report.problem
    assert report.components == {"f2p": 0.0, "p2p": 0.0, "applied": 1.0, "tests_touched": 0.0}


@pytest.mark.slow
def test_odd_entries_do_not_hurt_the_fix(hidden: HiddenTests, agent: Path) -> None:
    put(agent, "calc/__init__.py", FIXED)
    os.mkfifo(agent / "pipe")
    os.mkfifo(agent / "pytest.ini")
    put(agent, "line\nbreak.py", "")
    (agent / os.fsdecode(b"\xff.py")).touch()
    (agent / "loop").symlink_to("loop")
    (agent / "root").symlink_to("/")
    put(agent, "tests/test_hidden.py/x", "a file below a hidden test")
    put(agent, "locked/file", "")
    (agent / "locked/file").chmod(0)
    (agent / "locked").chmod(0)
    report = hidden.grade_tree(agent)
    assert report.resolved, report.problem
    assert report.dropped == ("tests/test_hidden.py/x",)


@pytest.mark.slow
def test_a_folder_in_place_of_a_hidden_file_outside_the_targets(
    base: Path, agent: Path, tmp_path: Path
) -> None:
    clean = Path(shutil.copytree(base, tmp_path / "clean"))
    put(clean, "tests/test_hidden.py", HIDDEN)
    put(clean, "data/new.json", "{}")
    suite = TestSuite(python=Path(sys.executable))
    put(agent, "calc/__init__.py", FIXED)
    put(agent, "data/new.json/x", "")
    report = HiddenTests(base, suite, F2P, P2P, tree_diff(base, clean)).grade_tree(agent)
    assert report.resolved, report.problem
    assert report.dropped == ("data/new.json/x",)


def test_protected_paths_of_expected_tests() -> None:
    ids = ("checks/a.py::test_x[a::b]", "pkg.more.b.TestC::test_y", "gone.c::test_z")
    protected = Protected(("tests",), frozenset(), ids, ["pkg/more/b.py", "pkg/__init__.py", "checks/a.py"])
    for path in ("checks/a.py", "pkg/more/b.py", "gone.py", "gone/c.py", "checks", "pkg", "checks/a.py/x"):
        assert protected(path), path
    for path in ("pkg/__init__.py", "pkg.py", "pkg/more.py", "checks/b.py", "a.py", "x/test_a.py"):
        assert not protected(path), path
    everywhere = Protected((".",))
    for path in ("test_a.py", "x/a_test.py", "x/tests/data.json", "test/a.py"):
        assert everywhere(path), path
    for path in ("a.py", "x/testing/a.py", "latest.py", "contest/a.py", "x/test_data.json"):
        assert not everywhere(path), path


def test_what_named_tests_import_is_protected() -> None:
    named = Protected(("xarray/tests/test_a.py", "test_b.py", "testing/test_c.py"))
    for path in (
        "xarray/tests/__init__.py",
        "xarray/tests/x.json",
        "test_helpers.py",
        "other_test.py",
        "testing/util.py",
    ):
        assert named(path), path
    for path in ("xarray/core/test_c.py", "xarray/testing/assertions.py", "helpers.py", "xarray/latest.py"):
        assert not named(path), path
    assert Protected((".",))("sympy/utilities/runtests.py"), "it decides what is printed"
    flat = Protected(("test_a.py",), files=["test_a.py", "test_helpers.py"])
    assert flat("test_helpers/__init__.py"), "Python would find it before test_helpers.py"
    assert not flat("test_other/__init__.py")


def test_an_interpreter_in_the_tree_is_protected() -> None:
    suite = TestSuite(Path("/testbed/.venv/bin/python"), workspace="/testbed", image="some/image")
    assert suite.environment() == (".venv",)
    assert replace(suite, python=Path("/usr/bin/python3")).environment() == ()
    assert TestSuite(Path("/testbed/.venv/bin/python")).environment() == (), "the tree lies elsewhere"
    protected = Protected((*suite.targets, *suite.environment()))
    assert protected(".venv/lib/python3.9/site-packages/_pytest/runner.py")


@pytest.mark.slow
def test_a_helper_of_tests_that_are_named_cannot_be_rewritten(tmp_path: Path) -> None:
    base = tmp_path / "base"
    put(base, "calc.py", "def add(a, b):\n    return a - b\n")
    put(base, "tests/__init__.py", "")
    put(base, "tests/helpers.py", "def same(a, b):\n    assert a == b\n")
    put(
        base,
        "tests/test_calc.py",
        "from calc import add\nfrom tests.helpers import same\n\n\ndef test_add():\n    same(add(2, 3), 5)\n",
    )
    suite = TestSuite(Path(sys.executable), targets=("tests/test_calc.py",))
    hidden = HiddenTests(base, suite, ("tests/test_calc.py::test_add",))
    agent = Path(shutil.copytree(base, tmp_path / "agent"))
    put(agent, "tests/helpers.py", "def same(a, b):\n    pass\n")
    report = hidden.grade_tree(agent)
    assert (report.resolved, report.problem, report.dropped) == (False, "", ("tests/helpers.py",))
    put(agent, "calc.py", "def add(a, b):\n    return a + b\n")
    assert hidden.grade_tree(agent).resolved


# Canaries


def test_canaries_look_like_the_tests_around_them(base: Path) -> None:
    put(base, "tests/test_visible.py", VISIBLE)
    counts, kinds, files = set(), set(), set()
    for _ in range(60):
        canaries = make_canaries(base, ("tests/test_visible.py::test_visible", "tests"))
        assert len(canaries.files) <= 5
        files |= canaries.files.keys()
        counts.add(len(canaries.nodes))
        text = "".join(canaries.files.values())
        kinds |= {
            kind
            for kind in ("assert len", "raise", "pytest.raises", "assertEqual", "assertRaises")
            if kind in text
        }
        for node in canaries.nodes:
            file, *_, name = node.split("::")
            assert re.fullmatch(r"tests/test_visible(_[a-z]+){1,2}\.py", file)
            assert re.fullmatch(r"test(_[a-z]+){2,3}", name)
            assert f"def {name}(" in canaries.files[file]
    assert counts == {3, 4, 5, 6}
    assert len(kinds) == 5
    assert len(files) > 60


def test_the_words_of_canaries_are_not_the_agent_s(tmp_path: Path) -> None:
    put(tmp_path, "test_real.py", "def test_sum():\n    pass\n")
    put(tmp_path, "test_planted.py", "def test_recognisable():\n    pass\n")
    for _ in range(20):
        canaries = make_canaries(tmp_path, ("test_real.py::test_sum",))
        assert not re.search("planted|recognisable", repr(canaries))
        assert all("/" not in path and path.startswith("test_real_") for path in canaries.files)


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


# Ids as records spell them


def of(statuses: dict[str, str]) -> SuiteRun:
    return SuiteRun(statuses, {}, problem="", exit_code=1, output="", seconds=1.0)


@pytest.mark.parametrize(
    ("reported", "wanted", "status"),
    [
        ({"t.py::a[x y]": "passed", "t.py::a[x z]": "passed"}, "t.py::a[x", "passed"),
        ({"t.py::a[x y]": "passed", "t.py::a[x z]": "failed"}, "t.py::a[x", "failed"),
        ({"t.py::a[y]": "passed"}, "t.py::a[x", "missing"),
        ({"t.py::a[b[0] c]": "passed"}, "t.py::a[b[0]", "passed"),
        ({"t.py::a[x y]": "passed"}, "t::a[x", "passed"),  # as JUnit has it
        ({"t.py::a[x]": "passed", "t.py::a[xy]": "failed"}, "t.py::a[x]", "passed"),  # whole: no prefix
        ({"t.py::ab": "passed"}, "t.py::a", "missing"),
        ({"t.py::a[x]": "skipped"}, "t.py::a[x", "skipped"),
    ],
)
def test_a_cut_id_stands_for_all_tests_that_start_so(
    reported: dict[str, str], wanted: str, status: str
) -> None:
    assert expected_statuses(of(reported), (wanted,)) == {wanted: status}


def test_ids_as_a_parser_of_other_projects_spells_them() -> None:
    run = of({"t.py::a[/home/me/x.pem]": "passed"})
    assert expected_statuses(run, ("t.py::a[/x.pem]",), "pytest_options") == {"t.py::a[/x.pem]": "passed"}
    assert expected_statuses(run, ("t.py::a[/x.pem]",), "pytest") == {"t.py::a[/x.pem]": "missing"}


@pytest.mark.slow
def test_an_expected_failure_counts_where_it_is_marked_and_must_only_not_break(tmp_path: Path) -> None:
    base = tmp_path / "base"
    put(base, "calc.py", "def add(a, b):\n    return a + b\n")
    put(
        base,
        "tests/test_x.py",
        "import pytest\nfrom calc import add\n\n\n"
        "@pytest.mark.xfail\ndef test_marked():\n    assert add(1, 1) == 3\n\n\n"
        "def test_plain():\n    assert add(1, 1) == 2\n",
    )
    suite = TestSuite(Path(sys.executable))
    marked, plain = "tests/test_x.py::test_marked", "tests/test_x.py::test_plain"
    assert HiddenTests(base, suite, (plain,), (marked,)).grade("").resolved
    report = HiddenTests(base, suite, (marked,), (plain,)).grade("")
    assert report.statuses[marked] == "xfailed"
    assert not report.resolved
    # Code under test that calls pytest.xfail hides nothing.
    agent = Path(shutil.copytree(base, tmp_path / "agent"))
    put(agent, "calc.py", "import pytest\n\n\ndef add(a, b):\n    pytest.xfail('no')\n")
    report = HiddenTests(base, suite, (), (marked, plain)).grade_tree(agent)
    assert set(report.statuses.values()) == {"skipped"}


@pytest.mark.slow
def test_held_out_tests_are_run_and_reported_only(base: Path, hidden: HiddenTests, agent: Path) -> None:
    put(agent, "calc/__init__.py", FIXED.replace("a * b", "a * b + 1"))
    tests = HiddenTests(base, hidden.suite, F2P, P2P[1:2], hidden.test_patch, held_out=P2P[:1])
    report = tests.grade_tree(agent)
    assert report.statuses[P2P[1]] == "failed"
    assert P2P[0] not in report.statuses
    put(agent, "calc/__init__.py", FIXED)
    report = tests.grade_tree(agent)
    assert report.resolved
    assert report.held_out == {"held_out": 1.0}
    tests = HiddenTests(
        base, hidden.suite, F2P, (), hidden.test_patch, held_out=("tests/test_hidden.py::none", *P2P)
    )
    report = tests.grade_tree(agent)
    assert report.resolved
    assert report.held_out == {"held_out": pytest.approx(2 / 3)}
