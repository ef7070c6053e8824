"""Instances share the position through the class."""

from tests.check.good import Lockbox

FAILS = {"instances", "snapshot", "threads", "pickle"}
SAYS = {"instances": "state belongs on self"}


class Env(Lockbox):
    seen: list[int] = []

    def begin(self, task):
        self.seen.clear()
        return super().begin(task)

    def anchor(self):
        self.seen.append(self.dial)
        return f"{super().anchor()}, seen {self.seen}"
