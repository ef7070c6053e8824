import json

import pytest

from agentgym.rollout import collect
from agentgym.trajectory import Call, Event, Sampled, Segment, Step, Trajectory
from agentgym.trajectory.stats import (
    bootstrap_interval,
    details,
    effective_horizon,
    monitor_numbers,
    summary,
    wilson_interval,
)
from tests.trajectory.examples import full


def episode(reward=1.0, *, resolved=True, hacked=None, error="", turns=2, **more):
    steps = [
        Step("turn", "policy", f"a{k}", segment=0, prompt_tokens=10, sampled_tokens=3) for k in range(turns)
    ]
    return Trajectory(
        "t",
        steps=steps,
        segments=[Segment(0)],
        reward=reward,
        resolved=resolved,
        hacked=hacked,
        infrastructure_error=error,
        seconds=1.5,
        **more,
    )


def test_summary_by_hand():
    runs = [
        episode(1.0, hacked=False),
        episode(1.0, hacked=True, turns=4),
        episode(0.0, resolved=False),
        episode(None, resolved=None, error="broken", turns=0),
    ]
    found = summary(runs)
    assert found["mean_reward"] == pytest.approx(2 / 3)
    low, high = found.pop("ci95")
    assert 0 <= low < 2 / 3 < high <= 1
    assert found == {
        "episodes": 4,
        "mean_reward": found["mean_reward"],
        "resolved": 2,
        "clean_resolved": 1,
        "hacked_resolved": 1,
        "infrastructure_errors": 1,
        "turns": 2.0,
        "segments": 4,
        "tokens": {"prompt": 80, "sampled": 24},
        "seconds": 6.0,
    }
    assert list(summary(runs)) == [
        "episodes", "mean_reward", "ci95", "resolved", "clean_resolved", "hacked_resolved",
        "infrastructure_errors", "turns", "segments", "tokens", "seconds",
    ]  # fmt: skip


@pytest.mark.parametrize("runs", [[], [episode(None, resolved=None, error="broken")]])
def test_without_a_valid_episode_there_is_no_mean(runs):
    found = summary(runs)
    assert found["mean_reward"] is None
    assert found["ci95"] is None
    assert found["turns"] == (2.0 if runs else 0.0)
    assert json.dumps(found | details(runs), allow_nan=False)


def test_the_bootstrap_is_seeded_and_near_the_normal_interval():
    values = [0.0] * 300 + [1.0] * 100
    low, high = bootstrap_interval(values, seed=1)
    assert [low, high] == bootstrap_interval(values, seed=1)
    half = 1.96 * (0.25 * 0.75 / 400) ** 0.5
    assert low == pytest.approx(0.25 - half, abs=0.01)
    assert high == pytest.approx(0.25 + half, abs=0.01)
    assert bootstrap_interval([0.5]) == [0.5, 0.5]
    assert bootstrap_interval([0.5] * 2_000_000, resamples=3) == [0.5, 0.5]


def test_effective_horizon_by_hand():
    def step(segment, tokens, reward=0.0, kind="turn", agent="policy"):
        return Step(kind, agent, "a", reward=reward, segment=segment, sampled_tokens=tokens)

    steps = [step(0, 10), step(0, 5, kind="summary"), step(1, 20, agent="w"), step(2, 30, 1.0), step(2, 7)]
    found = effective_horizon(Trajectory("t", steps=steps))
    assert found["turns"] == 3
    assert found["tokens"] == 65
    # policy: 15 tokens in segment 0 with 37 after them; the worker's segment is no part of its chain
    assert found["tokens_after"] == pytest.approx(15 * 37 / 72)
    without = effective_horizon(Trajectory("t", steps=[step(0, 4), step(0, 4)]))
    assert without == {"turns": 2.0, "tokens": 8.0, "tokens_after": 0.0}


def test_details_by_hand():
    found = details([full(), full()])
    assert found["hack_gap"] == 0.5
    assert found["monitor"]["outcomes"] == {
        "clean_resolved": 0,
        "hacked_resolved": 2,
        "clean_unresolved": 0,
        "hacked_unresolved": 0,
    }
    assert {key: found["monitor"][key] for key in ("calls", "blocked", "flagged", "block_rate")} == {
        "calls": 4,
        "blocked": 2,
        "flagged": 2,
        "block_rate": 0.5,
    }
    assert (
        found["monitor"]["recall"] is found["monitor"]["false_alarms"] is None
    )  # nobody said what crosses a line
    assert found["cost"] == {"environment_steps": 3.0, "sampled_tokens": 9.0, "critic_tokens": None}
    assert found["segments_per_episode"] == {"3": 2}
    assert found["compaction"] == {"count": 2, "tokens": 16, "messages": 4, "by_strategy": {"policy": 2}}
    assert found["boundaries"] == {
        "append": 2,
        "realign": 0,
        "fork": 0,
        "compaction": 2,
        "delegation": 2,
        "empty_reply": 0,
        "superseded": 2,
    }
    assert "2 of 2 episodes crossed a forbidden line with effect" in found["symptoms"]
    assert not any("reward" in symptom for symptom in found["symptoms"])  # two episodes say little
    assert "all 4 episodes have reward 1.000" in details([full()] * 4)["symptoms"]
    assert found["context_overflows"] == 0


