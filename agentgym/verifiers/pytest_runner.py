"""Runs pytest inside the grading sandbox and reports every test on a channel of its own.

This file is executed as a script by the task's interpreter, where agentgym is not installed: standard
library and pytest only. `agentgym.verifiers.suite` starts it, writes one line of JSON to its standard input
(`nonce`, `root`, `python_path`, `arguments`) and reads the report from its standard output.

The code under test runs in this very process. What is done against a forged report, and what that cannot do,
is described in `agentgym.verifiers.tests`.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import sys
import textwrap
import types
import unittest.case  # noqa: F401  (watched like pytest, so loaded before the tested code)
from importlib import metadata
from typing import Any

import pytest

DETAIL = 2000  # characters kept of what a failing test said
SHORT = 200  # and of each of its parameters
LINES = 8  # of a statement

# Bound before any tested code is imported, so that replacing them later changes nothing here.
_dumps, _write, _exit, _vars = json.dumps, os.write, os._exit, vars


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

    def __init__(self, channel: Channel, root: str) -> None:
        self._channel = channel
        self._root = root
        self._seen: dict[str, list[Any]] = {}
        self._details: dict[str, dict[str, str]] = {}
        self._machinery: dict[tuple[str, str], Any] = {}

    def pytest_load_initial_conftests(self) -> None:
        # After pytest's own start-up patches (which ask to be first), before conftest files (which come
        # last).
        self._machinery = machinery()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = (yield).get_result()
        if call.excinfo is not None and report.outcome == "failed":
            path = str(item.path)
            statement = ""
            for entry in call.excinfo.traceback:
                if str(entry.path) == path:
                    statement = statement_at(path, entry.lineno + 1) or str(entry.statement)
            callspec = getattr(item, "callspec", None)
            for name, value in getattr(callspec, "params", {}).items():
                statement += f"\n# {name} = {value!r}"[:SHORT]
            error = call.excinfo.exconly()
            self._details[item.nodeid] = {"statement": statement[:DETAIL], "error": error[:DETAIL]}

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seen.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        reports = self._seen.pop(nodeid, [])
        event: dict[str, Any] = {"test": nodeid, "status": status(reports)}
        event.update(self._details.pop(nodeid, {}))
        changed = [f"{module}.{name}" for module, name in changes(self._machinery)]
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
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.With) and node.lineno == line and node.end_lineno is not None:
            return textwrap.dedent("".join(lines[line - 1 : node.end_lineno][:LINES])).rstrip()
    return ""


def status(reports: list[Any]) -> str:
    """passed, failed, skipped or error: the worst of a test's set-up, call (with sub-tests) and tear-down."""
    failed = [report.when for report in reports if report.outcome == "failed"]
    if failed:
        return "failed" if "call" in failed else "error"
    calls = [report for report in reports if report.when == "call"]
    if not calls or calls[-1].outcome != "passed":
        return "skipped"
    return "passed"


def machinery() -> dict[tuple[str, str], Any]:
    """Every function of pytest, pluggy and unittest, by where it lives, with the code it runs."""
    found: dict[tuple[str, str], Any] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] not in ("_pytest", "pytest", "pluggy", "unittest"):
            continue
        for name, value in list(_vars(module).items()):
            if isinstance(value, types.FunctionType):
                found[module_name, name] = (value, value.__code__)
            elif isinstance(value, type) and value.__module__ == module_name:
                for attribute, method in list(_vars(value).items()):
                    if isinstance(method, types.FunctionType):
                        found[module_name, f"{name}.{attribute}"] = (method, method.__code__)
                    elif isinstance(method, property):
                        found[module_name, f"{name}.{attribute}"] = (method, None)
    return found


def changes(before: dict[tuple[str, str], Any]) -> list[tuple[str, str]]:
    """Places of `before` where other code is now."""
    changed = []
    for (module_name, path), (function, code) in before.items():
        owner, _, attribute = path.rpartition(".")
        holder: Any = sys.modules.get(module_name)
        if owner and holder is not None:
            holder = _vars(holder).get(owner)
        now: Any = None if holder is None else _vars(holder).get(attribute)
        if now is not function or (code is not None and function.__code__ is not code):
            changed.append((module_name, path))
    return changed


def foreign(root: str, python_path: list[str], before: set[str]) -> list[str]:
    """Modules that the tree holds but that were imported from elsewhere, other than those loaded `before` it."""
    wrong = []
    for folder in python_path:
        for entry in os.scandir(folder):
            name = entry.name.removesuffix(".py")
            module = sys.modules.get(name)
            if name in before or name in sys.stdlib_module_names or not isinstance(module, types.ModuleType):
                continue
            origin = module.__file__ or next(iter(getattr(module, "__path__", [])), root)
            if not os.path.abspath(origin).startswith(root + os.sep):
                wrong.append(name)
    return wrong


def plugin_arguments() -> list[str]:
    """``-p`` for each pytest plugin of the environment; called before the tree, which may claim to be one, is seen."""
    points = metadata.entry_points(group="pytest11")
    return [argument for name in sorted({point.name for point in points}) for argument in ("-p", name)]


def main() -> None:
    order = json.loads(sys.stdin.readline())
    channel = Channel(order.pop("nonce"))
    root = order["root"]
    channel.send(begin=sys.version.split()[0])
    python_path = [os.path.normpath(os.path.join(root, entry)) for entry in order["python_path"]]
    plugins = plugin_arguments()
    before = set(sys.modules)
    # Behind everything else: a json.py or pytest.py in the tree shadows nothing.
    sys.path.extend(python_path)
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = os.pathsep.join(python_path)  # for what the tests start
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.chdir(root)
    code = int(pytest.main([*plugins, *order["arguments"]], plugins=[Reporter(channel, root)]))
    channel.send(end=code, foreign=foreign(root, python_path, before))
    sys.stderr.flush()
    _exit(code)  # no exit handler and no leftover thread of the tested code runs after the report


if __name__ == "__main__":
    main()
