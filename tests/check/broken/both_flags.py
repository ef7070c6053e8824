"""Reports a limit although the task has ended, and the task's end at a limit."""

from tests.check.good import Lockbox

FAILS = {"turn_limit", "last_turn"}
SAYS = {"turn_limit": "terminated and truncated at once", "last_turn": "got terminated=True, truncated=True"}


class Env(Lockbox):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        at_limit = self.turns_left <= 0
        return observation, reward, terminated or at_limit, truncated or at_limit, info
