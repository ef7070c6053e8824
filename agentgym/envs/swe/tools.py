"""What a policy can do to a repository: run commands, look, search, change files, submit."""

from __future__ import annotations

import abc
import json
import posixpath
from pathlib import Path

from agentgym.core import AgentEnv, ToolResult, tool
from agentgym.envs.swe.misses import explain_miss
from agentgym.errors import ToolError, UsageError
from agentgym.sandbox.base import ExecResult, Sandbox, Shell
from agentgym.texts import split_lines
from agentgym.verifiers.patches import LARGEST_FILE

# A command whose output begins with this line submits, as in mini-swe-agent: policies are trained on it.
SUBMIT_LINE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

_LINES_SHOWN = 400
_ENTRIES_SHOWN = 200
_MATCHES_SHOWN = 100
_SEARCH = Path(__file__).with_name("search_script.py")
_SEARCH_CODE = _SEARCH.read_text(encoding="utf-8")  # now: no step fails for want of a descriptor


class RepositoryTools(AgentEnv):
    """The tools, on whatever sandbox a subclass opens.

    Attributes:
        command_timeout: seconds one command may take.
        persistent_shell: keep one shell, so that ``cd`` and variables last.
        output_chars: longest answer of a tool; the middle is cut.
    """

    command_timeout: float
    persistent_shell: bool
    output_chars: int
    _sandbox: Sandbox | None = None
    _shell: Shell | None = None

    @property
    def sandbox(self) -> Sandbox:
        """Where the policy works."""
        if self._sandbox is None:
            raise UsageError("expected a running episode; call reset()")
        return self._sandbox

    @property
    @abc.abstractmethod
    def interpreter(self) -> str:
        """The Python in the sandbox, by its path: not every image has one that is called ``python``."""

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
        first = result.stdout.lstrip().partition("\n")[0].strip()
        if first == SUBMIT_LINE and result.exit_code == 0:
            return ToolResult(self.submit(), exit_code=0)
        return ToolResult(
            self._shown(result, timeout), error=result.exit_code != 0, exit_code=result.exit_code
        )

    @tool(read_only=True)
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
        lines = split_lines(text)
        last = min(len(lines), start + _LINES_SHOWN - 1 if end is None else end)
        if lines and not 1 <= start <= len(lines):
            raise ToolError(f"{path} has {len(lines)} lines; expected start between 1 and that, got {start}")
        shown = "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(start, last + 1))
        rest = f"\n... {len(lines) - last} more lines" if last < len(lines) else ""
        return self._cut(shown) + rest

    @tool(read_only=True)
    def search(self, pattern: str, path: str = ".", glob: str = "") -> str:
        """Search files for lines that match a regular expression (Python's); shows path, line number and line.

        Args:
            pattern: the expression.
            path: the folder or file to search, relative to the repository's root.
            glob: only files whose path or name fits this, such as ``*.py``.
        """
        _refuse_nul("a path", path)
        order = {"pattern": pattern, "path": path or ".", "glob": glob, "most": _MATCHES_SHOWN}
        timeout = max(0.1, min(self.command_timeout, self.seconds_left))
        result = self.sandbox.exec(
            [self.interpreter, "-I", "-c", _SEARCH_CODE],
            timeout=timeout,
            stdin=json.dumps(order).encode(),
        )
        if result.timed_out:
            raise ToolError(f"the search was stopped after {timeout:g} seconds")
        if result.exit_code:
            said = result.stdout if result.exit_code == 2 else result.stderr
            raise ToolError(f"cannot search: {said.strip()[-300:] or f'exit status {result.exit_code}'}")
        return self._cut(result.stdout.rstrip("\n"))

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
        if not old or text.count(old) != 1:
            raise ToolError(explain_miss(path, text, old))
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

    # -- inside ----------------------------------------------------------------------------------------------------

    def _listed(self, path: str) -> str:
        folder = posixpath.normpath(path or ".")
        start_at = f"./{folder}" if folder.startswith("-") else folder  # find would take it for an option
        command = ["find", start_at, "-maxdepth", "2"]
        command += ["-not", "-path", "*/.git/*", "-not", "-name", "*.pyc"]
        result = self.sandbox.exec(command, timeout=self.command_timeout)
        entries = sorted(split_lines(result.stdout))
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


def _refuse_nul(what: str, text: str) -> None:
    """The operating system takes texts up to the first NUL; a policy that writes one is told so."""
    if "\0" in text:
        raise ToolError(f"{what} cannot hold a NUL byte")
