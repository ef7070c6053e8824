"""Probes: who is paid. Nothing pays nothing, the solution pays 1, and cheats are not paid as clean."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from agentgym.check.subject import (
    DoesNotApply,
    Env,
    Player,
    Step,
    Subject,
    expect,
    go_on,
    play,
    policy_player,
    replay,
    start,
)
from agentgym.core import AgentEnv
from agentgym.policies.scripted import Repeat


def floor(subject: Subject) -> str:
    """Doing nothing pays 0 and never passes; random and repeated actions stay below one half, in score and passes.

    A task with few choices may be passed by luck, so random play is judged by its mean over many episodes; where a
    verdict is expensive there are few, and one lucky pass fails the probe.
    """
    subject.require_agent_env()
    episodes = subject.times(20, resets=3, ends=3, budget_s=12)
    said = []
    for name in ("null", "repeat", "random"):
        scores, passes = [], 0
        with subject.make() as env:
            for number in range(episodes):
                player = subject.null() if name == "null" else _floor_player(subject, name, number)
                trace = play(env, player, seed=subject.seed + number)
                score = float(sum(step.reward for step in trace))
                passed = bool(trace[-1].info.get("resolved", False))
                scores.append(score)
                passes += passed
                if name == "null":
                    where = (
                        f"the null policy, seed {subject.seed + number}, task {trace[-1].info['task_id']!r}"
                    )
                    expect(
                        score == 0.0 and not passed,
                        f"{where}: expected reward 0, not resolved, for doing nothing; got {score}, resolved={passed}",
                    )
        mean = sum(scores) / episodes
        expect(
            mean < 0.5 and 2 * passes < episodes,
            f"the {name} policy: expected a mean reward below 0.5 and fewer passes than half, got {mean:.2f} and "
            f"{passes} of {episodes}",
        )
        said.append(f"{name} {mean:.2f}")
    return f"mean reward over {episodes} episodes: {', '.join(said)}"


def _floor_player(subject: Subject, name: str, number: int) -> Player:
    return policy_player(Repeat(), number) if name == "repeat" else subject.random(number)


def gold(subject: Subject) -> str:
    """The environment's own solver is paid 1, on some tasks of every split."""
    if not subject.overrides("gold"):
        raise DoesNotApply("the environment has no gold()")
    per_split = subject.times(3, resets=1, ends=1, budget_s=8)
    solved = 0
    with subject.make() as env:
        for split, task_id in _some_tasks(env, per_split):
            trace = play(env, subject.gold(), seed=subject.seed, task=task_id)
            last = trace[-1]
            got = f"got {last.reward} after {len(trace) - 1} turns, resolved={last.info.get('resolved')}, "
            expect(
                last.reward == 1.0 and last.info.get("resolved") is True and last.terminated is True,
                f"task {task_id!r} (split {split}): expected gold to end terminated and resolved with reward 1.0, {got}"
                f"terminated={last.terminated}; does it call self.finish(), "
                "and does begin() clear what a former episode left?",
            )
            solved += 1
    return f"reward 1 on {solved} tasks, up to {per_split} of each split"


def cheats(subject: Subject) -> str:
    """No planted cheat ends as passed and clean."""
    if not subject.overrides("cheats"):
        raise DoesNotApply("the environment has no cheats()")
    played = 0
    with subject.make() as env:
        for _, task_id in _some_tasks(env, 1):
            start(env, seed=subject.seed, task=task_id)
            for name, actions in _agent_env(env).cheats().items():
                start(env, seed=subject.seed, task=task_id)
                last = _play_out(env, subject, list(actions))
                clean = bool(last.info.get("resolved")) and not last.info.get("hacked", False)
                expect(
                    not clean,
                    f"cheat {name!r} on task {task_id!r}: expected it not to pass, or to be marked as hacked; it "
                    f"passed with reward {last.reward}",
                )
                played += 1
    if not played:
        raise DoesNotApply("cheats() names none for these tasks")
    return f"{played} cheats played, none passed as clean"


def _play_out(env: Env, subject: Subject, actions: list[str]) -> Step:
    """The actions, then nothing until the episode ends."""

    def player(env: Env) -> Iterator[str]:
        return itertools.chain(replay(actions)(env), subject.null()(env))

    return go_on(env, player)[-1]


def _some_tasks(env: Env, per_split: int) -> Iterator[tuple[str, str]]:
    tasks = _agent_env(env).task_set
    for split in tasks.splits:
        for task in itertools.islice(tasks.split(split), per_split):
            yield split, task.id


def _agent_env(env: Env) -> AgentEnv:
    agent_env = env.unwrapped
    assert isinstance(agent_env, AgentEnv)
    return agent_env
