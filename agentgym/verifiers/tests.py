"""Hidden tests as a verifier: was the task resolved, by the tests' own account?

How a patch is graded:

1. A fresh copy of the task's tree is made on the host. Of the agent's changes only those to ordinary files
   are carried over: tests, conftest files, configuration of test runner and interpreter, byte code and
   repository metadata keep the state they had (`Protected`). The hidden tests are added last.
2. pytest runs once in a fresh sandbox without network, with plugins, options and paths that the tree has no
   say in. The tree comes last on the import path, so it shadows neither pytest nor the standard library.
3. Each result comes over an append-only channel, behind a nonce that no file, argument or environment variable
   holds. A result can be added to it, not removed, and an id that comes twice counts as failed.
4. The run is believed only if it ended with its own closing line and the matching exit status, nothing else was
   written, the code of pytest and unittest was never replaced, the package came from the tree, and each of a few
   **canaries** failed: tests under random names among the real ones that no honest run passes. Otherwise no id
   counts as passed.
5. Resolved = every expected id came exactly once, as passed. Missing, skipped and errored is not passed.
   Time-out, kill and crash are failures of the patch; only a sandbox or a runner that does not start is an
   `InfrastructureError`.

What remains possible: the code under test runs in pytest's process. Code that recognises the hidden tests by
name and lets exactly those pass without replacing a function, or that takes the nonce from memory and writes a
complete and consistent report, cannot be ruled out by any grader that imports it. Neither can values that compare
equal to everything. `TestReport.suspicious` lists lines that look like such attempts; the monitor and held-out
tests are the second line.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from agentgym.errors import InfrastructureError, TaskError
from agentgym.sandbox import make_sandbox, python_binds
from agentgym.sandbox.base import ExecResult, Limits
from agentgym.verifiers.patches import PatchError, apply_patch, list_tree, overlay, parents

RUNNER = Path(__file__).with_name("pytest_runner.py")

# Options of the project's own configuration that would change what runs or ask for plugins nobody needs here.
# The rest of it (which files and functions are tests, markers, asyncio mode) is the base tree's and stays.
_OVERRIDES = ("addopts=", "filterwarnings=", "required_plugins=", "minversion=", "log_cli=false", "log_file=")
_CONFIG_FILES = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)

_CANARY = """\
import unittest

import pytest


def test_{0}():
    assert sorted("ba") == ["b", "a"]


def test_{1}():
    raise LookupError("expected")


def test_{2}():
    with pytest.raises(ValueError):
        int("1")


class Test{3}(unittest.TestCase):
    def test_{3}(self):
        self.assertEqual(sorted("ba"), ["b", "a"])
"""
_CANARIES = 4

_PROTECTED_NAMES = frozenset(
    [
        *_CONFIG_FILES,
        "conftest.py",
        "sitecustomize.py",
        "usercustomize.py",
        "setup.py",
        "noxfile.py",
        "pyvenv.cfg",
    ]
)
_PROTECTED_SUFFIXES = (".pth", ".egg-link", ".egg-info", ".dist-info")
_NOISE_NAMES = frozenset(
    ["__pycache__", ".git", ".hg", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache", ".coverage"]
)
_NOISE_SUFFIXES = (".pyc", ".pyo")

_SUSPICIOUS = re.compile(
    r"\b(_?pytest|unittest|_exit|atexit|sys\.modules|settrace|setprofile|_getframe|currentframe|ctypes|__builtins__|builtins"
    r"|gc\.get_\w+|inspect\.(stack|trace)|sys\.meta_path|sitecustomize)\b|/proc/|def __eq__"
)


@dataclass(frozen=True, slots=True)
class TestSuite:
    """How the tests of one tree are run.

    Attributes:
        python: interpreter of the task's own environment; has pytest, not the package under test.
        targets: files and folders for pytest, relative to the tree.
        python_path: folders the package is imported from, relative to the tree.
        arguments: further pytest arguments.
        limits: of the sandbox; `wall_s` bounds the whole run.
        backend, allow_unsafe: for `make_sandbox`.
    """

    __test__ = False

    python: Path
    targets: tuple[str, ...] = ("tests",)
    python_path: tuple[str, ...] = (".",)
    arguments: tuple[str, ...] = ()
    limits: Limits = field(default_factory=lambda: Limits(wall_s=300.0))
    backend: str = "auto"
    allow_unsafe: bool = False


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of the tests.

    Attributes:
        statuses: pytest node id -> passed, failed, skipped, error or repeated (reported more than once).
        failures: node id -> the failing statement of the test and the error, for those that failed.
        problem: why nothing of this may be believed; empty for a sound run.
        exit_code: of pytest.
        output: end of what was printed.
        seconds: wall time.
        timed_out: the run was stopped.
    """

    statuses: Mapping[str, str]
    failures: Mapping[str, tuple[str, str]]
    problem: str
    exit_code: int
    output: str
    seconds: float
    timed_out: bool = False

    def passed(self) -> set[str]:
        """Node ids that passed; none unless the run is sound."""
        return (
            set() if self.problem else {node for node, status in self.statuses.items() if status == "passed"}
        )


