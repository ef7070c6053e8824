"""What runs of the tests of a clean tree are worth: is the suite green, and which of its tests can be relied on?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agentgym.errors import TaskError
from agentgym.verifiers.tests import SuiteRun

SHORTEST_LIMIT_S = 300.0
LEAST_PASSING = 0.9  # of the tests that are not skipped, in each clean run

_PROGRESS = re.compile(r"[.sxXFE]*\s*(\[ *\d+%\])?\s*")  # pytest's letters

STAGES = ("fetched", "understood", "installed", "collected", "green", "stable")


class StageError(TaskError):
    """A repository cannot be prepared.

    Attributes:
        stage: the one of `STAGES` that it did not reach.
        notes: what was tried before.
    """

    def __init__(self, text: str, stage: str) -> None:
        super().__init__(text)
        self.stage = stage
        self.notes: tuple[str, ...] = ()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A `TaskError` in this block says that stage `name` was not reached."""
    try:
        yield
    except StageError:
        raise
    except TaskError as error:
        raise StageError(str(error), name) from None


def is_green(run: SuiteRun) -> bool:
    """Whether the run can be believed, and enough of its tests passed."""
    counted, red = _counted(run)
    return not run.problem and bool(counted) and len(counted) - len(red) >= LEAST_PASSING * len(counted)


def must_be_green(name: str, run: SuiteRun) -> None:
    """Refuse a run of the clean tree in which too few tests pass.

    Raises:
        StageError: says how many failed, and the first failure.
    """
    if is_green(run):
        return
    counted, red = _counted(run)
    if run.problem:
        said = [line for line in run.output.splitlines() if line.strip() and not _PROGRESS.fullmatch(line)]
        last = f"; {said[-1][:200]}" if said else ""
        raise StageError(f"{name}: its tests cannot be run: {run.problem}{last}", "collected")
    if not counted:
        raise StageError(f"{name}: all of its {len(run.statuses)} tests are skipped", "collected")
    why = (run.failures.get(red[0], ("", ""))[1].splitlines() or [""])[0][:200]
    raise StageError(
        f"{name}: {len(red)} of its {len(counted)} tests fail on the clean tree, for example {red[0]}: {why}",
        "green",
    )


def _counted(run: SuiteRun) -> tuple[list[str], list[str]]:
    """The tests that are neither skipped nor expected to fail, and those of them that did not pass."""
    counted = sorted(node for node, status in run.statuses.items() if status not in ("skipped", "xfailed"))
    return counted, [node for node in counted if run.statuses[node] != "passed"]


def stable_tests(runs: Sequence[SuiteRun]) -> tuple[frozenset[str], dict[str, str]]:
    """The tests that passed in each run, and the others with the reason."""
    nodes = sorted({node for run in runs for node in run.statuses})
    # Parameters may be numbered in the order of a set, which differs from run to run: such ids are not stable.
    shifting = {_function(node) for node in nodes if any(node not in run.statuses for run in runs)}
    stable, unstable = set(), {}
    for node in nodes:
        statuses = {run.statuses.get(node, "missing") for run in runs}
        if _function(node) in shifting:
            unstable[node] = "flaky: its id differs from run to run"
        elif len(statuses) > 1:
            unstable[node] = f"flaky: {', '.join(sorted(statuses))}"
        elif statuses == {"passed"}:
            stable.add(node)
        else:
            unstable[node] = statuses.pop()
    return frozenset(stable), unstable


def generous(seconds: float) -> float:
    """Time limit of a run: at least ten clean runs, in steps so coarse that a loaded machine gives the same."""
    return SHORTEST_LIMIT_S * 2.0 ** max(0, math.ceil(math.log2(max(seconds, 0.01) * 10 / SHORTEST_LIMIT_S)))


def _function(node: str) -> str:
    """A test without its parameters."""
    return node.partition("[")[0]
