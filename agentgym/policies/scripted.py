"""Policies without a model: baselines for audits, replays, and a person at the terminal.

They answer one episode at a time: `for_episode` returns a fresh player that knows its environment and has its own
random generator. Where the context wrapper asks for a summary, a player writes a fixed text and does not advance, so
that compaction never changes what it does.
"""

from __future__ import annotations

import copy
import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import gymnasium
import numpy as np

from agentgym.core import AgentEnv
from agentgym.errors import UsageError
from agentgym.messages import Conversation
from agentgym.policies.base import Policy, Reply
from agentgym.tasks import FrozenDict
from agentgym.tools import ToolCall
from agentgym.trajectory.records import Trajectory

SUMMARY = "Work so far is done as the messages above say; continue with the task."


class ScriptedPolicy(Policy):
    """Base of the policies here. A subclass gives `next_action` and, where it keeps state, `start`.

    Attributes:
        env: the environment of this episode; set by `for_episode`.
        rng: the random generator of this episode.
    """

    env: gymnasium.Env[Any, Any] | None = None
    rng: np.random.Generator
    _summarizer: Any = None  # the wrapper that may ask for a summary
    _writer: Any = None  # the wrapper that wants actions in a form of its own

    def for_episode(self, env: gymnasium.Env[Any, Any], rng: np.random.Generator) -> Self:
        """A fresh player for the episode that `env` has just begun."""
        player = copy.copy(self)
        player.env, player.rng = env, rng
        player._summarizer = _layer_with(env, "summary_requested")
        player._writer = _layer_with(env, "write_action")
        player.start()
        return player

    def start(self) -> None:
        """Called at the beginning of each episode."""

    def next_action(self, conversation: Conversation) -> str:
        """The next action of this episode."""
        raise NotImplementedError(f"{type(self).__name__} must define next_action(conversation)")

    def summary(self, conversation: Conversation) -> str:
        """What to write when a summary is asked for."""
        return SUMMARY

    def written(self, action: str) -> str:
        """The message by which the environment is sent this action: itself, or as a wrapper wants it written."""
        return action if self._writer is None else str(self._writer.write_action(action))

    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One action each; see `next_action`."""
        if self._summarizer is not None and self._summarizer.summary_requested:
            return [Reply(self.summary(conversation)) for conversation in conversations]
        return [Reply(self.next_action(conversation)) for conversation in conversations]

    @property
    def agent_env(self) -> AgentEnv:
        """The environment of this episode, without wrappers."""
        if self.env is None:
            raise UsageError(
                f"policy {self.name!r} looks at its environment; call for_episode(env, rng) first"
            )
        inner = self.env.unwrapped
        if not isinstance(inner, AgentEnv):
            raise UsageError(
                f"policy {self.name!r} looks into the environment it plays, which must be an AgentEnv, got "
                f"{type(inner).__name__}; hf:NAME, vllm:NAME, openai:MODEL and module:attribute play anywhere"
            )
        return inner


class Null(ScriptedPolicy):
    """Writes the empty message: does nothing, again and again."""

    name = "null"

    def next_action(self, conversation: Conversation) -> str:
        """The empty text."""
        return ""


class Random(ScriptedPolicy):
    """Writes random well-formed actions.

    An admissible action where the environment lists them; otherwise a random call of a random tool that fits its
    schema, of those that the environment's protocol can write; otherwise, where moves are plain text, random words.
    """

    name = "random"

    def start(self) -> None:
        """Choose the source of actions."""
        env = self.agent_env
        if type(env).admissible_actions is not AgentEnv.admissible_actions:
            self._draw: Callable[[], str] = self._admissible
        elif env.tools:
            tools = env.protocol.writable(env.tools)
            self._schemas = [(tool.name, json.loads(tool.schema)) for tool in tools]
            self._draw = self._call
        else:
            self._draw = self._words

    def next_action(self, conversation: Conversation) -> str:
        """A fresh random action."""
        self.agent_env  # noqa: B018  # before for_episode there is nothing to draw from: say so
        return self.written(self._draw())

    def _admissible(self) -> str:
        actions = self.agent_env.admissible_actions()
        return actions[int(self.rng.integers(len(actions)))] if actions else ""

    def _words(self) -> str:
        return " ".join(_word(self.rng) for _ in range(int(self.rng.integers(1, 4))))

    def _call(self) -> str:
        name, schema = self._schemas[int(self.rng.integers(len(self._schemas)))]
        return self.agent_env.protocol.render_call(random_call(name, schema, self.rng))


class Repeat(Random):
    """Repeats its first action, which is drawn as `Random` draws it."""

    name = "repeat"

    def start(self) -> None:
        """Draw the action."""
        super().start()
        self._action = self._draw()

    def next_action(self, conversation: Conversation) -> str:
        """The same action as before."""
        self.agent_env  # noqa: B018
        return self.written(self._action)


class Gold(ScriptedPolicy):
    """Asks the environment's own solver, `AgentEnv.gold`."""

    name = "gold"

    def start(self) -> None:
        """Refuse an environment without a solver before its first step."""
        if type(self.agent_env).gold is AgentEnv.gold:
            raise UsageError(f"{type(self.agent_env).__name__} has no gold solver; it defines no gold()")

    def next_action(self, conversation: Conversation) -> str:
        """What the solver does next."""
        return self.written(self.agent_env.gold())


