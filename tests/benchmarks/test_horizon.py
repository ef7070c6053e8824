"""The horizon study plays by the rules of Relay-v0, and each arm can learn."""

import numpy as np
import pytest

from agentgym.envs.relay import DIRECTIONS, RelayEnv

pytest.importorskip("torch")

from benchmarks import horizon
from benchmarks.horizon import ARMS, CHOICES, Learner, World, run


@pytest.mark.parametrize(("hops", "compactions"), [(5, 2), (8, 0), (7, 6)])
def test_the_environment_pays_what_the_study_says(hops, compactions):
    world = World(hops, compactions)
    assert len(world.segments) == compactions + 1
    assert [int(world.summaries[part].sum()) for part in world.segments] == [1] * compactions + [0]
    walks = world.play(np.full((hops + compactions + 1, 4, 4), 0.25), np.full(hops + compactions + 1, 0.9),
                       np.random.default_rng(0))  # fmt: skip
    env = RelayEnv(hops=hops, choices=CHOICES, slip=1 / hops)
    outcomes = set()
    for n, paid in enumerate(walks.returns):
        env.reset(seed=n, options={"task": n})
        env.step("take")
        walked = zip(walks.signs[n], walks.actions[n], world.summaries, world.chosen, strict=True)
        for sign, action, is_summary, is_chosen in walked:
            if is_chosen and not is_summary:  # this walk's signposts stand in another order than the task's
                right = env.signs[env.hop]
                wrong = next(d for d in DIRECTIONS if d != right)
                env.step(f"go {right if action == sign else wrong}")
        delivered = paid > 0 or all(np.where(world.summaries, True, walks.actions[n] != walks.signs[n])[:-1])
        word = env.word if delivered else next(w for w in env.words if w != env.word)
        _, reward, terminated, _, _ = env.step(f"deliver {word}")
        assert terminated
        assert reward == pytest.approx(paid)
        kept = walks.actions[n][world.summaries].all()
        assert delivered or not kept, "who kept the word everywhere delivers it"
        outcomes.add((bool(delivered), bool(kept)))
    assert (True, True) in outcomes


def test_a_word_that_was_lost_does_not_come_back():
    world = World(6, 5)
    rng = np.random.default_rng(1)
    guessed = []
    for _ in range(20):
        walks = world.play(np.tile(np.eye(4), (12, 1, 1)), np.full(12, 0.5), rng)
        assert (np.diff(walks.known[:, world.summaries | ~world.chosen].astype(int), axis=1) <= 0).all()
        lost = ~walks.actions[:, world.summaries].all(axis=1)
        assert (walks.returns[~lost] == 1).all()
        guessed += walks.returns[lost].tolist()
    assert abs(np.mean(guessed) - 1 / 8) < 4 * np.sqrt(1 / 8 * 7 / 8 / len(guessed))


def test_the_critic_sees_only_what_the_context_shows():
    world = World(4, 1)
    never = np.tile(np.roll(np.eye(4), 1, axis=1), (6, 1, 1))  # every turn is wrong
    walks = world.play(never, np.ones(6), np.random.default_rng(0))
    assert walks.features[0, :, 2].tolist() == [0, 0.25, 0.5, 0, 0.25, 0.5]  # forgotten at the summary
    assert walks.features[0, :, 1].tolist() == [1, 0.75, 0.5, 0.5, 0.25, 0]
    assert walks.returns.tolist() == [0.0] * len(walks.returns)


@pytest.mark.parametrize("arm", ["stitch", "grpo"])
def test_every_arm_learns_a_short_walk(arm, monkeypatch):
    monkeypatch.setattr(horizon, "ALL_KEPT", 0.3)
    world = World(4, 1)
    row = run(world, arm, own=False, rate=0.3, seed=0, updates=22)
    assert np.mean(row["curve"][:2]) < 0.5
    assert row["return"] > 0.8
    still = run(world, arm, own=False, rate=0.0, seed=0, updates=10)
    assert still["kept"] == pytest.approx(0.3)
    assert still["right"] == pytest.approx(0.7)


def test_steps_of_their_own_share_nothing():
    learner = Learner(World(3, 2), ARMS["grpo"], own=True, rate=0.1, seed=0)
    assert learner.turn.shape == (3, 4, 4)
    assert learner.keep.shape == (2, 2)
    assert learner.hop[~learner.world.summaries].tolist() == [
        0,
        1,
        2,
        0,
    ]  # the last delivers and is no choice
    assert learner.summary[learner.world.summaries].tolist() == [0, 1]
