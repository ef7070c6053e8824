"""Probes: the interface, value by value."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from agentgym.check.subject import Failed, Step, Subject, expect, play, short, snapshotter
from agentgym.core import INFO_KEYS, AgentEnv
from agentgym.errors import UsageError, nearest
from agentgym.tasks import FrozenDict

# What Gymnasium's checker warns of although nothing is wrong.
_IRRELEVANT_WARNINGS = (
    "different from the unwrapped version",  # the audit means the environment as `make` returns it, wrappers included
    "space minimum value is",  # a box may be unbounded
    "space maximum value is",
)


def start_up(subject: Subject) -> str:
    """The environment can be made, reset, stepped and closed."""
    subject.measure()
    costs = f"reset {subject.reset_s * 1e3:.1f} ms, step {subject.step_s * 1e3:.1f} ms"
    return f"{costs}, last step with its verdict {subject.verdict_s * 1e3:.1f} ms"


def gymnasium_checker(subject: Subject) -> str:
    """Gymnasium's own checker passes, its warnings taken as errors."""
    with subject.make() as env, warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for text in _IRRELEVANT_WARNINGS:
            warnings.filterwarnings("ignore", f"(?s).*{re.escape(text)}")
        try:
            # Without a spec no other render mode can be made, which the checker would warn of.
            check_env(env, skip_render_check=env.spec is None)
        except (AssertionError, UserWarning) as error:
            raise Failed(f"gymnasium.utils.env_checker.check_env: {error}") from None
    return "check_env without a warning" + ("" if env.spec else "; render modes not tried, there is no spec")


def spaces(subject: Subject) -> str:
    """Observations and actions are in their spaces, rewards finite Python floats, flags bools."""
    steps = 0
    with subject.make() as env:
        # Wrappers of ours may shape rewards
        bounded = subject.is_agent_env and snapshotter(env) is env.unwrapped
        for number in range(subject.times(6, resets=1, ends=1)):
            player = subject.random(number) if number % 2 else subject.null()
            for index, step in enumerate(play(env, player, seed=subject.seed + number)):
                steps += 1
                where = f"seed {subject.seed + number}, step {index}"
                expect(step.observation in env.observation_space, _outside(where, "observation", step, env))
                if step.action is not None:
                    expect(
                        step.action in env.action_space,
                        f"{where}: expected the action space to hold {short(step.action)}, it is {env.action_space}",
                    )
                _check_numbers(where, step, bounded=bounded)
        env.action_space.seed(subject.seed)
        for _ in range(5):
            env.reset(seed=subject.seed)
            env.step(env.action_space.sample())  # whatever the action space holds is answered, not refused
    return f"{steps} steps of null and random policies"


def _outside(where: str, what: str, step: Step, env: gymnasium.Env[Any, Any]) -> str:
    return f"{where}: expected an {what} in {env.observation_space}, got {short(step.observation)}"


def _check_numbers(where: str, step: Step, *, bounded: bool) -> None:
    reward = step.reward
    expect(
        type(reward) is float and math.isfinite(reward),
        f"{where}: expected the reward to be a finite Python float, got {type(reward).__name__} {reward!r}",
    )
    if bounded:
        expect(0.0 <= reward <= 1.0, f"{where}: expected a reward in [0, 1], got {reward}")
        expect(step.ended or reward == 0.0, f"{where}: expected reward 0 before the end, got {reward}")
    for name in ("terminated", "truncated"):
        flag = getattr(step, name)
        expect(
            type(flag) is bool, f"{where}: expected {name} to be a bool, got {type(flag).__name__} {flag!r}"
        )
    expect(type(step.info) is dict, f"{where}: expected info to be a dict, got {type(step.info).__name__}")


def info(subject: Subject) -> str:
    """Every info key is documented, of its one type and frozen; nothing is None."""
    subject.require_agent_env()
    players = {"null": subject.null(), "random": subject.random(subject.seed)}
    if subject.overrides("gold"):
        players["gold"] = subject.gold()
    seen: set[str] = set()
    with subject.make() as env:
        for name, player in players.items():
            for index, step in enumerate(play(env, player, seed=subject.seed)):
                seen |= step.info.keys()
                check_info(f"{name} policy, step {index}", step)
    return "keys seen: " + ", ".join(key for key in INFO_KEYS if key in seen)


