"""The verifier pays an episode in which nothing was done."""

from agentgym import Verdict
from tests.check.good import Lockbox

FAILS = {"floor"}
SAYS = {"floor": "expected reward 0, not resolved, for doing nothing; got 1.0, resolved=True"}


class Env(Lockbox):
    def verify(self, episode):
        if not episode.calls:
            return Verdict(1.0)  # "no wrong digit was turned"
        return super().verify(episode)
