"""Seeds `numpy.random` in reset and draws from it in step: equal when alone, different when others draw, too."""

import numpy as np
from agentgym import ToolResult
from tests.check.good import Lockbox

FAILS = {"same_seed", "global_random_state", "instances", "snapshot", "pickle", "threads", "vectors"}
SAYS = {"same_seed": "played twice with random and numpy.random disturbed: step 1"}


class Env(Lockbox):
    def begin(self, task):
        text = super().begin(task)
        np.random.seed(int(self.np_random.integers(1 << 30)))
        return text

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.use(self.shake)

    def shake(self, call, next):
        return ToolResult(f"{next(call).text} The box shakes {np.random.randint(1 << 30)} times.")
