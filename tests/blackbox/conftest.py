"""A gateway with a scripted policy, and a way to play one episode of the desk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.blackbox import Program, ProgramPlayer
from agentgym.gateway import Gateway
from agentgym.policies import Policy
from agentgym.rollout import collect, make_env
from agentgym.trajectory.records import Trajectory

from .toys import AGENT, DESK, Spelled


@dataclasses.dataclass
class Played:
    """What `play` was asked for, for tests that look behind."""

    gateway: Gateway
    trajectories: list[Trajectory]

    @property
    def only(self) -> Trajectory:
        (trajectory,) = self.trajectories
        return trajectory


@pytest.fixture
def play() -> Callable[..., Played]:
    """Play desk-5 with actions, or a policy, and the small agent program, or another command.

    `gateways` takes the gateway, for policies that do something to it; `after` is called with it while it is open.
    """

    def run(
        actions: Any,
        *,
        command: str = str(AGENT),
        timeout: float = 60.0,
        env: dict[str, Any] | None = None,
        tasks: tuple[str, ...] = ("desk-5",),
        settings: dict[str, Any] | None = None,
        gateways: list[Gateway] | None = None,
        after: Callable[[Gateway], None] | None = None,
        **more: Any,
    ) -> Played:
        policy = actions if isinstance(actions, Policy) else Spelled(actions)
        with Gateway(policy) as gateway:
            if gateways is not None:
                gateways.append(gateway)
            player = ProgramPlayer(
                Program(command, timeout=timeout, show={str(AGENT): str(AGENT)}), gateway, **settings or {}
            )
            played = collect(
                lambda: make_env(DESK, env_kwargs=env or {}),
                policy,
                episodes=None,
                tasks=tasks,
                player=player,
                **{"workers": 1, **more},
            )
            if after is not None:
                after(gateway)
            return Played(gateway, played)

    return run
