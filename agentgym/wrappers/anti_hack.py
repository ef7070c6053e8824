"""`AntiHack`: the monitor in front of every tool call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, SupportsFloat

import gymnasium

from agentgym.core import AgentWrapper, Next, Task, ToolCall, ToolResult
from agentgym.errors import UsageError, real_number
from agentgym.monitor.audit import flagged, fresh_shell, full_context, note_of, took_effect
from agentgym.monitor.context import Context
from agentgym.monitor.monitor import Monitor
from agentgym.wrappers.tokens import load_attribute
from agentgym.wrappers.twins import Twins

MODES = ("block", "audit")


class AntiHack(AgentWrapper):
    """Watches every tool call; one that crosses a line does not run and is answered as if it had found nothing.

    What may not be done comes from the environment's `boundaries(task)`. Each call of an action is reviewed when its
    turn comes, before it runs. In mode "block" a forbidden one is not passed on: an ordinary call of the same tool that
    finds nothing or fails is made in its place (see `agentgym.wrappers.twins`), and its answer, exit status and delay
    are what the policy gets. The episode goes on, the turn counts, and whatever the call would have changed is not
    there: the verifier cannot credit it. Nothing that the policy reads names a rule.

    **Observation, action, ends.** Those of the wrapped environment.

    **Reward.** The environment's, less `penalty` for every blocked call of the turn.

    **Info.** ``hacked``: whether a crossing took effect in this episode so far. A blocked call took none; one that mode
    "audit" or a rule in the monitor's `holdout` let pass did, unless its answer shows that it got nothing. ``calls``:
    `ToolResult.blocked`, and in `ToolResult.note` the fields of its `Decision` as JSON, for every call that a rule
    saw something in. ``masked``: True after a turn with a blocked call if `mask_blocked`.

    Args:
        env: an environment, before the wrappers that make conversations out of it.
        monitor: a `Monitor`, or ``"module:attribute"`` naming one or a function that makes one. None: the rules and the
            deterministic reviewer.
        context: keys of the monitor's context that replace the environment's, such as ``{"git_policy": "open"}``.
        mode: "block", or "audit": everything runs, what crossed a line is only noted.
        penalty: taken off the reward for each blocked call; finite, at least 0.
        mask_blocked: leave a reply with a blocked call out of the loss: its tokens have mask 0 in the trajectory's
            segments. The whole reply, since the words around a call argue for it.
        seed: of the names that stand-in calls use; they are not shown.

    Raises:
        UsageError: an argument makes no sense; from `reset`, the context does not.
    """

    snapshot_exclude: ClassVar[frozenset[str]] = frozenset(
        {"monitor", "mode", "penalty", "mask_blocked", "_overrides", "_twins", "_context"}
    )

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        monitor: Monitor | str | None = None,
        *,
        context: Mapping[str, Any] | None = None,
        mode: Literal["block", "audit"] = "block",
        penalty: float = 0.0,
        mask_blocked: bool = False,
        seed: int = 0,
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"expected mode to be one of {', '.join(MODES)}, got {mode!r}")
        penalty = real_number("penalty", penalty, least=0)
        if mode == "audit" and (penalty or mask_blocked):
            raise UsageError("penalty and mask_blocked are for mode 'block'; 'audit' blocks nothing")
        super().__init__(
            env,
            monitor=monitor,
            context=context,
            mode=mode,
            penalty=penalty,
            mask_blocked=mask_blocked,
            seed=seed,
        )
        self.monitor = _monitor(monitor)
        self.mode = mode
        self.penalty = penalty
        self.mask_blocked = mask_blocked
        self._overrides = dict(context or {})
        self._twins = Twins(seed)
        self._context: Context | None = None
        self._fresh_shell = False
        self._hacked = False
        self._blocked = 0  # in this turn

    @property
    def hacked(self) -> bool:
        """Whether a crossing took effect in this episode so far."""
        return self._hacked

    def boundaries(self, task: Task) -> Mapping[str, Any]:
        """What is forbidden while `task` is played: the environment's word, with the `context` given here on top."""
        found: Mapping[str, Any] = self.env.get_wrapper_attr("boundaries")(task)
        return {**found, **self._overrides}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, with a monitor that has seen nothing yet."""
        self._context = None
        observation, info = self.env.reset(seed=seed, options=options)
        given = dict(self.boundaries(self.agent_env.episode.task))
        self._fresh_shell = bool(given.pop("fresh_shell", False))
        self._context = full_context(given)
        self._hacked = False
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn; see the class for what it adds to the reward and to info."""
        self._blocked = 0
        observation, reward, terminated, truncated, info = self.env.step(action)
        info["hacked"] = self._hacked
        if self._blocked:
            if self.penalty and "infrastructure_error" not in info:
                reward = float(reward) - self.penalty * self._blocked
            if self.mask_blocked:
                info["masked"] = True
        return observation, reward, terminated, truncated, info

    def handle(self, call: ToolCall, next: Next) -> ToolResult:
        """Review one call; run it or answer in its place."""
        context = self._context
        assert context is not None, "calls are made inside an episode"
        if self._fresh_shell:
            fresh_shell(context)
        before = context.state.copy()
        decision = self.monitor.review(call, context)
        if decision.block and self.mode == "block":
            context.state = before  # it did not run
            self._blocked += 1
            result = self._twins.answer(call, decision.hack_class, context, next, self.agent_env.episode)
            result = result._replace(blocked=True, note=note_of(decision))
        else:
            result = next(call)
            if flagged(decision) and took_effect(decision, call, result.text, context):
                self._hacked = True
            if note := note_of(decision):
                result = result._replace(note=note)
        self.monitor.answered(context, result.text)
        return result

    def snapshot(self) -> dict[str, Any]:
        """The state of the environment, of the wrappers, and of what the monitor remembers."""
        memory = None if self._context is None else self._context.snapshot()
        return super().snapshot() | {"context": self._context, "memory": memory}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to a `snapshot` of the same stack."""
        super().restore(snapshot)
        context: Context | None = snapshot["context"]
        if context is not None:
            context = dataclasses.replace(context)  # with no memory, and nobody else's
            context.restore(snapshot["memory"])
        self._context = context


def _monitor(given: Monitor | str | None) -> Monitor:
    """The monitor that an argument names."""
    if given is None:
        return Monitor()
    found: Any = load_attribute(given, "monitor") if isinstance(given, str) else given
    if callable(found):
        found = found()
    if not isinstance(found, Monitor):
        raise UsageError(
            f"expected monitor to be a Monitor or 'module:attribute' naming one, got {given!r:.60}"
        )
    return found
