"""What holds for every chain and every batch.

Tests that take `c` are also run on mutants, where they have to fail: see `test_mutants`.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import credit
from agentgym.credit import LengthAdaptive

unit = st.floats(0, 1, allow_nan=False)
across = st.sampled_from(["decay", "stitch", "independent"])
lambdas = st.one_of(unit, st.sampled_from([LengthAdaptive(1.5), LengthAdaptive(0.05)]))
options = st.fixed_dictionaries(
    {
        "across": across,
        "gamma": unit,
        "lam": lambdas,
        "returns_lam": st.one_of(st.none(), lambdas),
        "bootstrap": unit,
        "decay_length": st.sampled_from(["rollout", "segment"]),
    }
)


@st.composite
def chain(draw, max_segments=4):
    """Rewards, values, masks; rewards at trainable tokens only."""
    masks = draw(st.lists(st.lists(st.booleans(), max_size=6), min_size=1, max_size=max_segments))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    masks = [np.array(mask, dtype=bool) for mask in masks]
    rewards = [rng.normal(size=len(m)) * (rng.random(len(m)) < 0.5) * m for m in masks]
    return rewards, [rng.normal(size=len(m)) for m in masks], masks


def flat(rows):
    return np.concatenate(rows)


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@given(
    given_chain=chain(), o=options, at=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=5)
)
def test_masked_tokens_anywhere_change_nothing(c, given_chain, o, at):
    """B3 12, 14, 15, 19: observations, padding and their width, with NaN for values."""
    rewards, values, masks = given_chain
    before = c.segment_gae(rewards, values, masks, **o)
    wide = [list(map(list, rows)) for rows in (rewards, values, masks)]
    for k, place in at:
        for row, junk in zip((rows[k % len(masks)] for rows in wide), (0.0, np.nan, False), strict=True):
            row.insert(min(place, len(row)), junk)
    after = c.segment_gae(*wide, **o)
    for narrow, padded in zip(before, after, strict=True):
        for row, other, old, new in zip(narrow, padded, masks, wide[2], strict=True):
            new_mask = np.array(new, dtype=bool)
            close(other[new_mask], row[old])
            assert not other[~new_mask].any()


@given(given_chain=chain(max_segments=1), o=options)
def test_one_segment_is_plain_gae(given_chain, o):
    rewards, values, masks = given_chain
    plain = {key: value for key, value in o.items() if key not in ("across", "decay_length")}
    expected = credit.gae(rewards[0], values[0], masks[0], **plain)
    got = credit.segment_gae(rewards, values, masks, **o)
    close(got.advantages[0], expected.advantages)
    close(got.returns[0], expected.returns)


@given(given_chain=chain(), o=options)
def test_stitched_is_plain_gae_on_the_concatenation(c, given_chain, o):
    """So however a trace is cut, the advantages are the same."""
    plain = {key: value for key, value in o.items() if key not in ("across", "decay_length")}
    expected = c.gae(*map(flat, given_chain), **plain)
    got = c.segment_gae(*given_chain, **(o | {"across": "stitch"}))
    close(flat(got.advantages), expected.advantages)
    close(flat(got.returns), expected.returns)


@given(given_chain=chain(), one=across, other=across, bootstrap=unit)
def test_all_forms_agree_without_discount(c, given_chain, one, other, bootstrap):
    results = [c.segment_gae(*given_chain, across=a, bootstrap=bootstrap) for a in (one, other)]
    close(flat(results[0].advantages), flat(results[1].advantages))
    close(flat(results[0].returns), flat(results[1].returns))


@given(given_chain=chain(), bootstrap=unit)
def test_targets_at_lambda_1_are_returns_to_go(c, given_chain, bootstrap):
    """Whatever the critic says and whatever the actor's lambda."""
    rewards, _, masks = given_chain
    for form in ("decay", "stitch", "independent"):
        got = c.segment_gae(*given_chain, across=form, lam=0.5, returns_lam=1.0, bootstrap=bootstrap)
        to_go = np.cumsum(flat(rewards)[::-1])[::-1] + bootstrap
        close(flat(got.returns)[flat(masks)], to_go[flat(masks)])


@given(given_chain=chain(), o=options)
def test_decay_is_independent_times_a_factor(given_chain, o):
    """At most 1, the same over a segment, 1 for the last one with trainable tokens."""
    o |= {"decay_length": "segment"}
    decayed = credit.segment_gae(*given_chain, **(o | {"across": "decay"}))
    alone = credit.segment_gae(*given_chain, **(o | {"across": "independent"}))
    close(flat(decayed.returns), flat(alone.returns))
    masks = given_chain[2]
    after = 0
    for k in reversed(range(len(masks))):
        n = int(masks[k].sum())
        lam = o["lam"](n) if isinstance(o["lam"], LengthAdaptive) else o["lam"]
        close(decayed.advantages[k], alone.advantages[k] * (o["gamma"] * lam) ** after)
        after += n


