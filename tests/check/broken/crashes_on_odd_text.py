"""Cannot answer every text that fits its schema."""

from agentgym import tool
from tests.check.good import Lockbox

FAILS = {"invalid_actions"}
SAYS = {"invalid_actions": "note with text='': expected an answer, got IndexError"}


class Env(Lockbox):
    @tool
    def note(self, text: str) -> str:
        """Write."""
        return text[0]
