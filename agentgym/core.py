"""The contract of this package: `AgentEnv`, `AgentWrapper` and the records they speak in. Read this file first.

An environment subclasses `AgentEnv` and gives tasks, `begin`, `verify`, and either methods marked `@tool` or
`respond`. The base does the rest: reading calls out of the action text, the middleware chain around each call, limits,
seeding, info, rewards, rendering, snapshots, closing.

The records are in `agentgym.episode`, the running of calls in `agentgym.chain`; both are exported here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from agentgym.chain import ToolRunner
from agentgym.episode import INFO_KEYS, Episode, Turn, Verdict, expect_verdict
from agentgym.errors import InfrastructureError, UsageError, refuse_keywords, whole_number
from agentgym.protocols import Protocol, make_protocol
from agentgym.snapshots import put_back, state_of
from agentgym.spaces import UnicodeText, encodable
from agentgym.tasks import Task, TaskSet, TaskSource, choose
from agentgym.tools import (
    CallRecord,
    Middleware,
    Next,
    Tool,
    ToolCall,
    ToolResult,
    checker_for,
    tool,
    tools_of,
)

__all__ = [
    "INFO_KEYS",
    "AgentEnv",
    "AgentWrapper",
    "CallRecord",
    "Episode",
    "Middleware",
    "Next",
    "Task",
    "TaskSet",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Turn",
    "Verdict",
    "tool",
]


class AgentEnv(ToolRunner, gymnasium.Env[str, str]):
    """Base of every environment: text in, text out, calls in between.

    A subclass gives:

    - `tasks`: a class attribute, or the constructor's argument of that name;
    - `begin(task)`: set up the episode, return the first observation;
    - methods marked `@tool`, or `respond(action)` for plain text moves (then every action is one call named ``act``);
    - `verify(episode)`: the verdict, asked for once, when the episode ends for any reason but a broken dependency;
    - and it calls `self.finish()` when the task has ended.

    It may give `gold()`, `anchor()`, `admissible_actions()`, `teardown()`. Random choices use `self.np_random` only.

    Args:
        tasks: instead of the class's own: a `TaskSet`, a list of `Task`, or a path to JSONL or parquet.
        split: which tasks `reset` draws from; "all" for every one.
        max_turns: the episode is truncated after this many steps.
        max_seconds: the episode is truncated at the first step that ends later than this after `reset`; None: never.
        protocol: how calls are written: "hermes", "xml", "bash", "react" or a `Protocol`.
        render_mode: "ansi" or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}

    tasks: TaskSource = ()
    default_max_turns: ClassVar[int] = 30
    instructions: ClassVar[str] = ""  # first part of the system prompt
    snapshot_exclude: ClassVar[frozenset[str]] = frozenset()  # attributes `snapshot` leaves alone

    _tool_methods: ClassVar[tuple[Tool, ...]] = ()
    _settings = frozenset(
        "spec task_set task_pool observation_space action_space protocol render_mode max_turns max_seconds tools"
        " _middleware _chain _checker _plain _has_anchor _has_admissible".split()
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._tool_methods = tools_of(cls)
        taken = [offered.name for offered in cls._tool_methods if hasattr(AgentEnv, offered.name)]
        if taken:
            raise TypeError(f"{cls.__name__}: AgentEnv has a {taken[0]!r} of its own; rename the tool")

    def __init__(
        self,
        *,
        tasks: TaskSource | None = None,
        split: str | None = None,
        max_turns: int | None = None,
        max_seconds: float | None = None,
        protocol: str | Protocol = "hermes",
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        refuse_keywords(type(self), AgentEnv, unknown)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UsageError(
                f"expected render_mode among {self.metadata['render_modes']} or None, got {render_mode!r}"
            )
        self.task_set = TaskSet.load(self.load_tasks(self.tasks if tasks is None else tasks))
        default = "train" if "train" in self.task_set.splits else "all"
        self.task_pool = self.task_set.split(default if split is None else split)
        if not self.task_pool:
            raise UsageError(f"{type(self).__name__} has no tasks; give some with tasks=...")
        turns = self.default_max_turns if max_turns is None else max_turns
        self.max_turns = whole_number("max_turns", turns, least=1)
        if max_seconds is not None and not (isinstance(max_seconds, int | float) and max_seconds > 0):
            raise UsageError(f"expected max_seconds > 0 or None, got {max_seconds!r}")
        self.max_seconds = max_seconds
        self.render_mode = render_mode
        self.observation_space = UnicodeText()
        self.action_space = UnicodeText()

        self._plain = type(self).respond is not AgentEnv.respond
        if self._plain == bool(self._tool_methods):
            raise TypeError(
                f"{type(self).__name__} must define either methods marked @tool or respond(action)"
            )
        self._has_anchor = type(self).anchor is not AgentEnv.anchor
        self._has_admissible = type(self).admissible_actions is not AgentEnv.admissible_actions
        self.tools: tuple[Tool, ...] = self._tool_methods
        self.protocol = make_protocol(protocol)
        self._checker = checker_for(self.tools)
        if not self._plain:
            self.protocol.require(self.tools)
        self._middleware: list[Middleware] = []
        self._chain: Next | None = None

        self._episode: Episode | None = None
        self._over = True
        self._turn = 0
        self._started = 0.0

    # -- what a subclass gives -------------------------------------------------------------------------------------

    def begin(self, task: Task) -> str:
        """Set up an episode of `task`; the returned text is the first observation."""
        raise NotImplementedError(f"{type(self).__name__} must define begin(task)")

    def verify(self, episode: Episode) -> Verdict:
        """Judge the finished episode."""
        raise NotImplementedError(f"{type(self).__name__} must define verify(episode)")

    def anchor(self) -> str:
        """The present state as text, without history."""
        raise NotImplementedError

    def admissible_actions(self) -> tuple[str, ...]:
        """The finite list of sensible actions now."""
        raise NotImplementedError

    def gold(self) -> str:
        """The next action of a solver that knows the task's solution; for audits and demonstrations."""
        raise NotImplementedError(f"{type(self).__name__} has no gold solver")

    def cheats(self) -> Mapping[str, Sequence[str]]:
        """Known ways to try for the reward without the work: name -> actions, for the running episode's task.

        The audit plays each from a fresh start; none may end as clean and passed.
        """
        return {}

    def secrets(self, task: Task) -> Sequence[str]:
        """Texts that must not reach the policy by any way but its own work; the audit searches for them."""
        return ()

    def teardown(self) -> None:
        """Release what `begin` acquired. Called before the next `begin` and by `close`, also when nothing is held."""

    def load_tasks(self, source: TaskSource) -> TaskSource:
        """Turn what was given as tasks into tasks; a family with a file format of its own overrides this."""
        return source

    def save_workspace(self) -> Any:
        """State outside this object that `snapshot` must keep, for example a sandbox's files."""
        return None

    def load_workspace(self, saved: Any) -> None:
        """Put back what `save_workspace` returned."""

    # -- what a subclass uses --------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the task at this step: `terminated`, also on the last allowed turn."""
        self.episode.done = True

    def reopen(self) -> None:
        """Go on with an episode that `finish` ended, for a task whose end somebody else may refuse.

        Everything is as it was after the last step; a limit that was reached stays reached.
        """
        self.episode.done = False
        self._over = self.turns_left <= 0 or self.seconds_left <= 0

    @property
    def episode(self) -> Episode:
        """The running, or the last, episode."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded(f"{type(self).__name__}: call reset() first")
        return self._episode

    @property
    def turns_left(self) -> int:
        """Steps until truncation."""
        return self.max_turns - self._turn

    @property
    def seconds_left(self) -> float:
        """Wall seconds until truncation; infinite without `max_seconds`. Tools that wait bound their wait by this."""
        if self.max_seconds is None:
            return math.inf
        return max(0.0, self.max_seconds - (time.monotonic() - self._started))

    # -- Gymnasium -------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: the same seed gives the same task and the same episode.
            options: ``{"task": id | index | Task}`` chooses the task instead of drawing it.
        """
        super().reset(seed=seed)
        task = self._choose(options or {})
        self._over = True  # stays so if what follows fails: the next step asks for a reset
        self.teardown()
        self._turn, self._started = 0, time.monotonic()
        self._episode = Episode(task)
        prompt = self.begin(task)
        if not isinstance(prompt, str):
            raise TypeError(
                f"expected {type(self).__name__}.begin to return text, got {type(prompt).__name__}"
            )
        self._episode.prompt = prompt
        self._over = False
        return self._episode.prompt, self._info(())

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One turn: run the calls in `action` in order; see `INFO_KEYS` for info."""
        episode = self._episode
        if self._over or episode is None:
            raise gymnasium.error.ResetNeeded(f"{type(self).__name__}: no episode is running; call reset()")
        if not isinstance(action, str):
            raise UsageError(f"expected the policy's whole message as text, got {type(action).__name__}")
        if not action.isascii() and not encodable(action):
            raise UsageError("expected text that can be encoded, the action holds half of a surrogate pair")
        self._turn += 1
        records: list[CallRecord] = []
        try:
            observation, invalid = self._act(action, records)
            calls = tuple(records)
            episode.turns.append(Turn(action, observation, calls))
            terminated = episode.done
            truncated = not terminated and (
                self._turn >= self.max_turns or (self.max_seconds is not None and self.seconds_left <= 0)
            )
            info = self._info(calls)
            if invalid:
                info["invalid_action"] = True
            reward = 0.0
            if terminated or truncated:
                self._over = True
                verdict = expect_verdict(self.verify(episode), f"{type(self).__name__}.verify")
                info |= {"verdict": verdict, "resolved": verdict.passed}
                reward = verdict.score
        except InfrastructureError as error:
            self._over = True
            info = {"task_id": episode.task.id, "calls": tuple(records), "infrastructure_error": str(error)}
            return "The episode ended because the environment failed.", 0.0, False, True, info
        return observation, reward, terminated, truncated, info

    def render(self) -> str | None:
        """The transcript so far, in mode "ansi"."""
        if self.render_mode != "ansi":
            return None
        lines = [self.episode.prompt]
        for turn in self.episode.turns:
            lines += [f"> {turn.action}", turn.observation]
        return "\n".join(lines)

    def close(self) -> None:
        """Release everything; may be called twice."""
        self._over = True
        self.teardown()

    # -- context, middleware, snapshots ----------------------------------------------------------------------------

    @property
    def system_prompt(self) -> str:
        """What a conversation starts with: the environment's instructions and how to call its tools."""
        parts = [self.instructions] if self.instructions else []
        if self.tools:
            or_move = " Or write a move, without a call." if self._plain else ""
            parts.append(self.protocol.describe(self.tools) + or_move)
        return "\n\n".join(parts)

    def snapshot(self) -> dict[str, Any]:
        """The state of the running episode, random generator included; `restore` brings it back exactly."""
        elapsed = time.monotonic() - self._started
        return {"state": state_of(self), "workspace": self.save_workspace(), "elapsed": elapsed}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to a `snapshot` of this environment. The snapshot can be used again."""
        put_back(self, snapshot["state"])
        self._started = time.monotonic() - snapshot["elapsed"]
        self.load_workspace(snapshot["workspace"])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_chain": None}

    # -- inside ----------------------------------------------------------------------------------------------------

    def _info(self, calls: tuple[CallRecord, ...]) -> dict[str, Any]:
        info: dict[str, Any] = {"task_id": self._episode.task.id, "calls": calls}  # type: ignore[union-attr]
        if self.tools:
            info["tools"] = self.tools
        if self._has_anchor:
            info["anchor"] = self.anchor()
        if self._has_admissible:
            info["admissible_actions"] = self.admissible_actions()
        return info

    def _choose(self, options: Mapping[str, Any]) -> Task:
        unknown = options.keys() - {"task"}
        if unknown:
            raise UsageError(f"reset knows the option 'task', got {sorted(unknown)}")
        return choose(options.get("task"), self.task_set, self.task_pool, self.np_random)


class AgentWrapper(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Base of the wrappers here: carries snapshots and tool middleware inward and rebuilds from its spec.

    A subclass passes its own arguments to this constructor by keyword, and may define
    ``handle(call, next) -> ToolResult``; it is then put around every tool call, outside the handlers of the wrappers
    further in. Arguments should be values that JSON can hold (names and paths, "module:name" for code), so that
    ``env.spec.to_json()`` can describe the whole stack.
    """

    snapshot_exclude: ClassVar[frozenset[str]] = frozenset()
    _settings = frozenset("env _saved_kwargs _action_space _observation_space _metadata _cached_spec".split())

    def __init__(self, env: gymnasium.Env[Any, Any], **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)
        gymnasium.Wrapper.__init__(self, env)
        handler = getattr(self, "handle", None)
        if handler is not None:
            self.agent_env.use(handler)

    @property
    def agent_env(self) -> AgentEnv:
        """The environment inside all wrappers."""
        env = self.unwrapped
        if not isinstance(env, AgentEnv):
            raise UsageError(
                f"{type(self).__name__} wraps environments of this package, got {type(env).__name__}"
            )
        return env

    def snapshot(self) -> dict[str, Any]:
        """The state of the environment and of every wrapper of this package around it."""
        return {"inner": self._next_inward().snapshot(), "state": state_of(self)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to a `snapshot` of the same stack."""
        self._next_inward().restore(snapshot["inner"])
        put_back(self, snapshot["state"])

    def _next_inward(self) -> AgentWrapper | AgentEnv:
        env = self.env
        while not isinstance(env, AgentWrapper | AgentEnv):
            if not isinstance(env, gymnasium.Wrapper):
                raise UsageError(f"snapshots need an environment of this package, got {type(env).__name__}")
            env = env.env
        return env