@st.composite
def batch(draw):
    """Masks of a batch's segments with the rollout each belongs to, and at least one trainable token."""
    rollouts = sorted(draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)))
    masks = [draw(st.lists(st.booleans(), min_size=1, max_size=6)) for _ in rollouts]
    masks[0][0] = True
    return masks, rollouts


reducers = st.sampled_from([("token", None), ("rollout", None), ("constant", 7.0)])


@given(given_batch=batch(), how=reducers, cuts=st.lists(st.integers(0, 6), min_size=6, max_size=6))
def test_weights_do_not_depend_on_how_traces_are_split(c, given_batch, how, cuts):
    """Papers 8: each segment is cut in two, at any place."""
    masks, rollouts = given_batch
    reduce, constant = how
    whole = c.token_weights(masks, rollouts, reduce=reduce, constant=constant)
    halves = [half for mask, cut in zip(masks, cuts, strict=False) for half in (mask[:cut], mask[cut:])]
    pieces = c.token_weights(halves, np.repeat(rollouts, 2).tolist(), reduce=reduce, constant=constant)
    close(flat(pieces), flat(whole))


@given(given_batch=batch(), reduce=st.sampled_from(["token", "rollout", "sequence"]), pad=st.integers(0, 4))
def test_weights_add_up_to_1_with_any_padding(c, given_batch, reduce, pad):
    masks, rollouts = given_batch
    wide = c.token_weights([[False] * pad + m + [False] * pad for m in masks], rollouts, reduce=reduce)
    assert flat(wide).sum() == pytest.approx(1)
    narrow = c.token_weights(masks, rollouts, reduce=reduce)
    close(flat([row[pad : len(row) - pad] for row in wide]), flat(narrow))


@given(given_batch=batch(), twice=st.integers(0, 5), seed=st.integers(0, 2**32))
def test_another_segment_leaves_the_siblings_alone(c, given_batch, twice, seed):
    """B3 9, papers 10: one rollout has a segment more, as after another compaction."""
    masks, rollouts = given_batch
    twice %= len(masks)
    returns = np.random.default_rng(seed).integers(0, 3, size=4).astype(float)

    def batch_credit(masks, rollouts):
        present = sorted(set(rollouts))  # the estimator sees rollouts, however many segments each has
        advantages = np.zeros(4)
        advantages[present] = c.group_advantages(returns[present], ["group"] * len(present))
        return c.broadcast(advantages, masks, rollouts), c.token_weights(masks, rollouts, reduce="rollout")

    alone = batch_credit(masks, rollouts)
    beside = batch_credit([*masks, masks[twice]], [*rollouts, rollouts[twice]])
    for k, rollout in enumerate(rollouts):
        close(beside[0][k], alone[0][k])
        if rollout != rollouts[twice]:
            close(beside[1][k], alone[1][k])


returns_and_groups = st.lists(
    st.tuples(st.sampled_from([0.0, 0.3, 0.7, 1.0, 9.9]), st.sampled_from("abc"), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(
    rows=returns_and_groups,
    baseline=st.sampled_from(["mean", "leave_one_out"]),
    scale=st.sampled_from(["std", "none"]),
)
def test_groups(c, rows, baseline, scale):
    """Sum 0 a group; order, a constant and broken siblings change nothing."""
    returns, groups, valid = (np.array(column) for column in zip(*rows, strict=True))
    form = {"baseline": baseline, "scale": scale}
    got = c.group_advantages(returns, groups, valid=valid, **form)
    for group in set(groups):
        assert got[groups == group].sum() == pytest.approx(0, abs=1e-9)
    close(c.group_advantages(returns[::-1], groups[::-1], valid=valid[::-1], **form), got[::-1])
    close(c.group_advantages(returns + 5, groups, valid=valid, **form), got)
    close(c.group_advantages(np.where(valid, returns, np.nan), groups, **form), got)
    close(c.group_advantages(returns[valid], groups[valid], **form), got[valid])
    assert not got[~valid].any()


@settings(max_examples=30)
@given(given_batch=batch(), seed=st.integers(0, 2**32))
def test_a_batch_in_any_order(c, given_batch, seed):
    """B3 19: nothing depends on where a row stands; whitened numbers have mean 0 and deviation 1."""
    masks, rollouts = given_batch
    rng = np.random.default_rng(seed)
    numbers = [rng.normal(size=len(mask)) for mask in masks]
    order = rng.permutation(len(masks))
    got = c.whiten(numbers, masks)
    shuffled = c.whiten([numbers[k] for k in order], [masks[k] for k in order])
    weights = c.token_weights(masks, rollouts, reduce="rollout")
    moved = c.token_weights([masks[k] for k in order], [rollouts[k] for k in order], reduce="rollout")
    for place, k in enumerate(order):
        close(shuffled[place], got[k])
        close(moved[place], weights[k])
    trainable = flat(got)[flat(masks)]
    if len(trainable) > 1:
        assert trainable.mean() == pytest.approx(0, abs=1e-9)
        assert trainable.std(ddof=1) == pytest.approx(1, abs=1e-6)
