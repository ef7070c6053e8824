"""SWE-v0: repair a repository; hidden tests decide."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.core import AgentEnv, Episode, Task, TaskSet, ToolResult, Verdict, tool
from agentgym.envs.swe.builtin import builtin_records
from agentgym.envs.swe.prepare import PreparedTask, prepare
from agentgym.envs.swe.records import SweRecord, load_records
from agentgym.errors import SandboxError, TaskError, ToolError, UsageError
from agentgym.sandbox import make_sandbox, python_binds, scratch_folder
from agentgym.sandbox.base import MACHINE_ERRORS, ExecResult, Sandbox, Shell
from agentgym.tasks import FrozenDict, TaskSource
from agentgym.tools import ToolCall
from agentgym.verifiers.patches import LARGEST_FILE
from agentgym.verifiers.tests import HiddenTests, Protected, TestReport

_LINES_SHOWN = 400
_ENTRIES_SHOWN = 200


class SweEnv(AgentEnv):
    """Repair a defect in a repository, with a shell and an editor; hidden tests decide.

    ## Description
    The repository lies in the working directory of a sandbox without network, as a git repository with a single
    commit. The first observation is the problem statement. The policy looks around, changes files, may run the tests
    that are there, and calls ``submit``.

    ## Actions
    Calls of the tools ``bash``, ``view``, ``edit``, ``create``, ``submit`` in the protocol chosen. Every command of
    ``bash`` starts in the repository's root in a shell of its own, unless `persistent_shell`; with the protocol
    "bash", which knows only that tool, the command ``submit`` submits.

    ## Observations
    What the tools answer: a command's output with its exit status where that is not 0, numbered lines of a file, what
    was changed. Long answers are cut in the middle.

    ## Reward
    0 before the end. At the end, also when turns run out, 1.0 if the policy's changes resolve the task, else 0.0: they
    are taken out of the sandbox, restricted to files that are neither tests nor configuration, put on a fresh copy of
    the tree, and graded in a fresh sandbox with tests the policy never saw. A tree that has grown by more than 30,000
    files and folders or 64 MiB, or that cannot be read, resolves nothing. `verdict.components` holds the fractions of
    fail-to-pass (``f2p``) and pass-to-pass (``p2p``) tests passed.

    ## Episode end
    Terminated by ``submit``; truncated after `max_turns` (default 40) or `max_seconds`.

    ## Tasks
    `tasks` takes a path to records (JSON Lines, see docs/swe.md), records, or tasks with a record under
    ``data["record"]``. Without it, three small tasks that come with the package. ``agentgym swe build`` makes records
    from a source distribution.

    Args:
        backend: of the sandbox, see `agentgym.sandbox.make_sandbox`.
        allow_unsafe: needed for the backend "process", which does not isolate.
        command_timeout: seconds one command may take.
        persistent_shell: keep one shell, so that ``cd`` and variables last. `restore` starts it anew.
        output_chars: longest answer of a tool; the middle is cut.
        hints: show the record's hints below the problem statement.
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
        backend: str = "auto",
        allow_unsafe: bool = False,
        command_timeout: float = 60.0,
        persistent_shell: bool = False,
        output_chars: int = 10_000,
        hints: bool = False,
        **kwargs: Any,
    ) -> None:
        if command_timeout <= 0 or output_chars < 200:
            raise UsageError(
                f"expected command_timeout > 0 and output_chars >= 200, got {command_timeout} and {output_chars}"
            )
        self.backend = backend
        self.allow_unsafe = allow_unsafe
        self.command_timeout = command_timeout
        self.persistent_shell = persistent_shell
        self.output_chars = output_chars
        self.hints = hints
        self._sandbox: Sandbox | None = None
        self._shell: Shell | None = None
        self._prepared: PreparedTask | None = None
        super().__init__(**kwargs)

    def load_tasks(self, source: TaskSource) -> TaskSource:
        """Records from a file, a list of records, or tasks as they are."""
        if isinstance(source, str | Path):
            return record_tasks(load_records(source), name=Path(source).name)
        if not source:
            return record_tasks(builtin_records(), name="builtin")
        if any(isinstance(item, SweRecord) for item in source):
            return record_tasks(source, name="records")  # type: ignore[arg-type]
        return source

    def begin(self, task: Task) -> str:
        """Prepare the task's tree (once) and open a sandbox with a copy of it."""
        record = record_of(task)
        self._prepared = prepare(record, backend=self.backend, allow_unsafe=self.allow_unsafe)
        self._open_sandbox().upload(self._prepared.repository)
        prompt = record.problem_statement
        if self.hints and record.hints_text:
            prompt += f"\n\nHints:\n{record.hints_text}"
        return prompt

    @tool
    def bash(self, command: str) -> ToolResult:
        """Run a shell command in the repository's root and return what it prints.

        Args:
            command: the command; may have several lines.
        """
        if command.strip() == "submit":
            return ToolResult(self.submit())
        _refuse_nul("a command", command)
        timeout = max(0.1, min(self.command_timeout, self.seconds_left))
        if self.persistent_shell:
            if self._shell is None:
                self._shell = self.sandbox.shell()
            result = self._shell.run(command, timeout=timeout)
        else:
            result = self.sandbox.exec(command, timeout=timeout)
        return ToolResult(
            self._shown(result, timeout), error=result.exit_code != 0, exit_code=result.exit_code
        )

    @tool
    def view(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Show a file with line numbers, or list a folder.

        Args:
            path: relative to the repository's root.
            start: first line to show.
            end: last line to show; by default 400 lines from the first.
        """
        _refuse_nul("a path", path)
        try:
            text = self._read(path)
        except IsADirectoryError:
            return self._listed(path)
        lines = text.splitlines()
        last = min(len(lines), start + _LINES_SHOWN - 1 if end is None else end)
        if lines and not 1 <= start <= len(lines):
            raise ToolError(f"{path} has {len(lines)} lines; expected start between 1 and that, got {start}")
        shown = "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(start, last + 1))
        rest = f"\n... {len(lines) - last} more lines" if last < len(lines) else ""
        return self._cut(shown) + rest

    @tool
    def edit(self, path: str, old: str, new: str) -> str:
        """Replace a piece of a file's text. The old text must occur exactly once, white space included.

        Args:
            path: relative to the repository's root.
            old: the text to replace.
            new: the text to put there.
        """
        _refuse_nul("a path", path)
        try:
            text = self._read(path, exact=True)
        except IsADirectoryError:
            raise ToolError(f"{path} is a folder") from None
        count = text.count(old) if old else 0
        if count != 1:
            raise ToolError(f"expected the old text to occur exactly once in {path}, it occurs {count} times")
        self._write(path, text.replace(old, new))
        line = text[: text.index(old)].count("\n") + 1
        return f"Edited {path} at line {line}."

    @tool
    def create(self, path: str, content: str) -> str:
        """Make a new file.

        Args:
            path: relative to the repository's root.
            content: the file's text.
        """
        _refuse_nul("a path", path)
        if self._exists(path):
            raise ToolError(f"{path} exists already; change it with edit")
        self._write(path, content)
        return f"Created {path}."

    @tool
    def submit(self) -> str:
        """Hand in the repository as it is now. This ends the task."""
        self.finish()
        return "Submitted."

    def verify(self, episode: Episode) -> Verdict:
        """Take the tree out of the sandbox and grade it somewhere else."""
        assert self._prepared is not None
        if self._shell is not None:
            self._shell.close()  # nothing of the policy's runs on while its tree is read
            self._shell = None
        with scratch_folder("submitted") as folder:
            tree = Path(folder, "tree")
            report = self._grade(self._prepared.tests, tree)
        return Verdict(report.score, report.resolved, report.components, evidence=report.evidence)

    def gold(self) -> str:
        """Apply the gold patch, then submit."""
        assert self._prepared is not None
        command = f"git apply <<'END_OF_PATCH'\n{self._prepared.gold_patch}\nEND_OF_PATCH"
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
        prepared = prepare(record_of(task), backend=self.backend, allow_unsafe=self.allow_unsafe)
        return [patch for patch in (prepared.gold_patch, prepared.record.test_patch) if patch]

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
        self._prepared, files = saved
        self._shell = None
        if files is None:
            self.teardown()
        else:
            (self._sandbox or self._open_sandbox()).restore(files)
            self.episode.workspace = self._sandbox

    def __getstate__(self) -> dict[str, Any]:
        if self._sandbox is not None:
            raise TypeError("a SweEnv cannot be pickled or copied while an episode runs; use snapshot()")
        return super().__getstate__()

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def sandbox(self) -> Sandbox:
        """Where the policy works."""
        if self._sandbox is None:
            raise UsageError("expected a running episode; call reset()")
        return self._sandbox

    def _grade(self, tests: HiddenTests, tree: Path) -> TestReport:
        """What the policy left in the way of being read is its failure; only the machine's faults are ours."""
        try:
            self.sandbox.download(".", tree, skip=Protected.noise, **tests.bounds())
        except OSError as error:
            if error.errno not in MACHINE_ERRORS:
                return tests.unreadable(error.strerror or error)
            raise SandboxError(f"could not take the tree out of the sandbox: {error}") from error
        try:
            return tests.grade_tree(tree)
        except OSError as error:
            raise SandboxError(f"could not grade: {error}") from error

    def _open_sandbox(self) -> Sandbox:
        assert self._prepared is not None
        suite = self._prepared.tests.suite
        output_bytes = 4 * self.output_chars
        sandbox = make_sandbox(
            self.backend,
            limits=dataclasses.replace(suite.limits, wall_s=self.command_timeout, output_bytes=output_bytes),
            allow_unsafe=self.allow_unsafe,
            binds=python_binds(str(suite.python)),
            env={
                "PATH": f"{suite.python.parent}:/usr/local/bin:/usr/bin:/bin",
                # Relative: commands start in the repository's root.
                "PYTHONPATH": ":".join(suite.python_path),
            },
        )
        self._sandbox = self.episode.workspace = sandbox
        return sandbox

    def _listed(self, path: str) -> str:
        folder = posixpath.normpath(path or ".")
        start_at = f"./{folder}" if folder.startswith("-") else folder  # find would take it for an option
        command = ["find", start_at, "-maxdepth", "2"]
        command += ["-not", "-path", "*/.git/*", "-not", "-name", "*.pyc"]
        result = self.sandbox.exec(command, timeout=self.command_timeout)
        entries = sorted(result.stdout.splitlines())
        if not entries or result.timed_out:  # also of an empty folder it says the name
            reason = "it took too long" if result.timed_out else result.stderr.strip()
            raise ToolError(f"cannot list {path}: {reason or f'exit status {result.exit_code}'}")
        more = [f"... {len(entries) - _ENTRIES_SHOWN} more"] if len(entries) > _ENTRIES_SHOWN else []
        if result.exit_code:  # a folder in it that may not be read
            more.append(f"[incomplete: {result.stderr.strip()[:200]}]")
        return "\n".join(entries[:_ENTRIES_SHOWN] + more)

    def _exists(self, path: str) -> bool:
        """Whether a path is taken; asked of the files, as a command may not even start in a spoilt sandbox."""
        try:
            self.sandbox.read(path, most=0)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError as error:
            raise ToolError(f"cannot create {path}: {error.strerror or error}") from None
        except OSError:  # a folder, a pipe, a file with content
            return True
        return True

    def _read(self, path: str, *, exact: bool = False) -> str:
        try:
            content = self.sandbox.read(path, most=LARGEST_FILE)
            return content.decode("utf-8", "strict" if exact else "replace")
        except UnicodeDecodeError:
            raise ToolError(f"{path} is not UTF-8 text; change it with a shell command") from None
        except FileNotFoundError:
            raise ToolError(f"there is no file {path}") from None
        except (PermissionError, OSError) as error:
            if isinstance(error, IsADirectoryError):
                raise
            raise ToolError(f"cannot read {path}: {error.strerror or error}") from None

    def _write(self, path: str, text: str) -> None:
        try:
            self.sandbox.write(path, text)
        except OSError as error:
            raise ToolError(f"cannot write {path}: {error.strerror or error}") from None

    def _shown(self, result: ExecResult, timeout: float) -> str:
        text = self._cut((result.stdout + result.stderr).rstrip("\n"))
        notes = []
        if result.timed_out:
            notes.append(f"[stopped after {timeout:g} seconds]")
        elif result.exit_code:
            notes.append(f"[exit status {result.exit_code}]")
        return "\n".join([*([text] if text else []), *notes]) or "[no output]"

    def _cut(self, text: str) -> str:
        if len(text) <= self.output_chars:
            return text
        half = self.output_chars // 2
        return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"

    def _written(self, name: str, **arguments: Any) -> str:
        if self.protocol.name == "bash" and name == "submit":
            name, arguments = "bash", {"command": "submit"}
        return self.protocol.render_call(ToolCall(name, FrozenDict(arguments)))


def _refuse_nul(what: str, text: str) -> None:
    """The operating system takes texts up to the first NUL; a policy that writes one is told so."""
    if "\0" in text:
        raise ToolError(f"{what} cannot hold a NUL byte")


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
