"""Leaves a thread and a folder behind when closed."""

import tempfile
import threading

from tests.check.good import Lockbox

FAILS = {"resources"}
SAYS = {"resources": "after close, expected none more"}
_forever = threading.Event()


class Env(Lockbox):
    snapshot_exclude = frozenset({"worker"})

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        tempfile.mkdtemp()
        threading.Thread(target=_forever.wait, daemon=True).start()
