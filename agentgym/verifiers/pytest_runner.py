"""Runs pytest inside the grading sandbox and reports every test on a channel of its own.

The text of this file is executed by the task's interpreter (``python -c``), where agentgym is not installed: standard
library and pytest only, and nothing newer than Python 3.8 and pytest 7. `agentgym.verifiers.suite` starts it, writes
one line of JSON to its standard input (`nonce`, `root`, `python_path`, `tests`, `files`, `arguments`) and reads the
report from its standard output.

The code under test runs in this very process. What is done against a forged report, and what that cannot do,
is described in `agentgym.verifiers.tests`.
"""

from __future__ import annotations

import ast
import inspect
import json
import linecache
import os
import sys
import textwrap
import types
import unittest.case  # noqa: F401  (watched like pytest, so loaded before the tested code)
from contextlib import suppress
from fnmatch import fnmatch
from importlib import metadata
from typing import Any

import pytest

DETAIL = 2000  # characters kept of what a failing test said
SHORT = 200  # and of each of its parameters
LINES = 8  # of a statement

# Bound before any tested code is imported, so that replacing them later changes nothing here.
_dumps, _write, _exit, _vars = json.dumps, os.write, os._exit, vars
_DESCRIPTORS = (types.FunctionType, property, classmethod, staticmethod)


class Channel:
    """Lines of JSON, each behind the nonce, on a file descriptor that standard output no longer is."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._fd = os.dup(1)
        os.set_inheritable(self._fd, False)  # children of the tests do not get it
        os.dup2(2, 1)  # whatever tests print goes to standard error

    def send(self, **event: Any) -> None:
        data = (self._nonce + _dumps(event) + "\n").encode()
        while data:
            data = data[_write(self._fd, data) :]


class Reporter:
    """A pytest plugin: one event per test, plus what shows that pytest is still what it was."""

    def __init__(self, channel: Channel, order: dict[str, Any], plugins: set[str]) -> None:
        self._channel = channel
        self._order = order
        self._plugins = plugins
        self._seen: dict[str, list[Any]] = {}
        self._details: dict[str, dict[str, str]] = {}
        self._items: dict[str, Any] = {}
        self._bodies: dict[str, tuple[Any, ...]] = {}  # what each test was when it was collected
        self._swapped: set[str] = set()
        self._marked: set[str] = set()  # tests marked as expected to fail when they were collected
        self._gave_up: set[str] = set()  # tests during which somebody called pytest.xfail
        self._guard: Guard | None = None

    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        # After pytest's own start-up patches (which ask to be first), before conftest files (which are last).
        self._guard = Guard(early_config, self._order["root"], self._order["tests"], self._plugins)

    def pytest_configure(self, config: Any) -> None:
        # Naming a file of a folder that is named too has no effect since pytest 9: the folder must hold it as a test.
        patterns = config.getini("python_files")
        names = map(os.path.basename, self._order["files"])
        patterns += [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> None:
        self._items = {item.nodeid: item}

    def pytest_collection_finish(self, session: Any) -> None:
        self._bodies = {item.nodeid: body(getattr(item, "obj", None)) for item in session.items}
        self._marked = {item.nodeid for item in session.items if item.get_closest_marker("xfail")}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: Any) -> None:
        # Before plugins wrap it, as those for coroutines do.
        now, before = body(getattr(item, "obj", None)), self._bodies.get(item.nodeid, ())
        if len(now) != len(before) or any(part is not old for part, old in zip(now, before)):  # noqa: B905
            self._swapped.add(item.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = (yield).get_result()
        if call.excinfo is not None and is_a(call.excinfo.value, pytest.xfail.Exception):
            self._gave_up.add(item.nodeid)
        if call.excinfo is not None and report.outcome == "failed":
            path = str(item.path)
            statement = ""
            for entry in call.excinfo.traceback:
                if str(entry.path) == path:
                    statement = statement_at(path, entry.lineno + 1) or str(entry.statement)
            for name, value in getattr(getattr(item, "callspec", None), "params", {}).items():
                statement += f"\n# {name} = {shown(value)}"[:SHORT]
            error = call.excinfo.exconly()
            self._details[item.nodeid] = {"statement": statement[:DETAIL], "error": error[:DETAIL]}

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seen.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        reports = self._seen.pop(nodeid, [])
        expected_to_fail = nodeid in self._marked and nodeid not in self._gave_up
        event: dict[str, Any] = {"test": nodeid, "status": status(reports, expected_to_fail)}
        event.update(self._details.pop(nodeid, {}))
        item = self._items.get(nodeid)
        changed = ["the reporter"] if item is None or self._guard is None else self._guard.changes(item, self)
        if nodeid in self._swapped:
            changed = ["the test itself", *changed]
        if changed:
            event["tampered"] = changed[:5]
        self._channel.send(**event)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            lines = str(report.longrepr).splitlines()
            errors = [line[1:].strip() for line in lines if line.startswith("E ")] or lines or [""]
            self._channel.send(collect_error=report.nodeid, error=errors[-1][:DETAIL])


def statement_at(path: str, line: int) -> str:
    """The `with` statement that starts at a line, with its body: it tells what did not raise. Else nothing."""
    lines = linecache.getlines(path)
    with suppress(SyntaxError, ValueError):  # tests stand in documents too
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.With) and node.lineno == line and node.end_lineno is not None:
                return textwrap.dedent("".join(lines[line - 1 : node.end_lineno][:LINES])).rstrip()
    return ""


def body(thing: Any) -> tuple[Any, ...]:
    """What a test, a method or the like calls, with its code and default arguments, for comparison by identity."""
    function = function_of(thing)
    if not is_a(function, types.FunctionType):
        return function, None, None
    return function, function.__code__, function.__defaults__


def is_a(thing: Any, kinds: Any) -> bool:
    """`isinstance`, without asking the thing: a stranger's proxy, or class with a metaclass, may run code or raise."""
    return issubclass(type(thing), kinds)


