"""Keeps state where `snapshot` does not look."""

from tests.check.good import Lockbox

FAILS = {"snapshot", "pickle"}
SAYS = {"snapshot": "belongs in save_workspace and load_workspace"}
_counts = {}


class Env(Lockbox):
    def begin(self, task):
        _counts[id(self)] = 0
        return super().begin(task)

    def anchor(self):
        _counts.setdefault(id(self), 0)
        _counts[id(self)] += 1
        return f"{super().anchor()}, looked at {_counts[id(self)]} times"