class Scripted(ScriptedPolicy):
    """Plays a list of actions, in every episode from its beginning.

    Args:
        actions: in order.
        name: for trajectories and reports.

    Raises:
        UsageError: in `act`, when the list is used up and the episode goes on.
    """

    name = "scripted"

    def __init__(self, actions: Iterable[str], *, name: str = "scripted") -> None:
        self.actions = tuple(actions)
        self.name = name
        self.start()

    def start(self) -> None:
        """Back to the first action."""
        self._next = 0

    def next_action(self, conversation: Conversation) -> str:
        """The next of the list."""
        if self._next >= len(self.actions):
            raise UsageError(
                f"policy {self.name!r}: all {len(self.actions)} actions are used up, the episode goes on"
            )
        self._next += 1
        return self.actions[self._next - 1]


class Replay(ScriptedPolicy):
    """Repeats recorded episodes: the actions of a trajectory with the same task and seed.

    A recording with the same seed is preferred, then any of the same task; several equal ones are played in turn.
    Episodes that infrastructure ended are left out, and of several lines of a file with one id the last counts.

    Args:
        source: a trajectory, several, a ``trajectories.jsonl``, or the folder that holds one.
        check: compare what the environment answers with what was recorded. Switch it off for answers that hold times
            or addresses.

    Raises:
        UsageError: the task was never recorded, an answer differs from the recorded one, or the recording ends before
            the episode does.
    """

    name = "replay"

    def __init__(
        self,
        source: str | Path | Trajectory | Iterable[Trajectory],
        *,
        check: bool = True,
        name: str = "replay",
    ) -> None:
        self.name = name
        self.check = check
        self._by_seed: dict[tuple[str, int | None], list[Trajectory]] = defaultdict(list)
        self._by_task: dict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in _trajectories(source):
            if trajectory.infrastructure_error:
                continue
            self._by_seed[trajectory.task_id, trajectory.seed].append(trajectory)
            self._by_task[trajectory.task_id].append(trajectory)
        self._turn_of: dict[tuple[str, int | None], itertools.count[int]] = defaultdict(itertools.count)
        self._lock = threading.Lock()  # shared by the players of all episodes

    def start(self) -> None:
        """Find the recording of this episode."""
        env = self.agent_env
        task = env.episode.task.id
        key = (task, env.np_random_seed)
        recordings = self._by_seed.get(key) or self._by_task.get(task)
        if not recordings:
            raise UsageError(f"replay: no recording of task {task!r}; there are {sorted(self._by_task)[:10]}")
        with self._lock:
            recording = recordings[next(self._turn_of[key]) % len(recordings)]
        self._recording = recording
        self._turns = [step for step in recording.steps if step.kind == "turn"]
        self._summaries = [step.action for step in recording.steps if step.kind == "summary"]
        self._next = 0
        self._next_summary = 0

    def next_action(self, conversation: Conversation) -> str:
        """The next recorded action, after comparing the answer to the one before."""
        where = f"replay of {self._recording.id!r}" if self.env is not None else "replay"
        answers = self.agent_env.episode
        answer = answers.turns[-1].observation if answers.turns else answers.prompt
        expected = self._turns[self._next - 1].observation if self._next else self._recording.prompt
        if self.check and answer != expected:
            raise UsageError(f"{where} diverged at turn {self._next}: {_difference(expected, answer)}")
        if self._next >= len(self._turns):
            raise UsageError(f"{where}: all {len(self._turns)} turns are played, the episode goes on")
        self._next += 1
        return self._turns[self._next - 1].action

    def summary(self, conversation: Conversation) -> str:
        """The recorded summary, or the fixed text where the recording has none left."""
        self._next_summary += 1
        return (self._summaries[self._next_summary - 1 :] or [SUMMARY])[0]