@dataclass(frozen=True, slots=True)
class TestReport:
    """What grading a patch found.

    Attributes:
        resolved: every expected test passed.
        f2p_passed, f2p_total, p2p_passed, p2p_total: counts of fail-to-pass and pass-to-pass tests.
        applied: the diff could be applied.
        tests_touched: the agent changed tests or configuration; those changes were dropped.
        exit_code: of pytest; -1 if it was not run.
        problem: why the tests could not be run or not be believed; empty otherwise.
        seconds: wall time of grading.
        statuses: expected id -> status; "missing" where it did not appear.
        dropped: the changed paths that were not carried over.
        suspicious: "path: line" of added code that reaches for the test machinery; evidence, no proof.
        output: end of what the run printed.
    """

    __test__ = False

    resolved: bool
    f2p_passed: int = 0
    f2p_total: int = 0
    p2p_passed: int = 0
    p2p_total: int = 0
    applied: bool = True
    tests_touched: bool = False
    exit_code: int = -1
    problem: str = ""
    seconds: float = 0.0
    statuses: Mapping[str, str] = field(default_factory=dict, repr=False)
    dropped: tuple[str, ...] = ()
    suspicious: tuple[str, ...] = ()
    output: str = field(default="", repr=False)

    @property
    def score(self) -> float:
        """1.0 if resolved, else 0.0: parts of a repair are not paid."""
        return float(self.resolved)

    @property
    def components(self) -> dict[str, float]:
        """Fractions of fail-to-pass and pass-to-pass tests passed, and the two flags as 0 or 1."""
        return {
            "f2p": self.f2p_passed / max(1, self.f2p_total),
            "p2p": self.p2p_passed / self.p2p_total
            if self.p2p_total
            else float(self.applied and not self.problem),
            "applied": float(self.applied),
            "tests_touched": float(self.tests_touched),
        }

    @property
    def evidence(self) -> dict[str, str]:
        """Texts for people: what failed, what was dropped, what looks like an attempt on the grader."""
        failed = [f"{name}: {status}" for name, status in self.statuses.items() if status != "passed"]
        texts = {
            "problem": self.problem,
            "not passed": "\n".join(failed[:50]),
            "dropped": "\n".join(self.dropped[:50]),
            "suspicious": "\n".join(self.suspicious[:50]),
            "output": self.output,
        }
        return {name: text for name, text in texts.items() if text}


class Protected:
    """Which paths of a tree an agent's patch may not change: calling it with a path says whether.

    Args:
        targets: what the test run gets.
        hidden: files the test patch brings.
    """

    def __init__(self, targets: tuple[str, ...], hidden: frozenset[str] = frozenset()) -> None:
        self._targets = tuple(str(PurePosixPath(target.partition("::")[0])) for target in targets)
        self._hidden = hidden
        self._parents = {parent for path in (*hidden, *self._targets) for parent in parents(path)}

    def __call__(self, path: str) -> bool:
        if path in self._hidden or path in self._parents or self.noise(path):
            return True
        if any(target != "." and (path + "/").startswith(target + "/") for target in self._targets):
            return True
        parts = path.split("/")
        return any(part in _PROTECTED_NAMES or part.endswith(_PROTECTED_SUFFIXES) for part in parts)

    @staticmethod
    def noise(path: str) -> bool:
        """Left behind by ordinary work: dropped without a word."""
        return path.endswith(_NOISE_SUFFIXES) or any(part in _NOISE_NAMES for part in path.split("/"))


