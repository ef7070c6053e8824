"""A win on the last allowed turn counts as running into the limit."""

from tests.check.good import Lockbox

FAILS = {"last_turn"}
SAYS = {"last_turn": "gold wins on turn 3 of 3: expected terminated=True, truncated=False, reward 1.0, got terminated=False"}


class Env(Lockbox):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.turns_left <= 0:
            return observation, 0.0, False, True, info
        return observation, reward, terminated, truncated, info