def function_of(thing: Any) -> Any:
    """What a property or some kind of method calls; anything else as it is."""
    for kind in (classmethod, staticmethod, types.MethodType, property):
        if is_a(thing, kind):
            return _vars(kind)["fget" if kind is property else "__func__"].__get__(thing)
    return thing


def names_of(thing: Any) -> Any:
    """The name space of a module or class; of anything else none."""
    for kind in (types.ModuleType, type):
        if is_a(thing, kind):
            return _vars(kind)["__dict__"].__get__(thing)
    return {}


def text(value: Any) -> str:
    """A string; an empty one in place of anything else."""
    return value if type(value) is str else ""


def shown(value: Any) -> str:
    """The value as Python writes it, if it can be written."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def status(reports: list[Any], expected_to_fail: bool) -> str:
    """passed, failed, skipped, xfailed or error: the worst of a test's set-up, call (with sub-tests) and tear-down."""
    failed = [report.when for report in reports if report.outcome == "failed"]
    if failed:
        return "failed" if "call" in failed else "error"
    calls = [report for report in reports if report.when == "call"]
    if not calls or calls[-1].outcome != "passed":
        return "xfailed" if calls and expected_to_fail and hasattr(calls[-1], "wasxfail") else "skipped"
    return "passed"


class Guard:
    """pytest, pluggy and unittest as they were before any tested code ran, to tell what was replaced since."""

    def __init__(self, config: Any, root: str, tests: list[str], plugins: set[str]) -> None:
        self._config = config
        self._plugins = plugins
        self._root = root
        self._tests = tuple(os.path.join(root, test) + os.sep for test in tests if test != ".")
        self._machinery, self._classes = machinery()
        self._functions = {id(value): value for value in loaded_functions()}
        self._callers = dict(_vars(config.pluginmanager.hook))
        kinds = {type(caller) for caller in self._callers.values()}
        self._kinds = kinds.union(*(kind.__subclasses__() for kind in kinds))
        self._hookexec = config.pluginmanager._inner_hookexec

    def changes(self, item: Any, reporter: object) -> list[str]:
        """What is not as it was: functions, hooks, and methods of the very objects that run `item`."""
        # Plugins of the environment may patch: pytest-mock does, for the texts of its errors.
        changed = replaced(self._machinery) + added(self._classes)
        found = [f"{owner}.{name}" for owner, name, value in changed if not self._of_plugin(value)]
        found += self._hooks(item)
        manager = self._config.pluginmanager
        for thing in (self._config, manager, manager.hook, item.ihook, reporter, *item.listchain()):
            found += self._instance(thing)
        return found

    def _of_plugin(self, value: Any) -> bool:
        function = function_of(value)
        names = function.__globals__ if is_a(function, types.FunctionType) else {}
        name = text(names.get("__name__"))
        mine = name.partition(".")[0] in self._plugins and names is names_of(sys.modules.get(name))
        return mine and text(names.get("__file__")) == function.__code__.co_filename

    def _hooks(self, item: Any) -> list[str]:
        manager = self._config.pluginmanager
        found = [] if manager._inner_hookexec is self._hookexec else ["the calling of hooks"]
        callers = dict(_vars(manager.hook))
        found += [f"hook {name}" for name, caller in self._callers.items() if callers.get(name) is not caller]
        if item.ihook is not manager.hook:
            # A test's own view of the hooks (without the conftest files of other folders) keeps its callers, and
            # where paths changed their type, functions of pytest's in place of them.
            made = getattr(getattr(type(item.ihook), "__getattr__", None), "__code__", None)
            wrappers = {id(part) for part in getattr(made, "co_consts", ())}
            for name, value in _vars(item.ihook).items():
                wrapped = is_a(value, types.FunctionType) and id(value.__code__) in wrappers
                if name.startswith("pytest_") and not wrapped:
                    callers[f"{name} of the test"] = value
        for name, caller in callers.items():
            if type(caller) not in self._kinds:
                found.append(f"hook {name}")
                continue
            execute = caller._hookexec
            if not is_a(execute, types.MethodType) or execute.__self__ is not manager:
                found.append(f"the calling of hook {name}")
            for implementation in caller.get_hookimpls():
                if not self._known(implementation.function):
                    found.append(f"an implementation of hook {name}")
        return found

    def _instance(self, thing: Any) -> list[str]:
        """Methods that one object has of its own, or by a class that was not there."""
        cls = type(thing)
        found = []
        for name, value in _vars(thing).items():
            hidden = [
                names_of(base)[name] for base in cls.__mro__ if callable(value) and name in names_of(base)
            ]
            if hidden and is_a(hidden[0], _DESCRIPTORS) and not self._known(value):
                found.append(f"{cls.__name__}.{name} of one object")
        for base in cls.__mro__:
            if (base.__module__, base.__qualname__) in self._classes:
                continue  # looked after above
            for name, value in names_of(base).items():
                if is_a(value, _DESCRIPTORS) and not self._known(value):
                    found.append(f"{base.__name__}.{name}")
        return found

    def _known(self, value: Any) -> bool:
        """Whether a function was there before, or is of a conftest or test file or of a package outside the tree."""
        function = function_of(value)
        if id(function) in self._functions:
            return True
        if not is_a(function, types.FunctionType):
            return False
        names, code = function.__globals__, function.__code__
        file = os.path.abspath(text(names.get("__file__")))
        if os.path.basename(file) == "conftest.py" or file.startswith(self._tests):
            return code.co_filename == file and f"def {code.co_name}(" in "".join(linecache.getlines(file))
        module = sys.modules.get(text(names.get("__name__")))
        return not file.startswith(self._root + os.sep) and names is names_of(module)