@dataclass(frozen=True, slots=True)
class HiddenTests:
    """Grades patches of one task.

    Attributes:
        base: folder with the task's tree as the policy got it; only read.
        suite: how its tests are run.
        fail_to_pass, pass_to_pass: the ids that must pass.
        test_patch: diff that brings the hidden tests.
    """

    base: Path
    suite: TestSuite
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    test_patch: str = field(default="", repr=False)

    def grade(self, diff: str) -> TestReport:
        """Grade a unified diff against the base; one that does not apply resolves nothing."""
        with tempfile.TemporaryDirectory(prefix="agentgym-grade-") as folder:
            tree = Path(folder, "tree")
            copy_tree(self.base, tree)
            try:
                apply_patch(tree, diff)
            except PatchError as error:
                return self._report(None, applied=False, problem=str(error))
            return self.grade_tree(tree)

    def grade_tree(self, tree: Path) -> TestReport:
        """Grade the tree an agent left behind: what differs from the base is its patch.

        Raises:
            TaskError: the hidden tests do not fit the task's own tree.
            InfrastructureError: the sandbox or the test runner did not start.
        """
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="agentgym-grade-") as folder:
            graded = Path(folder, "tree")
            copy_tree(self.base, graded)
            protected = Protected(self.suite.targets, self._hidden_files(Path(folder, "probe")))
            carried, dropped = overlay(graded, tree, protected=protected)
            apply_patch(graded, self.test_patch)
            run = run_suite(graded, self.suite)
            suspicious = _suspicious_lines(self.base, graded, carried)
        dropped = [path for path in dropped if not protected.noise(path)]
        return self._report(
            run,
            dropped=tuple(dropped),
            suspicious=suspicious,
            seconds=time.monotonic() - start,
            problem=run.problem,
        )

    def _hidden_files(self, probe: Path) -> frozenset[str]:
        """What the test patch adds or changes, found by applying it rather than by reading it."""
        copy_tree(self.base, probe)
        before = list_tree(probe)
        try:
            apply_patch(probe, self.test_patch)
        except PatchError as error:
            raise TaskError(f"the test patch does not fit the task's tree: {error}") from None
        after = list_tree(probe)
        shutil.rmtree(probe)
        return frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))

    def _report(
        self,
        run: SuiteRun | None,
        *,
        problem: str,
        applied: bool = True,
        dropped: tuple[str, ...] = (),
        suspicious: tuple[str, ...] = (),
        seconds: float = 0.0,
    ) -> TestReport:
        statuses = expected_statuses(run, (*self.fail_to_pass, *self.pass_to_pass))
        f2p = sum(statuses[name] == "passed" for name in self.fail_to_pass)
        p2p = sum(statuses[name] == "passed" for name in self.pass_to_pass)
        everything = all(status == "passed" for status in statuses.values())
        return TestReport(
            resolved=bool(statuses) and everything and not problem,
            f2p_passed=f2p,
            f2p_total=len(self.fail_to_pass),
            p2p_passed=p2p,
            p2p_total=len(self.pass_to_pass),
            applied=applied,
            tests_touched=bool(dropped),
            exit_code=run.exit_code if run else -1,
            problem=problem,
            seconds=seconds,
            statuses=statuses,
            dropped=dropped,
            suspicious=suspicious,
            output=run.output if run else "",
        )


def expected_statuses(run: SuiteRun | None, expected: tuple[str, ...]) -> dict[str, str]:
    """Status of each expected id, a node id or ``classname::name``; "missing" where it did not appear."""
    if run is None or run.problem:
        return dict.fromkeys(expected, "missing")
    by_name: dict[str, set[str]] = {}
    for node, status in run.statuses.items():
        for name in {node, junit_id(node)}:
            by_name.setdefault(name, set()).add(status)
    result = {}
    for name in expected:
        found = by_name.get(name, {"missing"})
        result[name] = "passed" if found == {"passed"} else min(found - {"passed"})
    return result


def junit_id(node: str) -> str:
    """The ``classname::name`` under which JUnit reports show a pytest node id."""
    address, bracket, parameters = node.partition("[")
    names = address.split("::")
    names[0] = names[0].replace("/", ".").removesuffix(".py")
    return ".".join(names[:-1]) + "::" + names[-1] + bracket + parameters


