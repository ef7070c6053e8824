"""Trees as real packages have them, on which an honest run was once not believed, or broke off."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from agentgym.verifiers import pytest_runner as runner
from agentgym.verifiers.canaries import Canaries, make_canaries
from agentgym.verifiers.suite import TestSuite, run_suite

PROXY = """\
class Proxy:
    def _fail(self, *args):
        raise RuntimeError("nothing is bound")
    __getattr__ = __repr__ = __str__ = __iter__ = __hash__ = __call__ = __eq__ = __bool__ = _fail
    __class__ = __dict__ = __code__ = property(_fail)

class Meta(type):
    __getattr__ = __call__ = Proxy._fail
    __dict__ = property(Proxy._fail)

class Odd(metaclass=Meta):
    proxy = Proxy()

class Shy:
    __repr__ = Proxy._fail
"""
SAME = {  # as markupsafe has it: every test runs once for each implementation
    "calc.py": "def add(a, b):\n    return a + b\n",
    "tests/conftest.py": "import pytest\n\n\n@pytest.fixture(autouse=True, params=['fast', pytest.param('slow',"
    " marks=pytest.mark.skip(reason='none'))])\ndef implementation(request):\n    return request.param\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 1) == 2\n",
}


def put(tree: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    return tree


def suite(*targets: str) -> TestSuite:
    return TestSuite(Path(sys.executable), targets or ("tests",))


def test_proxies_among_what_is_loaded_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(PROXY, names)
    kind = names["Proxy"]
    proxy = kind()
    module = ModuleType("odd")
    vars(module).update(proxy=proxy, kind=kind, odd=names["Odd"], bound=MethodType(proxy, module))
    monkeypatch.setattr(runner, "sys", SimpleNamespace(modules={"odd": module, "odder": proxy}))
    found = runner.loaded_functions()
    assert vars(kind)["_fail"] in found
    assert {type(function).__name__ for function in found} == {"function"}
    function, code, defaults = runner.body(MethodType(proxy, module))
    assert function is proxy
    assert (code, defaults) == (None, None)
    assert runner.names_of(proxy) == {}
    assert runner.text(proxy) == ""
    assert runner.shown(proxy) == "<Proxy>"


def test_what_is_behind_a_method() -> None:
    class Holder:
        @classmethod
        def of_class(cls) -> None: ...

        @staticmethod
        def of_none() -> None: ...

        @property
        def value(self) -> None: ...

    members = vars(Holder)
    assert runner.function_of(members["of_class"]) is members["of_class"].__func__
    assert runner.function_of(members["of_none"]) is Holder.of_none
    assert runner.function_of(members["value"]) is members["value"].fget
    function = members["of_class"].__func__
    assert runner.body(Holder().of_class) == (function, function.__code__, None)


@pytest.mark.slow
def test_proxies_in_the_tree_and_in_parameters_do_not_break_the_run(tmp_path: Path) -> None:
    test = (
        "import pytest\n\nimport odd\n\n\n"
        "@pytest.mark.parametrize('value', [odd.Shy()], ids=['it'])\ndef test_fails(value):\n    assert False\n\n\n"
        "def test_passes():\n    assert type(odd.Odd.proxy) is odd.Proxy\n"
    )
    tree = put(tmp_path, {"odd.py": PROXY, "tests/test_odd.py": test})
    run = run_suite(tree, suite())
    assert run.problem == ""
    assert run.statuses == {
        "tests/test_odd.py::test_fails[it]": "failed",
        "tests/test_odd.py::test_passes": "passed",
    }
    assert "# value = <Shy>" in run.failures["tests/test_odd.py::test_fails[it]"][0]


def test_a_failure_in_a_document_has_no_statement(tmp_path: Path) -> None:
    (tmp_path / "usage.rst").write_text("Usage\n=====\n\nwith it: no Python\n")
    assert runner.statement_at(str(tmp_path / "usage.rst"), 4) == ""


# Modules from elsewhere


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The root of a tree, and a folder of installed packages that comes before it on the import path."""
    tree, installed = tmp_path / "tree", tmp_path / "installed"
    tree.mkdir()
    installed.mkdir()
    monkeypatch.setattr(sys, "path", [str(installed), str(tree), *sys.path])
    before = set(sys.modules)
    yield tree, installed
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def foreign_after(tree: Path, statements: str) -> list[str]:
    """What the check says once these statements were executed."""
    before = set(sys.modules)
    importlib.invalidate_caches()
    exec(statements, {})
    return sorted(runner.foreign(str(tree), str(tree), before))


