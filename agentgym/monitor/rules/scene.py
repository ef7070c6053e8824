"""One call as the rules see it."""

from __future__ import annotations

from collections.abc import Iterator, KeysView

from agentgym.monitor.context import Context
from agentgym.monitor.effects import Effect, Kind
from agentgym.monitor.paths import is_below
from agentgym.monitor.rules.excerpt import is_long, shorten
from agentgym.monitor.rules.names import looks_like_grading, looks_like_test
from agentgym.monitor.rules.source import Program, language_of
from agentgym.tools import ToolCall


class Scene:
    """A call with its effects, in the views that rules ask for. Views are made once; all rules share them.

    Attributes:
        call: as the policy wrote it.
        effects: what it would do.
        context: the episode's policy and what was seen of it so far.
        grades_inside: something in the workspace that decides about success is read-only: tests, runner or CI files.
        own_project: the policy works on something that is all its own: nothing read-only, an open network.
    """

    def __init__(self, call: ToolCall, effects: tuple[Effect, ...], context: Context) -> None:
        self.call = call
        self.effects = effects = tuple(map(shorten, effects)) if any(map(is_long, effects)) else effects
        self.context = context
        self.own_project = not context.readonly_paths and context.network == "open"
        self.grades_inside = any(
            is_below(path, context.workspace) and looks_like_grading(path) for path in context.readonly_paths
        )
        self._by_kind: dict[Kind, list[Effect]] = {}
        for effect in effects:
            self._by_kind.setdefault(effect.kind, []).append(effect)
        self._views: dict[tuple[Kind, ...], list[Effect]] = {}
        self._programs: tuple[Program, ...] | None = None
        self._commands: tuple[tuple[str, Effect], ...] | None = None

    @property
    def kinds(self) -> KeysView[Kind]:
        """The kinds that occur."""
        return self._by_kind.keys()

    def of(self, *kinds: Kind) -> list[Effect]:
        """The effects of these kinds; in order within each kind."""
        found = self._views.get(kinds)
        if found is None:
            found = [effect for kind in kinds for effect in self._by_kind.get(kind, ())]
            self._views[kinds] = found
        return found

    @property
    def commands(self) -> tuple[tuple[str, Effect], ...]:
        """(name without its folder, effect) of every program that is run."""
        if self._commands is None:
            self._commands = tuple((e.target.rpartition("/")[2], e) for e in self.of("run"))
        return self._commands

    @property
    def programs(self) -> tuple[Program, ...]:
        """Program text that the call writes or runs, each once."""
        if self._programs is None:
            found: dict[tuple[str, str], Program] = {}
            for effect in self.of("code", "write"):
                if effect.content:
                    named = (
                        effect.program
                        if effect.kind == "code"
                        else language_of(effect.target, effect.content)
                    )
                    if named:
                        key = (effect.target, effect.content)
                        found.setdefault(key, Program(effect.target, named, effect.content))
            self._programs = tuple(found.values())
        return self._programs

    @property
    def written(self) -> list[tuple[str, str]]:
        """(path, text) of every write whose text is known."""
        return [(e.target, e.content) for e in self.of("write") if e.content]

    def products(self, *languages: str) -> Iterator[Program]:
        """Programs written into files that graders may load: not inline, not tests, not scratch."""
        for program in self.programs:
            if (
                (not languages or program.language in languages)
                and program.path
                and self.is_product(program.path)
            ):
                yield program

    def is_product(self, path: str) -> bool:
        """Whether `path` is a workspace file that is not a test."""
        workspace = self.context.workspace
        return is_below(path, workspace) and not looks_like_test(path[len(workspace) :])
