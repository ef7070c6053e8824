"""The study of `docs/genac.md` in small: that it runs, and that its worlds say exact values."""

import numpy as np
import pytest

from baselines.critic_prompt import Agent, parse
from benchmarks.genac import QUICK, run, tables
from benchmarks.genac_runs import BUDGETS, Point, at, table
from benchmarks.genac_worlds import WORLDS, Sampler

AGENT = Agent("tiny", 1, 0.5)


@pytest.mark.parametrize("name", WORLDS)
def test_values_are_the_mean_of_what_comes(name):
    """From first states, over many runs: the exact value and the mean outcome agree within four standard errors."""
    world, rng = WORLDS[name], np.random.default_rng(0)
    runs = [world.play(world.levels[1], world.sizes[0], AGENT, rng)[0] for _ in range(400)]
    off = np.array([first.outcome - first.exact for first in runs])
    assert abs(off.mean()) < 4 * off.std() / 20
    assert off.std() > 0.1


@pytest.mark.parametrize("name", WORLDS)
def test_the_teacher_says_the_exact_value(name):
    sampler = Sampler(WORLDS[name], 0)
    for example in sampler.draw(40, range(5), [3, 4]):
        assert parse(example.rationale) == pytest.approx(example.exact, abs=0.05001)
        assert 0 <= example.outcome <= 1


def test_every_critic_sees_the_same_states():
    first, second = (Sampler(WORLDS["walk"], 3).draw(20, range(5), [3]) for _ in range(2))
    assert first == second
    assert Sampler(WORLDS["walk"], 4).draw(20, range(5), [3]) != first


def test_a_budget_buys_the_last_evaluation_within_it():
    run = [Point(dict.fromkeys(BUDGETS, spent), score) for spent, score in ((0, 0.1), (10, 0.5), (20, 0.9))]
    assert [at(run, "all tokens", limit) for limit in (0, 9, 10, 100)] == [0.1, 0.1, 0.5, 0.9]
    assert "| ppo (1 seeds) | 0.100 | 0.500 | 0.900 |" in table({"ppo": [run]}, "all tokens", 3)


@pytest.mark.slow
def test_the_study_in_small():
    rows = list(run([0], QUICK))
    critics = {row["critic"] for row in rows}
    told = {f"{kind}, {how}" for kind in ("generative", "scalar", "constant") for how in ("told", "untold")}
    assert critics == told | {f"generative, against {baseline}" for baseline in ("state", "batch", "none")}
    assert {row["set"] for row in rows} == {"seen", "new sizes", "new levels", "drift", "cost", "half taught"}
    assert list(run([0], QUICK, rows)) == [], "what is known is not run again"
    constant = {
        how: [row["mse"] for row in rows if row["critic"] == f"constant, {how}" and row["set"] == "seen"]
        for how in ("told", "untold")
    }
    assert constant["told"] == constant["untold"], "a constant does not read"
    assert tables(rows).count("\n") == len(rows) + 1