def pytest_modules() -> list[tuple[str, types.ModuleType]]:
    """The modules that decide what counts as passed: pytest's, pluggy's, unittest's and this one."""
    names = ("_pytest", "pytest", "pluggy", "unittest", "__main__")
    return [(name, module) for name, module in list(sys.modules.items()) if name.partition(".")[0] in names]


def machinery() -> tuple[list[tuple[Any, ...]], dict[tuple[str, str], Any]]:
    """Every function and class of those modules, as rows for `replaced`; and the classes' members by name."""
    rows: list[tuple[Any, ...]] = []
    classes: dict[tuple[str, str], Any] = {}
    for module_name, module in pytest_modules():
        rows.append((sys.modules, module_name, module, None, None, None, "module"))
        for name, value in list(names_of(module).items()):
            if is_a(value, types.FunctionType):
                rows.append((names_of(module), name, value, *body(value), module_name))
            elif is_a(value, type):
                rows.append((names_of(module), name, value, None, None, None, module_name))
                if value.__module__ != module_name:
                    continue
                members = names_of(value)
                classes[module_name, value.__qualname__] = (value, frozenset(members))
                for attribute, method in list(members.items()):
                    if is_a(method, _DESCRIPTORS):
                        rows.append((members, attribute, method, *body(method), f"{module_name}.{name}"))
    return rows, classes


