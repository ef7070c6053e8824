"""Takes any task and any keyword, silently."""

from tests.check.good import Lockbox

FAILS = {"reset_options"}
SAYS = {"reset_options": "reset(options={'task': 'box-train-2x'}): expected an error, it was accepted"}


class Env(Lockbox):
    def reset(self, *, seed=None, options=None):
        wanted = (options or {}).get("task")
        if isinstance(wanted, str) and wanted not in self.task_set:
            options = None
        return super().reset(seed=seed, options=options)
