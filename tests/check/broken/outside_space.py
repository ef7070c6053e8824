"""Answers with a number."""

from tests.check.good import Lockbox

FAILS = {"gymnasium_checker", "spaces"}
SAYS = {"spaces": "step 0: expected an observation in UnicodeText(16777216), got 7"}


class Env(Lockbox):
    def reset(self, **kwargs):
        return 7, super().reset(**kwargs)[1]
