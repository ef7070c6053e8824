"""Pays before the end."""

from tests.check.good import Lockbox

FAILS = {"spaces", "floor"}
SAYS = {"spaces": "expected reward 0 before the end, got 0.01"}


class Env(Lockbox):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward or 0.01, *rest
