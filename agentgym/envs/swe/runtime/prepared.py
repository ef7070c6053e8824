"""From the source tree of a Python project to an environment in which its tests are known to pass.

`environment_for` finds out what the project needs and installs it; `prepare_runtime` also runs the tests of the clean
tree, more than once, and says which of them can be relied on. Nothing should be built on a tree that has not passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentgym.envs.swe.runtime.attempt import FIRST_RUN_S, Attempt, Say
from agentgym.envs.swe.runtime.clean_runs import StageError, generous, must_be_green, stable_tests, stage
from agentgym.envs.swe.runtime.project import Project, inspect_project
from agentgym.errors import TaskError
from agentgym.verifiers.tests import TestSuite, run_suite


@dataclass(frozen=True, slots=True)
class Runtime:
    """A source tree whose tests run.

    Attributes:
        project: the tree, understood.
        pins: what is installed in its environment: ``NAME==VERSION``, sorted.
        suite: how its tests are run; the limits come from the measured runs.
        stable: node ids of the tests that passed in each clean run.
        unstable: node id -> why it is left out, for all other tests.
        seconds: of the slowest clean run.
        notes: what was guessed, left out or built to get there.
    """

    project: Project
    pins: tuple[str, ...]
    suite: TestSuite
    stable: frozenset[str] = field(repr=False)
    unstable: Mapping[str, str] = field(repr=False)
    seconds: float
    notes: tuple[str, ...] = ()


def prepare_runtime(
    tree: Path,
    *,
    test_targets: Sequence[str] = (),
    requirements: Sequence[str] = (),
    runs: int = 2,
    version: str = "",
    timeout: float = FIRST_RUN_S,
    backend: str = "auto",
    allow_unsafe: bool = False,
    say: Say | None = None,
) -> Runtime:
    """Install what a tree's tests need and prove that they pass.

    Args:
        tree: the source tree. Metadata as of an installed package is added to it.
        test_targets: test files or folders, instead of looking for them.
        requirements: what the tests need besides what the project declares.
        runs: how often the clean tree is tested.
        version: of the project, where only its git tags tell.
        timeout: seconds for one run of the tests.
        backend: for `make_sandbox`.
        allow_unsafe: for `make_sandbox`.
        say: called with what is being done.

    Raises:
        TaskError: the tree has no tests, or fewer than `LEAST_PASSING` of them pass.
        InfrastructureError: pip or the sandbox failed.
    """
    say = say or (lambda what: None)
    with stage("understood"):
        project = inspect_project(
            tree, test_targets=tuple(test_targets), requirements=tuple(requirements), version=version
        )
    attempt = Attempt(tree, project, backend, allow_unsafe, timeout, say)
    try:
        attempt.install()
        return _runtime(attempt, runs)
    except StageError as error:
        error.notes = tuple(attempt.notes)
        raise


def _runtime(attempt: Attempt, runs: int) -> Runtime:
    """Test the clean tree of an attempt, whose environment is installed, `runs` times."""
    project = attempt.project
    outcomes = [attempt.first_run()]
    must_be_green(project.name, outcomes[0])
    for number in range(2, runs + 1):
        attempt.say(f"running the tests of the clean tree ({number} of {runs})")
        outcomes.append(run_suite(attempt.tree, attempt.suite))
        must_be_green(project.name, outcomes[-1])
    stable, unstable = stable_tests(outcomes)
    with stage("stable"):
        if not stable:
            raise TaskError(f"{project.name}: none of its tests pass in {runs} runs")
    seconds = max(run.seconds for run in outcomes)
    limits = replace(attempt.suite.limits, wall_s=generous(seconds))
    return Runtime(
        project=project,
        pins=attempt.pins,
        suite=replace(attempt.suite, limits=limits),
        stable=stable,
        unstable=unstable | dict.fromkeys(attempt.hanging, "hangs"),
        seconds=seconds,
        notes=tuple(attempt.notes),
    )


def environment_for(
    tree: Path,
    *,
    test_targets: Sequence[str] = (),
    requirements: Sequence[str] = (),
    say: Say | None = None,
) -> tuple[Project, tuple[str, ...], TestSuite]:
    """The project in a tree, the pins of its environment, and how its tests are run; none is run.

    What is missing in the environment although nothing declares it only `prepare_runtime` finds out.

    Args:
        tree: the source tree; what its build makes and metadata as of an installed package are added to it.
        test_targets: test files or folders, instead of looking for them.
        requirements: what the tests need besides what the project declares.
        say: called with what is being done.

    Raises:
        TaskError: the tree has no name, sources or tests, or what it needs cannot be had.
        InfrastructureError: pip failed.
    """
    with stage("understood"):
        project = inspect_project(tree, test_targets=tuple(test_targets), requirements=tuple(requirements))
    attempt = Attempt(tree, project, "auto", False, FIRST_RUN_S, say or (lambda what: None))
    attempt.install()
    return project, attempt.pins, attempt.suite
