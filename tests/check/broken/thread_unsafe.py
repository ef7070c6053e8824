"""Passes a value through the module while it works: fine in turn, wrong in threads."""

import time

from agentgym import tool
from tests.check.good import Lockbox

FAILS = {"threads"}
SAYS = {"threads": "differs from the same episodes alone"}
_scratch = {}


class Env(Lockbox):
    @tool
    def note(self, text: str) -> str:
        """Write on a piece of paper."""
        _scratch["text"] = text
        time.sleep(0.001)
        return super().note(_scratch["text"])
