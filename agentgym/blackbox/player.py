"""One episode of an agent program: reset, start, wait, grade, record."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from agentgym.blackbox.acting import Acting
from agentgym.blackbox.fences import ProgramProtocol
from agentgym.blackbox.place import BACKEND, LendsFiles, LentFiles, OwnSandbox, Place
from agentgym.blackbox.program import Door, Program, ProgramEnd
from agentgym.blackbox.screening import Screening
from agentgym.core import AgentEnv
from agentgym.errors import InfrastructureError, UsageError, real_number
from agentgym.gateway import Gateway, Limits, Session
from agentgym.monitor.audit import audit
from agentgym.monitor.monitor import Monitor
from agentgym.policies import Policy
from agentgym.protocols import Protocol, make_protocol
from agentgym.sandbox.base import Sandbox
from agentgym.trajectory.records import Trajectory
from agentgym.workers import Env
from agentgym.wrappers.anti_hack import MODES

_MODEL = "agentgym"  # what a program asks for; the gateway serves one policy, whatever it is called
_WATCH_S = 0.5  # how often it is looked whether the gateway lives
# Of a session; at the others a program may go on, with a shorter conversation for example.
_FINAL_LIMITS = frozenset(("calls", "sampled_tokens", "session_seconds"))
_OF_THE_GATEWAY = (
    "steps segments events reward terminated truncated verdict resolved infrastructure_error".split()
)


class ProgramPlayer:
    """Plays episodes by letting a program work in a sandbox; a `agentgym.workers.Player`.

    The program asks the gateway for replies, which is where the policy acts and where segments are recorded. When the
    program has ended, or its time is up, everything it started is killed and the environment grades what it left.

    What becomes of an episode:

    - the program ends by itself, with whatever status: terminated, graded; a status other than 0 is a "crash";
    - its time is up, or the environment's `max_turns` replies are used: truncated, graded;
    - it never asked the model: an infrastructure error, since that says nothing of the policy;
    - the sandbox, the gateway or the policy fails: an infrastructure error.

    Args:
        program: what is started.
        gateway: an open one; it may serve others.
        protocol: how the policy writes calls of the tools that the program offers. Where it offers none, fenced blocks
            count as calls too (`ProgramProtocol`).
        anti_hack: screen the replies' calls with the monitor, "block" or "audit"; None: do not.
        penalty: with "block", taken off the reward for each blocked call.
        monitor: by default the rules with the deterministic reviewer.

    Raises:
        UsageError: an argument makes no sense.
    """

    def __init__(
        self,
        program: Program,
        gateway: Gateway,
        *,
        protocol: str | Protocol = "hermes",
        anti_hack: Literal["block", "audit"] | None = None,
        penalty: float = 0.0,
        monitor: Monitor | None = None,
    ) -> None:
        if anti_hack is not None and anti_hack not in MODES:
            raise UsageError(f"expected anti_hack to be one of {', '.join(MODES)} or None, got {anti_hack!r}")
        penalty = real_number("penalty", penalty, least=0)
        if penalty and anti_hack != "block":
            raise UsageError("penalty means something only with anti_hack='block'")
        self.program = program
        self.gateway = gateway
        self.protocol = ProgramProtocol(make_protocol(protocol))
        self.anti_hack = anti_hack
        self.penalty = penalty
        self.monitor = monitor or Monitor()
        self.settings: Mapping[str, Any] = {
            "program": program.settings,
            "protocol": self.protocol.name,
            "anti_hack": anti_hack,
            "penalty": penalty,
        }

    def play(self, env: Env, policy: Policy, rng: np.random.Generator, trajectory: Trajectory) -> None:
        """Play the episode that `env` has just begun, and put it into its record.

        Args:
            env: a stack of wrappers.
            policy: of this episode.
            rng: the episode's.
            trajectory: what is recorded of the reset; takes the rest.

        Raises:
            InfrastructureError: the episode says nothing of the policy; what was recorded stands in `trajectory`.
            UsageError: a program could not work there.
        """
        place = place_of(env)
        screen = None
        if self.anti_hack is not None:
            screen = Screening(self.monitor, trajectory.extra.get("boundaries", {}), self.anti_hack)
        session = self.gateway.open(
            task_id=trajectory.task_id,
            policy=policy,
            seed=int(rng.integers(1 << 63)),
            screen=screen,
            protocol=self.protocol,
            limits=Limits(calls=place.replies),
        )
        try:
            end = self._run(place, session)
            trajectory.extra |= {"program": end.to_row(), **place.record()}
            self._look_for_failures(session, end)
            cut_off = end.outcome == "timed_out" or session.exhausted in _FINAL_LIMITS
            outcome = place.outcome(cut_off=cut_off)
        except Exception as error:
            broken = str(error) or type(error).__name__
            _take(trajectory, self.gateway.close_session(session.key, infrastructure_error=broken))
            raise
        reward = outcome.reward - self.penalty * (screen.blocked if screen is not None else 0)
        recorded = self.gateway.close_session(session.key, outcome.verdict, reward=reward, end=outcome.end)
        _take(trajectory, recorded)
        if self.anti_hack is not None:
            trajectory.hacked = audit(trajectory, self.monitor).hacked
        trajectory.seconds = time.time() - trajectory.started

    def _run(self, place: Place, session: Session) -> ProgramEnd:
        gateway = self.gateway
        door = Door(gateway.host, gateway.port, session.key, _MODEL)
        session.note("program_start", command=self.program.command)
        with place.open() as sandbox:
            with _ends_with(gateway, sandbox):
                end = self.program.run(
                    sandbox, place.prompt, door, timeout=place.env.seconds_left, show=place.shown
                )
            session.note("program_end", outcome=end.outcome, exit_code=end.exit_code)
        return end

    def _look_for_failures(self, session: Session, end: ProgramEnd) -> None:
        """Tell an episode in which something of ours broke from one in which the agent failed."""
        if session.failure is not None:
            raise session.failure
        if not self.gateway.alive:
            raise InfrastructureError("the gateway ended while the agent program ran")
        if not session.calls:
            raise InfrastructureError(
                f"the agent program never asked the model: it {end.outcome.replace('_', ' ')} with exit status "
                f"{end.exit_code}, its last words {end.last_words!r}"
            )


def place_of(env: Env) -> Place:
    """Where a program works on the running episode of a stack of wrappers.

    Raises:
        UsageError: it could not work there.
    """
    inner = env.unwrapped
    if not isinstance(inner, AgentEnv):
        raise UsageError(f"an agent program needs an environment of this package, got {type(inner).__name__}")
    workspace = inner.episode.workspace
    if not isinstance(workspace, Sandbox):
        return LentFiles(inner) if isinstance(inner, LendsFiles) else Acting(inner)
    if workspace.backend != BACKEND:
        raise UsageError(f"an agent program needs a sandbox of {BACKEND}, this is {workspace.backend!r}")
    return OwnSandbox(inner)


@contextlib.contextmanager
def _ends_with(gateway: Gateway, sandbox: Sandbox) -> Iterator[None]:
    """Close the sandbox, and so end what runs in it, should the gateway die."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_WATCH_S):
            if not gateway.alive:
                sandbox.close()
                return

    watcher = threading.Thread(target=watch, name="agentgym-blackbox", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _take(trajectory: Trajectory, recorded: Trajectory) -> None:
    """Put what the gateway recorded into the record that the environment's reset began."""
    for name in _OF_THE_GATEWAY:
        setattr(trajectory, name, getattr(recorded, name))