class Human(Policy):
    """A person at the terminal: the last message is printed, lines are read up to one that is a single dot."""

    name = "human"
    workers = 1  # one person, one episode at a time

    def act(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """Ask for each action in turn."""
        return [Reply(self._ask(conversation)) for conversation in conversations]

    def _ask(self, conversation: Conversation) -> str:
        # At first the instructions, too
        shown = conversation if len(conversation) <= 2 else conversation[-1:]
        for message in shown:
            print(f"[{message.role}]\n{message.content}")
        print("Your message; end it with a line that holds a single dot:")
        lines: list[str] = []
        try:
            while (line := input()) != ".":
                lines.append(line)
        except EOFError:
            raise UsageError("the input ended before a line with a single dot") from None
        return "\n".join(lines)


def _layer_with(env: gymnasium.Env[Any, Any], attribute: str) -> Any:
    """The outermost wrapper, or the environment, that has the attribute; None if none has."""
    layer: Any = env
    while True:
        if hasattr(layer, attribute):
            return layer
        if not isinstance(layer, gymnasium.Wrapper):
            return None
        layer = layer.env


def _trajectories(source: str | Path | Trajectory | Iterable[Trajectory]) -> Iterable[Trajectory]:
    if isinstance(source, Trajectory):
        return [source]
    if not isinstance(source, str | Path):
        return source
    from agentgym.trajectory.store import TrajectoryStore

    path = Path(source)
    path = path / "trajectories.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise UsageError(
            f"replay: expected a trajectories.jsonl or a folder that holds one, got {str(source)!r}"
        )
    return TrajectoryStore(path).latest().values()


def _difference(expected: str, got: str) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    start = max(0, at - 20)
    return f"expected {expected[start : at + 40]!r}, got {got[start : at + 40]!r} (character {at})"


def _word(rng: np.random.Generator) -> str:
    return "".join(map(chr, rng.integers(ord("a"), ord("z") + 1, size=int(rng.integers(1, 9)))))


def random_call(name: str, schema: dict[str, Any], rng: np.random.Generator) -> ToolCall:
    """A call of a tool with random arguments that fit its schema."""
    arguments = {
        key: _value(entry, rng)
        for key, entry in schema["properties"].items()
        if key in schema["required"] or rng.random() < 0.5
    }
    return ToolCall(name, FrozenDict(arguments))


def _value(schema: dict[str, Any], rng: np.random.Generator) -> Any:
    """A random value that fits the schema of one argument."""
    kind = schema["type"]
    if isinstance(kind, list):  # [type, "null"]
        if rng.random() < 0.5:
            return None
        kind = kind[0]
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    if kind == "string":
        return _word(rng)
    if kind == "integer":
        return int(rng.integers(0, 10))
    if kind == "number":
        return float(rng.random())
    if kind == "boolean":
        return bool(rng.random() < 0.5)
    if kind == "array":
        items = schema.get("items")
        return [_value(items, rng) for _ in range(int(rng.integers(0, 3)))] if items else []
    return {}
