"""Hidden tests as a verifier: was the task resolved, by the tests' own account?

How a patch is graded:

1. A fresh copy of the task's tree is made on the host and the hidden tests are added. Of the agent's changes only
   those to ordinary files are carried over: tests, conftest files, configuration of test runner and interpreter,
   byte code and repository metadata keep the state they had (`Protected`). The agent's tree is read within bounds
   (`MOST_ENTRIES`, `MOST_BYTES`); one that is larger or cannot be read resolves nothing.
2. pytest runs once in a fresh sandbox without network, with plugins, options and paths that the tree has no say in.
   The tree comes last on the import path, so it shadows neither pytest nor the standard library.
3. Each result comes over an append-only channel, behind a nonce that no file, argument or environment variable
   holds. A result can be added to it, not removed, and an id that comes twice counts as failed.
4. The run is believed only if it ended with its own closing line and the matching exit status, nothing else was
   written, the package came from the tree, and after every test pytest, pluggy and unittest were still what they
   were: their functions and classes, the hooks with their implementations, the objects that ran the test. A new
   hook implementation may come from a conftest file, from the tests, or from a package outside the tree.
5. Besides, each of a few **canaries** must have failed: tests among the real ones that no honest run passes, with
   names made of the words of the real ones. Where a fixture gives them parameters, one of those may be skipped, but
   none may pass. A run that is not believed passes no id.
6. Resolved = every expected id came exactly once, as passed. Missing, skipped and errored is not passed; a
   pass-to-pass test that fails as a mark in the test files expects (xfail) is. Time-out, kill and crash are failures of
   the patch; only a sandbox or a runner that does not start is an `InfrastructureError`.

Where a record has a command and a log parser of its own, steps 2 to 5 are those of `agentgym.verifiers.logged`, a
weaker channel; the report says so (`TestReport.channel`).

What remains possible: the code under test runs in pytest's process. Code that undoes its changes before they are
looked at, that disguises its functions as those of a conftest file, that rewrites the runner's own checks, or that
takes the nonce from memory and writes a complete and consistent report, cannot be ruled out by any grader that imports
it. Neither can values that compare equal to everything. `TestReport.suspicious` lists lines that look like such
attempts; the monitor and held-out tests are the second line.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agentgym.errors import TaskError
from agentgym.sandbox import TreeError, scratch_folder
from agentgym.verifiers.log_parsers import PYTEST_IDS
from agentgym.verifiers.logged import hides_machinery, programs, run_logged
from agentgym.verifiers.patches import Entry, PatchError, apply_patch, list_tree, overlay, parents
from agentgym.verifiers.report import TestReport
from agentgym.verifiers.suite import CONFIG_FILES, SuiteRun, TestSuite, junit_id, run_suite

__all__ = [
    "HiddenTests",
    "Protected",
    "SuiteRun",
    "TestReport",
    "TestSuite",
    "copy_tree",
    "junit_id",
    "run_suite",
]

MOST_ENTRIES = 30_000  # files and folders that an agent's tree may have more than the task's
MOST_BYTES = 64 << 20  # and bytes in its files

_PROTECTED_NAMES = frozenset(
    "conftest.py sitecustomize.py usercustomize.py setup.py noxfile.py pyvenv.cfg".split()
) | frozenset(CONFIG_FILES)
_PROTECTED_SUFFIXES = (".pth", ".egg-link", ".egg-info", ".dist-info")
_NOISE_NAMES = frozenset(
    "__pycache__ .git .hg .pytest_cache .hypothesis .mypy_cache .ruff_cache .coverage".split()
)
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py|runtests\.py")
_TEST_FOLDERS = frozenset({"test", "tests"})
_NOISE_SUFFIXES = (".pyc", ".pyo")
_MOST_SUSPICIOUS = 200  # lines kept

_SUSPICIOUS = re.compile(
    r"\b(_?pytest|unittest|_exit|atexit|sys\.modules|settrace|setprofile|_getframe|currentframe|ctypes|__builtins__"
    r"|builtins|pluggy|gc\.get_\w+|inspect\.(stack|trace)|sys\.meta_path|sitecustomize)\b|/proc/|def __eq__"
)


class Protected:
    """Which paths of a tree an agent's patch may not change: calling it with a path says whether.

    Of tests that are named file by file, what they import is protected too: the folder of tests they lie in, and the
    files beside them that are named like tests.

    Args:
        targets: what the test run gets. Where that is the whole tree, everything named like a test is protected.
        hidden: files the test patch brings.
        ids: the expected tests, whose files are protected wherever they lie.
        files: of the task's tree; tell which part of a JUnit class name is a file.

    Attributes:
        paths: files and folders that are protected with all below them; others are by their names or places.
    """

    def __init__(
        self,
        targets: tuple[str, ...],
        hidden: frozenset[str] = frozenset(),
        ids: Collection[str] = (),
        files: Collection[str] = (),
    ) -> None:
        paths = {str(PurePosixPath(target.partition("::")[0])) for target in targets}
        self._everywhere = "." in paths
        known = {*files, *hidden}
        paths |= hidden | {path for name in ids for path in _files_of(name, known)}
        self._beside = {str(PurePosixPath(path).parent) for path in paths if path.endswith(".py")}
        self.paths = {*paths, *filter(None, map(_test_folder, paths))} - {"."}
        self._parents = {parent for path in self.paths for parent in parents(path)}
        self._known = known

    def __call__(self, path: str) -> bool:
        above = parents(path)
        if path in self._parents or self.noise(path) or not self.paths.isdisjoint([path, *above]):
            return True
        parts = path.split("/")
        if self._everywhere and not _TEST_FOLDERS.isdisjoint(parts):
            return True
        # Python finds a package before the module of the same name.
        hidden = [f"{folder}.py" for folder in above if f"{folder}.py" in self._known]
        if any(map(self._is_test_file, [path, *hidden])):
            return True
        return any(part in _PROTECTED_NAMES or part.endswith(_PROTECTED_SUFFIXES) for part in parts)

    def _is_test_file(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return bool(_TEST_FILE.fullmatch(name)) and (self._everywhere or (folder or ".") in self._beside)

    @staticmethod
    def noise(path: str) -> bool:
        """Left behind by ordinary work: dropped without a word."""
        return path.endswith(_NOISE_SUFFIXES) or any(part in _NOISE_NAMES for part in path.split("/"))


def _test_folder(path: str) -> str:
    """The outermost folder of tests that a path is or lies in; empty if there is none."""
    folders = [folder for folder in (*parents(path), path) if folder.rpartition("/")[2] in _TEST_FOLDERS]
    # At the root it holds tests, in a package helpers for users
    if not folders and path.startswith("testing/"):
        return "testing"
    return folders[0] if folders else ""


def _files_of(test: str, known: Collection[str]) -> list[str]:
    """The file a test id names; each it may name, if it is a JUnit class name of none that is `known`."""
    place = test.partition("[")[0].partition("::")[0]
    if "/" in place or place.endswith(".py"):
        return [str(PurePosixPath(place))]
    parts = place.split(".")
    possible = ["/".join(parts[:length]) + ".py" for length in range(1, len(parts) + 1)]
    return [path for path in possible if path in known] or possible


@dataclass(frozen=True, slots=True)
class HiddenTests:
    """Grades patches of one task.

    Attributes:
        base: folder with the task's tree as the policy got it; only read.
        suite: how its tests are run.
        fail_to_pass, pass_to_pass: the ids that must pass.
        test_patch: diff that brings the hidden tests.
        held_out: ids that are run and reported, and part of no reward.
        passing_before: fail-to-pass ids known to pass on the task's own tree; nobody is paid for them.
        most_entries, most_bytes: what an agent's tree may have more than the base.
    """

    base: Path
    suite: TestSuite
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    test_patch: str = field(default="", repr=False)
    held_out: tuple[str, ...] = ()
    passing_before: frozenset[str] = frozenset()
    most_entries: int = MOST_ENTRIES
    most_bytes: int = MOST_BYTES

    def bounds(self) -> dict[str, int]:
        """How large an agent's tree may be, as `list_tree` and `Sandbox.download` take it."""
        entries = size = 0
        for folder, folders, files in os.walk(self.base):
            entries += len(folders) + len(files)
            size += sum(os.lstat(os.path.join(folder, name)).st_size for name in files)
        return {"most_entries": entries + self.most_entries, "most_bytes": size + self.most_bytes}

    def unreadable(self, reason: object) -> TestReport:
        """The report on a tree that cannot be read: the agent's fault, and no repair."""
        return self._report(None, problem=f"the tree cannot be read: {reason}")

    def grade(self, diff: str) -> TestReport:
        """Grade a unified diff against the base; one that does not apply resolves nothing."""
        with scratch_folder("grade") as folder:
            tree = Path(folder, "tree")
            copy_tree(self.base, tree)
            try:
                apply_patch(tree, diff)
            except PatchError as error:
                return self._report(None, applied=False, problem=str(error))
            return self.grade_tree(tree)

    def grade_tree(self, tree: Path) -> TestReport:
        """Grade the tree an agent left behind: what differs from the base is its patch.

        A tree beyond `bounds`, or that cannot be read, resolves nothing.

        Raises:
            TaskError: the hidden tests do not fit the task's own tree.
            InfrastructureError: the sandbox or the test runner did not start.
        """
        start = time.monotonic()
        with scratch_folder("grade") as folder:
            graded = Path(folder, "tree")
            copy_tree(self.base, graded)
            before = list_tree(graded)
            hidden = self._add_hidden_tests(graded, before)
            protected = self._protected(hidden, before)
            try:
                carried, dropped = overlay(
                    graded, tree, protected=protected, since=before, skip=Protected.noise, **self.bounds()
                )
            except TreeError as error:
                return self.unreadable(error.strerror or error)
            run = (run_logged if self.suite.command else run_suite)(graded, self.suite)
            suspicious = _suspicious_lines(self.base, graded, carried)
        return self._report(
            run,
            dropped=tuple(path for path in dropped if not Protected.noise(path)),
            suspicious=suspicious,
            seconds=time.monotonic() - start,
            problem=run.problem,
        )

    def _protected(self, hidden: frozenset[str], before: Collection[str]) -> Callable[[str], bool]:
        """Which paths a patch may not change."""
        ids = (*self.fail_to_pass, *self.pass_to_pass, *self.held_out)
        targets = (*self.suite.targets, *self.suite.environment())
        if not self.suite.command:
            return Protected(targets, hidden, ids, before)
        targets += (*programs(self.suite.command, before), ".")
        protected = Protected(targets, hidden, ids, before)
        return lambda path: protected(path) or hides_machinery(path, self.suite, before)

    def _add_hidden_tests(self, tree: Path, before: Mapping[str, Entry]) -> frozenset[str]:
        """Apply the test patch; what it changes is found by comparing rather than by reading it."""
        try:
            apply_patch(tree, self.test_patch)
        except PatchError as error:
            raise TaskError(f"the test patch does not fit the task's tree: {error}") from None
        after = list_tree(tree)
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
        found = expected_statuses(
            run, (*self.fail_to_pass, *self.pass_to_pass, *self.held_out), self.suite.log_parser
        )
        statuses = {name: found[name] for name in self.fail_to_pass}
        for name in self.pass_to_pass:
            statuses[name] = "passed" if found[name] == "xfailed" else found[name]
        f2p = [name for name in self.fail_to_pass if statuses[name] == "passed"]
        p2p = [name for name in self.pass_to_pass if statuses[name] == "passed"]
        everything = all(status == "passed" for status in statuses.values())
        return TestReport(
            resolved=bool(statuses) and everything and not problem,
            f2p_passed=len(f2p),
            f2p_total=len(self.fail_to_pass),
            f2p_before=len(self.passing_before.intersection(f2p)),
            p2p_passed=len(p2p),
            p2p_total=len(self.pass_to_pass),
            held_out_passed=sum(found[name] == "passed" for name in self.held_out),
            held_out_total=len(self.held_out),
            applied=applied,
            tests_touched=bool(dropped),
            exit_code=run.exit_code if run else -1,
            problem=problem,
            seconds=seconds,
            statuses=statuses,
            dropped=dropped,
            suspicious=suspicious,
            output=run.output if run else "",
            channel="log" if self.suite.command else "report",
        )


