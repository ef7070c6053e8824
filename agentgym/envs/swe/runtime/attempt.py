"""Getting the environment of a source tree right: what is declared first, then what running its tests shows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from agentgym.envs.swe.runtime.clean_runs import is_green, stage
from agentgym.envs.swe.runtime.locks import locked_versions
from agentgym.envs.swe.runtime.missing import missing_distributions
from agentgym.envs.swe.runtime.names import canonical, requirement_name
from agentgym.envs.swe.runtime.project import Project, add_metadata
from agentgym.envs.swe.runtime.pythonenv import environment, resolve, wheel_of
from agentgym.envs.swe.runtime.wheels import must_be_built, take_from_wheel
from agentgym.errors import TaskError
from agentgym.sandbox import scratch_folder
from agentgym.sandbox.base import Limits
from agentgym.verifiers.tests import SuiteRun, TestSuite, run_suite

REPORT_BYTES = 64 << 20  # a suite of some hundred thousand tests
FIRST_RUN_S = 300.0  # for the tests of a tree nobody has timed yet
HANGS_AFTER_S = 60.0  # a single test, once a run has not ended
MOST_RUNS = 8  # of the tests, until they are green

Say = Callable[[str], None]


class Attempt:
    """The environment of one tree on its way: what is installed, what was added since, and what there is to tell."""

    def __init__(
        self, tree: Path, project: Project, backend: str, allow_unsafe: bool, timeout: float, say: Say
    ) -> None:
        self.tree = tree
        self.project = project
        self.say = say
        self.added: list[str] = []  # requirements that nothing declared
        self.in_vain: set[str] = set()  # missing, and not to be had
        self.constraints: tuple[str, ...] = ()
        self.hanging: list[str] = []
        self.shortened = False
        self.notes: list[str] = []
        self.pins: tuple[str, ...] = ()
        self.suite = TestSuite(
            python=Path(),
            targets=project.targets,
            python_path=(project.python_path,),
            arguments=project.arguments,
            limits=Limits(wall_s=timeout, output_bytes=REPORT_BYTES),
            backend=backend,
            allow_unsafe=allow_unsafe,
        )

    def install(self) -> None:
        """Build the tree in place where it must be built, and install what it and its tests need."""
        with stage("installed"):
            if why := must_be_built(self.tree):
                self.say(f"building it: {why}")
                self._build(why)
            add_metadata(self.tree, self.project)
            self.say("installing what the tests need")
            self._install_requirements()

    def _build(self, why: str) -> None:
        with scratch_folder("wheel") as folder:
            interpreter, version = self.project.interpreter.path, self.project.version
            wheel = wheel_of(self.tree, Path(folder, "wheel"), interpreter=interpreter, version=version)
            made = take_from_wheel(wheel, self.tree, self.project.python_path)
        self.notes.append(
            f"built in the sandbox, since {why}; added to the tree: {', '.join(made) or 'nothing'}"
        )

    def _install_requirements(self) -> None:
        """Install what is declared and added; where that cannot be had, ever less of what only the tests declare."""
        project = self.project
        needed = (*project.own_requirements, *self.added, "pytest")
        named = {requirement_name(line) for line in needed}
        others = sorted({requirement_name(line) for line in project.requirements} - named)
        ways = (
            ("", (*project.requirements, *self.added), (*project.constraints, *self.constraints)),
            ("versions of what only its tests need left open", (*needed, *others), ()),
            ("installed without what only its tests declare to need", needed, ()),
        )
        reasons = []
        for note, requirements, constraints in ways:
            try:
                self._install(requirements, constraints)
            except TaskError as error:
                reasons.append(str(error))
                continue
            if note and not self.added:
                self.notes.append(f"{note}: {reasons[0]}")
            return
        raise TaskError(reasons[0])

    def _install(self, requirements: Sequence[str], constraints: Sequence[str]) -> None:
        """Make the environment anew, of these and of nothing else."""
        interpreter, itself = self.project.interpreter.path, canonical(self.project.name)
        resolved = resolve(requirements, constraints=constraints, interpreter=interpreter)
        pins = tuple(pin for pin in resolved if requirement_name(pin) != itself)
        python = environment(pins, interpreter=interpreter, without=itself)
        self.pins, self.suite = pins, replace(self.suite, python=python)

    def first_run(self) -> SuiteRun:
        """Run the tests; do what may help while they are not green, and run them again.

        Returns:
            The first green run; if there is none, the first of all after everything missing was installed.
        """
        own = {path.stem for path in self.tree.rglob("*") if path.suffix in (".py", "")}
        remedies = iter(self._remedies())
        reported: SuiteRun | None = None
        changes: list[str] = []
        for _ in range(MOST_RUNS):
            self.say("running the tests of the clean tree")
            run = run_suite(self.tree, self.suite)
            if run.timed_out:
                if not self._shorten():
                    return run
            elif self._install_missing(run, own):
                continue
            elif is_green(run):
                if changes:
                    self.notes.append(f"green only with {changes[-1]}")
                return run
            else:
                reported = reported or run
                change = next((what for what, remedy in remedies if remedy()), "")
                if not change:
                    break
                changes.append(change)
        if changes:
            self.notes.append(f"tried in vain: {', '.join(changes)}")
        return reported or run

    def _remedies(self) -> tuple[tuple[str, Callable[[], bool]], ...]:
        """What may turn a suite green, in the order it is tried; each says whether it changed anything."""
        return (
            (
                "the versions that the project locked",
                lambda: self._change(constraints=locked_versions(self.tree)),
            ),
            ("pytest<9", lambda: self._change(added=["pytest<9"])),
            ("pytest<8", lambda: self._change(added=["pytest<8"])),
        )

    def _change(self, *, constraints: Sequence[str] = (), added: Sequence[str] = ()) -> bool:
        """Install with these instead of all that were tried before; whether that makes a difference."""
        project, before = self.project, self.pins
        others = [line for line in self.added if requirement_name(line) != "pytest"]
        try:
            self._install((*project.requirements, *others, *added), (*project.constraints, *constraints))
        except TaskError:
            return False
        self.constraints, self.added = tuple(constraints), [*others, *added]
        return self.pins != before

    def _install_missing(self, run: SuiteRun, own: Collection[str]) -> bool:
        """Whether anything was added to the environment."""
        settled = {requirement_name(line) for line in (*self.pins, *self.added)} | self.in_vain
        missing = [line for line in missing_distributions(run, own) if requirement_name(line) not in settled]
        before = self.pins
        for line in missing:
            self.say(f"installing {line}, which is missing")
            self.added.append(line)
            try:
                self._install_requirements()
            except TaskError:
                self.added.remove(line)
                self.in_vain.add(requirement_name(line))
                self.notes.append(f"missing, and not to be had: {line}")
            else:
                self.notes.append(f"missing and not declared, installed: {line}")
                if line == "pytest-asyncio":  # nobody marked the coroutines for it
                    arguments = (*self.suite.arguments, "--asyncio-mode=auto")
                    self.suite = replace(self.suite, arguments=arguments)
        return self.pins != before

    def _shorten(self) -> bool:
        """Leave out the tests that hang and the files that the time does not suffice for; whether any are left.

        That needs one more run, with a time limit for each test.
        """
        if self.shortened:
            return False
        self.shortened = True
        suite = self.suite
        self.added.append("pytest-timeout")
        self._install_requirements()
        limited = replace(self.suite, arguments=(*suite.arguments, f"--timeout={HANGS_AFTER_S:g}"))
        self.say("running them again with a time limit for each")
        run = run_suite(self.tree, limited)
        self.hanging = sorted(node for node, (_, error) in run.failures.items() if "Timeout" in error)
        deselected = (f"--deselect={node}" for node in self.hanging)
        self.suite = replace(self.suite, arguments=(*suite.arguments, *deselected))
        if self.hanging:
            self.notes.append(f"left out, since they hang: {len(self.hanging)} tests")
        if not run.timed_out:
            return True
        files = ended_files(run.statuses)
        self.suite = replace(self.suite, targets=files)
        self.notes.append(
            f"its tests take longer than {suite.limits.wall_s:g} s: only {len(files)} of the test files are used"
        )
        return bool(files)


def ended_files(nodes: Iterable[str]) -> tuple[str, ...]:
    """The first test files that make up three quarters of the tests that were run, without the file that was last.

    Args:
        nodes: ids of the tests that ended, in their order.
    """
    counts = Counter(node.partition("::")[0] for node in nodes)
    files = list(counts)[:-1]
    ends = itertools.accumulate(counts[file] for file in files)
    return tuple(file for file, end in zip(files, ends, strict=True) if end <= 0.75 * counts.total())
