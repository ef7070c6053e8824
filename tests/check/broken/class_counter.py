"""Counts on the class; nobody sees it yet."""

from tests.check.good import Lockbox

FAILS = {"instances"}
SAYS = {"instances": "class attribute Env.episodes changed from"}


class Env(Lockbox):
    episodes = 0

    def begin(self, task):
        type(self).episodes += 1
        return super().begin(task)
