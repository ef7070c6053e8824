"""Credit: from rewards to advantages, value targets and loss weights of tokens. Pure numpy, for any trainer.

- `gae`, `segment_gae`, `span_gae`, `LengthAdaptive`: with a critic, across the segments of a chain.
- `group_advantages`, `informative`, `degenerate`, `step_advantages`, `overlong_penalty`: without one, in groups.
- `token_weights`, `broadcast`, `whiten`: from trajectories to tokens.
- `chains`, `add_reward`, `step_rewards`, `step_anchors`, `spread_steps`: out of recorded trajectories.
- `value_metrics`: how good a critic is.
"""

from agentgym.credit.chains import add_reward, chains, spread_steps, step_anchors, step_rewards
from agentgym.credit.gae import Credit, LengthAdaptive, TokenCredit, gae, segment_gae
from agentgym.credit.groups import (
    degenerate,
    group_advantages,
    informative,
    overlong_penalty,
    step_advantages,
)
from agentgym.credit.values import span_gae, value_metrics
from agentgym.credit.weights import broadcast, token_weights, whiten

__all__ = [
    "Credit",
    "LengthAdaptive",
    "TokenCredit",
    "add_reward",
    "broadcast",
    "chains",
    "degenerate",
    "gae",
    "group_advantages",
    "informative",
    "overlong_penalty",
    "segment_gae",
    "span_gae",
    "spread_steps",
    "step_advantages",
    "step_anchors",
    "step_rewards",
    "token_weights",
    "value_metrics",
    "whiten",
]
