"""Deterministic at the first reset, random from the second on."""

import numpy as np
from tests.check.good import Lockbox

FAILS = {"same_seed", "fresh_reset", "snapshot", "threads", "vectors"}
SAYS = {"same_seed": "creaks "}


class Env(Lockbox):
    used = False

    def begin(self, task):
        text = super().begin(task)
        if self.used:
            text += f" the box creaks {np.random.default_rng().integers(1 << 30)} times"
        self.used = True
        return text
