"""What lives on from one call to the next: the shell's state, links and files that were made, protected copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

MAX_FILES = 256
"""Files whose content is remembered; the oldest is forgotten first."""
MAX_CONTENT = 256 * 1024
"""Characters of one file that are remembered; a longer one counts as unknown."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


Outer = tuple[tuple[Any, ...], tuple[Any, ...]]
"""What `ShellState.enter_subshell` remembers; opaque to callers."""


@dataclass(slots=True)
class ShellState:
    """The part of the machine that later calls can see.

    Attributes:
        cwd: where the shell is.
        previous: where `cd -` leads.
        stack: folders pushed by `pushd`, the last one first.
        variables: text of each shell variable, HOLE where unknown.
        arrays: the elements of array variables; associative ones under ``name[key]`` in `variables`.
        functions: body text of each function.
        aliases: text of each alias.
        exported: variables in the environment of programs, besides those every shell exports.
        options: shell options switched on by `shopt` and `set`.
        links: absolute path -> where it leads (links, mounts, further names).
        folders: absolute paths of folders that were made.
        copies: absolute path -> the protected path whose content it holds.
        files: content of each file written by a call; None where it is not known.
        python: names of the Python interpreter that live across calls, with their constant values.
    """

    cwd: str
    previous: str = ""
    stack: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    links: dict[str, str] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    copies: dict[str, str] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)
    python: dict[str, object] = field(default_factory=dict)

    @classmethod
    def fresh(cls, workspace: str) -> ShellState:
        """A new shell in `workspace`, with the variables every shell has."""
        parts = workspace.split("/")
        home = "/".join(parts[:3]) if parts[1:2] == ["home"] and len(parts) > 2 else "/root"
        user = home.rpartition("/")[2]
        variables = {
            "HOME": home,
            "USER": user,
            "LOGNAME": user,
            "PATH": DEFAULT_PATH,
            "SHELL": "/bin/bash",
            "BASH": "/bin/bash",
            "IFS": " \t\n",
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "OSTYPE": "linux-gnu",
            "MACHTYPE": "x86_64-pc-linux-gnu",
            "HOSTTYPE": "x86_64",
        }
        return cls(cwd=workspace, previous=workspace, variables=variables)

    def copy(self) -> ShellState:
        """An independent copy."""
        return replace(
            self,
            variables=self.variables.copy(),
            arrays=self.arrays.copy(),
            functions=self.functions.copy(),
            aliases=self.aliases.copy(),
            links=self.links.copy(),
            copies=self.copies.copy(),
            files=self.files.copy(),
            python=self.python.copy(),
        )

    def enter_subshell(self) -> Outer:
        """Remembers what a subshell cannot change, for `leave_subshell`; cheaper than `copy`."""
        outer = (
            (self.cwd, self.previous, self.stack, self.exported, self.options),
            (self.variables, self.arrays, self.functions, self.aliases),
        )
        self.variables, self.arrays = self.variables.copy(), self.arrays.copy()
        self.functions, self.aliases = self.functions.copy(), self.aliases.copy()
        return outer

    def leave_subshell(self, outer: Outer) -> None:
        """Takes back what a subshell cannot change; files, links and copies stay."""
        self.cwd, self.previous, self.stack, self.exported, self.options = outer[0]
        self.variables, self.arrays, self.functions, self.aliases = outer[1]

    def remember(self, path: str, content: str | None) -> None:
        """Notes that the file `path` now holds `content` (None: not known)."""
        self.files.pop(path, None)
        if content is not None and len(content) > MAX_CONTENT:
            content = None
        self.files[path] = content
        if len(self.files) > MAX_FILES:
            del self.files[next(iter(self.files))]
