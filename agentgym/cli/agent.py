"""The flags that let an agent program play."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.blackbox import Program, ProgramPlayer
    from agentgym.policies import Policy

# Keywords of `make_env` about what the policy reads or is trained on, which a program decides for itself.
_OF_CONVERSATIONS = {
    "compact": "--compact",
    "prompts": "--prompts",
    "mask_blocked": "--mask-blocked",
    "delegation": "--delegate",
}


@dataclass(frozen=True)
class Agent:
    """A program that works in a sandbox and asks the policy for replies."""

    agent_cmd: Annotated[str | None, tyro.conf.arg(metavar="COMMAND")] = None
    """Let this program play, with the policy as its model. It is told by variables where task and model are;
    {task}, {task_file}, {workspace}, {base_url}, {url}, {key} and {model} in the command are replaced."""
    agent_timeout: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """With --agent-cmd: stop the program after this long; what it left is graded. Default: 1800."""
    agent_env: tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")]] = ()
    """With --agent-cmd: a variable for the program."""
    agent_show: tyro.conf.UseAppendAction[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="PATH[:INSIDE]")]
    ] = ()
    """With --agent-cmd: a file or folder of this machine that the program may read."""
    agent_protocol: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """With --agent-cmd: how the policy writes tool calls: hermes (the default), xml, bash, react."""

    def program(self, stack: dict[str, Any]) -> Program | None:
        """What is started; None where the policy itself plays.

        Args:
            stack: keywords of `make_env`.

        Raises:
            UsageError: flags that mean nothing together, or there is no such program.
        """
        if self.agent_cmd is None:
            for name in ("agent_timeout", "agent_env", "agent_show", "agent_protocol"):
                if getattr(self, name):
                    raise UsageError(f"{_flag(name)} means something only with --agent-cmd COMMAND")
            return None
        for name, flag in _OF_CONVERSATIONS.items():
            if name in stack:
                raise UsageError(f"{flag} does not go with --agent-cmd: the conversation is the program's")
        from agentgym.blackbox import Program

        limit = {} if self.agent_timeout is None else {"timeout": self.agent_timeout}
        return Program(self.agent_cmd, env=_pairs(self.agent_env), show=_places(self.agent_show), **limit)

    @contextlib.contextmanager
    def player(
        self, program: Program | None, policy: Policy, screening: Mapping[str, Any]
    ) -> Iterator[ProgramPlayer | None]:
        """Who plays in the policy's place, with a gateway that is open as long as this is; None without a program.

        Args:
            program: what is started.
            policy: answers it.
            screening: keywords of `ProgramPlayer` about the monitor.
        """
        if program is None:
            yield None
            return
        from agentgym.blackbox import ProgramPlayer
        from agentgym.gateway import Gateway

        with Gateway(policy) as gateway:
            yield ProgramPlayer(program, gateway, protocol=self.agent_protocol or "hermes", **screening)


def take_screening(stack: dict[str, Any]) -> dict[str, Any]:
    """Take the monitor out of the keywords of `make_env`: with a program it screens in the gateway."""
    return {name: stack.pop(name) for name in ("anti_hack", "penalty") if name in stack}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE``, the value as it stands."""
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise UsageError(f"expected --agent-env KEY=VALUE, got {text!r}")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def _places(texts: Sequence[str]) -> dict[str, str]:
    """``PATH[:INSIDE]``, inside at the same path where nothing else is said."""
    places = {}
    for text in texts:
        here, _, inside = text.partition(":")
        if not os.path.exists(here):
            raise UsageError(f"expected --agent-show to name a file or folder of this machine, got {here!r}")
        places[os.path.abspath(here)] = inside or os.path.abspath(here)
    return places