@pytest.mark.parametrize(
    ("in_tree", "elsewhere", "imports", "expected"),
    [
        (["shared/own/__init__.py"], ["shared/other.py"], "shared.own, shared.other", []),
        (["shared/own/__init__.py"], ["shared/own/__init__.py"], "shared.own", ["shared.own"]),
        (["shared/own.py"], ["shared/own.py", "shared/other.py"], "shared.own, shared.other", ["shared.own"]),
        (["shared/deep/own.py"], ["shared/deep/other.py"], "shared.deep.own, shared.deep.other", []),
        (["shared/deep/own.py"], ["shared/deep/own.py"], "shared.deep.own", ["shared.deep.own"]),
        (["whole/__init__.py"], ["whole/__init__.py"], "whole", ["whole"]),
        (["single.py"], ["single.py"], "single", ["single"]),
        (["whole/__init__.py", "single.py"], [], "whole, single", []),
        (["hidden/own.py"], ["hidden/__init__.py"], "hidden", ["hidden"]),
        (["data/table.csv"], ["data/__init__.py"], "data", []),
    ],
)
def test_modules_from_outside_the_tree(
    places: tuple[Path, Path], in_tree: list[str], elsewhere: list[str], imports: str, expected: list[str]
) -> None:
    tree, installed = places
    put(tree, dict.fromkeys(in_tree, ""))
    put(installed, dict.fromkeys(elsewhere, ""))
    assert foreign_after(tree, f"import {imports}") == expected


def test_a_package_that_also_looks_elsewhere_must_itself_come_from_the_tree(
    places: tuple[Path, Path],
) -> None:
    tree, installed = places
    both = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
    put(tree, {"shared/__init__.py": both, "shared/own.py": ""})
    put(installed, {"shared/__init__.py": both})
    assert foreign_after(tree, "import shared.own") == ["shared"]


def test_of_a_package_of_others_that_also_looks_into_the_tree_the_modules_count(
    places: tuple[Path, Path],
) -> None:
    tree, installed = places
    both = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
    put(
        installed,
        {"shared/__init__.py": both + f"__path__.append({str(tree / 'shared')!r})\n", "shared/b.py": ""},
    )
    put(tree, {"shared/a.py": "", "shared/b.py": ""})
    assert foreign_after(tree, "import shared.a") == []
    assert foreign_after(tree, "import shared.b") == ["shared.b"]


