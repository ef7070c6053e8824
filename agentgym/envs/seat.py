"""One agent's seat at a multi-agent environment, as an ordinary environment for one policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pettingzoo  # type: ignore[import-untyped, unused-ignore]

from agentgym import messages
from agentgym.core import AgentEnv, CallRecord, Episode, Task, Verdict
from agentgym.errors import InfrastructureError, ToolError, UsageError, nearest
from agentgym.messages import Conversation
from agentgym.parallel import TextParallelEnv
from agentgym.policies import Policy, make_policy
from agentgym.registration import require
from agentgym.tasks import TaskSource

_GOLD = "gold"


class SeatEnv(AgentEnv):
    """Play one agent of a multi-agent environment; the others are played by fixed policies.

    ## Description
    Whatever works on one agent works on a seat: `collect`, the trainers, the context wrappers, stable-baselines3. It
    has no id of its own, since it needs to be told of what: register it under a name of yours,
    ``gymnasium.register("Lead-v0", "agentgym.envs.seat:SeatEnv", kwargs={"env": "agentgym/HiddenNumber-v0", "agent":
    "lead_0"})``.

    ## Actions
    The agent's, as plain text: where it has tools, its calls in the environment's protocol, all in one move ``act``.

    ## Observations
    What the agent reads. Rounds in which it waits are played by the others.

    ## Reward
    The agent's.

    ## Episode end
    The environment's; truncated after `max_turns` actions of the agent (default: the environment's `max_cycles`, which
    is raised to as many).

    Args:
        env: id in PettingZoo's registry.
        agent: whose seat; by default the first agent's.
        others: who plays the other agents: "gold" (the environment's solver), a `Policy` that needs no environment, or
            its name as `make_policy` knows it ("null", "hf:smollm2"; not "random"); or a mapping from agents to these.
        env_kwargs: keywords of the environment.
        tasks: see `AgentEnv`; by default the environment's, and those it draws from.
        split: see `AgentEnv`.
        max_turns: see above.
        **kwargs: see `AgentEnv`.

    Raises:
        UsageError: an argument makes no sense; from `reset`, the others ended the episode before the agent's first
            turn.

    ## Version history
    v0: first.
    """

    snapshot_exclude = frozenset({"team", "agent", "_policies"})

    def __init__(
        self,
        env: str,
        agent: str | None = None,
        *,
        others: str | Policy | Mapping[str, str | Policy] = _GOLD,
        env_kwargs: Mapping[str, Any] | None = None,
        tasks: TaskSource | None = None,
        split: str | None = None,
        max_turns: int | None = None,
        **kwargs: Any,
    ) -> None:
        require(env)
        if env not in pettingzoo.parallel_registry:
            raise UsageError(f"expected a multi-agent environment, got {env!r}; play it as it is")
        team = pettingzoo.make("parallel", env, **(env_kwargs or {}))
        if not isinstance(team, TextParallelEnv):
            raise UsageError(f"expected a multi-agent environment of this package, got {type(team).__name__}")
        self.team = team
        self.agent = team.possible_agents[0] if agent is None else agent
        if self.agent not in team.possible_agents:
            raise UsageError(f"{env} has no agent {agent!r}.{nearest(agent, team.possible_agents)}")
        self._policies = self._read_others(others)
        self._infos: dict[str, dict[str, Any]] = {}
        super().__init__(
            tasks=team.task_set if tasks is None else tasks,
            split=split,
            max_turns=team.max_cycles if max_turns is None else max_turns,
            **kwargs,
        )
        if tasks is None and split is None:
            self.task_pool = team.task_pool

    def _read_others(self, others: str | Policy | Mapping[str, str | Policy]) -> dict[str, Policy | None]:
        """Who plays each of the other agents; None for the environment's solver."""
        names = [name for name in self.team.possible_agents if name != self.agent]
        given = others if isinstance(others, Mapping) else dict.fromkeys(names, others)
        if given.keys() != set(names):
            raise UsageError(f"expected others for {', '.join(names)}; got {', '.join(given) or 'none'}")
        for who in given.values():
            if not isinstance(who, str | Policy):
                raise UsageError(f"expected others to be policies or texts for them, got {who!r:.60}")
        made = {spec: make_policy(spec) for spec in given.values() if isinstance(spec, str) and spec != _GOLD}
        policies = {name: made.get(who) if isinstance(who, str) else who for name, who in given.items()}
        self._players = self._for_episode(policies, np.random.default_rng(0))  # a wrong one is told at once
        return policies

    def _for_episode(
        self, policies: Mapping[str, Policy | None], rng: np.random.Generator
    ) -> dict[str, Policy | None]:
        """Who plays an episode: fresh players, which know nothing of an environment."""
        nowhere: gymnasium.Env[Any, Any] = gymnasium.Env()
        try:
            return {
                name: None if policy is None else policy.for_episode(nowhere, rng)
                for name, policy in policies.items()
            }
        except UsageError as error:
            raise UsageError(f"expected others that need no environment: {error}") from None

    # -- the episode ---------------------------------------------------------------------------------------------------

    def begin(self, task: Task) -> str:
        """Begin the environment's episode."""
        seed = int(self.np_random.integers(1 << 31))
        observations, self._infos = self.team.reset(seed=seed, options={"task": task})
        if any(policy is not None for policy in self._policies.values()):
            own = int(self.np_random.integers(1 << 31))
            self._players = self._for_episode(self._policies, np.random.default_rng(own))
        self._verdict: Verdict | None = None
        self._read: dict[str, Conversation] = {}  # what each of the others has read and written
        for name in self._policies:
            said = self.team.instructions_of(name)
            self._read[name] = (messages.system(said),) if said else ()
        self._take(observations)
        read = self._until_my_turn([observations[self.agent]["text"]])
        if not self.team.agents:
            raise UsageError(
                f"{self.agent} had nothing to do: the others ended the episode of task {task.id!r} before its first "
                "turn; let others=... play who leaves it something"
            )
        return "\n\n".join(read)

    def respond(self, action: str) -> str:
        """The agent's action, and the rounds until it can act again."""
        text = self._play(action)
        invalid = self._infos[self.agent].get("invalid_action", False)
        read = "\n\n".join(self._until_my_turn([text]))
        if invalid:
            raise ToolError(read)
        return read

    def _until_my_turn(self, read: list[str]) -> list[str]:
        while self.team.agents and self.team.waits(self.agent):
            if (text := self._play("")) != read[-1]:  # while it waits it may be told so again and again
                read.append(text)
        return read

    def _play(self, action: str) -> str:
        """One round; what the agent reads."""
        self.team.max_cycles = max(self.team.max_cycles, self.max_turns)  # which may have been set since
        others = {name: self._written(name) for name in self._policies if not self.team.waits(name)}
        observations, _, terminated, _, self._infos = self.team.step({self.agent: action} | others)
        info = self._infos[self.agent]
        if "infrastructure_error" in info:
            raise InfrastructureError(info["infrastructure_error"])
        self._take(observations)
        if not self.team.agents:
            self._verdict = info["verdict"]
            if terminated[self.agent]:
                self.finish()
            else:
                self._turn = self.max_turns  # the others have used up the rounds: truncated
        return observations[self.agent]["text"]

    def _take(self, observations: Mapping[str, Mapping[str, str]]) -> None:
        for name, read in self._read.items():
            self._read[name] = (*read, messages.user(observations[name]["text"]))

    def _written(self, name: str) -> str:
        """The next action of one of the others."""
        policy = self._players[name]
        text = self.team.gold(name) if policy is None else policy.act([self._read[name]])[0].text
        self._read[name] = (*self._read[name], messages.assistant(text))
        return text

    def verify(self, episode: Episode) -> Verdict:
        """The agent's verdict."""
        return self.team.verify()[self.agent] if self._verdict is None else self._verdict

    # -- what the agent is told ----------------------------------------------------------------------------------------

    @property
    def system_prompt(self) -> str:
        """The agent's instructions."""
        return self.team.instructions_of(self.agent)

    def anchor(self) -> str:
        """The environment's for this agent; "" where it has none."""
        return str(self._infos[self.agent].get("anchor", ""))

    def admissible_actions(self) -> tuple[str, ...]:
        """The environment's for this agent; none where they cannot be listed."""
        return self.team.admissible_actions(self.agent) or ()

    def gold(self) -> str:
        """The agent's next action in a team that solves the task."""
        self.episode  # noqa: B018  # before the first reset there is none: say so
        return self.team.gold(self.agent)

    def _info(self, calls: tuple[CallRecord, ...]) -> dict[str, Any]:
        info = super()._info(calls)
        for key in ("anchor", "admissible_actions"):
            if key not in self._infos[self.agent]:
                info.pop(key)
        return info

    # -- keeping and releasing -----------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """What the environment holds goes."""
        self.team.teardown()

    def close(self) -> None:
        """Close the environment."""
        super().close()
        self.team.close()

    def save_workspace(self) -> Any:
        """The environment's state."""
        return self.team.snapshot()

    def load_workspace(self, saved: Any) -> None:
        """The environment as it was."""
        self.team.restore(saved)
