"""Probes: an environment can be put back, copied, pickled and rebuilt from its spec."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from traceback import extract_tb

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.check.subject import (
    DoesNotApply,
    Env,
    Player,
    Step,
    Subject,
    actions_of,
    expect,
    first_difference,
    go_on,
    play,
    replay,
    snapshotter,
    start,
)


def snapshot(subject: Subject) -> str:
    """Step, snapshot, step on, restore, step on again: identical, twice, and after another episode in between."""
    subject.require_agent_env()
    players: dict[str, Player] = {"random": subject.random(subject.seed)}
    if subject.overrides("gold"):
        players["gold"] = subject.gold()
    for name, player in players.items():
        with subject.make() as env:
            whole = actions_of(play(env, player, seed=subject.seed, steps=4 if subject.expensive else 60))
            for at in {len(whole) // 2} if subject.expensive else sorted({0, len(whole) // 2}):
                _check_snapshot(subject, env, name, whole[:at], whole[at:])
    where = "half-way" if subject.expensive else "after the reset and half-way"
    return f"{' and '.join(players)} actions, snapshots {where}, each restored three times"


def _check_snapshot(subject: Subject, env: Env, name: str, before: list[str], after: list[str]) -> None:
    play(env, replay(before), seed=subject.seed)
    saved = snapshotter(env).snapshot()
    expected = _go_on_and_reset(env, after)
    for attempt in ("restored", "restored again", "restored after another episode"):
        if attempt == "restored after another episode":
            play(env, subject.random(1), seed=subject.seed + 1, steps=2)
        snapshotter(env).restore(saved)
        difference = first_difference(expected, _go_on_and_reset(env, after))
        expect(
            difference is None,
            f"{name} actions, snapshot after {len(before)} steps, {attempt}: {difference}; state outside the "
            "environment's attributes belongs in save_workspace and load_workspace",
        )


def _go_on_and_reset(env: Env, actions: list[str]) -> list[Step]:
    """The rest of the episode and a reset without a seed, which shows whether the generator came back, too."""
    return [*go_on(env, replay(actions)), start(env)]


def pickle_and_deepcopy(subject: Subject) -> str:
    """Pickled and deep-copied instances go on as the original does, and leave it alone."""
    ways: dict[str, Callable[[Env], Env]] = {
        "pickle": lambda env: pickle.loads(pickle.dumps(env)),
        "deepcopy": copy.deepcopy,
    }
    refusals = []
    for name, duplicate in ways.items():
        with subject.make() as env:
            recorded = actions_of(play(env, subject.random(subject.seed), seed=subject.seed, steps=6))
        middle = len(recorded) // 2
        for moment, steps in (("before the first reset", None), ("in mid-episode", middle)):
            with subject.make() as env:
                if steps is not None:
                    play(env, replay(recorded[:steps]), seed=subject.seed)
                try:
                    twin = duplicate(env)
                except Exception as error:
                    if steps is None or not _refused(error):
                        raise
                    refusals.append(f"{name} {moment} is refused: {error}")
                    continue
                with twin:
                    copied = _continue(twin, recorded, steps, subject.seed)
                    original = _continue(env, recorded, steps, subject.seed)
            difference = first_difference(original, copied)
            expect(difference is None, f"{name} {moment}: original and copy differ, {difference}")
    if refusals:
        raise DoesNotApply("; ".join(refusals))
    return "both before the first reset and in mid-episode; the original goes on the same"


def _refused(error: Exception) -> bool:
    """Whether the environment said no itself, rather than that something in it could not be copied."""
    return extract_tb(error.__traceback__)[-1].name in (
        "__getstate__",
        "__reduce__",
        "__reduce_ex__",
        "__deepcopy__",
    )


def _continue(env: Env, recorded: list[str], steps: int | None, seed: int) -> list[Step]:
    return play(env, replay(recorded), seed=seed) if steps is None else go_on(env, replay(recorded[steps:]))


def spec(subject: Subject) -> str:
    """The spec survives JSON, and what is made from it plays the same."""
    with subject.make() as env:
        if env.spec is None:
            raise DoesNotApply("made from a class or function, so it has no spec; audit its id")
        try:
            json.dumps(subject.kwargs)
        except TypeError:
            raise DoesNotApply("the audit was given keywords that JSON cannot hold") from None
        text = env.spec.to_json()
        trace = play(env, subject.random(subject.seed), seed=subject.seed, steps=5)
    with gymnasium.make(EnvSpec.from_json(text)) as rebuilt:
        difference = first_difference(
            trace, play(rebuilt, replay(actions_of(trace)), seed=subject.seed, steps=5)
        )
    expect(difference is None, f"the environment made from its spec's JSON differs: {difference}")
    return f"rebuilt from {len(text)} characters of JSON"
