"""`wrap_agents`: the wrappers of this package, agent by agent, on PettingZoo's parallel environments."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import gymnasium
import pettingzoo  # type: ignore[import-untyped, unused-ignore]
from gymnasium.envs.registration import EnvSpec

from agentgym.episode import Episode, Turn
from agentgym.errors import UsageError, nearest
from agentgym.parallel import TextParallelEnv
from agentgym.spaces import UnicodeText

Stack: TypeAlias = "gymnasium.Env[Any, Any]"
Wrap: TypeAlias = Callable[[Stack], Stack]
Read: TypeAlias = "dict[str, Any]"
Infos: TypeAlias = "dict[str, dict[str, Any]]"
Result: TypeAlias = "tuple[Any, Any, bool, bool, dict[str, Any]]"


def wrap_agents(
    env: TextParallelEnv,
    stacks: Mapping[str, Sequence[Wrap]],
    *,
    anti_hack: Literal["block", "audit"] | Mapping[str, Any] | None = None,
) -> AgentStacks:
    """Put wrappers around what single agents see and do, innermost first.

    Each agent named gets an environment of its own, a `gymnasium.Env` of texts whose `step` is that agent's part of a
    round; its wrappers are put around that. So they work as around any environment here: `ChatContext`,
    `ContextCompaction`, `VerifierReward`, `RecordTrajectory` (outermost, with a file for each agent).

    Where a wrapper takes a message that is no turn of the environment (a summary that the policy itself writes), the
    others wait for that agent: the action that they gave stands, and until the round is played their info has
    ``waits=True`` and what they write is not read.

        wrap_agents(env, {"lead_0": [ChatContext], "worker_0": [lambda seat: ContextCompaction(seat, 2000)]})

    Args:
        env: one of this package.
        stacks: by agent, classes or functions that wrap; agents not named stay as they are.
        anti_hack: a monitor in front of everybody's calls: mode, or keywords of `AntiHack`. In Team-v0, where all calls
            pass one chain, it is one with one memory; in Review-v0 each agent has one.

    Raises:
        UsageError: there is no such agent, or the environment's calls pass no chain that a monitor can stand in.
    """
    if not isinstance(env, TextParallelEnv):
        raise UsageError(f"expected a parallel environment of this package, got {type(env).__name__}")
    for agent, wraps in stacks.items():
        if agent not in env.possible_agents:
            raise UsageError(f"there is no agent {agent!r}.{nearest(agent, env.possible_agents)}")
        if not isinstance(wraps, Sequence) or not all(map(callable, wraps)):
            raise UsageError(f"expected a list of wrappers for {agent!r}, got {wraps!r:.60}")
    if anti_hack is not None:
        _watch(env, {"mode": anti_hack} if isinstance(anti_hack, str) else dict(anti_hack))
    return AgentStacks(env, stacks)


def _watch(env: TextParallelEnv, keywords: dict[str, Any]) -> None:
    from agentgym.wrappers.anti_hack import AntiHack  # with all the rules: only where asked for

    put = getattr(env, "wrap_base", None)
    if put is None:
        raise UsageError(
            f"anti_hack needs calls that pass a chain, as in Team-v0; {type(env).__name__} has none"
        )
    if keywords.get("penalty"):
        raise UsageError(f"expected no penalty: a team is paid its verdict, got {keywords['penalty']!r}")
    put(lambda base: AntiHack(base, **keywords))


class AgentStacks(pettingzoo.ParallelEnv[str, Any, str]):  # type: ignore[misc, unused-ignore]
    """What `wrap_agents` returns.

    An agent's turn lasts from its action until it has something to decide again: while the environment says that it
    waits, its wrappers see nothing, and then all that it read meanwhile as one answer. An agent that is first asked in
    mid-episode begins its conversation there.

    Attributes:
        env: the environment inside.
        stacks: each wrapped agent's environment with its wrappers.
    """

    def __init__(self, env: TextParallelEnv, stacks: Mapping[str, Sequence[Wrap]]) -> None:
        self.env = env
        self.metadata = env.metadata
        self.render_mode = env.render_mode
        self.possible_agents = list(env.possible_agents)
        self._actors = {agent: _Actor(env, agent, wraps) for agent, wraps in stacks.items()}
        self.stacks: dict[str, Stack] = {agent: actor.stack for agent, actor in self._actors.items()}
        self._given: dict[str, str] = {}  # actions of the round that is not complete yet
        self._last: Read = {}  # what each agent has read last

    @property
    def agents(self) -> list[str]:
        """Those in the running episode."""
        found: list[str] = self.env.agents
        return found

    @property
    def unwrapped(self) -> TextParallelEnv:
        """The environment inside."""
        return self.env

    def observation_space(self, agent: str) -> Any:
        """That of the agent's outermost wrapper."""
        return (
            self.stacks[agent].observation_space
            if agent in self.stacks
            else self.env.observation_space(agent)
        )

    def action_space(self, agent: str) -> Any:
        """That of the agent's outermost wrapper."""
        return self.stacks[agent].action_space if agent in self.stacks else self.env.action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Read, Infos]:
        """Start an episode; each stack begins with what its agent reads first."""
        self._forget()
        observations, infos = self.env.reset(seed=seed, options=options)
        self._last = dict(observations)
        for place, (agent, actor) in enumerate(self._actors.items()):
            own = None if seed is None else seed + place  # of random numbers of the wrappers' own
            self._last[agent], infos[agent] = actor.reset(observations[agent]["text"], infos[agent], own)
        return dict(self._last), infos

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[Read, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """A round; where somebody writes a summary, that alone."""
        agents = list(self.agents)
        if not agents:
            raise gymnasium.error.ResetNeeded("no episode is running; call reset()")
        results = self._act(agents, actions)
        if not results:  # nobody wrote a summary: the round is complete
            results = self._round(agents)
        self._last |= {agent: result[0] for agent, result in results.items()}
        rows = [
            results.get(agent, (self._last[agent], 0.0, False, False, {"waits": True})) for agent in agents
        ]
        read, rewards, terminated, truncated, infos = (
            dict(zip(agents, column, strict=True)) for column in zip(*rows, strict=True)
        )
        return read, rewards, terminated, truncated, infos

    def render(self) -> Any:
        """What the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close every stack and the environment."""
        self._forget()
        for stack in self.stacks.values():
            stack.close()
        self.env.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """No episode: who still waits for its round is let go."""
        for actor in self._actors.values():
            actor.let_go()
        self._given, self._last = {}, {}

    def _act(self, agents: Sequence[str], actions: Mapping[str, str]) -> dict[str, Result]:
        """Everybody who has something to decide acts; what comes back are the results of summaries."""
        if not isinstance(actions, Mapping):
            raise UsageError(f"expected a mapping from agents to texts, got {actions!r:.60}")
        if unknown := [agent for agent in actions if agent not in agents]:
            raise UsageError(f"expected actions of {', '.join(agents)}; got one of {unknown[0]!r:.60}")
        asked = [agent for agent in agents if agent not in self._given and not self.env.waits(agent)]
        for agent in asked:  # before anybody begins
            if actions.get(agent) not in self.action_space(agent):
                raise UsageError(f"expected a text as action of {agent!r}, got {actions.get(agent)!r:.60}")
        acting = [self._actors[agent] for agent in asked if agent in self._actors]
        for actor in acting:
            actor.begin(actions[actor.agent])
        self._given |= {agent: actions[agent] for agent in asked if agent not in self._actors}
        heard = {actor.agent: actor.hear() for actor in acting}
        self._given |= {agent: said for agent, said in heard.items() if isinstance(said, str)}
        return {agent: _expect(said) for agent, said in heard.items() if not isinstance(said, str)}

    def _round(self, agents: Sequence[str]) -> dict[str, Result]:
        """A step of the environment; the results of those whose turn is over with it."""
        observations, rewards, terminated, truncated, infos = self.env.step(self._given)
        self._given = {}
        results: dict[str, Result] = {}
        for agent in agents:
            over = terminated[agent] or truncated[agent]
            result = observations[agent], rewards[agent], terminated[agent], truncated[agent], infos[agent]
            actor = self._actors.get(agent)
            if actor is None:
                results[agent] = result
                continue
            actor.read(observations[agent]["text"])
            if over or not self.env.waits(agent):
                results[agent] = actor.answer(result)
        return results


class _Actor:
    """An agent's stack of wrappers, and the thread in which its `step` waits for the round to be played."""

    def __init__(self, env: TextParallelEnv, agent: str, wraps: Sequence[Wrap]) -> None:
        self.agent = agent
        self._seat = _Seat(env, agent)
        self.stack: Stack = self._seat
        for wrap in wraps:
            self.stack = wrap(self.stack)
        self._read: list[str] = []  # since its last action
        self._acted = False  # its step waits

    def reset(self, text: str, info: dict[str, Any], seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Begin the agent's conversation with a text."""
        self._seat.first, self._read = (text, info), []
        return self.stack.reset(seed=seed)

    def begin(self, action: str) -> None:
        """Let the wrappers take an action, up to where the environment's turn comes."""
        seat = self._seat

        def run() -> None:
            try:
                seat.heard.put(self.stack.step(action))  # type: ignore[arg-type]
            except BaseException as error:  # the caller's to raise
                seat.heard.put(error)

        threading.Thread(target=run, name=f"agentgym-{seat.agent}", daemon=True).start()

    def hear(self) -> str | Result | BaseException:
        """The action that reached the environment; or, where none did, the result, or what a wrapper raised."""
        heard: str | Result | BaseException = self._seat.heard.get()
        self._acted = isinstance(heard, str)
        self._read = []
        return heard

    def read(self, text: str) -> None:
        """Take what the agent is told; the same again is no news."""
        if self._read[-1:] != [text]:
            self._read.append(text)

    def answer(self, result: Result) -> Result:
        """End the agent's turn with all that it has read."""
        text = "\n\n".join(self._read)
        if self._acted:
            self._seat.answers.put((text, *result[1:]))
            return _expect(self.hear())
        if result[2] or result[3]:  # it was never asked
            return result
        observation, info = self.reset(text, result[4], None)
        return observation, result[1], False, False, info

    def let_go(self) -> None:
        """End the thread of a step that nobody will answer."""
        if self._acted:
            self._seat.answers.put(None)
            self.hear()  # that it was


def _expect(heard: str | Result | BaseException) -> Result:
    """The result of a step; what a wrapper raised is raised here."""
    if isinstance(heard, BaseException):
        raise heard
    assert not isinstance(heard, str), "one action, one turn"
    return heard


class _LetGo(Exception):
    """The episode was given up."""


class _Seat(gymnasium.Env[str, str]):
    """What an agent's wrappers wrap: its part of the rounds.

    Attributes:
        first: what `reset` returns.
        heard: for the actor: an action that has come through the wrappers, what `step` returned, or raised.
        answers: for `step`: what came of the round; None where nobody will play it.
    """

    def __init__(self, env: TextParallelEnv, agent: str) -> None:
        self.agent = agent
        self.observation_space = UnicodeText()
        self.action_space = env.action_space(agent)
        self.render_mode = None
        self.spec = EnvSpec(env.metadata["name"])
        self.first: tuple[str, dict[str, Any]] = "", {}
        self._episode: Episode | None = None
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._env = env

    @property
    def episode(self) -> Episode:
        """The running, or the last, episode as this agent saw it; it has no workspace of its own."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded(f"{self.agent}: call reset() first")
        return self._episode

    @property
    def system_prompt(self) -> str:
        """What the agent's conversation starts with."""
        return self._env.instructions_of(self.agent)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """What the agent reads first."""
        self._episode = Episode(self._env.task, self.first[0])
        return self.first

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """The agent's part of a round; waits until it is played."""
        self.heard.put(action)
        answer = self.answers.get()
        if answer is None:
            raise _LetGo
        text, reward, terminated, truncated, info = answer
        self.episode.turns.append(Turn(action, text, info.get("calls", ())))
        self.episode.done = terminated
        return text, reward, terminated, truncated, info
