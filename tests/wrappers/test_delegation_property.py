"""Random call trees: delegations, tasks handed on, cancelled workers, retries, summaries, empty replies.

Every token that was sampled in a reply that was acted on has mask 1 in exactly one place; no other token has.
"""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from agentgym.credit import chains
from agentgym.rollout import make_env
from agentgym.trajectory.records import Trajectory
from tests.wrappers.crews import Tokens, call, encode

CALLS = [
    call("view", room="shelf"),
    call("put", room="hall", thing="key"),
    call("delegate", task="one", role="coder"),
    call("delegate", task="two", role="tester"),
    call("delegate", task="two", role="tester") + call("wait"),
    call("wait"),
    call("report", text="all is well"),
    call("cancel", worker="worker_0"),
    call("message", worker="worker_1", text="go on"),
    "no call at all",
    "",
]


@cache
def played(seed: int) -> Trajectory:
    """An episode in which everybody writes at random; the agent's replies are thrown away now and then."""
    rng = np.random.default_rng(seed)
    policy = Tokens(lambda conversation: str(rng.choice(CALLS)))
    context = {"compact": 900, "reply_tokens": 60, "summarizer": "policy"} if seed % 2 else {}
    env = make_env(
        "test/Store-v0",
        delegation={"max_workers": 3, "depth": 3, "worker_turns": 4},
        env_kwargs={"max_turns": 12, "shelf": "dust " * 30},
        **context,
    )
    conversation, _ = env.reset(seed=seed)
    env.get_wrapper_attr("play_workers")(
        lambda env, number: lambda conversation: policy.act([conversation])[0]
    )
    over = False
    while not over:
        for _ in range(int(rng.integers(1, 3))):
            (reply,) = policy.act([conversation])
            env.attach(reply)
        conversation, _, terminated, truncated, _ = env.step(reply.text)
        over = terminated or truncated
    assert env.trajectory is not None
    return env.trajectory


@pytest.mark.parametrize("seed", range(40))
def test_every_accepted_token_is_trained_once(seed):
    t = played(seed)
    accepted = Counter()
    for segment in t.segments:
        covered = [0] * len(segment.token_ids)
        for sampled in segment.sampled:
            if sampled.superseded:
                continue
            accepted[sampled.step] += 1
            text = (*encode(t.steps[sampled.step].action), 0)
            assert tuple(segment.token_ids[sampled.start : sampled.stop]) == text
            assert t.steps[sampled.step].agent == segment.agent
            for place in range(sampled.start, sampled.stop):
                covered[place] += 1
        assert covered == segment.mask
    assert accepted == Counter(range(len(t.steps)))
    assert not any(event.kind == "fork" for event in t.events)
    # Every segment but retries is in one chain, each chain is of one agent, and each delegation has a chain.
    linked = [segment.index for chain in chains(t) for segment in chain]
    assert sorted(linked) == [s.index for s in t.segments if s.cause != "retry"]
    assert all(len({s.agent for s in chain}) == 1 for chain in chains(t))
    for event in t.events:
        if event.kind == "delegation":
            told = t.steps[event.data["call"]]
            assert "delegate" in told.action
            assert t.segments[event.data["segment"]].parent == told.segment


def test_the_trees_are_worth_the_name():
    runs = [played(seed) for seed in range(40)]
    causes = Counter(segment.cause for t in runs for segment in t.segments)
    assert min(causes["delegation"], causes["retry"], causes["compaction"]) >= 20
    deep = [
        t
        for t in runs
        for s in t.segments
        if s.cause == "delegation" and t.segments[s.parent].agent != "policy"
    ]
    assert len(deep) >= 5