def replaced(rows: list[tuple[Any, ...]]) -> list[tuple[str, str, Any]]:
    """Owner, name and value of what stands for something else now. Runs after every test, hence so plain."""
    return [
        (owner, name, names.get(name))
        for names, name, value, function, code, defaults, owner in rows
        if names.get(name) is not value
        or (code is not None and (function.__code__ is not code or function.__defaults__ is not defaults))
    ]


def added(classes: dict[tuple[str, str], Any]) -> list[tuple[str, str, Any]]:
    """Owner, name and value of what classes did not have and what hides something that was there.

    A property hides what an object holds by its name, a method only one of a base class.
    """
    found = []
    for (module_name, path), (cls, names) in classes.items():
        members = _vars(cls)
        if len(members) != len(names):
            for name in members.keys() - names:
                value = members[name]
                hides = name.startswith("__") or any(name in _vars(base) for base in cls.__mro__[1:])
                if hasattr(type(value), "__get__") and (hides or not isinstance(value, types.FunctionType)):
                    found.append((f"{module_name}.{path}", name, value))
    return found


def loaded_functions() -> list[Any]:
    """Functions and methods of all modules loaded now: pytest and the plugins of the environment."""
    found: list[Any] = []
    for module in list(sys.modules.values()):
        for value in list(names_of(module).values()):
            members = names_of(value).values() if is_a(value, type) else [value]
            found += [part for part in map(function_of, members) if is_a(part, types.FunctionType)]
    return found


def foreign(root: str, folder: str, before: set[str], package: str = "") -> list[str]:
    """Modules that a folder of the tree holds but that were imported from elsewhere, other than those loaded `before`.

    Of a package that lies partly elsewhere, as namespace packages do, each module is looked at.
    """

    def inside(place: Any) -> bool:
        return bool(text(place)) and os.path.abspath(place).startswith(root + os.sep)

    wrong = []
    for entry in sorted(os.listdir(folder)):
        here = os.path.join(folder, entry)
        whole = not os.path.isdir(here) or os.path.exists(os.path.join(here, "__init__.py"))
        name = package + (entry if os.path.isdir(here) else inspect.getmodulename(entry) or "")
        module = sys.modules.get(name)
        if not is_a(module, types.ModuleType):
            continue
        file, path = (names_of(module).get(key) for key in ("__file__", "__path__"))
        folders: list[bool] = []
        with suppress(Exception):  # it is whatever the module made of it
            folders += [inside(place) for place in path or ()]
        if inside(file) if whole else any(folders):
            if os.path.isdir(here) and not all(folders):
                wrong += foreign(root, here, before, name + ".")
        elif name not in before and (whole or brings_modules(here)):
            wrong.append(name)
    return wrong


def brings_modules(folder: str) -> bool:
    """Whether there are modules below a folder: one of data is no package."""
    return any(inspect.getmodulename(name) for _, _, names in os.walk(folder) for name in names)


def environment_plugins() -> tuple[list[str], set[str]]:
    """Arguments that load the environment's pytest plugins, and their packages. The tree, not seen yet, has no say."""
    every: Any = metadata.entry_points()
    points = every.select(group="pytest11") if hasattr(every, "select") else every.get("pytest11", ())
    arguments = [argument for name in sorted({point.name for point in points}) for argument in ("-p", name)]
    return arguments, {point.value.partition(":")[0].partition(".")[0] for point in points}


def main() -> None:
    order = json.loads(sys.stdin.readline())
    channel = Channel(order.pop("nonce"))
    root = order["root"]
    channel.send(begin=sys.version.split()[0])
    python_path = [os.path.normpath(os.path.join(root, entry)) for entry in order["python_path"]]
    plugins, packages = environment_plugins()
    before = {*sys.modules, *getattr(sys, "stdlib_module_names", ())}
    sys.path[:] = filter(None, sys.path)  # not the present folder, which is the tree's from here on
    # Behind everything else: a json.py or pytest.py in the tree shadows nothing.
    sys.path.extend(python_path)
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = os.pathsep.join(python_path)  # for what the tests start
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.chdir(root)
    sys.argv[:] = ["pytest"]  # programs under test take their name from it
    code = int(pytest.main([*plugins, *order["arguments"]], plugins=[Reporter(channel, order, packages)]))
    channel.send(end=code, foreign=[name for folder in python_path for name in foreign(root, folder, before)])
    sys.stderr.flush()
    _exit(code)  # no exit handler and no leftover thread of the tested code runs after the report


if __name__ == "__main__":
    main()
