"""Policies times environments gives trajectories: concurrent, isolated, resumable.

`make_env` builds the usual stack around an environment; `collect` runs many episodes of it. Each worker is a
thread with its own environment. Episode `i` depends on the seed and on `i` only, never on the workers or their
order. What goes wrong in one episode is written on its trajectory and touches no other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from agentgym.core import AgentEnv
from agentgym.errors import UsageError, whole_number
from agentgym.policies import Policy, is_model, make_policy
from agentgym.registration import find, require
from agentgym.trajectory.records import Trajectory
from agentgym.trajectory.salvage import append_or_mark
from agentgym.trajectory.store import TrajectoryStore
from agentgym.workers import Env, Job, Player, Run, close_quietly, conversing, stacked
from agentgym.wrappers.compaction import ContextCompaction
from agentgym.wrappers.delegation import Delegation
from agentgym.wrappers.prompts import PublishedPrompts
from agentgym.wrappers.record import RecordTrajectory

__all__ = ["collect", "make_env", "with_models"]


def make_env(
    env_id: str,
    *,
    compact: int | None = None,
    reply_tokens: int | None = None,
    keep_last: int | None = None,
    summarizer: Any = None,
    tokens: Any = None,
    prompts: str | Mapping[str, Any] | None = None,
    delegation: Mapping[str, Any] | None = None,
    anti_hack: Literal["block", "audit"] | None = None,
    penalty: float = 0.0,
    mask_blocked: bool = False,
    record: str | Path | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> RecordTrajectory:
    """An environment with the usual wrappers, innermost first: workers, monitor, context, recording.

    Args:
        env_id: a registered id.
        compact: token budget of the conversation; None for the whole history, or for the conversations that an
            environment registered with a context wrapper makes itself.
        reply_tokens: with `compact`, room kept for the next reply; by default a quarter of it.
        keep_last: with `compact`, turns that a rewrite leaves as they are; by default 2.
        summarizer: with `compact`, how history is rewritten, see `ContextCompaction`; by default "rule".
        tokens: with `compact` or `prompts`, how tokens are counted, see `ContextCompaction`; by default "chars".
        prompts: instead of conversations, prompts as published: a form of `PublishedPrompts`, or its keywords.
        delegation: give the policy workers: keywords of `Delegation`, or {}; None for none.
        anti_hack: put a monitor in front of every tool call, see `AntiHack`: "block" or "audit"; None for none.
        penalty: with "block", taken off the reward for each blocked call.
        mask_blocked: with "block", leave replies with a blocked call out of the loss.
        record: file that finished trajectories are appended to; None to write nothing.
        env_kwargs: keywords of the environment itself.

    Raises:
        UsageError: no such id, with the nearest ones, or one with several agents; a keyword that means nothing without
            another.
        MissingDependency: a package or program the environment needs is not installed.
    """
    require(env_id)
    entry = find(env_id)
    if entry is not None and entry.registry == "pettingzoo":
        raise UsageError(
            f"{env_id} has several agents, expected one of a single agent; give that one workers (--delegate N,"
            " Delegation), or play a seat, see docs/team-tasks.md"
        )
    if anti_hack is None and (penalty or mask_blocked):
        raise UsageError("penalty and mask_blocked mean something only with anti_hack='block'")
    if prompts is not None and compact is not None:
        raise UsageError("give prompts or compact, not both: a prompt holds its own window of turns")
    given = {"reply_tokens": reply_tokens, "keep_last": keep_last, "summarizer": summarizer, "tokens": tokens}
    context: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name in context if compact is None else ():
        if name != "tokens" or prompts is None:
            raise UsageError(f"{name} means something only with compact=TOKENS, got {context[name]!r:.60}")
    env: Env = gymnasium.make(env_id, **(env_kwargs or {}))
    try:
        if delegation is not None:  # inside the monitor: it sees what workers call, too
            env = Delegation(env, **delegation)
        if anti_hack is not None:  # inside the context: it sees calls, not conversations
            from agentgym.wrappers.anti_hack import AntiHack  # with all the rules: only where asked for

            env = AntiHack(env, mode=anti_hack, penalty=penalty, mask_blocked=mask_blocked)
        if prompts is not None:
            form = {"form": prompts} if isinstance(prompts, str) else prompts
            env = PublishedPrompts(env, **{**context, **form})
        elif compact is None:
            env = conversing(env)
        else:
            context.setdefault("reply_tokens", compact // 4)
            context.setdefault("summarizer", "rule")
            env = ContextCompaction(env, compact, **context)
        return RecordTrajectory(env, record)
    except BaseException:
        close_quietly(env)
        raise


def collect(
    env: str | Callable[[], Env],
    policy: Policy | str,
    *,
    episodes: int | None,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int | None = None,
    tasks: Sequence[str | int] | None = None,
    group_size: int = 1,
    first: int = 0,
    episode_timeout: float | None = None,
    lockstep: bool = False,
    player: Player | None = None,
    on_finish: Callable[[Trajectory], None] | None = None,
    **stack: Any,
) -> list[Trajectory]:
    """Run episodes and return their trajectories in order.

    A policy with `max_batch` > 1 is served by one thread, which answers all conversations that wait at the same
    time in one call; other policies act inside the workers. Asking a policy's server for every episode's tokens is
    thus as fast as the server, and a slow environment delays nobody.

    Episodes that an `InfrastructureError` or any exception of the environment ended, and those longer than
    `episode_timeout`, have `infrastructure_error` set and no reward. The worker then starts over with a fresh
    environment. A thread cannot be killed: one that hangs is left behind and replaced. An episode whose record
    cannot be written to `out` (a number that is not finite, an object in info) is marked in the same way.

    An episode whose conversation no longer fits the model's context (`ContextOverflow`) is truncated, with an event
    ``context_overflow``: the agent ran out, as at a limit of turns. Its reward is what it was paid so far and it is
    not resolved; the environment gives no verdict.

    Args:
        env: an id, or a function that makes the environment; it is called in each worker's own thread. A context
            wrapper and a recorder are put around it where they are missing.
        policy: a policy, or a text for `make_policy`.
        episodes: how many; None for each task once (each `group_size` times).
        seed: of the tasks drawn, the environments and the sampling.
        out: folder for ``trajectories.jsonl`` and ``run.json``. Calling again with the same settings resumes:
            episodes that stand there are not run again, except those with an infrastructure error, whose new line
            then counts. `episodes` may be larger than before. What is in the tasks belongs to the settings.
        workers: environments at a time; by default what the policy suggests, at least one for each core.
        tasks: ids or indices to go through in turn, over and over, from the run's first episode on: group `g` plays
            number ``g % len(tasks)``, whatever `first` is. By default each episode draws one.
        group_size: this many episodes in a row share task and environment seed and differ in the policy's
            randomness only: a group, for estimators that compare siblings.
        first: number of the first episode, a multiple of `group_size`: calls (or machines) that each play a part of a
            run play what one call would.
        episode_timeout: wall seconds an episode may take, reset and policy included; in lockstep without the policy.
        lockstep: ask the policy only when every running episode waits for it, in the order of the episodes. Then the
            batches repeat from run to run, and with them the last bits of a model's arithmetic; all wait for the
            slowest environment.
        player: plays each episode in the policy's place, such as `agentgym.blackbox.ProgramPlayer`; None: the policy is
            asked for every action.
        on_finish: called with each new trajectory, after it is written, in the caller's thread.
        **stack: for `make_env`, where `env` is an id.

    Raises:
        UsageError: an unknown id, task or policy; `out` holds a run with other settings.
        Exception: whatever the policy (other than an `InfrastructureError`) or the construction of an environment
            raises; what was finished is on disk.
    """
    whole_number("group_size", group_size, least=1)
    whole_number("seed", seed, least=0)
    if whole_number("first", first, least=0) % group_size:
        raise UsageError(f"expected first to be a multiple of group_size={group_size}, got {first}")
    if episodes is not None:
        whole_number("episodes", episodes, least=0)
    if workers is not None:
        whole_number("workers", workers, least=1)
    if episode_timeout is not None and not episode_timeout > 0:
        raise UsageError(f"expected episode_timeout > 0 or None, got {episode_timeout}")
    if lockstep and player is not None:
        raise UsageError("lockstep is for a policy that is asked for every action; a player has its own time")
    with contextlib.ExitStack() as held:
        if isinstance(env, str):
            for name in stack.keys() - inspect.signature(make_env).parameters.keys():
                raise UsageError(
                    f"make_env takes no {name!r}; keywords of the environment go into env_kwargs={{...}}"
                )
            make: Callable[[], Env] = functools.partial(make_env, env, **with_models(stack, held))
        elif stack:
            raise UsageError(f"{sorted(stack)} are for an environment id; a function makes its own stack")
        else:
            make = env
        if isinstance(policy, str):
            policy = _make_policy(policy, held)
        if not isinstance(policy, Policy):
            raise UsageError(f"expected a Policy or a text for make_policy, got {policy!r:.60}")

        probe = stacked(make())  # bad arguments are errors here and now
        try:
            name = probe.spec.id if probe.spec is not None else type(probe.unwrapped).__name__
            settings = {
                "version": 1,
                "env_id": name,
                "env": stack or _description(probe),
                "policy": policy.name,
                "policy_settings": dict(policy.settings),
                "player": None if player is None else dict(player.settings),
                "seed": seed,
                "tasks": None if tasks is None else list(tasks),
                "group_size": group_size,
            }
            chosen = _choose_tasks(probe, tasks, episodes)
            settings["tasks_sha256"] = _digest(probe, chosen)
        finally:
            close_quietly(probe)
        if episodes is None:
            episodes = len(chosen) * group_size
        prefix = f"{name}/{policy.name}/{seed}/"
        jobs = []
        for n in range(first, first + episodes):
            group = n // group_size
            task = chosen[group % len(chosen)] if chosen else None
            jobs.append(_job(n, prefix, seed, task, group))
        store = None if out is None else held.enter_context(_open(Path(out), settings))
        return _run(make, name, policy, jobs, store, workers, episode_timeout, lockstep, player, on_finish)


def _run(
    make: Callable[[], Env],
    name: str,
    policy: Policy,
    jobs: Sequence[Job],
    store: TrajectoryStore | None,
    workers: int | None,
    episode_timeout: float | None,
    lockstep: bool,
    player: Player | None,
    on_finish: Callable[[Trajectory], None] | None,
) -> list[Trajectory]:
    """Play the jobs that the store does not hold."""
    finished = {} if store is None else store.latest()
    missing = [job for job in jobs if job.id not in finished or finished[job.id].infrastructure_error]
    if missing:
        count = workers or policy.workers or max(policy.max_batch, os.cpu_count() or 1)
        width = min(count, len(missing))
        run = Run(make, name, policy, missing, width, episode_timeout, lockstep, player)
        with contextlib.closing(run.results()) as results:
            for trajectory in results:
                if store is not None:
                    trajectory = append_or_mark(store, trajectory)
                finished[trajectory.id] = trajectory
                if on_finish is not None:
                    on_finish(trajectory)
    return [finished[job.id] for job in jobs]


# -- preparation ----------------------------------------------------------------------------------------------------


def _make_policy(spec: str, held: contextlib.ExitStack) -> Policy:
    """The policy that a text names; a model is closed with the run, others may be objects of somebody else's."""
    policy = make_policy(spec)
    return held.enter_context(contextlib.closing(policy)) if is_model(spec) else policy


