"""Where workers act: in the environment of the agent that leads, in a copy of it, or in an instance of their own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import gymnasium

from agentgym.core import AgentEnv, AgentWrapper
from agentgym.delegation.merging import Tree, merge
from agentgym.errors import UsageError
from agentgym.sandbox.base import Sandbox, TreeError

View: TypeAlias = Literal["copy", "own", "shared"]
LEAD = "lead_0"
VIEWS: tuple[View, ...] = ("copy", "own", "shared")

Stack: TypeAlias = "gymnasium.Env[Any, Any]"


def layer_of(env: Stack) -> AgentEnv | AgentWrapper:
    """The outermost layer of a stack that takes snapshots.

    Raises:
        UsageError: it is no environment of this package.
    """
    while not isinstance(env, AgentEnv | AgentWrapper):
        if not isinstance(env, gymnasium.Wrapper):
            raise UsageError(f"expected an environment of this package, got {type(env).__name__}")
        env = env.env
    return env


def agent_env_of(env: Stack) -> AgentEnv:
    """The environment inside all wrappers.

    Raises:
        UsageError: it is none of this package.
    """
    inner = env.unwrapped
    if not isinstance(inner, AgentEnv):
        raise UsageError(f"expected an environment of this package, got {type(inner).__name__}")
    return inner


class Places:
    """The instances of an environment that its workers act in, kept from task to task.

    They are made when first needed; those with keywords of their own at once, so that a wrong one is told at once.

    Args:
        lead: the environment of the agent that leads.
        view: "copy": each task begins with a copy of that environment as it is then, which only its worker changes.
            "own": an instance that begins the same task from its start. "shared": that environment itself.
        worker_kwargs: with "own", keywords of each worker's instance on top of the environment's.

    Raises:
        UsageError: the environment was not made by `gymnasium.make`, so that no second one can be.
    """

    def __init__(
        self, lead: Stack, view: View, worker_kwargs: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        if view not in VIEWS:
            raise UsageError(f"expected view to be one of {', '.join(VIEWS)}, got {view!r}")
        if worker_kwargs and view != "own":
            raise UsageError("keywords of the workers' own instances are for view='own'")
        self.lead = lead
        self.view = view
        self._inner = agent_env_of(lead)
        self._worker_kwargs = dict(worker_kwargs or {})
        if view != "shared" and lead.spec is None:
            raise UsageError(
                f"view={view!r} needs a second {type(self._inner).__name__}: expected an environment made by"
                " gymnasium.make, got one made from its class; or say view='shared'"
            )
        self._envs: dict[str, Stack] = {}
        self._bases: dict[str, Tree] = {}  # the files that merging workers began with
        try:
            for worker in self._worker_kwargs:
                self._envs[worker] = self._make(worker)
        except BaseException:
            self.close()
            raise

    def env(self, agent: str) -> Stack:
        """Where an agent acts."""
        return self.lead if self.view == "shared" or agent == LEAD else self._envs[agent]

    def open(self, worker: str, boss: str, seed: int, *, merges: bool) -> None:
        """Prepare the worker's instance for a new task.

        Args:
            worker: its name.
            boss: who gave it the task; with "copy", whose environment is copied.
            seed: of an instance of its own.
            merges: its changes may be asked for.
        """
        if self.view == "shared":
            return
        if worker not in self._envs:
            self._envs[worker] = self._make(worker)
        env = self._envs[worker]
        if self.view == "own":
            env.reset(seed=seed, options={"task": self._inner.episode.task})
            return
        source = self.env(boss)
        layer_of(env).restore(layer_of(source).snapshot())
        workspace = agent_env_of(source).episode.workspace
        if merges and isinstance(workspace, Sandbox):
            try:
                self._bases[worker] = Tree(workspace)
            except TreeError:  # nothing can be taken over: the report will lack that line
                self._bases.pop(worker, None)

    def merge(self, worker: str, boss: str) -> str:
        """Take the worker's changes over into its boss's environment; what came of it, "" where nothing can be."""
        ours, theirs = (agent_env_of(self.env(agent)).episode.workspace for agent in (boss, worker))
        if worker not in self._bases or not isinstance(ours, Sandbox) or not isinstance(theirs, Sandbox):
            return ""
        return merge(self._bases[worker], theirs, ours)

    def leave(self, worker: str) -> None:
        """The worker's task is over: let go of what its instance holds."""
        self._bases.pop(worker, None)
        if worker in self._envs:
            agent_env_of(self._envs[worker]).teardown()

    def close(self) -> None:
        """Close every instance."""
        self._bases.clear()
        while self._envs:
            self._envs.popitem()[1].close()

    def snapshot(self, workers: Sequence[str]) -> dict[str, Any]:
        """The state of these workers' instances, and what their changes will be compared with."""
        if self.view == "shared":
            return {}
        return {
            worker: (layer_of(self._envs[worker]).snapshot(), self._bases.get(worker)) for worker in workers
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go back to a `snapshot`; instances that act for nobody in it are let go."""
        for worker in [worker for worker in self._envs if worker not in saved]:
            self.leave(worker)
        for worker, (state, base) in saved.items():
            if worker not in self._envs:
                self._envs[worker] = self._make(worker)
            layer_of(self._envs[worker]).restore(state)
            self._bases.pop(worker, None)
            if base is not None:
                self._bases[worker] = base

    def _make(self, worker: str) -> Stack:
        spec = copy.copy(self.lead.spec)
        assert spec is not None
        spec.kwargs = {**spec.kwargs, **self._worker_kwargs.get(worker, {})}
        return gymnasium.make(spec)
