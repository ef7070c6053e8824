"""Says None for what it does not know."""

from tests.check.good import Lockbox

FAILS = {"info"}
SAYS = {"info": "info['anchor'] is None; leave out what is not known"}


class Env(Lockbox):
    def anchor(self):
        return None
