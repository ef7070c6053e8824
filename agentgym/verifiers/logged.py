"""One run of a tree's tests by a command of the record's own, its results read from what it prints.

For runners other than pytest, and for interpreters too old for our own. Whatever the code under test prints is in the
same log, so this is the weaker channel, and only a record that names a `log_parser` gets it. What is done:

- The command runs alone in a fresh sandbox: the log is its output and nothing else.
- An id with one line of failure has failed, however many lines say that it passed; an id without a line is missing.
- The exit status must agree: 0 with a failure, or another one without, makes the run void, and so does a log without
  results or one that is cut.
- Neither the files that the command names nor anything called like a test is the patch's to change, nor may it bring
  modules that hide those of the standard library or of pytest.
- Where the tests are named file by file, tests that must fail stand among them (`agentgym.verifiers.canaries`). So code
  that prints results and exits has to print failures under names that it cannot know.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from agentgym.sandbox.base import ExecResult
from agentgym.verifiers.canaries import Canaries, make_canaries
from agentgym.verifiers.log_parsers import PARSERS, PYTEST_IDS
from agentgym.verifiers.suite import RUN_ENV, SuiteRun, TestSuite, open_sandbox

# `env` takes leading words such as LANG=C as variables.
_RUN = ["bash", "-c", 'exec env "$@" 2>&1', "run"]
# With what old versions of pytest import.
_MACHINERY = sys.stdlib_module_names | frozenset(
    "pytest _pytest py pluggy iniconfig packaging attr attrs six more_itertools importlib_metadata zipp tomli toml"
    " exceptiongroup typing_extensions atomicwrites wcwidth pathlib2 funcsigs colorama".split()
)
_STYLES = {**dict.fromkeys(PYTEST_IDS, "pytest"), "sympy": "functions", "tap": ""}


def _dotted(target: str) -> str:
    return target.removesuffix(".py").strip("/").replace("/", ".")


_LABELS: dict[str, Callable[[str], str]] = {
    "django": lambda target: _dotted(target.removeprefix("tests/")),  # its runner starts there
    "unittest": _dotted,
}


def label_of(target: str, log_parser: str) -> str:
    """How a runner wants to be told of a file or folder of tests."""
    return _LABELS.get(log_parser, str)(target)


def run_logged(tree: Path, suite: TestSuite) -> SuiteRun:
    """Run `suite.command` with the targets in a fresh sandbox and read its log; the folder itself is only read.

    A word ``{targets}`` of the command stands for the targets; without one they come last, unless the command is a
    line for ``bash -c``.

    Raises:
        InfrastructureError: the sandbox did not start.
    """
    canaries = _canaries(tree, suite)
    with open_sandbox(suite, tree) as sandbox:
        for path, text in canaries.files.items():
            sandbox.write(path, text)
        roots = [f"{sandbox.workspace}/{folder}".removesuffix("/.") for folder in suite.python_path]
        result = sandbox.exec(
            [*_RUN, *_command(suite, canaries)],
            timeout=suite.limits.wall_s,
            env={**suite.env(), **RUN_ENV, "PYTHONPATH": ":".join(roots)},
        )
    statuses = PARSERS[suite.log_parser](result.stdout)
    names = canaries.names()
    planted = {node: statuses.pop(node) for node in list(statuses) if not names.isdisjoint(_words_of(node))}
    return SuiteRun(
        statuses=statuses,
        failures={node: ("", "") for node, status in statuses.items() if status in ("failed", "error")},
        problem=_problem(result, statuses, planted, canaries, suite),
        exit_code=result.exit_code,
        output=result.stdout[-4000:],
        seconds=result.seconds,
        timed_out=result.timed_out,
    )


def programs(command: tuple[str, ...], files: Collection[str]) -> tuple[str, ...]:
    """The files of a tree that a command names, also inside of a line for a shell: they decide what is printed."""
    words = (word for part in command for word in re.split(r"[\s;&|<>()'\"=]+", part))
    return tuple(word for word in map(posixpath.normpath, words) if word in files)


def hides_machinery(path: str, suite: TestSuite, files: Collection[str]) -> bool:
    """Whether a new file is found by Python in place of a module of the library or of the test runner.

    Args:
        path: of the file, in the tree.
        suite: says where modules are looked for.
        files: of the task's tree, in which such a module may stand.
    """
    for folder in {".", *suite.python_path}:
        name = posixpath.relpath(path, folder).partition("/")[0]
        if name.partition(".")[0] in _MACHINERY:
            here = posixpath.normpath(posixpath.join(folder, name))
            if here not in files and not any(file.startswith(f"{here}/") for file in files):
                return True
    return False


def _takes_targets(command: Sequence[str]) -> bool:
    """Whether a command is told which tests to run: a bare ``bash -c LINE`` says it itself."""
    return len(command) != 3 or command[0] not in ("bash", "sh") or command[1] != "-c"


def _canaries(tree: Path, suite: TestSuite) -> Canaries:
    """None where the runner finds its tests by itself: it would not find these."""
    style = _STYLES.get(suite.log_parser, "unittest")
    if (
        not style
        or not _takes_targets(suite.command)
        or not all(target.partition("::")[0].endswith(".py") for target in suite.targets)
    ):
        return Canaries({}, frozenset())
    return make_canaries(tree, suite.targets, style)


def _command(suite: TestSuite, canaries: Canaries) -> list[str]:
    targets, more = list(suite.targets), list(canaries.files)
    for path in more[1:]:
        targets.insert(secrets.randbelow(len(targets) + 1), path)
    targets += more[:1]  # one comes last: code that ends the run before its time does not get there
    labels = [label_of(target, suite.log_parser) for target in targets]
    words: list[str] = []
    for word in suite.command:
        words += labels if word == "{targets}" else [word]
    return words if "{targets}" in suite.command or not _takes_targets(suite.command) else [*words, *labels]


def _words_of(node: str) -> list[str]:
    return re.findall(r"\w+", node)


def _problem(
    result: ExecResult,
    statuses: Mapping[str, str],
    planted: Mapping[str, str],
    canaries: Canaries,
    suite: TestSuite,
) -> str:
    """Why the log may not be believed; empty if it may."""
    every = {*statuses.values(), *planted.values()}
    failing = not every.isdisjoint({"failed", "error"})
    told = {word for node, status in planted.items() if status == "failed" for word in _words_of(node)}
    if result.timed_out:
        return f"the tests did not end within {suite.limits.wall_s:g} s"
    if result.truncated:
        return f"the log is longer than {suite.limits.output_bytes} bytes"
    if not every:
        return f"no test result in the log (exit status {result.exit_code})"
    if result.exit_code and not failing:
        return f"exit status {result.exit_code}, but the log shows no failure"
    if not result.exit_code and failing:
        return "exit status 0, but the log shows failures"
    if not canaries.names() <= told or "passed" in planted.values():
        return "tests that must fail did not"
    return ""