def check_info(where: str, step: Step) -> None:
    """Fail unless the step's info keeps to `INFO_KEYS`."""
    for key in ("task_id", "calls"):
        expect(key in step.info, f"{where}: expected info[{key!r}], got {sorted(step.info)}")
    for key, value in step.info.items():
        documented = INFO_KEYS.get(key)
        expect(
            documented is not None, f"{where}: info key {key!r} is not documented.{nearest(key, INFO_KEYS)}"
        )
        expect(value is not None, f"{where}: info[{key!r}] is None; leave out what is not known")
        wanted = str(documented).partition(":")[0]
        expect(_is_of(value, wanted), f"{where}: expected info[{key!r}] to be {wanted}, got {short(value)}")
        culprit = _mutable_part(value)
        expect(
            culprit is None,
            f"{where}: info[{key!r}] holds a {type(culprit).__name__}, which can change; use tuples, frozen "
            "dataclasses, FrozenDict",
        )
    for key in ("verdict", "resolved"):
        expect(
            (key in step.info) == step.ended,
            f"{where}: expected info[{key!r}] at the end of the episode and only there, "
            f"{'it is missing' if step.ended else 'it came earlier'}",
        )
    if step.ended:
        passed = step.info["verdict"].passed
        expect(
            step.info["resolved"] is passed,
            f"{where}: expected resolved to be verdict.passed, which is {passed}",
        )


def _is_of(value: Any, wanted: str) -> bool:
    """Whether the value has a type written as in `INFO_KEYS`: "str", "tuple[Tool, ...]"."""
    outer, _, inner = wanted.rstrip("]").partition("[")
    if type(value).__name__ != outer:
        return False
    element = inner.partition(",")[0]
    return not element or all(type(item).__name__ == element for item in value)


def _mutable_part(value: Any) -> Any:
    """Something inside the value that could be changed; None if all of it is frozen."""
    if value is None or isinstance(value, str | bytes | bool | int | float | Enum):
        return None
    if isinstance(value, tuple | frozenset):
        parts = list(value)
    elif isinstance(value, FrozenDict):
        parts = list(value.values())
    elif dataclasses.is_dataclass(value) and _is_frozen(type(value)):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        return value
    return next((culprit for part in parts if (culprit := _mutable_part(part)) is not None), None)


def _is_frozen(dataclass: Any) -> bool:
    return bool(dataclass.__dataclass_params__.frozen)


def reset_options(subject: Subject) -> str:
    """`reset` takes a task by id, index and object; what does not exist is an error that names what does."""
    subject.require_agent_env()
    with subject.make() as env:
        agent_env = env.unwrapped
        assert isinstance(agent_env, AgentEnv)
        task = agent_env.task_pool[len(agent_env.task_pool) - 1]
        for wanted in (task.id, len(agent_env.task_pool) - 1, task):
            _, got = env.reset(seed=subject.seed, options={"task": wanted})
            expect(
                got["task_id"] == task.id,
                f"expected reset(options={{'task': {short(wanted)}}}) to give {task.id!r}, got {got['task_id']!r}",
            )
        wrong_id = task.id + "x"
        _refuses(
            f"reset(options={{'task': {wrong_id!r}}})",
            lambda: env.reset(options={"task": wrong_id}),
            repr(task.id),
        )
        _refuses("reset(options={'tsak': 0})", lambda: env.reset(options={"tsak": 0}), "task")
        _refuses("reset(options={'task': 1.5})", lambda: env.reset(options={"task": 1.5}), "index")
        beyond = len(agent_env.task_pool)
        _refuses(
            f"reset(options={{'task': {beyond}}})", lambda: env.reset(options={"task": beyond}), str(beyond)
        )
        env.reset(seed=subject.seed)  # still usable after all those refusals
    if not isinstance(subject.source, str | type):
        return "tasks by id, index and object; keywords not tried, the environment comes from a function"
    _refuses("the keyword max_turn=3", lambda: subject.make(max_turn=3), "max_turns")
    _refuses("split='no such split'", lambda: subject.make(split="no such split"), "all")
    subject.make(split="all").close()
    return "tasks by id, index and object; unknown tasks, options, keywords and splits are refused"


def _refuses(what: str, act: Callable[[], Any], hint: str) -> None:
    """Expect a UsageError or TypeError whose text holds the hint."""
    try:
        act()
    except (UsageError, TypeError) as error:
        expect(
            hint in str(error),
            f"{what}: expected an error that mentions {hint!r}, got {short(str(error), 120)}",
        )
        return
    except Exception as error:
        raise Failed(f"{what}: expected a UsageError, got {type(error).__name__}: {error}") from None
    raise Failed(f"{what}: expected an error, it was accepted")
