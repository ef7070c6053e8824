"""The solver's way is not what the verifier wants."""

from agentgym import Verdict
from tests.check.good import Lockbox

FAILS = {"gold", "last_turn"}
SAYS = {"gold": "expected gold to end terminated and resolved with reward 1.0, got 0.5"}


class Env(Lockbox):
    def verify(self, episode):
        return Verdict(super().verify(episode).score * 0.5)
