"""The reward is a numpy scalar."""

import numpy as np
from tests.check.good import Lockbox

FAILS = {"spaces"}
SAYS = {"spaces": "expected the reward to be a finite Python float, got float64"}


class Env(Lockbox):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.float64(reward), *rest
