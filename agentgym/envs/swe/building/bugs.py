"""Bugs for a tree whose tests pass: where one can be put, and whether the tests notice it.

Every bug is tried alone first. Several in one task are put together from bugs that the tests notice one by one, so each
of them has to be found: a tree with any of them left fails.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentgym.envs.swe.building.candidates import KEPT, Candidate, Outcome, digest, tree_digest
from agentgym.envs.swe.building.changes import in_library
from agentgym.envs.swe.building.mutations import Site, apply, find_sites, overlap
from agentgym.envs.swe.building.statements import Failure, failures_of
from agentgym.envs.swe.repo import tree_diff
from agentgym.envs.swe.runtime.prepared import Runtime
from agentgym.envs.swe.runtime.project import Project, library_files
from agentgym.errors import TaskError
from agentgym.verifiers.tests import TestSuite, copy_tree, run_suite

MOST_FAILING = 0.3  # of the tests; a bug that breaks more of them is no subtle one
RUNS = 2  # of the tests with a bug, to find the flaky ones
SHORTEST_RUN_S = 20.0  # that a run with a bug may take; at least six clean runs otherwise

ANYWHERE, ONE_FILE, SEVERAL_FILES = "any", "file", "files"
SPREADS = (ANYWHERE, ONE_FILE, SEVERAL_FILES)

Place = tuple[str, Site]  # a file and where in it


@dataclass(frozen=True, slots=True)
class Bug:
    """A defect that the tests notice, or several, and how.

    Attributes:
        places: of the defects.
        patch: that makes them.
        fail_to_pass, pass_to_pass: the tests that do and do not notice, the same in each run.
        failures: of the first, as far as they left an error.
    """

    places: tuple[Place, ...]
    patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    failures: tuple[Failure, ...]

    @property
    def files(self) -> list[str]:
        """The files with a defect, sorted."""
        return sorted({file for file, _ in self.places})


class Bench:
    """A clean tree and its tests, to try bugs on.

    Args:
        tree: as `prepare_runtime` left it.
        runtime: what that said.
        work: a folder for copies of the tree.
    """

    def __init__(self, tree: Path, runtime: Runtime, work: Path) -> None:
        self._tree, self._work = tree, work
        self._stable = runtime.stable
        limits = replace(runtime.suite.limits, wall_s=max(SHORTEST_RUN_S, 6 * runtime.seconds))
        self._suite: TestSuite = replace(runtime.suite, limits=limits)
        suite = (runtime.pins, runtime.suite.targets, runtime.suite.arguments, sorted(runtime.stable))
        self._key = digest("bugs", tree_digest(tree), suite, RUNS, MOST_FAILING)

    def candidate(self, *places: Place) -> Candidate:
        """The bugs at these places, all in one tree."""
        parts = [[file, site.start, site.end, site.replacement.decode()] for file, site in places]
        label = " and ".join(f"{site.kind} in {file}, line {site.line}" for file, site in places)
        return Candidate(digest(self._key, *parts), label, lambda: self._attempt(places))

    def _attempt(self, places: Sequence[Place]) -> Outcome:
        """Whether the tests notice, without too many of them doing so, and the same ones each time."""
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            broken = Path(folder, "tree")
            copy_tree(self._tree, broken)
            try:
                for file in {file for file, _ in places}:
                    sites = [site for other, site in places if other == file]
                    (broken / file).write_bytes(apply((self._tree / file).read_bytes(), *sites))
            except ValueError as error:
                return Outcome("no other program", str(error))
            runs = []
            for _ in range(RUNS):
                runs.append(run_suite(broken, self._suite))
                if runs[-1].problem:
                    return Outcome("never ends" if runs[-1].timed_out else "breaks the run", runs[-1].problem)
                if not self._stable - runs[-1].passed():
                    return Outcome("not noticed")
                if len(self._stable - runs[-1].passed()) > MOST_FAILING * len(self._stable):
                    return Outcome("too broad", f"more than {MOST_FAILING:.0%} of the tests fail")
            patch = tree_diff(self._tree, broken)
        passed = [run.passed() for run in runs]
        failing = sorted(self._stable.difference(*passed))
        reported = set(runs[0].statuses)
        if any(node not in reported and node.partition("::")[0] not in reported for node in failing):
            return Outcome("tests vanish", "some are not reported any more: their ids are not stable")
        failures = failures_of(runs[0], failing)
        if not failures:
            return Outcome("nothing to tell", "tests are skipped, or fail in some runs only")
        data = {
            "patch": patch,
            "fail_to_pass": failing,
            "pass_to_pass": sorted(self._stable.intersection(*passed)),
            "failures": failures,
        }
        return Outcome(KEPT, f"{len(failing)} tests fail", data)


def bug_of(places: Sequence[Place], data: Any) -> Bug:
    """The bug that a kept outcome's data tell."""
    return Bug(
        places=tuple(places),
        patch=data["patch"],
        fail_to_pass=tuple(data["fail_to_pass"]),
        pass_to_pass=tuple(data["pass_to_pass"]),
        failures=tuple(Failure(*failure) for failure in data["failures"]),
    )


def places_for_bugs(tree: Path, project: Project, rng: random.Random, spread: str) -> Iterator[Place]:
    """All places for a bug, in random order, with kinds and, unless bugs shall meet in one, files taking turns.

    Raises:
        TaskError: there is none, or all sources lie in this Python's library too.
    """
    library = library_files()
    files = [file for file in project.sources if not in_library(file, library)]
    if not files:
        raise TaskError(
            f"{project.name}: this Python's own library holds a copy of it, where a policy could look up the original"
        )
    places = [(file, site) for file in files for site in find_sites((tree / file).read_bytes())]
    if not places:
        raise TaskError(f"{project.name}: no place for a bug was found in its sources")
    rng.shuffle(places)
    used: Counter[str] = Counter()

    def turn(index: int) -> tuple[int, int]:
        file, site = places[index]
        return used[site.kind] + (0 if spread == ONE_FILE else used[file]), index

    while places:
        file, site = places.pop(min(range(len(places)), key=turn))
        used.update([file, site.kind])
        yield file, site


def group(pool: Sequence[Bug], size: int, spread: str) -> list[Bug]:
    """The first `size` bugs of the pool that can be put together as wanted; empty if there are not so many."""
    for first in pool:
        chosen: list[Bug] = []
        for bug in [first, *pool]:
            if len(chosen) < size and _fits(bug, chosen, spread):
                chosen.append(bug)
        if len(chosen) == size:
            return chosen
    return []


def _fits(bug: Bug, chosen: Sequence[Bug], spread: str) -> bool:
    ((file, site),) = bug.places
    others = [place for other in chosen for place in other.places]
    same = [other for name, other in others if name == file]
    if spread == SEVERAL_FILES and same:
        return False
    if spread == ONE_FILE and len(same) < len(others):
        return False
    return not any(overlap(site, other) for other in same)
