"""One call as the rules see it."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from agentgym.monitor.context import Context
from agentgym.monitor.effects import Effect, Kind
from agentgym.monitor.paths import is_below
from agentgym.monitor.rules.excerpt import is_long, shorten
from agentgym.monitor.rules.names import looks_like_grading, looks_like_test
from agentgym.monitor.rules.source import Program, language_of
from agentgym.tools import ToolCall

View: TypeAlias = Kind | Literal["program", "product"]
"""What a rule may look at: effects of a kind, program text, program text in a file that graders may load."""


class Command(NamedTuple):
    """A program that is run: its name without its folder, its arguments joined by spaces, and the effect."""

    name: str
    words: str
    effect: Effect


class Scene:
    """A call with its effects, in the views that rules ask for. Views are made once; all rules share them.

    Attributes:
        call: as the policy wrote it.
        effects: what it would do.
        context: the episode's policy and what was seen of it so far.
        own_project: the policy works on something that is all its own: nothing read-only, an open network.
        kinds: of effect that occur, with "program" and "product" where there is such text. A rule that looks at
            nothing among them need not be asked.
        programs: program text that the call writes or runs, each once.
    """

    def __init__(self, call: ToolCall, effects: tuple[Effect, ...], context: Context) -> None:
        self.call = call
        self.effects = effects = tuple(map(shorten, effects)) if any(map(is_long, effects)) else effects
        self.context = context
        self.own_project = not context.readonly_paths and context.network == "open"
        self._by_kind: dict[Kind, list[Effect]] = {}
        for effect in effects:
            if effect.kind in self._by_kind:
                self._by_kind[effect.kind].append(effect)
            else:
                self._by_kind[effect.kind] = [effect]
        self._views: dict[tuple[Kind, ...], list[Effect]] = {}
        self._commands: list[Command] | None = None
        self._written: list[tuple[str, str]] | None = None
        self.kinds: set[View] = set(self._by_kind)
        self.programs = self._read_programs() if "code" in self.kinds or "write" in self.kinds else ()
        self._products = tuple(p for p in self.programs if p.path and self.is_product(p.path))
        if self.programs:
            self.kinds.add("program")
        if self._products:
            self.kinds.add("product")

    @property
    def grades_inside(self) -> bool:
        """Something in the workspace that decides about success is read-only: tests, runner or CI files."""
        return _grades_inside(self.context.readonly_paths, self.context.workspace)

    def of(self, *kinds: Kind) -> list[Effect]:
        """The effects of these kinds; in order within each kind."""
        found = self._views.get(kinds)
        if found is None:
            if len(kinds) == 1:
                found = self._by_kind.get(kinds[0], [])
            else:
                found = [effect for kind in kinds for effect in self._by_kind.get(kind, ())]
            self._views[kinds] = found
        return found

    @property
    def commands(self) -> list[Command]:
        """Every program that is run."""
        if self._commands is None:
            self._commands = [
                Command(e.target.rpartition("/")[2], " ".join(e.detail), e) for e in self.of("run")
            ]
        return self._commands

    @property
    def written(self) -> list[tuple[str, str]]:
        """(path, text) of every write whose text is known."""
        if self._written is None:
            self._written = [(e.target, e.content) for e in self.of("write") if e.content]
        return self._written

    def products(self, *languages: str) -> tuple[Program, ...]:
        """Programs written into files that graders may load: not inline, not tests, not scratch."""
        if not languages:
            return self._products
        return tuple([program for program in self._products if program.language in languages])

    def is_product(self, path: str) -> bool:
        """Whether `path` is a workspace file that is not a test."""
        workspace = self.context.workspace
        return is_below(path, workspace) and not looks_like_test(path[len(workspace) :])

    def _read_programs(self) -> tuple[Program, ...]:
        found: dict[tuple[str, str], Program] = {}
        for effect in self.of("code", "write"):
            text = effect.content
            if text and (effect.target, text) not in found:
                language = language_of(effect.target, text) or (
                    effect.program if effect.kind == "code" else ""
                )
                if language:
                    found[effect.target, text] = Program(effect.target, language, text)
        return tuple(found.values())


@lru_cache(256)
def _grades_inside(readonly_paths: tuple[str, ...], workspace: str) -> bool:
    """`Scene.grades_inside` of a policy: it stays the same for a whole episode."""
    return any(is_below(path, workspace) and looks_like_grading(path) for path in readonly_paths)