def with_models(stack: Mapping[str, Any], held: contextlib.ExitStack) -> dict[str, Any]:
    """Keywords of `make_env` with a policy in the place of each text that names a model: one for all environments.

    Args:
        stack: keywords of `make_env`.
        held: closes those policies.
    """
    made, delegation = dict(stack), stack.get("delegation") or {}
    if is_model(made.get("summarizer")):
        made["summarizer"] = _make_policy(made["summarizer"], held)
    if is_model(delegation.get("worker_policy")):
        made["delegation"] = {**delegation, "worker_policy": _make_policy(delegation["worker_policy"], held)}
    return made


def _job(index: int, prefix: str, seed: int, task: str | int | None, group: int) -> Job:
    env_seed = int(np.random.SeedSequence((seed, 0, group)).generate_state(1)[0])
    return Job(index, f"{prefix}{index}", env_seed, (seed, 1, index), task, group)


def _choose_tasks(env: Env, tasks: Sequence[str | int] | None, episodes: int | None) -> Sequence[str | int]:
    """The tasks to go through; none where each episode draws its own."""
    inner = env.unwrapped
    if tasks is not None:
        if not tasks:
            raise UsageError("expected at least one task, got an empty list")
        if isinstance(inner, AgentEnv):
            for task in tasks:
                # Ids name any task, indices count within the split, as in `reset`.
                _ = inner.task_set[task] if isinstance(task, str) else inner.task_pool[task]
        return tasks
    if episodes is not None:
        return ()
    if not isinstance(inner, AgentEnv):
        raise UsageError(f"{type(inner).__name__} lists no tasks; say how many episodes to run")
    return [task.id for task in inner.task_pool]


