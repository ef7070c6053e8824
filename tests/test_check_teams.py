"""The audit of parallel environments: a good one passes, each planted fault is found by its probe."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import pettingzoo
import pytest

from agentgym import Task, Verdict
from agentgym.check import check, teams
from agentgym.parallel import Answer, TextParallelEnv


class Dice(TextParallelEnv):
    """Two players say a number; whoever names the die wins a point."""

    tasks = [Task("short", "Guess.", "train"), Task("long", "Guess again.", "test")]
    possible_agents = ["left_0", "right_0"]
    default_max_cycles = 5

    def begin(self, task: Task) -> dict[str, str]:
        self.points = dict.fromkeys(self.possible_agents, 0)
        return dict.fromkeys(self.possible_agents, task.prompt)

    def roll(self) -> int:
        return int(self.np_random.integers(1, 7))

    def play(self, actions: Mapping[str, str]) -> dict[str, str | Answer]:
        die = self.roll()
        for agent, action in actions.items():
            self.points[agent] += action == str(die)
        return dict.fromkeys(actions, f"It was {die}; {self.points}.")

    def verify(self) -> dict[str, Verdict]:
        return {agent: Verdict(points / self.max_cycles) for agent, points in self.points.items()}

    def admissible_actions(self, agent: str) -> tuple[str, ...]:
        return tuple("123456")


class GlobalDie(Dice):
    def roll(self) -> int:
        return random.randint(1, 6)


_clock = itertools.count()


class Clock(Dice):
    def roll(self) -> int:
        return next(_clock)


class HalfSnapshot(Dice):
    snapshot_exclude = frozenset({"points"})


class Undocumented(Dice):
    def more_info(self, agent: str) -> dict[str, object]:
        return {"points": self.points[agent]}


class MutableInfo(Dice):
    def more_info(self, agent: str) -> dict[str, object]:
        return {"anchor": "a", "tools": [1]}


class Shared(Dice):
    everybody = {"left_0": 0, "right_0": 0}  # of the class

    def begin(self, task: Task) -> dict[str, str]:
        told = super().begin(task)
        self.points = self.everybody
        return told


class Endless(Dice):
    rounds_left = 1  # type: ignore[assignment]


class Terminates(Dice):
    def play(self, actions: Mapping[str, str]) -> dict[str, str | Answer]:
        if self.rounds_left == 1:
            self.finish()
        return super().play(actions)


class OnePrompt(Dice):
    def begin(self, task: Task) -> dict[str, str]:
        self._task = self.task_set["short"]  # whatever was asked for
        return super().begin(self._task)


FAULTS: list[tuple[type[Dice], set[str]]] = [
    (GlobalDie, {"same_seed", "global_random_state"}),
    (Clock, {"same_seed", "instances", "snapshot", "threads"}),
    (HalfSnapshot, {"snapshot"}),
    (Undocumented, {"info"}),
    (MutableInfo, {"info"}),
    (Shared, {"same_seed", "instances"}),
    (Endless, {"turn_limit"}),
    (Terminates, {"turn_limit"}),
    (OnePrompt, {"reset_options"}),
]


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Callable[[type[Dice]], str]:
    """Put a class into PettingZoo's registry for the length of a test."""

    def register(cls: type[Dice]) -> str:
        name = f"{cls.__name__}-v0"
        pettingzoo.register("parallel", name, cls)
        request.addfinalizer(lambda: pettingzoo.parallel_registry.pop(name))
        return name

    return register


def test_a_good_one_passes(registered):
    report = check(
        registered(Dice), only=[name for name in teams.PROBES if name != "resources"]
    )  # that takes seconds
    assert all(probe.ok for probe in report.probes), report
    assert len(report.probes) == 13


@pytest.mark.parametrize(("cls", "probes"), FAULTS, ids=[cls.__name__ for cls, _ in FAULTS])
def test_each_fault_is_found(cls, probes, registered):
    report = check(registered(cls), only=sorted(probes), resets=5)
    assert report.failures.keys() >= probes, report