def expected_statuses(run: SuiteRun | None, expected: Iterable[str], log_parser: str = "") -> dict[str, str]:
    """Status of each expected id, a node id or ``classname::name``; "missing" where it did not appear.

    An id that was cut inside its parameters, as some records have them, stands for every test that starts so: all of
    them must have passed.
    """
    if run is None or run.problem:
        return dict.fromkeys(expected, "missing")
    spelled = PYTEST_IDS.get(log_parser, str)
    by_name: dict[str, set[str]] = {}
    for node, status in run.statuses.items():
        for name in {node, junit_id(node), spelled(node)}:
            by_name.setdefault(name, set()).add(status)
    result = {}
    for name in expected:
        found = by_name.get(name, set())
        if not found and _is_cut(name):
            found = set().union(*(statuses for full, statuses in by_name.items() if full.startswith(name)))
        result[name] = _worst(found)
    return result


def _is_cut(name: str) -> bool:
    """Whether the bracket of a test's parameters does not close."""
    return "[" in name and (not name.endswith("]") or name.count("[") > name.count("]"))


def _worst(statuses: set[str]) -> str:
    bad = statuses - {"passed", "xfailed"}
    if bad or not statuses:
        return min(bad, default="missing")
    return "xfailed" if "xfailed" in statuses else "passed"


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
                if len(found) == _MOST_SUSPICIOUS:
                    return tuple(found)
    return tuple(found)
