"""Holds a lock."""

import threading

from tests.check.good import Lockbox

FAILS = {"pickle"}
SAYS = {"pickle": "raised TypeError: cannot pickle '_thread.lock' object"}


class Env(Lockbox):
    snapshot_exclude = frozenset({"lock"})

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.lock = threading.Lock()
