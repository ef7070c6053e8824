"""Whose turn it is, and that what is paid on tokens is what the trajectory was paid."""

import gymnasium
import pytest

from agentgym.core import AgentEnv, Task, Verdict
from agentgym.policies import Null
from agentgym.trajectory import Reply
from agentgym.wrappers import ChatContext, RecordTrajectory
from baselines.parallel import Ranks
from baselines.rollouts import Rollouts, batch_of


class Named(AgentEnv):
    """Five tasks; the first message ends it, with what the seed says."""

    tasks = tuple(Task(f"t{n}") for n in range(5))

    def begin(self, task):
        return f"{task.id} {self.np_random.integers(1000)}"

    def respond(self, action):
        self.finish()
        return ""

    def verify(self, episode):
        return Verdict(0.0)


@pytest.fixture
def env_id():
    gymnasium.register("test/Named-v0", entry_point=Named)
    yield "test/Named-v0"
    del gymnasium.registry["test/Named-v0"]


class Part(Ranks):
    """One of several processes, the others of which do not play."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__("cpu")
        self.rank, self.size = rank, size

    def gather(self, rows):
        return list(rows)


def steps(env_id: str, ranks: Ranks) -> list[list[tuple[str, str, int, str]]]:
    """Id, task, group and prompt of all that is played in four steps of three groups of two."""
    rollouts = Rollouts(env_id, {}, Null(), ranks, seed=3, group_size=2, order="listed")
    return [[(t.id, t.task_id, t.extra["group"], t.prompt) for t in rollouts.play(3)] for _ in range(4)]


def test_every_group_plays_its_task_in_whatever_step_and_process(env_id):
    whole = steps(env_id, Ranks("cpu"))
    # Twelve groups of two go through the five tasks two and a half times.
    names = [f"t{n}" for n in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1) for _ in range(2)]
    assert [task for step in whole for _, task, _, _ in step] == names
    assert [id for step in whole for id, *_ in step] == [f"{env_id}/null/3/{n}" for n in range(24)]
    assert [group for step in whole for *_, group, _ in step] == [n // 2 for n in range(24)]
    parts = [steps(env_id, Part(rank, 2)) for rank in range(2)]
    assert [a + b for a, b in zip(*parts, strict=True)] == whole


class Fined(AgentEnv):
    """Plain moves; the first costs half and is no lesson, the fourth ends it."""

    tasks = (Task("t"),)

    def begin(self, task):
        return "go"

    def respond(self, action):
        if len(self.episode.turns) == 3:
            self.finish()
        return "on"

    def verify(self, episode):
        return Verdict(1.0)


class Masked(gymnasium.Wrapper):
    """What `AntiHack` tells of a blocked call, here at the first turn."""

    def step(self, action):
        first = not self.unwrapped.episode.turns
        observation, reward, terminated, truncated, info = self.env.step(action)
        return (
            (observation, float(reward) - 0.5, terminated, truncated, info | {"masked": True})
            if first
            else (observation, reward, terminated, truncated, info)
        )


@pytest.mark.parametrize("last", ["d", ""])  # an empty reply has no token of its own
def test_what_tokens_are_paid_is_what_the_trajectory_was_paid(last):
    env = RecordTrajectory(ChatContext(Masked(Fined())))
    env.reset(seed=0)
    ids = [1]
    for number, text in enumerate(["a", "b", "c", last], start=1):
        sampled = (10 * number, 10 * number + 1) if text else ()
        env.attach(Reply(text, tuple(ids), sampled, (-1.0,) * len(sampled), temperature=1.0))
        env.step(text)
        ids += [*sampled, 5]
    env.trajectory.extra["group"] = 0
    batch = batch_of([env.trajectory])
    assert batch.returns.tolist() == [1.0 - 0.5]
    (paid,) = batch.paid()
    # 1 | 10 11 5 | 20 21 5 | 30 31 5 | 40 41: the fine falls on the second reply, the verdict on the last with tokens.
    assert paid.tolist() == [0] * 5 + [-0.5] + ([0] * 5 + [1.0] if last else [0] * 2 + [1.0])
