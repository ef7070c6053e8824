"""The world of the study from scratch: what its demonstrator does, and what the flags make of it."""

import numpy as np
import pytest

from agentgym.rollout import collect
from benchmarks.arms import mean_and_half, shown
from benchmarks.from_scratch import CONTEXT, HOPS, KEEP, SHORT, Courier, flags, world


def test_the_courier_forgets_half_of_the_words_at_one_compaction():
    played = collect("agentgym/Relay-v0", Courier(), episodes=200, env_kwargs=world(HOPS), **CONTEXT)
    assert {sum(step.kind == "summary" for step in t.steps) for t in played} == {1}
    assert {len(t.segments) for t in played} == {2}
    kept = [any("The word is" in step.action for step in t.steps) for t in played]
    delivered = [t.verdict["components"]["delivered"] for t in played]
    assert np.mean(kept) == pytest.approx(KEEP, abs=0.15)  # four deviations of 200 coins
    assert all(d for d, k in zip(delivered, kept, strict=True) if k)
    assert np.mean([d for d, k in zip(delivered, kept, strict=True) if not k]) < 0.4, "a guess among eight"


def test_the_context_holds_the_short_way():
    played = collect("agentgym/Relay-v0", Courier(), episodes=20, env_kwargs=world(SHORT), **CONTEXT)
    assert {len(t.segments) for t in played} == {1}
    assert all(t.verdict["components"]["delivered"] for t in played)


def test_the_flags_are_those_of_a_trainer(tmp_path):
    from baselines import ppo
    from baselines.flags import arguments
    from benchmarks.from_scratch import PPO, RL

    words = " ".join([flags(tmp_path), RL, PPO, "--out x"]).split()
    args = arguments(ppo.Args, "ppo", "", words)
    stack = args.stack.keywords(f"hf:{args.model}")
    assert stack == {"env_kwargs": world(HOPS), **CONTEXT}
    assert (args.across, args.lam, args.groups, args.warmup) == ("stitch", 0.95, 64, 2)


def test_an_interval_over_seeds():
    mean, half = mean_and_half([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(2.484, abs=1e-3)  # 4.303 (t, 2 degrees of freedom) * 1 / sqrt(3)
    assert shown([1.0, 2.0, 3.0]) == "2.00±2.48"
    assert np.isnan(mean_and_half([1.0])[1])
