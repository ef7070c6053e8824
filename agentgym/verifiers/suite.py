"""One run of a tree's tests with pytest in a fresh sandbox, and how much of its report may be believed.

Why it is done this way is said in `agentgym.verifiers.tests`. Other commands: `agentgym.verifiers.logged`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.errors import InfrastructureError, TaskError
from agentgym.sandbox import make_sandbox, python_binds
from agentgym.sandbox.base import ExecResult, Limits, Sandbox
from agentgym.verifiers.canaries import Canaries, make_canaries

RUNNER = Path(__file__).with_name("pytest_runner.py")

# Options of the project's own configuration that would change what runs or ask for plugins nobody needs here.
# The rest of it (which files and functions are tests, markers, asyncio mode) is the base tree's and stays.
_OVERRIDES = ("addopts=", "filterwarnings=", "required_plugins=", "minversion=", "log_cli=false", "log_file=")
CONFIG_FILES = tuple(
    "pytest.toml .pytest.toml pytest.ini .pytest.ini pyproject.toml tox.ini setup.cfg".split()
)


RUN_ENV = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True)
class TestSuite:
    """How the tests of one tree are run.

    Attributes:
        python: interpreter of the task's own environment; has pytest, not the package under test. Of the image, where
            there is one.
        targets: files and folders for pytest, relative to the tree.
        python_path: folders the package is imported from, relative to the tree.
        arguments: further pytest arguments.
        limits: of the sandbox; `wall_s` bounds the whole run.
        backend, allow_unsafe: for `make_sandbox`.
        image: the container image to run in; empty: none.
        workspace: where the tree lies in the image.
        command: what runs the tests instead of pytest's private channel, see `agentgym.verifiers.logged`.
        log_parser: how ids are written, and, with a `command`, how its output is read: a name from `PARSERS`.
    """

    __test__ = False

    python: Path
    targets: tuple[str, ...] = ("tests",)
    python_path: tuple[str, ...] = (".",)
    arguments: tuple[str, ...] = ()
    limits: Limits = field(default_factory=lambda: Limits(wall_s=300.0))
    backend: str = "auto"
    allow_unsafe: bool = False
    image: str = ""
    workspace: str = ""
    command: tuple[str, ...] = ()
    log_parser: str = ""

    def env(self) -> dict[str, str]:
        """Variables with which commands find the task's interpreter and what is installed beside it."""
        return {"PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin"}

    def environment(self) -> tuple[str, ...]:
        """The folder at the tree's root that holds the interpreter, as some images have it; empty if none does."""
        if not self.workspace or not self.python.is_relative_to(self.workspace):
            return ()
        return self.python.relative_to(self.workspace).parts[:1]


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of the tests.

    Attributes:
        statuses: pytest node id -> passed, failed, skipped, error, xfailed (failed, as the test's mark expects) or
            repeated (reported more than once).
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
        if self.problem:
            return set()
        return {node for node, status in self.statuses.items() if status == "passed"}


def junit_id(node: str) -> str:
    """The ``classname::name`` under which JUnit reports show a pytest node id."""
    address, bracket, parameters = node.partition("[")
    names = address.split("::")
    names[0] = names[0].replace("/", ".").removesuffix(".py")
    return ".".join(names[:-1]) + "::" + names[-1] + bracket + parameters


# What an image has in its workspace (history, caches, its own copy of the tree) is not the task, nor is what else may
# give the solution away: caches of packages, and the hidden tests, which R2E-Gym's images have beside the tree.
_EMPTY = """\
find . -mindepth 1 -delete || exit
for place in "$HOME/.cache/pip" "$HOME/.cache/uv" /root/.cache/pip /root/.cache/uv /r2e_tests /root/r2e_tests; do
    rm -rf "$place" 2>/dev/null
    [ ! -r "$place" ] || { echo "$place cannot be removed" >&2; exit 1; }
done
"""


def open_sandbox(
    suite: TestSuite, tree: Path, *, limits: Limits | None = None, env: Mapping[str, str] | None = None
) -> Sandbox:
    """A fresh sandbox for the suite's task whose workspace holds a copy of `tree` and nothing else.

    Args:
        suite: says which sandbox, image and interpreter.
        tree: only read.
        limits: instead of the suite's.
        env: variables for all commands.

    Raises:
        TaskError: the image's folder cannot be emptied.
        InfrastructureError: the sandbox did not start.
    """
    place: dict[str, Any] = {"image": suite.image, "workspace": suite.workspace}
    if not suite.image:
        place = {"binds": python_binds(str(suite.python))}
    sandbox = make_sandbox(
        suite.backend, limits=limits or suite.limits, allow_unsafe=suite.allow_unsafe, env=env, **place
    )
    try:
        if suite.image:
            result = sandbox.exec(_EMPTY)
            if result.exit_code:
                reason = (result.stderr.strip().splitlines() or [f"exit status {result.exit_code}"])[0]
                raise TaskError(f"image {suite.image}: {suite.workspace} cannot be emptied: {reason}")
        sandbox.upload(tree)
    except BaseException:
        sandbox.close()
        raise
    return sandbox


def run_suite(tree: Path, suite: TestSuite) -> SuiteRun:
    """Run the tests of `tree` with pytest in a fresh sandbox; the folder itself is only read.

    Raises:
        InfrastructureError: the sandbox or the runner did not start.
    """
    nonce = secrets.token_hex(16)
    canaries = make_canaries(tree, suite.targets)
    # What lies in a target folder is found there, like the tests around it, and being named would give it away.
    folders = tuple(f"{target}/".removeprefix("./") for target in suite.targets if (tree / target).is_dir())
    found = [path for path in canaries.files if path.startswith(folders)]
    named = [path for path in canaries.files if path not in found]
    with open_sandbox(suite, tree) as sandbox:
        for path, text in canaries.files.items():
            sandbox.write(path, text)
        root = sandbox.workspace
        order = {
            "nonce": nonce,
            "root": root,
            "python_path": suite.python_path,
            "tests": [target.partition("::")[0] for target in suite.targets],
            "files": found,
            "arguments": _pytest_arguments(tree, suite, root, named),
        }
        result = sandbox.exec(
            [str(suite.python), "-s", "-c", RUNNER.read_text()],
            timeout=suite.limits.wall_s,
            # What an image's own PYTHONPATH names comes before the library; the runner puts it behind.
            env={**suite.env(), **RUN_ENV, "PYTHONPATH": ""},
            cwd="/",
            stdin=(json.dumps(order) + "\n").encode(),
        )
    return _read_run(result, nonce, canaries, suite)


def _pytest_arguments(tree: Path, suite: TestSuite, root: str, more: Sequence[str]) -> list[str]:
    # With "append" a test folder does not come first on the import path either.
    options = ["-q", "--continue-on-collection-errors", "--import-mode=append", "--color=no"]
    options += ["-p", "no:cacheprovider"]
    name = _config_file(tree)
    options += ["-c", f"{root}/{name}" if name else "/dev/null", f"--rootdir={root}"]
    for override in _OVERRIDES:
        options += ["-o", override]
    return [*options, *suite.arguments, "--maxfail=0", *_mixed(suite.targets, more)]


def _mixed(targets: Sequence[str], more: Sequence[str]) -> list[str]:
    """`targets` in their order, the others at places of chance among them."""
    result = list(targets)
    for entry in more:
        result.insert(secrets.randbelow(len(result) + 1), entry)
    return result


def _config_file(tree: Path) -> str:
    """Name of the project's own pytest configuration, chosen as pytest would, never outside the tree; else empty."""
    tables = {"pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}
    for name in CONFIG_FILES:
        path = tree / name
        if path.is_file() and tables.get(name, "") in path.read_text(encoding="utf-8", errors="replace"):
            return name
    return ""


def _read_run(result: ExecResult, nonce: str, canaries: Canaries, suite: TestSuite) -> SuiteRun:
    output = result.stderr[-4000:]
    lines = [line.removeprefix(nonce) for line in result.stdout.splitlines() if line.startswith(nonce)]
    if not lines and not result.timed_out:
        raise InfrastructureError(
            f"the test runner did not start (exit status {result.exit_code}): {output[-500:].strip()}"
        )
    statuses: dict[str, str] = {}
    failures: dict[str, tuple[str, str]] = {}
    tampered: set[str] = set()
    end: dict[str, Any] | None = None
    garbage = result.truncated or len(lines) != len(result.stdout.splitlines())
    for line in lines:
        try:
            event = json.loads(line)
            if end is not None:
                garbage = True  # nothing comes after the end
            elif "test" in event:
                node = str(event["test"])
                statuses[node] = "repeated" if node in statuses else str(event["status"])
                failures[node] = (str(event.get("statement", "")), str(event.get("error", "")))
                tampered.update(map(str, event.get("tampered", [])))
            elif "collect_error" in event:
                node = str(event["collect_error"])
                statuses[node] = "error"
                failures[node] = ("", str(event["error"]))
            elif "end" in event:
                end = {"end": int(event["end"]), "foreign": [str(name) for name in event["foreign"]]}
        except (ValueError, TypeError, KeyError, AttributeError):  # the tested code got hold of the nonce
            garbage = True
    planted = {
        node: statuses.pop(node) for node in list(statuses) if node.partition("::")[0] in canaries.files
    }
    for node in planted:
        failures.pop(node)
    if result.timed_out:
        problem = f"the tests did not end within {suite.limits.wall_s:g} s"
    elif garbage:
        problem = "something else was written to the report"
    elif end is None:
        problem = f"the test run broke off (exit status {result.exit_code})"
    elif end["end"] != result.exit_code or result.exit_code != 1:
        problem = f"exit status {result.exit_code} does not agree with the report"
    elif not canaries.all_failed(planted):
        problem = f"tests that must fail did not: {sorted(planted.values())}"
    elif tampered:
        problem = f"the test machinery was replaced: {', '.join(sorted(tampered)[:5])}"
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
