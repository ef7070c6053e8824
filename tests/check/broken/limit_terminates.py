"""Calls a limit the end of the task."""

from tests.check.good import Lockbox

FAILS = {"turn_limit", "last_turn"}
SAYS = {
    "turn_limit": "terminated at step 3 with max_turns=3, but not with max_turns=4",
    "last_turn": "gold with a turn too few: expected terminated=False, truncated=True at step 2, got terminated=True",
}


class Env(Lockbox):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, False, info
