"""The threads behind `agentgym.rollout.collect`: each runs episodes in an environment of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np

from agentgym.errors import ContextOverflow, InfrastructureError
from agentgym.messages import Conversation
from agentgym.policies.base import Policy, Reply, replies
from agentgym.policies.batching import BatchServer, LockstepServer, ServerStopped
from agentgym.spaces import Conversation as ConversationSpace
from agentgym.trajectory.records import Trajectory
from agentgym.wrappers.chat import ChatContext
from agentgym.wrappers.record import RecordTrajectory

Env: TypeAlias = gymnasium.Env[Any, Any]


@dataclass(slots=True)
class Job:
    """One episode to run."""

    index: int
    id: str
    seed: int
    rng_seed: tuple[int, ...]
    task: str | int | None
    group: int


class Player(Protocol):
    """Plays episodes in its own way, where the policy is not simply asked for each action.

    Attributes:
        settings: what a rollout depends on, as JSON values.
    """

    settings: Mapping[str, Any]

    def play(self, env: Env, policy: Policy, rng: np.random.Generator, trajectory: Trajectory) -> None:
        """Play the episode that `env`, a stack with a recorder outermost, has just begun.

        Args:
            env: the stack.
            policy: of this episode.
            rng: the episode's.
            trajectory: what the recorder wrote at the reset; takes the rest.

        Raises:
            InfrastructureError: the episode says nothing of the policy.
        """


def stacked(env: Env) -> Env:
    """The environment with the wrappers a rollout cannot do without."""
    if isinstance(env, RecordTrajectory):
        return env
    return RecordTrajectory(conversing(env))


def conversing(env: Env) -> Env:
    """The environment with the whole history as its observation, unless it makes conversations of its own."""
    return env if isinstance(env.observation_space, ConversationSpace) else ChatContext(env)


class _Worker:
    """A thread and what it is busy with."""

    def __init__(self, run: Run) -> None:
        self.job: Job | None = None
        self.started = 0.0  # monotonic seconds, of the present job
        self.waits = False  # in lockstep, for everybody else: that is no time of its own
        self.stopped = False  # whatever it still does, nobody waits for
        self.thread = threading.Thread(target=run.work, args=(self,), name="agentgym-rollout", daemon=True)


class Run:
    """The threads of one `collect`. Workers take jobs; the caller's thread takes results and watches the clock."""

    def __init__(
        self,
        make: Callable[[], Env],
        env_id: str,
        policy: Policy,
        jobs: Sequence[Job],
        workers: int,
        episode_timeout: float | None,
        lockstep: bool,
        player: Player | None = None,
    ) -> None:
        self.make = make
        self.env_id = env_id
        self.policy = policy
        self.player = player
        self.jobs = deque(jobs)
        self.remaining = len(jobs)
        self.episode_timeout = episode_timeout
        self.outcomes: queue.SimpleQueue[tuple[_Worker, Trajectory | BaseException]] = queue.SimpleQueue()
        self.lock = threading.Lock()  # a worker takes or returns a job, or is abandoned: one at a time
        self.lockstep = LockstepServer(policy, workers) if lockstep else None
        batched = BatchServer(policy, self.busy) if policy.max_batch > 1 and player is None else None
        self.server: BatchServer | None = self.lockstep or batched
        self.workers = [_Worker(self) for _ in range(workers)]

    def busy(self) -> int:
        """How many episodes are running."""
        return sum(worker.job is not None for worker in self.workers)

    # The caller's thread.

    def results(self) -> Generator[Trajectory]:
        """Each trajectory as it is finished."""
        if self.server is not None:
            self.server.start()
        for worker in self.workers:
            worker.thread.start()
        try:
            while self.remaining:
                try:
                    _, outcome = self.outcomes.get(timeout=self._patience())
                except queue.Empty:
                    pass
                else:
                    if isinstance(outcome, BaseException):
                        raise outcome
                    self.remaining -= 1
                    yield outcome
                if self.episode_timeout is not None:
                    for late in self._replace_late():
                        self.remaining -= 1
                        yield late
        finally:
            self._stop()

    def _patience(self) -> float | None:
        """Seconds until the next episode may be late."""
        if self.episode_timeout is None:
            return None
        with self.lock:
            starts = [w.started for w in self.workers if w.job is not None and not w.waits]
        first = min(starts, default=time.monotonic())
        return max(0.001, first + self.episode_timeout - time.monotonic())

    def _replace_late(self) -> list[Trajectory]:
        assert self.episode_timeout is not None
        late = []
        for position, worker in enumerate(self.workers):
            with self.lock:
                seconds = time.monotonic() - worker.started
                job = worker.job
                if job is None or worker.waits or seconds < self.episode_timeout:
                    continue
                worker.stopped = True
                self.workers[position] = _Worker(self)
            self.workers[position].thread.start()
            error = InfrastructureError(
                f"took longer than episode_timeout={self.episode_timeout:g} s; left behind"
            )
            late.append(self._failed(job, None, error, seconds))
        return late

    def _stop(self) -> None:
        """Tell everyone to end; wait for the environments to close, but not for long."""
        with self.lock:
            for worker in self.workers:
                worker.stopped = True
        if self.server is not None:
            self.server.stop()
        deadline = time.monotonic() + (2.0 if self.remaining else 30.0)
        for worker in self.workers:
            worker.thread.join(max(0.0, deadline - time.monotonic()))

    # The workers' threads.

    def work(self, worker: _Worker) -> None:
        """Run jobs until there are none."""
        env: Env | None = None
        try:
            while self._take(worker):
                assert worker.job is not None
                if env is None:
                    env = stacked(self.make())
                trajectory = self._episode(env, worker, worker.job)
                if not self._give(worker, trajectory):
                    return
                if trajectory.infrastructure_error:  # nobody knows in what state it is
                    close_quietly(env)
                    env = None
        except ServerStopped:
            pass
        except BaseException as error:
            if not worker.stopped:
                self.outcomes.put((worker, error))
        finally:
            if self.lockstep is not None and not worker.stopped:  # else another took its place
                self.lockstep.leave()
            if env is not None:
                close_quietly(env)

    def _take(self, worker: _Worker) -> bool:
        with self.lock:
            if not self.jobs or worker.stopped:
                return False
            worker.job = self.jobs.popleft()
            worker.started = time.monotonic()
            return True

    def _give(self, worker: _Worker, trajectory: Trajectory) -> bool:
        with self.lock:
            worker.job = None
            if worker.stopped:
                return False
        self.outcomes.put((worker, trajectory))
        return True

    def _episode(self, env: Env, worker: _Worker, job: Job) -> Trajectory:
        started = time.monotonic()
        recorder: Any = env
        recorder.next_id = job.id
        options = {} if job.task is None else {"options": {"task": job.task}}
        try:
            conversation, _ = env.reset(seed=job.seed, **options)
        except (Exception, SystemExit) as error:
            return self._failed(job, recorder, error, time.monotonic() - started)
        rng = np.random.default_rng(job.rng_seed)
        if env.has_wrapper_attr("play_workers"):  # `Delegation`, whose workers the same policy may play
            env.get_wrapper_attr("play_workers")(self._worker_player(worker, job))
        acting = self.policy.for_episode(env, rng)
        if self.player is not None:
            try:
                self.player.play(env, acting, rng, recorder.trajectory)
            except (Exception, SystemExit) as error:
                return self._failed(job, recorder, error, time.monotonic() - started)
            return self._labelled(recorder.trajectory, job)
        answer = self._answerer(acting, rng, job.index)
        clock = time.perf_counter
        over = False
        while not over:
            if worker.stopped:
                raise ServerStopped
            asked = clock()
            try:
                with self._waiting(worker):
                    reply = answer(conversation)
            except InfrastructureError as error:
                return self._failed(job, recorder, error, time.monotonic() - started)
            except ContextOverflow as error:  # the agent ran out, as at a limit of turns: that is a result
                recorder.cut_off("context_overflow", str(error))
                break
            recorder.attach(reply, policy_seconds=clock() - asked)
            try:
                conversation, _, terminated, truncated, _ = env.step(reply.text)
            except (Exception, SystemExit) as error:
                return self._failed(job, recorder, error, time.monotonic() - started)
            over = terminated or truncated
        return self._labelled(recorder.trajectory, job)

    @contextlib.contextmanager
    def _waiting(self, worker: _Worker) -> Iterator[None]:
        """In lockstep a reply comes when the slowest has asked: leave the wait out of the episode's time."""
        if self.lockstep is None:
            yield
            return
        began = time.monotonic()
        with self.lock:
            worker.waits = True
        try:
            yield
        finally:
            with self.lock:
                worker.waits = False
                worker.started += time.monotonic() - began

    def _answerer(
        self, acting: Policy, rng: np.random.Generator, order: int
    ) -> Callable[[Conversation], Reply]:
        """How this episode asks its policy. Each question has a seed of its own where the policy takes one."""
        if self.server is not None and acting is self.policy:
            server = self.server
            return lambda conversation: server.ask(conversation, int(rng.integers(1 << 63)), order)
        if acting.takes_seeds:
            return lambda conversation: replies(acting, (conversation,), (int(rng.integers(1 << 63)),))[0]
        return lambda conversation: replies(acting, (conversation,), ())[0]

    def _worker_player(
        self, worker: _Worker, job: Job
    ) -> Callable[[Env, int], Callable[[Conversation], Reply]]:
        """The policy as it plays the sub-agents of an episode: each delegated task has random numbers of its own."""

        def player(env: Env, number: int) -> Callable[[Conversation], Reply]:
            rng = np.random.default_rng((*job.rng_seed, number))
            answer = self._answerer(self.policy.for_episode(env, rng), rng, job.index)

            def ask(conversation: Conversation) -> Reply:
                with self._waiting(worker):
                    return answer(conversation)

            return ask

        return player

    def _failed(self, job: Job, recorder: Any, error: BaseException, seconds: float) -> Trajectory:
        """The trajectory of an episode that broke: what was recorded so far, and no reward.

        Args:
            job: the episode.
            recorder: its recorder; None if its thread still runs.
            error: what broke it.
            seconds: how long it ran.
        """
        recorded: Trajectory | None = None if recorder is None else recorder.trajectory
        if recorded is not None and recorded.id == job.id:
            trajectory = recorded
        else:  # the reset failed, or nobody knows
            task = job.task if isinstance(job.task, str) else ""
            trajectory = Trajectory(job.id, self.env_id, task, job.seed, started=time.time() - seconds)
        trajectory.reward = None
        trajectory.terminated = trajectory.truncated = False
        trajectory.seconds = seconds
        if isinstance(error, InfrastructureError):
            trajectory.infrastructure_error = str(error)
        else:  # a mistake in the environment's code: say where
            trajectory.infrastructure_error = f"{type(error).__name__}: {error}"
            trajectory.extra["traceback"] = "".join(traceback.format_exception(error))
        return self._labelled(trajectory, job)

    def _labelled(self, trajectory: Trajectory, job: Job) -> Trajectory:
        trajectory.policy = self.policy.name
        trajectory.extra |= {"episode": job.index, "group": job.group}
        return trajectory


def close_quietly(env: Env) -> None:
    """Close it, whatever it raises."""
    with contextlib.suppress(Exception):  # a broken environment must not take the run along
        env.close()
