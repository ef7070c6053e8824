"""Running a recorded trajectory again: does the environment still answer the same, and what does the verifier say?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from agentgym.core import AgentEnv, Verdict
from agentgym.errors import InfrastructureError, UsageError
from agentgym.messages import Message
from agentgym.trajectory.records import Step, Trajectory


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a replay and its recording part.

    Attributes:
        step: index into the trajectory's steps; -1 for `reset`.
        field: "task_id", "prompt", "observation", "reward", "terminated", "truncated" or "steps".
        recorded, replayed: the two values.
    """

    step: int
    field: str
    recorded: Any
    replayed: Any


def replay(trajectory: Trajectory, env: gymnasium.Env[Any, Any]) -> Difference | None:
    """Run the recorded actions and compare prompt, observations, rewards and how the episode ended.

    Args:
        trajectory: as `RecordTrajectory` wrote it.
        env: the same environment, with or without the context wrappers of the recording: summaries that it
            does not ask for are skipped.

    Returns:
        The first difference, or None.
    """
    for index, recorded, replayed in _run(trajectory, env):
        for field, value in recorded.items():
            if replayed[field] != value:
                return Difference(index, field, value, replayed[field])
    return None


def rescore(trajectory: Trajectory, env: gymnasium.Env[Any, Any]) -> Verdict:
    """The verdict on the recorded actions by the environment's present verifier. No model is asked.

    Observations may differ from the recorded ones (they may hold times); the actions are the recorded ones.

    Raises:
        UsageError: the recorded actions do not end the episode.
        InfrastructureError: the environment failed.
    """
    info: dict[str, Any] = {}
    for _, _, replayed in _run(trajectory, env):
        info = replayed["info"]
    if info.get("infrastructure_error"):
        raise InfrastructureError(info_text(info, "infrastructure_error"))
    verdict = info.get("verdict")
    if not isinstance(verdict, Verdict):
        raise UsageError(
            f"trajectory {trajectory.id!r}: its actions do not end an episode of this environment"
        )
    return verdict


def observation_text(env: gymnasium.Env[Any, Any], observation: Any, turns_before: int) -> str:
    """An observation as text: itself, or what the environment inside answered where it is a conversation.

    Args:
        env: the wrapped environment.
        observation: as its `step` returned it.
        turns_before: how many turns the episode had before that step.
    """
    if isinstance(observation, str):
        return observation
    inner = env.unwrapped
    if isinstance(inner, AgentEnv) and len(inner.episode.turns) > turns_before:
        return inner.episode.turns[-1].observation
    return str(observation[-1].content) if observation else ""


def prompt_text(env: gymnasium.Env[Any, Any], observation: Any) -> str:
    """The first observation as text."""
    inner = env.unwrapped
    if isinstance(inner, AgentEnv) and not isinstance(observation, str):
        return inner.episode.prompt
    last = observation[-1] if isinstance(observation, tuple) and observation else observation
    text: str = last.content if isinstance(last, Message) else last
    return text


def info_text(info: Mapping[str, Any], name: str) -> str:
    """What an environment, maybe of somebody else's, says in info, as a record holds it; "" where it says nothing."""
    value = info.get(name)
    return "" if value is None else str(value)


def turns_of(env: gymnasium.Env[Any, Any]) -> int:
    """How many turns the running episode has had."""
    inner = env.unwrapped
    return len(inner.episode.turns) if isinstance(inner, AgentEnv) else 0


def _run(
    trajectory: Trajectory, env: gymnasium.Env[Any, Any]
) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """For reset and every step: its index, the recorded values, the replayed ones."""
    # A task that was drawn must be drawn again: choosing it would leave the random generator in another state.
    drawn = trajectory.seed is not None and not trajectory.extra.get("task_chosen", False)
    options = None if drawn else {"task": trajectory.task_id}
    observation, info = env.reset(seed=trajectory.seed, options=options)
    recorded = {"task_id": trajectory.task_id, "prompt": trajectory.prompt}
    yield (
        -1,
        recorded,
        {"task_id": info_text(info, "task_id"), "prompt": prompt_text(env, observation), "info": info},
    )

    # What sub-agents did is played again by those who play them.
    steps = [(index, step) for index, step in enumerate(trajectory.steps) if step.kind != "delegated"]
    over = False
    for index, step in steps:
        if step.kind == "summary" and not info.get("summary_requested"):
            continue
        if over:
            yield index, {"steps": len(steps)}, {"steps": index, "info": info}
            return
        turns = turns_of(env)
        observation, reward, terminated, truncated, info = env.step(step.action)
        over = terminated or truncated
        last = index == steps[-1][0]
        replayed = {"reward": float(reward), "terminated": terminated, "truncated": truncated, "info": info}
        if step.kind == "turn":
            replayed["observation"] = observation_text(env, observation, turns)
        yield index, _recorded(step, trajectory, last), replayed


def _recorded(step: Step, trajectory: Trajectory, last: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"observation": step.observation} if step.kind == "turn" else {}
    values["reward"] = step.reward
    values["terminated"] = last and trajectory.terminated
    values["truncated"] = last and trajectory.truncated
    return values