def _digest(env: Env, chosen: Sequence[str | int]) -> str | None:
    """Of what is in the tasks that may be played: a file can hold other tasks the next time. None: lists no tasks."""
    inner = env.unwrapped
    if not isinstance(inner, AgentEnv):
        return None
    tasks = [inner.task_set[t] if isinstance(t, str) else inner.task_pool[t] for t in chosen]
    digest = hashlib.sha256()
    for task in tasks or inner.task_pool:
        row = [task.id, task.prompt, task.data]
        digest.update(json.dumps(row, default=_contents, skipkeys=True).encode() + b"\n")
    return digest.hexdigest()


def _contents(value: Any) -> Any:
    """JSON for what a task may hold beside JSON, the same in every process."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value):  # where a record was read from takes no part in comparisons
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.compare}
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value) if isinstance(value, Path) else _label(value)


def _description(env: Env) -> Any:
    """What the stack is made of: names and keywords."""
    spec = env.spec
    if spec is None:
        return str(env)
    return [[spec.id, spec.kwargs], *([layer.name, layer.kwargs] for layer in spec.additional_wrappers)]


def _label(value: Any) -> str:
    """A text for an object in the settings that is the same in the next process."""
    return str(getattr(value, "name", None) or getattr(value, "__qualname__", None) or type(value).__name__)


@contextlib.contextmanager
def _open(folder: Path, settings: dict[str, Any]) -> Iterator[TrajectoryStore]:
    """The store of a new run, or of the same run begun earlier; one process at a time has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"cannot write a run into {folder}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with the process, however it ends
        except BlockingIOError:
            raise UsageError(
                f"another run is writing into {folder}; give another folder, or wait for it"
            ) from None
        _check_settings(folder, json.loads(json.dumps(settings, default=_label)))
        with contextlib.closing(TrajectoryStore(folder / "trajectories.jsonl")) as store:
            yield store
    finally:
        os.close(handle)


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Equal settings are what makes it the same run; write those of a new one."""
    path, lines = folder / "run.json", folder / "trajectories.jsonl"
    if path.exists():
        try:
            before = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"expected {path} to hold the settings of a run: {error}") from None
        for key, value in settings.items():
            if key == "tasks_sha256" and before.get(key) != value:
                raise UsageError(
                    f"{folder} holds a run of tasks that have changed since; give another folder, "
                    "or the same tasks to resume"
                )
            if before.get(key) != value:
                raise UsageError(
                    f"{folder} holds a run with another {key}: {before.get(key)!r}, not {value!r}; "
                    "give another folder, or the same settings to resume"
                )
    elif lines.exists() and lines.stat().st_size:
        raise UsageError(
            f"{folder} holds trajectories but no run.json: not a run of collect; give another folder"
        )
    else:
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        partial.replace(path)  # whole or not at all
