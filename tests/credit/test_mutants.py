"""Wrong versions of the real code, each one edit away from it, and the test that catches each.

A mutant is a line of the source with one thing changed; the named test, run on the changed module, has to fail. An edit
whose old text is gone fails here too, so that the table follows the code. Mutants of the losses stand in
`tests/baselines/test_mutants.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agentgym import credit
from tests.credit import test_chains as on_chains
from tests.credit import test_gae as on_gae
from tests.credit import test_groups as on_groups
from tests.credit import test_properties as always
from tests.credit import test_values as on_values
from tests.credit import test_weights as on_weights
from tests.mutants import mutated


class Mutant(NamedTuple):
    mistake: str
    module: str
    caught_by: Callable[..., Any]
    old: str
    new: str
    arguments: dict[str, Any] = {}


GAE, GROUPS, WEIGHTS, CHAINS, VALUES = (
    f"agentgym.credit.{name}" for name in ("gae", "groups", "weights", "chains", "values")
)
SPANS = on_values.TestSpans()
STEPS = on_groups.TestSteps()

MUTANTS = [
    # -- GAE
    Mutant("value after the token", GAE, on_gae.test_value_is_of_the_state_before_the_token,
           "- values\n    advantages, running",
           "- np.append(values[1:], after)[: len(values)]\n    advantages, running"),
    Mutant("no V of the next state", GAE, on_gae.test_terminated,
           "rewards + gamma * np",
           "rewards + 0 * gamma * np"),
    Mutant("truncated taken for terminated", GAE, on_gae.test_truncated_bootstraps_from_the_state_after_the_last_token,
           "np.append(values[1:], after)",
           "np.append(values[1:], 0.0)"),
    Mutant("last value repeated at the end", GAE, on_gae.test_terminated,
           "np.append(values[1:], after)",
           "np.append(values[1:], values[-1:])"),
    Mutant("lambda without gamma", GAE, on_gae.test_truncated_bootstraps_from_the_state_after_the_last_token,
           "keep = deltas.tolist(), 0.0, gamma * lam",
           "keep = deltas.tolist(), 0.0, lam"),
    Mutant("observations take part", GAE, on_gae.test_observation_tokens_take_no_part,
           "trainable = [np.asarray(mask, dtype=bool) for mask in masks]",
           "trainable = [np.ones(len(mask), dtype=bool) for mask in masks]"),
    Mutant("terminal reward on a masked token lost", GAE,
           on_gae.test_reward_at_a_masked_token_goes_to_the_trainable_one_before,
           "paid = np.flatnonzero(every_reward)",
           "paid = np.flatnonzero(every_reward * mask)"),
    Mutant("two rewards on one token, one kept", GAE,
           on_gae.test_reward_at_a_masked_token_goes_to_the_trainable_one_before,
           "np.add.at(r, owner[paid], every_reward[paid])",
           "r[owner[paid]] = every_reward[paid]"),
    Mutant("targets with the actor's lambda", GAE, on_gae.test_lambda_of_the_targets_is_its_own,
           "advantages if returns_lam is None else local(returns_lam)",
           "advantages"),
    # -- across segments
    Mutant("bootstrap over the boundary", GAE, on_gae.test_no_bootstrap_over_the_boundary_unless_stitched,
           "after = 0.0",
           "after = v[stop]"),
    Mutant("bootstrap over the boundary, V of the end", GAE, on_gae.test_truncated_chain,
           "after = 0.0",
           "after = bootstrap"),
    Mutant("stitched segments cut apart", GAE, on_gae.test_stitch,
           'if across == "stitch":\n            return',
           'if across == "never":\n            return'),
    Mutant("earlier segments are paid nothing", GAE, on_gae.test_every_segment_gets_the_full_reward,
           "r[stop:].sum() + bootstrap",
           "0.0"),
    Mutant("the reward is shared among segments", GAE, on_gae.test_every_segment_gets_the_full_reward,
           "r[stop:].sum() + bootstrap",
           "(r[stop:].sum() + bootstrap) / len(counts)"),
    Mutant("segments are paid what came before them", GAE, on_gae.test_what_was_paid_before_a_segment_is_not_its_doing,
           "own[-1] += r[stop:].sum() + bootstrap",
           "own[-1] += r.sum() + bootstrap"),
    Mutant("truncation forgotten in earlier segments", GAE, on_gae.test_truncated_chain,
           "r[stop:].sum() + bootstrap",
           "r[stop:].sum()"),
    Mutant("no decay: segments as episodes", GAE, on_gae.test_decay,
           'if across == "decay":',
           'if across == "never":'),
    Mutant("independent segments decay", GAE, on_gae.test_independent,
           'if across == "decay":',
           'if across != "stitch":'),
    Mutant("decay by segments, not tokens", GAE, on_gae.test_decay_counts_trainable_tokens_of_later_segments_only,
           "len(r) - np.cumsum(counts)",
           "len(counts) - 1 - np.arange(len(counts))"),
    Mutant("decay by all tokens", GAE, on_gae.test_decay_counts_trainable_tokens_of_later_segments_only,
           "len(r) - np.cumsum(counts)",
           "sum(map(len, trainable)) - np.cumsum([len(m) for m in trainable])"),
    Mutant("targets decay", GAE, on_gae.test_decay,
           "targets = v + (advantages if",
           "targets = v + 0.5 * (advantages if"),
    Mutant("the wrong length for lambda", GAE, on_gae.test_lengths_of_the_adaptive_lambda,
           'decay_length == "rollout"',
           'decay_length == "segment"'),
    Mutant("numbers of masked tokens not 0", GAE, on_gae.test_observation_tokens_take_no_part,
           "placed = [np.zeros(len(mask)) for mask in masks]",
           "placed = [np.ones(len(mask)) for mask in masks]"),
    # -- groups
    Mutant("float residue over epsilon", GROUPS, on_groups.test_a_residue_of_rounding_is_no_difference,
           "if not differ(r[members]):",
           "if len(members) < 2:"),
    Mutant("deviation with n", GROUPS, on_groups.test_grpo,
           "r[members].std(ddof=1)",
           "r[members].std()"),
    Mutant("deviation of the whole batch", GROUPS, on_groups.test_groups_of_different_sizes,
           "r[members].std(ddof=1)",
           "r[usable].std(ddof=1)"),
    Mutant("mean of the whole batch", GROUPS, on_groups.test_groups_of_different_sizes,
           "r[members].mean()",
           "r[usable].mean()"),
    Mutant("leave-one-out without the factor", GROUPS, on_groups.test_rloo,
           "len(members) / (len(members) - 1)",
           "1"),
    Mutant("broken sandboxes count as 0", GROUPS, on_groups.test_what_infrastructure_ended_does_not_exist,
           "return r, usable & ~np.isnan(r)",
           "return np.where(usable, np.nan_to_num(r), 0.0), np.ones(len(r), dtype=bool)"),
    Mutant("Dr. GRPO divides", GROUPS, on_groups.test_dr_grpo,
           'if scale == "std":',
           "if True:"),
    Mutant("groups of one keep their return", GROUPS, on_groups.test_group_of_one,
           "            continue\n",
           "            advantages[members] = r[members]\n            continue\n"),
    Mutant("degenerate by trajectories", GROUPS, on_groups.test_informative_and_degenerate,
           "1.0 - len(teaching) / len(set(groups))",
           "1.0 - keep.mean()"),
    Mutant("states compared between tasks", GROUPS, STEPS.test_a_state_nobody_else_saw_says_nothing,
           "states = [(group, anchor)",
           "states = [(0, anchor)"),
    Mutant("a step's own reward, not what follows", GROUPS, STEPS.test_gigpo,
           "running = reward + gamma * running",
           "running = reward"),
    Mutant("steps without a state are compared", GROUPS, STEPS.test_left_out,
           "anchor is not None for",
           "True for"),
    # -- tokens
    Mutant("advantages by the position of the segment", WEIGHTS, on_groups.test_broadcast_reaches_every_trainable_token,
           "np.where(mask, of[n], 0.0) for mask, n in zip(_masks(masks, rollouts), rollouts, strict=True)",
           "np.where(mask, of[n % len(of)], 0.0) for n, mask in enumerate(_masks(masks, rollouts))"),
    Mutant("segments in place of rollouts", WEIGHTS, on_weights.test_a_cut_changes_nothing,
           "float(n_rollouts * of_rollout[rollout])",
           "float(n_rollouts * count)",
           {"reduce": "rollout"}),
    Mutant("as many rollouts as segments", WEIGHTS, on_weights.test_a_cut_changes_nothing,
           "n_rollouts = sum(count > 0 for count in of_rollout.values())",
           "n_rollouts = sum(count > 0 for count in counts)",
           {"reduce": "rollout"}),
    Mutant("padding in the denominator", WEIGHTS, always.test_weights_add_up_to_1_with_any_padding,
           '"token": float(sum(counts))',
           '"token": float(sum(map(len, trainable)))'),
    Mutant("rows without tokens in the denominator", WEIGHTS,
           on_weights.test_without_trainable_tokens_it_is_as_if_not_there,
           "sum(count > 0 for count in of_rollout.values())",
           "len(of_rollout)",
           {"reduce": "rollout"}),
    Mutant("loss on masked tokens", WEIGHTS, on_weights.test_by_hand,
           "weights.append(mask / denominator",
           "weights.append(np.ones(len(mask)) / denominator",
           {"reduce": "token", "constant": None, "expected": [[0, 1 / 4, 1 / 4], [0, 1 / 4], [1 / 4, 0]]}),
    Mutant("padding in the variance", WEIGHTS, on_weights.test_whiten_over_trainable_tokens_only,
           "(flat.std(ddof=1) + epsilon)",
           "(np.concatenate([np.asarray(a, float) for a in arrays]).std(ddof=1) + epsilon)"),
    Mutant("padding in the mean", WEIGHTS, on_weights.test_whiten_over_trainable_tokens_only,
           "flat.mean() * shift",
           "np.concatenate([np.asarray(a, float) for a in arrays]).mean() * shift"),
    # -- records
    Mutant("superseded replies are trained", CHAINS, on_chains.test_a_recorded_one,
           'if segment.cause == "retry":',
           'if segment.cause == "never":'),
    Mutant("a parent of another agent", CHAINS, on_chains.test_parents_of_other_agents_or_none,
           "own = parent is not None and parent[0].agent == segment.agent",
           "own = parent is not None"),
    Mutant("a delegation goes on where the last one ended", CHAINS, on_chains.test_each_delegation_is_a_chain,
           '("compaction", "fork")',
           '("compaction", "fork", "delegation")'),
    Mutant("reward on the last token, trainable or not", CHAINS, on_chains.test_add_reward,
           "places = np.flatnonzero(mask)",
           "places = np.arange(len(mask))"),
    Mutant("anchor of the state after the step", CHAINS, on_chains.test_anchors_are_of_the_state_before,
           'anchors.append(state if step.kind == "turn" else None)',
           'anchors.append(step.info.get("anchor"))'),
    Mutant("steps on tokens left out of the loss", CHAINS, on_chains.test_steps_on_their_tokens,
           "row * np.asarray(segment.mask, dtype=bool)",
           "row"),
    # -- values
    Mutant("explained variance without its mean", VALUES, on_values.test_value_metrics,
           "float((g - v).var()) / spread",
           "float(((g - v) ** 2).mean()) / spread + 0.1"),
    Mutant("calibration of single tokens", VALUES, on_values.test_calibrated_in_bins,
           "gap = np.abs(np.bincount(bin_of, weights=v - g, minlength=bins))",
           "gap = np.abs(v - g)"),
    Mutant("spans counted in tokens", VALUES, SPANS.test_by_hand,
           "segment_gae(rewards, judged, begins, **options)",
           "segment_gae(rewards, [np.nan_to_num(j) for j in judged], trainable, **options)"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake)
def test_caught(mutant):
    changed = mutated(credit, mutant.module, mutant.old, mutant.new)
    with pytest.raises(AssertionError):
        mutant.caught_by(changed, **mutant.arguments)


def test_it_is_the_mistakes_that_are_caught():
    """The same way of loading, with nothing changed, passes."""
    for mutant in MUTANTS:
        mutant.caught_by(mutated(credit, mutant.module, mutant.old, mutant.old), **mutant.arguments)
