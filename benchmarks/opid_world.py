"""TextWorld for the study of OPID: some of its games only, and texts that may hold advice.

A model from scratch can't know what advice is. So it imitates a player who gets advice now and then, in the very places
and words of `baselines.opid`, and follows it, right or wrong. In training and evaluation there is no advice.
"""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
from gymnasium.envs.registration import register

from agentgym.core import Task, TaskSet, ToolResult
from agentgym.envs.textworld import TextWorldEnv
from baselines.opid import with_episode_skill, with_step_skill
from baselines.skill_rules import advice, workflow

HARMLESS = ("close", "examine", "go", "inventory", "look", "open")  # after these a game can still be won


class AdvisedEnv(TextWorldEnv):
    """Small games, with advice on the way where that is asked for.

    ## Description
    `agentgym/TextWorld-v0` with two rooms, three things and two steps to the goal. The solver follows what was advised.

    Args:
        count: so many games of the split are played, the first ones.
        advised: probability that a text comes with advice. Half of the advice on single decisions is right; the other
            half is any command after which the game can still be won.
        **kwargs: see `TextWorldEnv`.

    ## Version history
    v0: first.
    """

    def __init__(self, *, count: int = 48, advised: float = 0.0, split: str = "train", **kwargs: Any) -> None:
        super().__init__(tasks=_tasks(split, count), split=split, **{"max_turns": 6} | kwargs)
        self.advised = advised

    def begin(self, task: Task) -> str:
        """Load the game; sometimes with the way to win."""
        text = super().begin(task)
        if self.np_random.random() < self.advised / 2:
            text = with_episode_skill(text, workflow(self.play.story.walkthrough))
        return self._advise(text)

    def respond(self, action: str) -> str | ToolResult:  # type: ignore[override]
        """One command."""
        answer = super().respond(action)
        if self.play.over or not isinstance(answer, ToolResult):
            return answer
        return ToolResult(self._advise(answer.text), error=answer.error)

    def _advise(self, text: str) -> str:
        self._told = ""
        if self.np_random.random() >= self.advised:
            return text
        harmless = [command for command in self.admissible_actions() if command.split()[0] in HARMLESS]
        right = self.np_random.random() < 0.5 or not harmless
        self._told = super().gold() if right else harmless[int(self.np_random.integers(len(harmless)))]
        return with_step_skill(text, advice(self._told))

    def gold(self) -> str:
        """What was advised, else what leads to the goal."""
        return self._told or super().gold()


@functools.cache
def _tasks(split: str, count: int) -> TaskSet:
    level = gymnasium.make("agentgym/TextWorld-v0", rooms=2, objects=3, quest_length=2, split=split)
    return level.unwrapped.task_pool[:count]  # type: ignore[attr-defined, no-any-return]


if "Advised-v0" not in gymnasium.registry:
    register("Advised-v0", entry_point=f"{__name__}:AdvisedEnv")
