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
   names made of the words of the real ones. A run that is not believed passes no id.
6. Resolved = every expected id came exactly once, as passed. Missing, skipped and errored is not passed. Time-out,
   kill and crash are failures of the patch; only a sandbox or a runner that does not start is an
   `InfrastructureError`.

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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agentgym.errors import TaskError
from agentgym.sandbox import TreeError, scratch_folder
from agentgym.verifiers.patches import Entry, PatchError, apply_patch, list_tree, overlay, parents
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
_TEST_NAME = re.compile(r"test_.*\.py|.*_test\.py|tests?")  # of files, or of folders that hold tests
_NOISE_SUFFIXES = (".pyc", ".pyo")
_MOST_SUSPICIOUS = 200  # lines kept

_SUSPICIOUS = re.compile(
    r"\b(_?pytest|unittest|_exit|atexit|sys\.modules|settrace|setprofile|_getframe|currentframe|ctypes|__builtins__"
    r"|builtins|pluggy|gc\.get_\w+|inspect\.(stack|trace)|sys\.meta_path|sitecustomize)\b|/proc/|def __eq__"
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
        sound = float(self.applied and not self.problem)
        return {
            "f2p": self.f2p_passed / max(1, self.f2p_total),
            "p2p": self.p2p_passed / self.p2p_total if self.p2p_total else sound,
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
        targets: what the test run gets. Where that is the whole tree, everything named like a test is protected.
        hidden: files the test patch brings.
        ids: the expected tests, whose files are protected wherever they lie.
        files: of the task's tree; tell which part of a JUnit class name is a file.
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
        self._paths = paths - {"."}
        self._parents = {parent for path in self._paths for parent in parents(path)}

    def __call__(self, path: str) -> bool:
        above = parents(path)
        if path in self._parents or self.noise(path) or not self._paths.isdisjoint([path, *above]):
            return True
        parts = path.split("/")
        if self._everywhere and any(_TEST_NAME.fullmatch(part) for part in parts):
            return True
        return any(part in _PROTECTED_NAMES or part.endswith(_PROTECTED_SUFFIXES) for part in parts)

    @staticmethod
    def noise(path: str) -> bool:
        """Left behind by ordinary work: dropped without a word."""
        return path.endswith(_NOISE_SUFFIXES) or any(part in _NOISE_NAMES for part in path.split("/"))


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
        most_entries, most_bytes: what an agent's tree may have more than the base.
    """

    base: Path
    suite: TestSuite
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    test_patch: str = field(default="", repr=False)
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
            ids = (*self.fail_to_pass, *self.pass_to_pass)
            protected = Protected(self.suite.targets, hidden, ids, before)
            try:
                carried, dropped = overlay(
                    graded, tree, protected=protected, since=before, skip=Protected.noise, **self.bounds()
                )
            except TreeError as error:
                return self.unreadable(error.strerror or error)
            run = run_suite(graded, self.suite)
            suspicious = _suspicious_lines(self.base, graded, carried)
        return self._report(
            run,
            dropped=tuple(path for path in dropped if not protected.noise(path)),
            suspicious=suspicious,
            seconds=time.monotonic() - start,
            problem=run.problem,
        )

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
