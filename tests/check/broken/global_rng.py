"""Draws from the global generator of `random`."""

import random

from tests.check.good import Lockbox

FAILS = {"same_seed", "global_random_state", "instances", "fresh_reset", "snapshot", "pickle", "threads", "vectors"}
SAYS = {"global_random_state": "reset changed the state of the global generator of random; use self.np_random"}


class Env(Lockbox):
    def begin(self, task):
        return super().begin(task) + f" The wind blows {random.random()}."
