"""Skills without a language model: out of what happened, or out of what the environment's own solver would have done.

`RuleAnalyser` works offline on any environment. `SolverAnalyser` is for studies: the best skills there can be, and
controls that look like them but say something else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, TypeAlias

import gymnasium
import numpy as np

from agentgym.core import AgentEnv
from agentgym.credit import step_anchors
from agentgym.errors import InfrastructureError, TaskError, UsageError
from agentgym.trajectory.records import Trajectory
from baselines.skills import Skills, clean, said, sent, turns

Kind: TypeAlias = Literal["oracle", "inverted", "random"]


class RuleAnalyser:
    """Skills by rule: invalid actions, those that brought nothing new, and what a sibling did that solved the task.

    | rollout | episode skill | step skills, the first `most_steps` of them |
    |---|---|---|
    | solved (without a hack) | its actions without invalid ones and circles | where it or a sibling did otherwise |
    | failed, a sibling solved | that sibling's actions | in states where that sibling did otherwise |
    | failed like all siblings | actions that were invalid or brought nothing new | the same, one by one |

    States are equal where ``info["anchor"]`` is; in environments without anchors, where the last observation is.

    Args:
        most_steps: largest number of step skills.
    """

    def __init__(self, most_steps: int = 5) -> None:
        self._most = most_steps

    def analyse(self, trajectories: Sequence[Trajectory], chosen: Sequence[int]) -> list[Skills]:
        """See `baselines.skills.Analyser`."""
        siblings: dict[Hashable, list[Trajectory]] = {}
        for trajectory in trajectories:
            if not trajectory.infrastructure_error:
                siblings.setdefault(trajectory.extra["group"], []).append(trajectory)
        return [self._skills(trajectories[n], siblings[trajectories[n].extra["group"]]) for n in chosen]

    def _skills(self, trajectory: Trajectory, siblings: Sequence[Trajectory]) -> Skills:
        solved = [t for t in siblings if t.outcome == "clean_resolved"]  # how to cheat is no skill
        if not solved:
            return self._avoid(trajectory)
        model = trajectory if trajectory in solved else min(solved, key=lambda t: t.turns)
        plan = _useful(model)
        right = dict(plan)
        tried: dict[Hashable, set[str]] = {}  # by state, by those whose choices are compared
        for other in siblings if model is trajectory else [trajectory]:
            for state, action in _moves(other):
                tried.setdefault(state, set()).add(action)
        steps = {
            index: clean(advice(right[state]))
            for index, (state, _) in zip(turns(trajectory), _moves(trajectory), strict=True)
            if state in right and tried[state] != {right[state]}
        }
        return Skills(clean(workflow([action for _, action in plan])), self._first(steps))

    def _avoid(self, trajectory: Trajectory) -> Skills:
        mistakes = _mistakes(trajectory)
        steps = {index: clean(f"Do not {action}: it {why}.") for index, (action, why) in mistakes.items()}
        useless = dict.fromkeys(action for action, _ in mistakes.values())
        return Skills(
            clean(f"Do none of these: {'; '.join(useless)}.") if useless else "", self._first(steps)
        )

    def _first(self, steps: dict[int, str]) -> dict[int, str]:
        return dict(list(steps.items())[: self._most])


def advice(action: str) -> str:
    """A skill for one decision."""
    return f"Do this: {action}"


def workflow(actions: Sequence[str]) -> str:
    """A skill for the episode."""
    return f"Do this, in order: {'; '.join(actions)}" if actions else ""


def _states(trajectory: Trajectory) -> list[Hashable]:
    """The state before each turn, and the one after the last."""
    anchors = step_anchors(trajectory)
    steps = [trajectory.steps[index] for index in turns(trajectory)]
    if all(anchors[index] is not None for index in turns(trajectory)):
        return [
            *(anchors[index] for index in turns(trajectory)),
            steps[-1].info.get("anchor") if steps else None,
        ]
    return [trajectory.prompt, *(step.observation for step in steps)]


def _moves(trajectory: Trajectory) -> list[tuple[Hashable, str]]:
    """The state before each turn, and what was done in it."""
    actions = [said(trajectory.steps[index]) for index in turns(trajectory)]
    return list(zip(_states(trajectory), actions, strict=False))


def _useful(trajectory: Trajectory) -> list[tuple[Hashable, str]]:
    """The moves without those that were invalid, and without the way round where a state came again."""
    path: list[tuple[Hashable, str]] = []
    for index, move in zip(turns(trajectory), _moves(trajectory), strict=True):
        if "invalid_action" in trajectory.steps[index].info:
            continue
        seen = [state for state, _ in path]
        if move[0] in seen:
            del path[seen.index(move[0]) :]
        path.append(move)
    return path


def _mistakes(trajectory: Trajectory) -> dict[int, tuple[str, str]]:
    """By step: an action that was invalid or brought nothing new, and which of the two.

    Nothing new is a state that was there before, with an answer that was read before: looking around may leave the
    state as it was. How an episode ended is no mistake of this kind.
    """
    found: dict[int, tuple[str, str]] = {}
    states = _states(trajectory)
    known, read = set(states[:1]), {trajectory.prompt}
    for index, (_, action), after in zip(turns(trajectory), _moves(trajectory), states[1:], strict=True):
        step = trajectory.steps[index]
        if "invalid_action" in step.info:
            found[index] = (action, "is not possible here")
        elif after in known and step.observation in read and step is not trajectory.steps[-1]:
            found[index] = (action, "brings nothing new")
        known.add(after)
        read.add(step.observation)
    return found


# -- what the environment's solver knows -------------------------------------------------------------------------------


class SolverAnalyser:
    """Skills out of `AgentEnv.gold`: every trajectory is played again, and before each step the solver is asked.

    - ``"oracle"``: the episode skill is the solver's way from the beginning; the step skills are what it would have
      done at the first `most_steps` steps where the policy did something else.
    - ``"inverted"``: in place of each of the solver's actions another one that is admissible there.
    - ``"random"``: in place of each any admissible one.

    States from which the solver knows no way get no skill.

    Args:
        env: without wrappers; as the rollouts had it.
        kind: see above.
        most_steps: largest number of step skills.
        seed: of the controls; what a rollout gets depends on it and on the rollout's number only.

    Raises:
        UsageError: the environment has no solver; for the controls, no admissible actions.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], kind: Kind = "oracle", *, most_steps: int = 5, seed: int = 0
    ) -> None:
        inner = env.unwrapped
        if not isinstance(inner, AgentEnv) or type(inner).gold is AgentEnv.gold:
            raise UsageError(
                f"analyser {kind!r} asks the environment's solver, and {type(inner).__name__} has none"
            )
        if kind != "oracle" and type(inner).admissible_actions is AgentEnv.admissible_actions:
            raise UsageError(
                f"analyser {kind!r} needs admissible actions, and {type(inner).__name__} lists none"
            )
        self._env, self._inner = env, inner
        self._kind: Kind = kind
        self._most = most_steps
        self._seed = seed

    def analyse(self, trajectories: Sequence[Trajectory], chosen: Sequence[int]) -> list[Skills]:
        """See `baselines.skills.Analyser`.

        Raises:
            InfrastructureError: an episode that is played again goes another way.
        """
        return [self._skills(trajectories[n]) for n in chosen]

    def _skills(self, trajectory: Trajectory) -> Skills:
        rng = np.random.default_rng((self._seed, trajectory.extra["episode"]))
        steps: dict[int, str] = {}
        for index, (gold, told) in self.answers(trajectory, rng).items():
            step = trajectory.steps[index]
            if told and gold not in (step.action, said(step)) and len(steps) < self._most:
                steps[index] = clean(advice(told))
        return Skills(clean(workflow(self._plan(trajectory, rng))), steps)

    def answers(self, trajectory: Trajectory, rng: np.random.Generator) -> dict[int, tuple[str, str]]:
        """By step of the trajectory: the solver's action, and what this kind says in its place.

        Both are "" where the solver knows no way.
        """
        found: dict[int, tuple[str, str]] = {}
        self._reset(trajectory)
        for index in turns(trajectory):
            found[index] = self._tell(rng)
            step = trajectory.steps[index]
            observation, *_ = self._env.step(sent(step))
            if observation != step.observation:
                raise InfrastructureError(
                    f"analyser {self._kind!r}: step {index} of {trajectory.id} was answered otherwise when played again"
                )
        return found

    def _plan(self, trajectory: Trajectory, rng: np.random.Generator) -> list[str]:
        """What to do from the beginning, as this kind tells it."""
        self._reset(trajectory)
        plan: list[str] = []
        over = False
        while not over:
            gold, told = self._tell(rng)
            plan.append(told)
            _, _, terminated, truncated, _ = self._env.step(gold)
            over = terminated or truncated
        return plan

    def _reset(self, trajectory: Trajectory) -> None:
        # A task that was drawn must be drawn again: choosing it would leave the random generator in another state.
        drawn = trajectory.seed is not None and not trajectory.extra.get("task_chosen", False)
        self._env.reset(seed=trajectory.seed, options=None if drawn else {"task": trajectory.task_id})

    def _tell(self, rng: np.random.Generator) -> tuple[str, str]:
        """For the present state, see `answers`."""
        try:
            gold = self._inner.gold()
        except TaskError:
            return "", ""
        if self._kind == "oracle":
            return gold, gold
        listed = self._inner.admissible_actions()
        others = [action for action in listed if self._kind == "random" or action != gold]
        return gold, others[int(rng.integers(len(others)))] if others else ""
