"""A tiny environment, and one that breaks; importing this registers both."""

from __future__ import annotations

from typing import Any

import gymnasium

from agentgym import AgentEnv, Episode, InfrastructureError, Task, Verdict

TINY = "agentgym-test/Tiny-v0"
BROKEN = "agentgym-test/Broken-v0"


class TinyEnv(AgentEnv):
    """Say the number of the task; one try."""

    tasks = tuple(
        Task(f"tiny-{n}", prompt=f"Say {n}.", split=s, data={"n": str(n)})
        for n, s in enumerate(["train"] * 4 + ["test"])
    )

    def __init__(self, *, noisy: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.noisy = noisy

    def begin(self, task: Task) -> str:
        if self.noisy:
            print("noise on standard output")
        return task.prompt

    def respond(self, action: str) -> str:
        self.said = action
        self.finish()
        return "Noted."

    def verify(self, episode: Episode) -> Verdict:
        return Verdict(float(self.said == episode.task.data["n"]))

    def gold(self) -> str:
        return str(self.episode.task.data["n"])


class BrokenEnv(TinyEnv):
    """A sandbox that never starts."""

    def begin(self, task: Task) -> str:
        raise InfrastructureError("the sandbox did not start")


for name, cls in ((TINY, TinyEnv), (BROKEN, BrokenEnv)):
    if name not in gymnasium.registry:
        gymnasium.register(name, cls, order_enforce=False, disable_env_checker=True)
