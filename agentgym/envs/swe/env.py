"""SWE-v0: repair a repository; hidden tests decide."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from agentgym.core import Episode, Task, TaskSet, Verdict
from agentgym.envs.swe.builtin import builtin_records
from agentgym.envs.swe.fields import texts_of
from agentgym.envs.swe.prepare import PreparedTask, prepare
from agentgym.envs.swe.records import SweRecord, load_records
from agentgym.envs.swe.tools import SUBMIT_LINE, RepositoryTools
from agentgym.errors import SandboxError, TaskError, UsageError, flag, nearest, real_number, whole_number
from agentgym.sandbox import Sandbox, TreeError, choose_backend, machine_faults, scratch_folder
from agentgym.tasks import FrozenDict, TaskSource
from agentgym.tools import ToolCall
from agentgym.verifiers.patches import tree_diff
from agentgym.verifiers.report import REWARDS, TestReport
from agentgym.verifiers.suite import open_sandbox
from agentgym.verifiers.tests import HiddenTests, Protected

_LONGEST_DIFF = 1_000_000  # characters kept in the verdict's evidence


class SweEnv(RepositoryTools):
    """Repair a defect in a repository, with a shell and an editor; hidden tests decide.

    ## Description
    The repository lies in the working directory of a sandbox without network, as a git repository with a single
    commit. The first observation is the problem statement. The policy looks around, changes files, may run the tests
    that are there, and calls ``submit``.

    ## Actions
    Calls of the tools ``bash``, ``view``, ``search``, ``edit``, ``create``, ``submit`` in the protocol chosen. Every
    command of ``bash`` starts in the repository's root in a shell of its own, unless `persistent_shell`. With the
    protocol "bash", which knows only that tool, a command submits whose output begins with the line
    ``COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT`` and whose exit status is 0, as in mini-swe-agent; what it prints after
    that line is ignored, the tree is what counts. The command ``submit`` does the same.

    ## Observations
    What the tools answer: a command's output with its exit status where that is not 0, numbered lines of a file, what
    was changed. Long answers are cut in the middle.

    ## Reward
    0 before the end. At the end, also when turns run out, the policy's changes are taken out of the sandbox, restricted
    to files that are neither tests nor configuration, put on a fresh copy of the tree, and graded in a fresh sandbox
    with tests the policy never saw. A tree that has grown by more than 30,000 files and folders or 64 MiB, or that
    cannot be read, resolves nothing. What is paid, with `R` fail-to-pass tests that pass now out of `N` that did not
    before, and `B` pass-to-pass tests that do not pass:

    - "binary": 1.0 if the task is resolved (`R` = `N`, `B` = 0), else 0.0.
    - "fraction": ``max(0, R - B) / N``: a broken test costs what a repaired one earns.
    - "gated": ``R / N`` if `B` = 0, else 0.0.

    A policy that changes nothing gets 0 in each, and breaking more never pays more. `verdict.passed` means resolved in
    each. `verdict.components` holds the fractions of fail-to-pass (``f2p``) and pass-to-pass (``p2p``) tests passed;
    `verdict.held_out` that of the record's held-out tests, which are part of no reward.

    ## Episode end
    Terminated by ``submit``; truncated after `max_turns` (default 40) or `max_seconds`.

    ## Tasks
    `tasks` takes a path to records (JSON Lines, see docs/swe.md), records, or tasks with a record under
    ``data["record"]``. Without it (None), three small tasks that come with the package. ``agentgym swe build`` makes
    records from a source distribution.

    Args:
        tasks: see above.
        backend: of the sandbox, see `agentgym.sandbox.make_sandbox`.
        allow_unsafe: needed for the backend "process", which does not isolate.
        command_timeout: seconds one command may take, at least 0.1.
        persistent_shell: keep one shell, so that ``cd`` and variables last. `restore` starts it anew.
        output_chars: longest answer of a tool, at least 200; the middle is cut.
        hints: show the record's hints below the problem statement.
        reward: "binary", "fraction" or "gated".
        **kwargs: see `AgentEnv`.

    ## Version history
    v0: first.
    """

    default_max_turns = 40
    instructions = (
        "You repair a defect in a Python repository. Your commands run in its root folder, without network. "
        "Find the cause, change the source so that the problem is gone and nothing else breaks, then submit. "
        "Changes to tests and to configuration are ignored. You are judged by tests you cannot see."
    )
    snapshot_exclude = frozenset({"_sandbox", "_shell", "_prepared"})

    def __init__(
        self,
        *,
        tasks: TaskSource | Sequence[SweRecord] | None = None,
        backend: str = "auto",
        allow_unsafe: bool = False,
        command_timeout: float = 60.0,
        persistent_shell: bool = False,
        output_chars: int = 10_000,
        hints: bool = False,
        reward: str = "binary",
        **kwargs: Any,
    ) -> None:
        if reward not in REWARDS:
            raise UsageError(f"unknown reward {reward!r}.{nearest(reward, REWARDS)}")
        self.allow_unsafe = flag("allow_unsafe", allow_unsafe)
        choose_backend(backend, allow_unsafe=allow_unsafe)  # else a wrong name showed at the first reset only
        self.backend = backend
        self.command_timeout = real_number("command_timeout", command_timeout, least=0.1)
        self.persistent_shell = flag("persistent_shell", persistent_shell)
        self.output_chars = whole_number("output_chars", output_chars, least=200)
        self.hints = flag("hints", hints)
        self.reward = reward
        self._prepared: PreparedTask | None = None
        if tasks is None:  # and nothing else: a filter that left no tasks must not play these instead
            tasks = self.tasks or record_tasks(builtin_records(), name="builtin")
        super().__init__(tasks=tasks, **kwargs)  # type: ignore[arg-type] # `load_tasks` takes records, too

    def load_tasks(self, source: TaskSource) -> TaskSource:
        """Records from a file, a list of records, or tasks as they are."""
        if isinstance(source, str | Path):
            return record_tasks(load_records(source), name=Path(source).name)
        if any(isinstance(item, SweRecord) for item in source):
            return record_tasks(source, name="records")  # type: ignore[arg-type]
        return source

    @machine_faults("begin an episode")
    def begin(self, task: Task) -> str:
        """Prepare the task's tree (once) and open a sandbox with a copy of it."""
        record = record_of(task)
        self._prepared = self._prepare(task)
        self._open_sandbox()
        prompt = record.problem_statement
        if self.hints and record.hints_text:
            prompt += f"\n\nHints:\n{record.hints_text}"
        return prompt

    @machine_faults("grade")
    def verify(self, episode: Episode) -> Verdict:
        """Take the tree out of the sandbox and grade it somewhere else."""
        tests = self.prepared.tests
        if self._shell is not None:
            self._shell.close()  # nothing of the policy's runs on while its tree is read
            self._shell = None
        with scratch_folder("submitted") as folder:
            tree = Path(folder, "tree")
            report = self._grade(tests, tree)
            patch = _diff_for_the_record(tests.base, tree)
        return Verdict(
            report.reward(self.reward),
            report.resolved,
            report.components,
            held_out=report.held_out,
            evidence=report.evidence | ({"patch": patch} if patch else {}),
        )

    def gold(self) -> str:
        """Apply the gold patch, then submit."""
        command = f"git apply <<'END_OF_PATCH'\n{self.prepared.gold_patch}\nEND_OF_PATCH"
        repair = self._written("bash", command=command)
        done = any(turn.action == repair for turn in self.episode.turns)
        return self._written("submit") if done else repair

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Attempts on the test run instead of the defect; each ends with a submission."""
        hook = "import pytest\n@pytest.hookimpl(hookwrapper=True)\n"
        hook += "def pytest_runtest_makereport(item, call):\n"
        hook += "    out = yield\n    out.get_result().outcome = 'passed'\n"
        commands = {
            "conftest that reports success": f"cat > conftest.py <<'E'\n{hook}E\nmkdir -p tests; cp conftest.py tests/",
            "configuration that selects nothing": "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini",
            "exit status 0 before the tests": "for f in $(git ls-files '*.py' | grep -v test); do "
            "printf '\\nimport os, sys\\nif \"pytest\" in sys.modules: os._exit(0)\\n' >> $f; done",
            "tests deleted": "git ls-files | grep -i test | xargs -r rm -f",
            "start-up module": "printf 'import os; os._exit(0)\\n' | tee sitecustomize.py > usercustomize.py",
        }
        submit = self._written("submit")
        return {name: [self._written("bash", command=command), submit] for name, command in commands.items()}

    def secrets(self, task: Task) -> Sequence[str]:
        """The gold patch and the hidden tests."""
        prepared = self._prepare(task)
        return [patch for patch in (prepared.gold_patch, prepared.record.test_patch) if patch]

    def boundaries(self, task: Task) -> Mapping[str, Any]:
        """No network, no history but HEAD's, nothing of the package's later releases or its upstream.

        Tests and configuration are free to change: grading ignores what the policy did to them, and adding a test is
        good work. A record may name more in its fields `protected_paths` and `readonly_paths`, absolute or below the
        repository's root.
        """
        record, root = record_of(task), self.sandbox.workspace
        owner, _, name = record.repo.rpartition("/")
        paths = {
            key: [posixpath.join(root, path) for path in texts_of(record.extra, key)]
            for key in ("protected_paths", "readonly_paths")
        }
        return {
            "workspace": root,
            **paths,
            "network": "none",
            "package": name or None,
            "upstream": [record.repo if "/" in owner else f"github.com/{record.repo}"] if owner else [],
            "git_policy": "head",
            "fresh_shell": not self.persistent_shell,
        }

    def teardown(self) -> None:
        """Close the sandbox."""
        sandbox, self._sandbox, self._shell = self._sandbox, None, None
        if sandbox is not None:
            sandbox.close()

    def save_workspace(self) -> Any:
        """The task and the sandbox's files."""
        return self._prepared, None if self._sandbox is None else self._sandbox.snapshot()

    def load_workspace(self, saved: Any) -> None:
        """A sandbox with the files as they were; what ran in the present one is gone."""
        prepared, files = saved
        self._shell = None
        if files is None or prepared is not self._prepared:
            self.teardown()  # another task's sandbox has its variables, limits and programs
        self._prepared = prepared
        if files is not None:
            (self._sandbox or self._open_sandbox()).restore(files)
            self.episode.workspace = self._sandbox

    def __getstate__(self) -> dict[str, Any]:
        if self._sandbox is not None:
            raise TypeError("a SweEnv cannot be pickled or copied while an episode runs; use snapshot()")
        return super().__getstate__()

    @property
    def system_prompt(self) -> str:
        """The instructions and how to call the tools; with the protocol "bash" also how to submit."""
        submit = f"To submit, run the command `echo {SUBMIT_LINE}` alone."
        return "\n\n".join([super().system_prompt, *([submit] if self.protocol.name == "bash" else [])])

    @property
    def prepared(self) -> PreparedTask:
        """What the running episode's task needs."""
        if self._prepared is None:
            raise gymnasium.error.ResetNeeded(f"{type(self).__name__}: call reset() first")
        return self._prepared

    @property
    def interpreter(self) -> str:
        """The task's."""
        return str(self.prepared.tests.suite.python)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _prepare(self, task: Task) -> PreparedTask:
        partial = self.reward != "binary"
        return prepare(record_of(task), backend=self.backend, allow_unsafe=self.allow_unsafe, partial=partial)

    def _grade(self, tests: HiddenTests, tree: Path) -> TestReport:
        """What the policy left in the way of being read is its failure; only the machine's faults are ours."""
        try:
            self.sandbox.download(".", tree, skip=Protected.noise, **tests.bounds())
        except OSError as error:
            return tests.unreadable(error.strerror or error)
        try:
            return tests.grade_tree(tree)
        except OSError as error:
            raise SandboxError(f"could not grade: {error}") from error

    def _open_sandbox(self) -> Sandbox:
        suite = self.prepared.tests.suite
        limits = dataclasses.replace(
            suite.limits, wall_s=self.command_timeout, output_bytes=4 * self.output_chars
        )
        # Relative: commands start in the repository's root.
        env = {**suite.env(), "PYTHONPATH": ":".join(suite.python_path)}
        sandbox = open_sandbox(suite, self.prepared.repository, limits=limits, env=env)
        self._sandbox = self.episode.workspace = sandbox
        return sandbox

    def _written(self, name: str, **arguments: Any) -> str:
        if self.protocol.name == "bash" and name == "submit":
            name, arguments = "bash", {"command": f"echo {SUBMIT_LINE}"}
        return self.protocol.render_call(ToolCall(name, FrozenDict(arguments)))


def _diff_for_the_record(base: Path, tree: Path) -> str:
    """What the policy changed, tests and configuration included; "" where nobody would read it."""
    try:
        diff = tree_diff(base, tree) if tree.is_dir() else ""
    except TreeError:  # it has been graded as what it is: unreadable
        return ""
    return diff if len(diff) <= _LONGEST_DIFF else ""


def record_tasks(records: Sequence[SweRecord], *, name: str) -> TaskSet:
    """Tasks that carry records; a record's split is its extra field `split`, else "train"."""

    def task(record: SweRecord) -> Task:
        split = str(record.extra.get("split", "train"))
        return Task(record.instance_id, record.problem_statement, split, {"record": record})

    return TaskSet(map(task, records), name=name)


def record_of(task: Task) -> SweRecord:
    """The record a task carries."""
    record = task.data.get("record")
    if not isinstance(record, SweRecord):
        raise TaskError(
            f"task {task.id!r}: expected data['record'] to be a SweRecord, got {type(record).__name__}"
        )
    return record
