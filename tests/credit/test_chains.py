"""Which recorded segments form a chain, and what is read from steps."""

import numpy as np
import pytest

from agentgym import credit
from agentgym.errors import UsageError
from agentgym.trajectory.records import Sampled, Segment, Step, Trajectory
from tests.trajectory.examples import full


def record(*rows):
    """Rows of (agent, cause, parent)."""
    segments = [Segment(n, agent, parent, cause) for n, (agent, cause, parent) in enumerate(rows)]
    return Trajectory("t", segments=segments)


def indices(trajectory, c=credit):
    return [[segment.index for segment in chain] for chain in c.chains(trajectory)]


def test_a_recorded_one(c):
    """Start, retry (superseded), a worker's delegation, compaction; B3 20: what is trained is all that was acted on."""
    trajectory = full()
    assert [s.cause for s in trajectory.segments] == ["start", "retry", "delegation", "compaction"]
    assert indices(trajectory, c) == [[0, 3], [2]]
    trained = sum(sum(segment.mask) for chain in c.chains(trajectory) for segment in chain)
    assert trained == 2 + 3 + 2 + 2  # look, summary, the worker's, open: each with its end-of-turn token
    assert trained == sum(step.sampled_tokens for step in trajectory.steps)


def test_each_delegation_is_a_chain(c):
    """The worker is called twice and compacts in between; so does the lead."""
    lead, worker = "lead", "worker"
    trajectory = record(
        (lead, "start", None),
        (worker, "delegation", 0),
        (worker, "compaction", 1),
        (lead, "compaction", 0),
        (worker, "delegation", 3),
        (worker, "compaction", 4),
        (lead, "compaction", 3),
    )
    assert indices(trajectory, c) == [[0, 3, 6], [1, 2], [4, 5]]


def test_an_agent_that_delegates_to_itself():
    trajectory = record(
        ("a", "start", None), ("a", "delegation", 0), ("a", "compaction", 1), ("a", "compaction", 0)
    )
    assert indices(trajectory) == [[0, 3], [1, 2]]


def test_parents_of_other_agents_or_none(c):
    """The longest common prefix may be another agent's; a rewrite without one follows its agent's latest chain."""
    trajectory = record(
        ("a", "start", None), ("b", "start", None), ("a", "compaction", 1), ("b", "fork", None)
    )
    assert indices(trajectory, c) == [[0, 2], [1, 3]]
    assert indices(record(("a", "fork", None), ("a", "fork", 0))) == [[0, 1]]
    assert indices(Trajectory("empty")) == []


def test_credit_of_a_recorded_one():
    # A reward of 1 at the lead's very last token: lambda is 1/2 and 2 trainable tokens follow, so the first segment's
    # last token has 1 * .5 ** 2, the one of the worker nothing.
    lead, worker = credit.chains(full())
    numbers = [s.rewards for s in lead], [[0.0] * len(s.rewards) for s in lead], [s.mask for s in lead]
    got = credit.segment_gae(*numbers, lam=0.5)
    assert got.advantages[0][np.flatnonzero(lead[0].mask)[-1]] == 0.25
    assert got.advantages[1].tolist() == [0] * 10 + [0.5, 1.0]
    assert not any(worker[0].rewards)


def test_add_reward(c):
    rows = c.add_reward([[0, 0, 1], [0, 0], [0]], [[1, 1, 1], [0, 1], [0]], 0.5)
    assert [row.tolist() for row in rows] == [[0, 0, 1], [0, 0.5], [0]]
    given = [np.zeros(2)]
    c.add_reward(given, [[1, 0]], 1.0)
    assert given[0].tolist() == [0, 0], "the caller's rewards stay"
    with pytest.raises(UsageError, match=r"a trainable token to pay 0.5 to, got none"):
        credit.add_reward([[0]], [[0]], 0.5)


def stepped():
    """Two turns with a summary between them; the anchor on a step is that of the state after it."""
    return Trajectory(
        "t",
        extra={"anchor": "start"},
        steps=[
            Step("turn", "p", "go", reward=0.5, info={"anchor": "room"}),
            Step("summary", "p", "I went", info={"anchor": "room"}),
            Step("turn", "p", "open", reward=1.0, info={"anchor": "end"}),
        ],
    )


def test_anchors_are_of_the_state_before(c):
    assert c.step_anchors(stepped()) == ["start", None, "room"]
    assert c.step_rewards(stepped()).tolist() == [0.5, 0, 1]
    assert c.step_anchors(full()) == [None] * 4


def test_anchors_of_a_real_environment():
    from agentgym.rollout import collect

    run = collect("agentgym/Relay-v0", "gold", episodes=1, env_kwargs={"hops": 1}, workers=1)[0]
    assert credit.step_anchors(run) == [
        "taken=False hop=0 mistakes=0",
        "taken=True hop=0 mistakes=0",
        "taken=True hop=1 mistakes=0",
    ]


def test_steps_on_their_tokens(c):
    segments = [
        Segment(
            0, token_ids=[1] * 5, mask=[0, 1, 1, 0, 1], sampled=[Sampled(0, 1, 3, 0), Sampled(1, 4, 5, 1)]
        ),
        # Its first token left out
        Segment(1, token_ids=[1] * 3, mask=[0, 0, 1], sampled=[Sampled(0, 1, 3, 2)]),
        Segment(2, token_ids=[1], mask=[1], sampled=[Sampled(0, 0, 1, None)]),
    ]
    rows = c.spread_steps(segments, [2, -1, 7])
    assert [row.tolist() for row in rows] == [[0, 2, 2, 0, -1], [0, 0, 7], [0]]


def test_a_whole_stack_with_compaction(c):
    """Relay-v0 under a budget, summaries by the policy: every sampled token is credited once, in order.

    With lambda 1/2 and V = 0 a trainable token of "decay" and "stitch" has what was paid at the end, times 1/2 for each
    trainable token after it: one sequence, however it was cut.
    """
    from agentgym.rollout import make_env
    from agentgym.trajectory.records import Reply
    from tests.trajectory.toy import END, render

    def ids(text):
        return [100 + ord(character) for character in text]

    env = make_env(
        "agentgym/Relay-v0",
        compact=1000,
        reply_tokens=40,
        summarizer="policy",
        env_kwargs={"hops": 12, "scenery": 400},
    )
    conversation, info = env.reset(seed=0)
    over, sampled = False, 0
    while not over:
        text = "I have the word." if info.get("summary_requested") else env.unwrapped.gold()
        reply = Reply(text, render(conversation, ids), (*ids(text), END), end_of_turn=(END,))
        sampled += len(text) + 1
        env.attach(reply)
        conversation, _, terminated, truncated, info = env.step(text)
        over = terminated or truncated
    trajectory = env.trajectory
    (chain,) = c.chains(trajectory)
    assert len(chain) >= 3
    assert {step.kind for step in trajectory.steps} == {"turn", "summary"}
    masks = [segment.mask for segment in chain]
    assert sum(map(sum, masks)) == sampled
    assert trajectory.reward == 1.0
    expected = 0.5 ** np.arange(sampled)[::-1]
    zeros = [np.zeros(len(mask)) for mask in masks]
    for across in ("decay", "stitch"):
        got = c.segment_gae([s.rewards for s in chain], zeros, masks, across=across, lam=0.5)
        flat = np.concatenate(got.advantages)
        np.testing.assert_allclose(flat[np.concatenate(masks) == 1], expected)
    spread = c.spread_steps(chain, np.arange(len(trajectory.steps)))
    assert (np.diff(np.concatenate(spread)[np.concatenate(masks) == 1]) >= 0).all()