def test_a_module_without_a_place_is_not_the_tree_s(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, _ = places
    put(tree, {"single.py": "", "folder/own.py": "", "lazy.py": ""})
    (tree / "loop").symlink_to("loop")  # nobody can say what it is
    monkeypatch.chdir(tree / "folder")
    made = "import sys, types\nfor name in ('single', 'folder'):\n    sys.modules[name] = types.ModuleType(name)\n"
    made += "sys.modules['lazy'] = object()\nsys.modules['folder'].__path__ = 5\n"
    assert foreign_after(tree, made) == ["folder", "single"]


# Canaries


def test_every_canary_must_fail_with_some_parameters_and_pass_with_none() -> None:
    canaries = Canaries({"t.py": ""}, frozenset({"t.py::a", "t.py::b"}))
    assert canaries.all_failed({"t.py::a": "failed", "t.py::b": "failed"})
    assert canaries.all_failed({"t.py::a[x::y[0]]": "failed", "t.py::a[z]": "skipped", "t.py::b": "failed"})
    for wrong in ("passed", "error", "repeated", "xfailed"):
        assert not canaries.all_failed({"t.py::a[0]": "failed", "t.py::a[1]": wrong, "t.py::b": "failed"}), (
            wrong
        )
        assert not canaries.all_failed({"t.py::a": wrong, "t.py::b": "failed"})
    assert not canaries.all_failed({"t.py::a": "skipped", "t.py::b": "failed"})
    assert not canaries.all_failed({"t.py::a[0]": "skipped", "t.py::b": "failed"})
    assert not canaries.all_failed({"t.py::a[0]": "failed"})
    assert not canaries.all_failed({"t.py::a": "failed", "t.py::b": "failed", "t.py::c": "failed"})
    assert not canaries.all_failed({"t.py": "error", "t.py::a": "failed", "t.py::b": "failed"})


@pytest.mark.parametrize(
    ("conftest", "test", "expected"),
    [
        (SAME["tests/conftest.py"], SAME["tests/test_calc.py"], False),
        (SAME["tests/conftest.py"], "import unittest\nclass TestCalc(unittest.TestCase): ...\n", True),
        (SAME["tests/conftest.py"].replace("autouse=True, ", ""), SAME["tests/test_calc.py"], True),
        ("def broken(:  # autouse params\n", SAME["tests/test_calc.py"], True),
    ],
)
def test_canaries_are_of_unittest_unless_every_test_has_parameters(
    tmp_path: Path, conftest: str, test: str, expected: bool
) -> None:
    put(tmp_path, {"conftest.py": conftest, "tests/test_calc.py": test})
    texts = "".join("".join(make_canaries(tmp_path, ("tests",)).files.values()) for _ in range(30))
    assert ("TestCase)" in texts) is expected
    assert "TestCase)" in make_canaries(tmp_path, ("tests",), "unittest").files.popitem()[1]


@pytest.mark.slow
def test_a_fixture_may_give_every_test_parameters(tmp_path: Path) -> None:
    run = run_suite(put(tmp_path, SAME), suite())
    assert run.problem == ""
    assert run.statuses == {
        "tests/test_calc.py::test_add[fast]": "passed",
        "tests/test_calc.py::test_add[slow]": "skipped",
    }
    # One that spares the tests with the other parameter, so that canaries fail too.
    cheat = (
        "\nimport pytest\nold = pytest.Function.runtest\n"
        "def runtest(self):\n    if 'fast' not in self.name:\n        old(self)\npytest.Function.runtest = runtest\n"
    )
    unmarked = SAME["tests/conftest.py"].replace(", marks=pytest.mark.skip(reason='none')", "")
    put(tmp_path, {"calc.py": SAME["calc.py"].replace("+", "-") + cheat, "tests/conftest.py": unmarked})
    run = run_suite(tmp_path, suite())
    assert "tests that must fail did not" in run.problem
    assert not run.passed()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["__main__.py", "test_*.py check_*.py", "tests/__main__.py"])
def test_tests_in_files_of_unusual_names_are_found_with_their_canaries(tmp_path: Path, pattern: str) -> None:
    files = {
        "calc.py": SAME["calc.py"],
        "tests/__init__.py": "",
        "setup.cfg": f"[tool:pytest]\npython_files = {pattern}\n",
        "tests/__main__.py": SAME["tests/test_calc.py"],
        "tests/check_calc.py": SAME["tests/test_calc.py"],
    }
    run = run_suite(put(tmp_path, files), suite())
    assert run.problem == ""
    name = "check_calc" if "check" in pattern else "__main__"
    assert Counter(run.statuses) == {f"tests/{name}.py::test_add": "passed"}
    assert run.exit_code == 1  # the canaries ran and failed
