"""What all readers of one call share: the state they follow, the effects they find, and the bounds they stay within."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from agentgym.monitor import paths
from agentgym.monitor.context import Context
from agentgym.monitor.effects import HOLE, Effect, Kind
from agentgym.monitor.globs import matches_path
from agentgym.monitor.state import ShellState

if TYPE_CHECKING:
    from agentgym.monitor.shell import Shell

    MakeShell = Callable[["Analysis", Sequence[str], str], Shell]
    RunProgram = Callable[["Analysis", str, str], str]

MAX_EFFECTS = 1000
MAX_STEPS = 400
"""Commands (loops and functions unrolled) that one call may be followed through."""
MAX_DEPTH = 12
"""How deep programs may start each other: eval, sh -c, scripts, functions."""

SUBSTITUTION = "/dev/fd/sub"
"""How the paths of process substitutions begin; what runs inside was said when it was folded."""
_IGNORED = frozenset(
    ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/urandom")
)


class Analysis:
    """One call on its way to effects.

    Attributes:
        context: the policy.
        state: the machine as the call finds and leaves it.
        effects: what was found so far.
        make_shell: starts a shell with its positional parameters and standard input.
        run_program: reads a program in a language as if it ran; gives what it prints.
        exhausted: the call has had its share; what is left of it was not followed.
        file: the program file that is being read; "" for what stands in the call itself.
        decoders: how many decoders were computed; a command built with one has the origin "decoded".
    """

    def __init__(self, context: Context, state: ShellState, make_shell: MakeShell, run: RunProgram) -> None:
        self.context = context
        self.make_shell: Callable[[Sequence[str], str], Shell] = partial(make_shell, self)
        self.run_program: Callable[[str, str], str] = partial(run, self)
        self.state = state
        self.effects: list[Effect] = []
        self.decoders = 0
        self.steps = 0
        self.exhausted = False
        self.depth = 0
        self.file = ""
        self._origin = ""
        self._background = False
        self._given_up: set[str] = set()

    def emit(
        self,
        kind: Kind,
        target: str,
        program: str = "",
        detail: tuple[str, ...] = (),
        content: str | None = None,
        *,
        deep: bool = False,
        folder: str = "",
        origin: str = "",
    ) -> None:
        """Adds one effect; `certain` follows from the holes in `target`."""
        if len(self.effects) >= MAX_EFFECTS:
            self.exhausted = True
            return
        effect = Effect(
            kind,
            target,
            program,
            detail,
            content,
            HOLE not in target,
            deep,
            folder,
            self._background,
            self._origin or origin,
        )
        if not self.effects or self.effects[-1] != effect:
            self.effects.append(effect)

    def give_up(self, what: str) -> None:
        """Says once that something was not understood: "syntax", "depth", "size", "unresolved" or "fault".

        A program that is only written may be in any state; that it cannot be read is no sign.
        """
        if what not in self._given_up and not self.is_supposed:
            self._given_up.add(what)
            self.effects.append(Effect("opaque", what))

    def step(self) -> bool:
        """Counts one command; False when the call has had its share."""
        self.steps += 1
        self.exhausted = self.exhausted or self.steps > MAX_STEPS
        return not self.exhausted

    @contextmanager
    def deeper(self, origin: str = "") -> Iterator[bool]:
        """One program inside another, whose effects have `origin`; gives False where it is too deep to follow."""
        before = self._origin
        self.depth += 1
        self._origin = before or origin
        if self.depth > MAX_DEPTH:
            self.give_up("depth")
        try:
            yield self.depth <= MAX_DEPTH
        finally:
            self.depth -= 1
            self._origin = before

    @contextmanager
    def later(self) -> Iterator[None]:
        """What is found inside goes on in the background."""
        before, self._background = self._background, True
        try:
            yield
        finally:
            self._background = before

    @contextmanager
    def supposed(self, file: str) -> Iterator[None]:
        """What is found inside would be done if the program `file`, only written now, were run; the state stays."""
        state, origin, outer = self.state, self._origin, self.file
        self.state, self._origin, self.file = state.copy(), "written", file
        self.state.cwd = self.context.workspace
        try:
            yield
        finally:
            self.state, self._origin, self.file = state, origin, outer

    @property
    def is_supposed(self) -> bool:
        """Whether what is read now is only written, not run."""
        return self._origin == "written"

    def mark_background(self, start: int) -> None:
        """Says of the effects from `start` on that they go on in the background."""
        self.effects[start:] = [effect._replace(background=True) for effect in self.effects[start:]]

    def locate(self, path: str, *, copies: bool = True) -> tuple[str, str]:
        """Where `path` leads, and how ("", "link", "proc", "copy"). A path that starts unknown stays as it is.

        Args:
            path: as it is written.
            copies: a copy of something protected stands for the original, as for whoever reads it.
        """
        if path.startswith(HOLE):
            return path, ""
        state = self.state
        target = paths.resolve(path, state.cwd, state.links)
        origin = ""
        if "/proc/" in path and not target.startswith("/proc/"):
            origin = "proc"
        elif state.links and target != paths.join(state.cwd, path):
            origin = "link"
        if copies and state.copies and (owner := paths.longest_owner(target, state.copies)):
            return paths.normalise(state.copies[owner] + target[len(owner) :]), "copy"
        return target, origin

    def glob(self, pattern: str) -> list[str]:
        """The paths that a glob stands for: those of the policy, files made earlier, and the rest as it is written."""
        state = self.state
        if pattern.startswith(HOLE):  # could be anywhere
            return [pattern]
        absolute = paths.normalise(pattern if pattern.startswith("/") else f"{state.cwd}/{pattern}")
        found: list[str] = []
        for owner in (*self.context.protected_paths, *state.links, *state.copies):
            below = paths.matches_below(absolute, owner, hidden="dotglob" in state.options)
            if below is not None and below not in found:
                found.append(below)
        if not found and state.files:
            found.extend(path for path in state.files if matches_path(absolute, path))
        if not found:
            return [pattern]
        # What the pattern also matches stays visible, unless it was pinned to one path in full; beside a file or link
        # of the policy's own, something read-only may be meant as well.
        pinned = all("*" not in f and "?" not in f for f in found)
        own = self.context.protection_of(found[0]) != "protected"
        return (
            found if pinned and not (own and self.context.reaches_readonly(absolute)) else [*found, pattern]
        )

    def is_inside_protected(self, path: str) -> bool:
        """Whether the absolute `path` lies below something protected, not only at it."""
        return self.context.protection_of(paths.parent(path)) == "protected"

    def read(
        self, path: str, program: str, detail: tuple[str, ...] = (), *, deep: bool = False, origin: str = ""
    ) -> None:
        """`program` reads `path`."""
        target, how = self.locate(path)
        if path and target not in _IGNORED and not target.startswith(SUBSTITUTION):
            self.emit("read", target, program, detail, deep=deep, origin=how or origin)

    def look(
        self, path: str, program: str, detail: tuple[str, ...] = (), *, deep: bool = False, origin: str = ""
    ) -> None:
        """`program` lists or measures `path`."""
        target, how = self.locate(path)
        if path and target not in _IGNORED:
            self.emit("list", target, program, detail, deep=deep, origin=how or origin)

    def delete(self, path: str, program: str, *, deep: bool = False, origin: str = "") -> None:
        """`program` removes `path`."""
        if not path:
            return
        target, how = self.locate(path, copies=False)
        self.emit("delete", target, program, deep=deep, origin=how or origin)
        self.state.files.pop(target, None)
        self.state.copies.pop(target, None)
        self.state.links.pop(paths.join(self.state.cwd, path), None)

    def write(
        self,
        path: str,
        program: str,
        content: str | None = None,
        detail: tuple[str, ...] = (),
        *,
        deep: bool = False,
        origin: str = "",
    ) -> str:
        """`program` writes `path`; returns where that is. New content is remembered as far as it is known."""
        target, how = self.locate(path, copies=False)
        if target in _IGNORED or target.startswith(SUBSTITUTION):
            return target
        self.emit("write", target, program, detail, content, deep=deep, origin=how or origin)
        if detail[:1] == ("edit",):
            self._edit(target, detail)
        elif detail[:1] == ("append",):
            before = self.state.files.get(target, HOLE if target not in self.state.files else None)
            known = before is not None and content is not None
            self.state.remember(target, f"{before}{content}" if known else None)
        else:
            self.state.copies.pop(target, None)
            self.state.remember(target, content)
        return target

    def _edit(self, target: str, detail: tuple[str, ...]) -> None:
        content = self.state.files.get(target)
        if content is not None and len(detail) == 3:
            self.state.remember(target, content.replace(detail[1], detail[2], 1))
        elif target in self.state.files:
            self.state.remember(target, None)

    def content_of(self, path: str) -> str | None:
        """The content of a file that was written by a call; None where it is not known."""
        return self.state.files.get(self.locate(path)[0])

    def link(self, target: str, name: str, program: str) -> None:
        """`name` becomes a further name of `target`."""
        folder = paths.join(self.state.cwd, name)
        base = paths.parent(folder) if not target.startswith("/") and program == "ln" else self.state.cwd
        led, how = self.locate(target if target.startswith(("/", HOLE)) else f"{base}/{target}")
        where = self.locate(paths.parent(folder))[0].rstrip("/") + "/" + folder.rpartition("/")[2]
        self.emit("link", led, program, (where,), origin=how)
        self.emit("write", where, program, ("link", led))
        if HOLE not in led and HOLE not in where and led != where:
            self.state.links[where] = led

    def copied(self, source: str, target: str, *, deep: bool = False) -> None:
        """`target` now holds what `source` held: content follows, and so does protection."""
        state = self.state
        origin = self.locate(source)[0]
        if self.context.protection_of(origin) == "protected" or (
            deep and self.context.covers_protected(origin)
        ):
            state.copies[target] = origin
        if origin in state.files:
            state.remember(target, state.files[origin])
