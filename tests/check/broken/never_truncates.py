"""Goes on after its limit."""

from tests.check.good import Lockbox

FAILS = {"turn_limit", "last_turn"}
SAYS = {"turn_limit": "expected truncated=True at step 3"}


class Env(Lockbox):
    def begin(self, task):
        self.max_turns = max(self.max_turns, 4)
        return super().begin(task)
