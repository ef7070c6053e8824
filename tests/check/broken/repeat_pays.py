"""Any one action, repeated, is paid."""

from agentgym import Verdict
from tests.check.good import Lockbox

FAILS = {"floor"}
SAYS = {"floor": "the repeat policy: expected a mean reward below 0.5"}


class Env(Lockbox):
    def verify(self, episode):
        return Verdict(1.0) if len([turn for turn in episode.turns if turn.calls]) == 8 else super().verify(episode)
