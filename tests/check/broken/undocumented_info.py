"""Adds an info key that nobody documented."""

from tests.check.good import Lockbox

FAILS = {"info"}
SAYS = {"info": "info key 'anchors' is not documented. Did you mean 'anchor'?"}


class Env(Lockbox):
    def _info(self, calls):
        return super()._info(calls) | {"anchors": "here"}