def run_suite(tree: Path, suite: TestSuite) -> SuiteRun:
    """Run the tests of `tree` in a fresh sandbox; the folder itself is only read.

    Raises:
        InfrastructureError: the sandbox or the runner did not start.
    """
    nonce = secrets.token_hex(16)
    words = [secrets.token_hex(4) for _ in range(_CANARIES + 1)]
    binds = {**python_binds(str(suite.python)), str(RUNNER): str(RUNNER)}
    canary = f"{_canary_folder(tree, suite.targets)}/test_{words[-1]}.py".removeprefix("./")
    with make_sandbox(
        suite.backend, limits=suite.limits, allow_unsafe=suite.allow_unsafe, binds=binds
    ) as sandbox:
        sandbox.upload(tree)
        sandbox.write(canary, _CANARY.format(*words))
        root = sandbox.workspace
        order = {
            "nonce": nonce,
            "root": root,
            "python_path": suite.python_path,
            "arguments": _pytest_arguments(tree, suite, root, canary),
        }
        result = sandbox.exec(
            [str(suite.python), "-s", "-P", str(RUNNER)],
            timeout=suite.limits.wall_s,
            env={
                "PATH": f"{suite.python.parent}:/usr/local/bin:/usr/bin:/bin",
                "HOME": "/tmp",
                "LANG": "C.UTF-8",
                "PYTHONHASHSEED": "0",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd="/",
            stdin=(json.dumps(order) + "\n").encode(),
        )
    return _read_run(result, nonce, canary, suite)


def _pytest_arguments(tree: Path, suite: TestSuite, root: str, canary: str) -> list[str]:
    # With "append" a test folder does not come first on the import path either.
    options = [
        "-q",
        "--continue-on-collection-errors",
        "--import-mode=append",
        "--color=no",
        "-p",
        "no:cacheprovider",
    ]
    options += ["-c", _config_file(tree, root), f"--rootdir={root}"]
    for override in _OVERRIDES:
        options += ["-o", override]
    return [*options, *suite.arguments, "--maxfail=0", *suite.targets, canary]


def _config_file(tree: Path, root: str) -> str:
    """The project's own pytest configuration, chosen as pytest would, but never outside the tree."""
    tables = {"pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}
    for name in _CONFIG_FILES:
        path = tree / name
        if path.is_file() and tables.get(name, "") in path.read_text(encoding="utf-8", errors="replace"):
            return f"{root}/{name}"
    return "/dev/null"


def _canary_folder(tree: Path, targets: tuple[str, ...]) -> str:
    first = targets[0].partition("::")[0]
    return first if (tree / first).is_dir() else str(PurePosixPath(first).parent)


def _read_run(result: ExecResult, nonce: str, canary: str, suite: TestSuite) -> SuiteRun:
    events: list[dict[str, Any]] = []
    garbage = False
    for line in result.stdout.splitlines():
        try:
            events.append(
                json.loads(line.removeprefix(nonce)) if line.startswith(nonce) else {"garbage": True}
            )
        except json.JSONDecodeError:
            garbage = True
    output = result.stderr[-4000:]
    if not result.timed_out and not (events and "begin" in events[0]):
        raise InfrastructureError(
            f"the test runner did not start (exit status {result.exit_code}): {output[-500:]}"
        )
    statuses: dict[str, str] = {}
    failures: dict[str, tuple[str, str]] = {}
    tampered: list[str] = []
    for event in events:
        if "test" in event:
            node = event["test"]
            statuses[node] = "repeated" if node in statuses else event["status"]
            failures[node] = (event.get("statement", ""), event.get("error", ""))
            tampered += event.get("tampered", [])
        elif "collect_error" in event:
            statuses[event["collect_error"]] = "error"
            failures[event["collect_error"]] = ("", event["error"])
    canaries = {node: status for node, status in statuses.items() if node.startswith(canary + "::")}
    for node in canaries:
        del statuses[node]
        failures.pop(node)
    end = events[-1] if events and "end" in events[-1] else None

    if result.timed_out:
        problem = f"the tests did not end within {suite.limits.wall_s:g} s"
    elif result.truncated or garbage or any("garbage" in event for event in events):
        problem = "something else was written to the report"
    elif end is None or sum("end" in event for event in events) != 1:
        problem = f"the test run broke off (exit status {result.exit_code})"
    elif end["end"] != result.exit_code or result.exit_code != 1:
        problem = f"exit status {result.exit_code} does not agree with the report"
    elif len(canaries) != _CANARIES or set(canaries.values()) != {"failed"}:
        problem = f"tests that must fail did not: {sorted(canaries.values())}"
    elif tampered:
        problem = f"the test machinery was replaced: {', '.join(sorted(set(tampered))[:5])}"
    elif end["foreign"]:
        problem = f"imported from outside the tree: {', '.join(end['foreign'])}"
    else:
        problem = ""
    return SuiteRun(
        statuses=statuses,
        failures={node: failures[node] for node, status in statuses.items() if status in ("failed", "error")},
        problem=problem,
        exit_code=result.exit_code,
        output=output,
        seconds=result.seconds,
        timed_out=result.timed_out,
    )


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree's files and links, without any `.git`."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(".git"))


def _suspicious_lines(base: Path, graded: Path, carried: list[str]) -> tuple[str, ...]:
    found = []
    for key in carried:
        path, old = graded / key, base / key
        if path.suffix not in (".py", ".pyi", "") or path.is_symlink() or not path.is_file():
            continue
        known = set(old.read_text(errors="replace").splitlines()) if old.is_file() else set()
        for line in path.read_text(errors="replace").splitlines():
            if line not in known and _SUSPICIOUS.search(line):
                found.append(f"{key}: {line.strip()[:200]}")
    return tuple(found)
