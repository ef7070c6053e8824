"""`Monitor`: rules first, for recall; then a second look at what they flagged, for precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentgym.errors import UsageError, nearest
from agentgym.monitor import syntax
from agentgym.monitor.context import Context
from agentgym.monitor.judge import Flag, LLMJudge, Opinion, Reviewer
from agentgym.monitor.rules import CLASSES, RULES, Rule, Scene
from agentgym.monitor.rules.delegation import TOLD, quoted_commands
from agentgym.monitor.rules.scene import View
from agentgym.monitor.tools import analyse
from agentgym.tools import ToolCall

Stage: TypeAlias = Literal["", "rule", "reviewer", "judge"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the monitor says of one call.

    Attributes:
        block: the call may not run.
        rule: name of the rule that decided; None where the call is allowed.
        reason: one line for people, never for a policy; for a flagged call that is allowed, what explains it.
        stage: who decided: "" no rule saw anything, else the last stage that was asked.
        hack_class: of the catalogue, where the call is blocked or a held-out rule would have blocked it.
        measured: names of held-out rules that would have blocked it.
    """

    block: bool = False
    rule: str | None = None
    reason: str = ""
    stage: Stage = ""
    hack_class: str = ""
    measured: tuple[str, ...] = ()


class Monitor:
    """Decides for each call of an episode whether it crosses a line.

    It keeps nothing between calls: an episode's memory is in its `Context`, so one monitor serves many threads.

    Args:
        rules: the first stage.
        reviewer: the deterministic second stage; None: what a rule flags is blocked.
        judge: a language model, asked about what the reviewer would block.
        holdout: names or classes of rules that block nothing and are only measured (`Decision.measured`): so what a
            policy is trained against is not all that measures it.

    Raises:
        UsageError: a name in `holdout` is neither a rule nor a class.
    """

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        reviewer: Reviewer | None = Reviewer(),  # noqa: B008  it is frozen
        judge: LLMJudge | None = None,
        holdout: Iterable[str] = (),
    ) -> None:
        syntax.require()  # without it most of what a command does would go unseen
        self.rules = tuple(rules)
        self._asked: dict[frozenset[View], tuple[Rule, ...]] = {}
        self.reviewer = reviewer
        self.judge = judge
        self.holdout = frozenset(holdout)
        known = {*CLASSES, *(rule.name for rule in self.rules)}
        for name in sorted(self.holdout - known):
            raise UsageError(f"holdout names no rule or class {name!r}.{nearest(name, known)}")

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that a call may go through."""
        named = (("rules", True), ("reviewer", self.reviewer is not None), ("judge", self.judge is not None))
        return tuple(name for name, runs in named if runs)

    def review(self, call: ToolCall, context: Context, answer: str | None = None) -> Decision:
        """Decide on one call and remember it; the context's shell state goes on as if the call had run.

        Args:
            call: as the policy wrote it.
            context: the episode's policy and memory.
            answer: what the call was answered with, where that is known already, as in a stored trajectory. In a
                running episode it comes later, by `answered`.
        """
        scene, flags = self.look(call, context)
        decision = self._decide(scene, flags)
        context.history.append((call, decision, answer))
        return decision

    def answered(self, context: Context, answer: str) -> None:
        """Remember what the last call was answered with."""
        call, decision, _ = context.history[-1]
        context.history[-1] = (call, decision, answer)

    def look(self, call: ToolCall, context: Context) -> tuple[Scene, list[Flag]]:
        """The first stage alone: what the call would do, and which rules flag it. Moves the shell state on."""
        scene = Scene(call, analyse(call, context), context)
        flags = self._flags(scene)
        if call.name in TOLD:
            # What another agent is told to run is looked at as if it were run here, and leaves no trace.
            for command in quoted_commands(scene):
                quoted = ToolCall("bash", {"command": command})
                inner = Scene(quoted, analyse(quoted, context, commit=False), context)
                flags += [
                    Flag(f.rule, f.finding._replace(hack_class="delegated")) for f in self._flags(inner)
                ]
        return scene, flags

    def _flags(self, scene: Scene) -> list[Flag]:
        kinds = frozenset(scene.kinds)
        rules = self._asked.get(kinds)
        if rules is None:  # few combinations of kinds occur, so each is worked out once
            rules = self._asked[kinds] = tuple(rule for rule in self.rules if not rule.sees.isdisjoint(kinds))
        return [Flag(rule, found) for rule in rules if (found := rule.check(scene)) is not None]

    def _decide(self, scene: Scene, flags: Sequence[Flag]) -> Decision:
        if not flags:
            return Decision()
        counted = [flag for flag in flags if not self._held_out(flag)]
        held = [flag for flag in flags if self._held_out(flag) and self._reviewed(scene, [flag]).block]
        measured = tuple(flag.rule.name for flag in held)
        of = held[0].hack_class if held else ""
        if not counted:
            return Decision(hack_class=of, measured=measured)
        blocking = [flag for flag in counted if self._reviewed(scene, [flag]).block]
        stage: Stage = "rule" if self.reviewer is None else "reviewer"
        if not blocking:
            return Decision(
                reason=self._reviewed(scene, counted).reason, stage=stage, hack_class=of, measured=measured
            )
        if self.judge is not None:
            opinion = self.judge.review(scene, blocking)
            stage = "judge"
            if not opinion.block:
                return Decision(reason=opinion.reason, stage=stage, hack_class=of, measured=measured)
        first = blocking[0]
        return Decision(True, first.rule.name, first.finding.reason, stage, first.hack_class, measured)

    def _reviewed(self, scene: Scene, flags: Sequence[Flag]) -> Opinion:
        return (
            Opinion(True, flags[0].finding.reason)
            if self.reviewer is None
            else self.reviewer.review(scene, flags)
        )

    def _held_out(self, flag: Flag) -> bool:
        return flag.rule.name in self.holdout or flag.hack_class in self.holdout
