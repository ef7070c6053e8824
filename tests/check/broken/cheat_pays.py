"""Naming every digit in one message opens the box."""

from agentgym import Verdict
from tests.check.good import Lockbox

FAILS = {"cheats"}
SAYS = {"cheats": "cheat 'all digits in one message' on task 'box-train-0': expected it not to pass"}


class Env(Lockbox):
    def verify(self, episode):
        named = {record.call.arguments.get("digit") for record in episode.calls}
        return Verdict(1.0) if named == set(range(10)) else super().verify(episode)
