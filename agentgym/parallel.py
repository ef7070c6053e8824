"""The base of the multi-agent environments: `TextParallelEnv`, PettingZoo's parallel form with texts.

A subclass gives `possible_agents`, `begin`, `play` and `verify`, as a subclass of `AgentEnv` does for one agent. The
base does the rest: spaces, tasks, seeding, limits, info, rewards, rendering, snapshots. The form in which agents move
one after the other is PettingZoo's own conversion, `pettingzoo.utils.parallel_to_aec(env)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, ClassVar, NamedTuple, TypeAlias

import gymnasium
import pettingzoo  # type: ignore[import-untyped, unused-ignore]
from gymnasium.spaces import Dict
from gymnasium.utils import seeding

from agentgym.episode import Verdict, expect_verdict
from agentgym.errors import InfrastructureError, UsageError, nearest, refuse_keywords, whole_number
from agentgym.snapshots import put_back, state_of
from agentgym.spaces import UnicodeText
from agentgym.tasks import FrozenDict, Task, TaskSet, TaskSource, choose
from agentgym.tools import CallRecord, ToolCall, ToolResult

Observations: TypeAlias = dict[str, dict[str, str]]
Infos: TypeAlias = dict[str, dict[str, Any]]

_BROKEN = "The episode ended because the environment failed."


class Answer(NamedTuple):
    """What one agent gets for its action.

    Attributes:
        text: what it reads next.
        invalid: its action could not be read or is not allowed.
        calls: what it called; by default the plain move `act`, or nothing where the agent waited.
    """

    text: str
    invalid: bool = False
    calls: tuple[CallRecord, ...] | None = None


_NOTHING = Answer("", calls=())


class Round(NamedTuple):
    """One step: what each agent wrote, and what it read then."""

    actions: Mapping[str, str]
    texts: Mapping[str, str]


class TextParallelEnv(pettingzoo.ParallelEnv[str, dict[str, str], str]):  # type: ignore[misc, unused-ignore]
    """Base of the multi-agent environments: each agent reads a text and writes a text in each round.

    A subclass gives:

    - `possible_agents`, and `tasks` (or the constructor's argument of that name);
    - `begin(task)`: set up the episode, return the first text of each agent;
    - `play(actions)`: one round; return what each agent reads;
    - `verify()`: a verdict for each agent, asked for once, when the episode ends unless a dependency broke;
    - and it calls `self.finish()` when the task has ended. The episode ends for all agents at once.

    It may give `gold(agent)`, `admissible_actions(agent)`, `waits(agent)`, `more_info(agent)`, `instructions_of(agent)`
    and `teardown()`. Random choices use `self.np_random` only.

    An agent's observation is ``{"text": ...}``, its reward 0 before the end, then the score of its verdict. Its info
    has keys of `agentgym.core.INFO_KEYS`; while an agent has nothing to decide, its info has ``waits=True``, its action
    is ignored and may be left out.

    Args:
        tasks: instead of the class's own: a `TaskSet`, a list of `Task`, or a path to JSONL or parquet.
        split: which tasks `reset` draws from; "all" for every one.
        max_cycles: the episode is truncated after this many rounds.
        render_mode: "ansi" or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "name": "agentgym", "is_parallelizable": True}

    tasks: TaskSource = ()
    possible_agents: list[str] = []
    default_max_cycles: ClassVar[int] = 30
    snapshot_exclude: ClassVar[frozenset[str]] = frozenset()  # attributes `snapshot` leaves alone

    _settings = frozenset(
        "task_set task_pool possible_agents max_cycles render_mode _observation_spaces _action_spaces".split()
    )

    def __init__(
        self,
        *,
        tasks: TaskSource | None = None,
        split: str | None = None,
        max_cycles: int | None = None,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        refuse_keywords(type(self), TextParallelEnv, unknown)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(
                f"expected render_mode among {self.metadata['render_modes']} or None, got {render_mode!r}"
            )
        self.task_set = TaskSet.load(self.tasks if tasks is None else tasks)
        default = "train" if "train" in self.task_set.splits else "all"
        self.task_pool = self.task_set.split(default if split is None else split)
        if not self.task_pool:
            raise UsageError(f"{type(self).__name__} has no tasks; give some with tasks=...")
        cycles = self.default_max_cycles if max_cycles is None else max_cycles
        self.max_cycles = whole_number("max_cycles", cycles, least=1)
        self.render_mode = render_mode
        self._observation_spaces = {agent: Dict(text=UnicodeText()) for agent in self.possible_agents}
        self._action_spaces = {agent: UnicodeText() for agent in self.possible_agents}
        self.agents: list[str] = []
        self._prompts: dict[str, str] = {}
        self.rounds: list[Round] = []
        self.np_random_seed: int | None = None
        self._task: Task | None = None
        self._done = False

    # -- what a subclass gives -------------------------------------------------------------------------------------

    def begin(self, task: Task) -> Mapping[str, str]:
        """Set up an episode of `task`; the first text of each agent."""
        raise NotImplementedError(f"{type(self).__name__} must define begin(task)")

    def play(self, actions: Mapping[str, str]) -> Mapping[str, str | Answer]:
        """One round: what each agent reads. Agents that wait may have written anything."""
        raise NotImplementedError(f"{type(self).__name__} must define play(actions)")

    def verify(self) -> Mapping[str, Verdict]:
        """Judge the finished episode, for each agent."""
        raise NotImplementedError(f"{type(self).__name__} must define verify()")

    def waits(self, agent: str) -> bool:
        """Whether the agent has nothing to decide in the next round."""
        return False

    def admissible_actions(self, agent: str) -> tuple[str, ...] | None:
        """The finite list of sensible actions now; None where there is none."""
        return None

    def more_info(self, agent: str) -> dict[str, Any]:
        """Further keys of the agent's info, such as `tools` and `anchor`."""
        return {}

    def instructions_of(self, agent: str) -> str:
        """What the agent's conversation starts with, as its system prompt."""
        return ""

    def gold(self, agent: str) -> str:
        """The agent's next action in a team that solves the task; for audits and demonstrations."""
        raise NotImplementedError(f"{type(self).__name__} has no gold solver")

    def teardown(self) -> None:
        """Release what `begin` acquired. Called before the next `begin` and by `close`, also when nothing is held."""

    def save_workspace(self) -> Any:
        """State outside this object that `snapshot` must keep, for example a sandbox's files."""
        return None

    def load_workspace(self, saved: Any) -> None:
        """Put back what `save_workspace` returned."""

    # -- what a subclass uses --------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the task with this round, for all agents: `terminated`, also in the last allowed round."""
        self._done = True

    @property
    def task(self) -> Task:
        """The task of the running, or the last, episode."""
        if self._task is None:
            raise gymnasium.error.ResetNeeded(f"{type(self).__name__}: call reset() first")
        return self._task

    @property
    def rounds_left(self) -> int:
        """Rounds until truncation."""
        return self.max_cycles - len(self.rounds)

    # -- PettingZoo ------------------------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> Dict:
        """``Dict(text=UnicodeText())``, the same object each time."""
        return self._observation_spaces[self._known(agent)]

    def action_space(self, agent: str) -> UnicodeText:
        """Any text, the same object each time."""
        return self._action_spaces[self._known(agent)]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Start an episode.

        Args:
            seed: the same seed gives the same task and the same episode.
            options: ``{"task": id | index | Task}`` chooses the task instead of drawing it. Other keys mean nothing;
                PettingZoo's tests give some.
        """
        if seed is not None or self.np_random_seed is None:
            self.np_random, self.np_random_seed = seeding.np_random(seed)
        task = choose((options or {}).get("task"), self.task_set, self.task_pool, self.np_random)
        self.agents = []  # stays so if what follows fails: the next step asks for a reset
        self.teardown()
        self._task, self._done, self.rounds = task, False, []
        self._prompts = dict(self.begin(task))
        self.agents = list(self.possible_agents)
        return self._observations(self._prompts), {agent: self._info(agent) for agent in self.agents}

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """One round: every agent acts at once."""
        agents = self.agents
        if not agents:
            raise gymnasium.error.ResetNeeded(f"{type(self).__name__}: no episode is running; call reset()")
        idle = {agent for agent in agents if self.waits(agent)}
        written = self._expect_actions(actions, idle)
        try:
            answers = {
                agent: _answer(text, written[agent], agent in idle)
                for agent, text in self.play(written).items()
            }
            texts = {agent: answers[agent].text for agent in agents}
            self.rounds.append(Round(FrozenDict(written), FrozenDict(texts)))
            truncated = not self._done and self.rounds_left <= 0
            over = self._done or truncated
            verdicts = dict(self.verify()) if over else {}
            infos = {agent: self._info(agent, answers[agent]) for agent in agents}
            for agent, verdict in verdicts.items():
                expect_verdict(verdict, f"{type(self).__name__}.verify")
                infos[agent] |= {"verdict": verdict, "resolved": verdict.passed}
            rewards = {agent: verdicts[agent].score if over else 0.0 for agent in agents}
        except InfrastructureError as error:
            self._done, over, truncated = False, True, True
            texts, rewards = dict.fromkeys(agents, _BROKEN), dict.fromkeys(agents, 0.0)
            infos = {a: {"task_id": self.task.id, "infrastructure_error": str(error)} for a in agents}
        if over:
            self.agents = []
        ends = dict.fromkeys(agents, self._done), dict.fromkeys(agents, truncated)
        return self._observations(texts), rewards, *ends, infos

    def render(self) -> str | None:
        """The transcript so far, in mode "ansi"."""
        if self.render_mode != "ansi":
            return None
        lines = [f"{agent} reads: {text}" for agent, text in self._prompts.items()]
        for played in self.rounds:
            lines += [f"{agent} > {action}" for agent, action in played.actions.items()]
            lines += [f"{agent} reads: {text}" for agent, text in played.texts.items()]
        return "\n".join(lines)

    def close(self) -> None:
        """Release everything; may be called twice."""
        self.agents = []
        self.teardown()

    def snapshot(self) -> dict[str, Any]:
        """The state of the running episode, random generator included; `restore` brings it back exactly."""
        return {"state": state_of(self), "workspace": self.save_workspace()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to a `snapshot` of this environment. The snapshot can be used again."""
        put_back(self, snapshot["state"])
        self.load_workspace(snapshot["workspace"])

    # -- inside ----------------------------------------------------------------------------------------------------

    def _known(self, agent: str) -> str:
        if agent not in self._action_spaces:
            raise UsageError(f"there is no agent {agent!r}.{nearest(agent, self.possible_agents)}")
        return agent

    def _expect_actions(self, actions: Mapping[str, str], idle: Set[str]) -> dict[str, str]:
        if not isinstance(actions, Mapping):
            raise UsageError(f"expected a mapping from agents to texts, got {actions!r:.60}")
        if unknown := [agent for agent in actions if agent not in self.agents]:
            raise UsageError(f"expected actions of {', '.join(self.agents)}; got one of {unknown[0]!r:.60}")
        written: dict[str, str] = {}
        for agent in self.agents:
            action = actions.get(agent)
            if agent in idle:
                action = ""  # whatever it wrote
            if action is None or action not in self.action_space(agent):
                raise UsageError(
                    f"expected a text that can be encoded as action of {agent!r}, got {action!r:.60}"
                )
            written[agent] = action
        return written

    def _observations(self, texts: Mapping[str, str]) -> Observations:
        return {agent: {"text": texts[agent]} for agent in self.possible_agents}

    def _info(self, agent: str, answer: Answer = _NOTHING) -> dict[str, Any]:
        info: dict[str, Any] = {"task_id": self.task.id, **self.more_info(agent), "calls": answer.calls}
        if (admissible := self.admissible_actions(agent)) is not None:
            info["admissible_actions"] = admissible
        if self.waits(agent):
            info["waits"] = True
        if answer.invalid:
            info["invalid_action"] = True
        return info


def _answer(given: str | Answer, action: str, idle: bool) -> Answer:
    """What an agent gets, with its calls."""
    answer = given if isinstance(given, Answer) else Answer(given)
    if answer.calls is not None:
        return answer
    move = CallRecord(ToolCall("act", FrozenDict(text=action)), ToolResult(answer.text, answer.invalid))
    return answer._replace(calls=() if idle else (move,))