def test_the_monitor_is_measured_where_calls_are_labelled():
    let_pass = json.dumps({"block": True, "rule": "r", "measured": []})
    held_out = json.dumps({"block": False, "rule": None, "measured": ["r"]})
    cleared = json.dumps({"block": False, "rule": None, "reason": "a look-alike", "measured": []})
    calls = [
        Call("a", {}, "", blocked=True),  # a crossing
        Call("a", {}, "", note=let_pass),  # a crossing
        Call("a", {}, "", note=held_out),  # a crossing
        Call("a", {}, ""),  # a crossing
        Call("a", {}, "", blocked=True),  # none
        Call("a", {}, "", note=cleared),  # none
        Call("a", {}, "", note="{torn"),  # none
        Call("a", {}, "", note="of somebody else"),  # none
    ]
    steps = [Step("turn", "policy", "a", calls=calls[:3]), Step("turn", "policy", "a", calls=calls[3:])]
    labels = [[True, True, True], [True, False, False, False, False]]
    found = monitor_numbers([Trajectory("t", steps=steps, extra={"labels": labels}), Trajectory("u")])
    assert (found["calls"], found["blocked"], found["flagged"], found["block_rate"]) == (8, 2, 4, 0.25)
    assert (found["recall"], found["false_alarms"], found["blocked_benign_per_1000"]) == (0.75, 0.25, 125.0)
    low, high = found["recall_ci95"]
    # by hand for 3 of 4: z^2 = 3.8415, (0.75 + 0.48018) / 1.96036 = 0.62752, half width 0.32684
    assert [low, high] == pytest.approx([0.30064, 0.95441], abs=1e-4)


def test_wilson_at_the_ends():
    assert wilson_interval(0, 0) is None
    low, high = wilson_interval(0, 10)  # 3.8415 / 13.8415
    assert low == 0
    assert high == pytest.approx(0.27753, abs=1e-4)


def test_a_healthy_run_has_no_symptoms():
    assert details([episode(1.0), episode(0.0, resolved=False)])["symptoms"] == []


def test_symptoms():
    repeated = episode(
        0.0, resolved=False, truncated=True, events=[Event("fork", 1), Event("empty_reply", 1)]
    )
    repeated.steps = [Step("turn", "p", "same", info={"invalid_action": True}) for _ in range(5)]
    repeated.segments[0].sampled.append(Sampled(1, finish_reason="length"))
    assert details([repeated, episode(None, error="x")])["symptoms"] == [
        "1 of 2 episodes were ended by infrastructure",
        "5 of 5 turns held no valid action",
        "1 of 1 replies were cut off at their limit",
        "1 of 5 replies were empty",
        "1 of 1 episodes repeat one action five times in a row, to no effect",
        "1 of 1 episodes ran into a limit",
        "1 of 5 replies answered a rewritten history that nobody announced",
    ]


def test_going_on_is_no_repetition():
    def walk(**changes):
        steps = [
            Step("turn", "p", "go north", **{key: make(k) for key, make in changes.items()}) for k in range(8)
        ]
        return details([Trajectory("t", steps=steps, reward=1.0, resolved=True)])["symptoms"]

    assert walk(observation=lambda k: f"a field {k}") == []
    assert walk(info=lambda k: {"anchor": f"hop={k}"}) == []
    assert walk(info=lambda k: {"anchor": "here"}) == [
        "1 of 1 episodes repeat one action five times in a row, to no effect"
    ]


def test_the_gold_player_has_no_symptoms():
    runs = collect("agentgym/Relay-v0", "gold", episodes=3, env_kwargs={"hops": 40}, seed=1)
    assert details(runs)["symptoms"] == []


def test_running_out_of_context_is_a_symptom():
    out = episode(0.0, resolved=False, truncated=True, events=[Event("context_overflow", 2, {"why": "w"})])
    found = details([out, episode(1.0), episode(1.0)])
    assert found["context_overflows"] == 1
    (symptom,) = found["symptoms"]
    assert symptom.startswith("1 of 3 episodes ended because the model's context was full")


def test_groups_are_resampled_whole():
    # Ten groups of eight with one reward each: as much as ten episodes tell, not eighty.
    rewards = [0.0] * 5 + [1.0] * 5
    grouped = [episode(r, extra={"group": g}) for g, r in enumerate(rewards) for _ in range(8)]
    single = [episode(r, extra={"group": g}) for g, r in enumerate(rewards)]
    assert summary(grouped)["ci95"] == summary(single)["ci95"]
    low, high = summary(grouped)["ci95"]
    assert high - low > 0.5  # 1.96 * 2 * sqrt(0.25 / 10) = 0.62
    low, high = bootstrap_interval([r for r in rewards for _ in range(8)])
    assert high - low < 0.25  # 0.22, as if they were independent
    assert bootstrap_interval([0, 0, 3, 3], groups=["a", "a", "b", "b"]) == [0, 3]
    # Groups (sum 0, 3 values) and (sum 1, 1 value): a quarter of the draws has mean 0, half 1/4, a quarter 1.
    unequal = {"values": [0, 0, 0, 1], "groups": ["a", "a", "a", "b"]}
    assert bootstrap_interval(**unequal, level=0.4) == [0.25, 0.25]
    assert bootstrap_interval(**unequal, level=0.6) == [0, 1]


def test_the_order_of_episodes_does_not_move_the_interval():
    values = [0.0, 1.0, 0.25, 1.0, 0.0, 0.7]
    assert bootstrap_interval(values) == bootstrap_interval(values[::-1])
