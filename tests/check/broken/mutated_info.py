"""Hands out one list in every info and goes on writing into it."""

from tests.check.good import Lockbox

FAILS = {"info", "handed_out"}
SAYS = {"handed_out": "info['admissible_actions'] of reset 0 changed later from ['turn 0'] to", "info": "expected info['admissible_actions'] to be tuple[str, ...]"}


class Env(Lockbox):
    def begin(self, task):
        self.moves = []
        return super().begin(task)

    def _info(self, calls):
        self.moves.append(f"turn {len(self.moves)}")
        return super()._info(calls) | {"admissible_actions": self.moves}
