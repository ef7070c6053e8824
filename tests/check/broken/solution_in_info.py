"""The solution is in a documented info key."""

from tests.check.good import Lockbox

FAILS = {"secrets"}
SAYS = {"secrets": "'open sesame, box 0 train' is in info['anchor'] of step 0"}


class Env(Lockbox):
    def anchor(self):
        return super().anchor() + f", wants {self.episode.task.data['solution']}"
