"""Keeps its history over reset."""

from tests.check.good import Lockbox

FAILS = {"fresh_reset"}
SAYS = {"fresh_reset": "reset 2 to seed 0 differs from the first: step 0: observation was"}


class Env(Lockbox):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.history = ""

    def begin(self, task):
        self.history += super().begin(task)
        return self.history
