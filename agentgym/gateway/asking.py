"""Who puts calls to the policy: a few threads, and one batch at a time for policies that answer in batches."""

from __future__ import annotations

import contextlib
import queue
import threading

from agentgym.errors import InfrastructureError
from agentgym.gateway.dialect import CallsTools
from agentgym.gateway.recording import Pending
from agentgym.gateway.session import Session
from agentgym.messages import MessageCall
from agentgym.policies.base import Policy, Reply, replies
from agentgym.policies.batching import BatchServer, ServerStopped

_THREADS = 64  # calls that wait for the policy at a time, where it does not say how many it wants


class Asker:
    """Answers the calls of many sessions.

    Args:
        policy: what most sessions are answered by. A session may have a policy of its own, such as a scripted player,
            which is asked one call at a time.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._waiting: queue.SimpleQueue[tuple[Session, Pending] | None] = queue.SimpleQueue()
        self._asking = 0  # calls that wait for the policy
        self._lock = threading.Lock()
        self._batches = BatchServer(policy, lambda: self._asking) if policy.max_batch > 1 else None
        if self._batches is not None:
            self._batches.start()
        # Threads that nobody waits for at the end: a policy that hangs is left behind.
        self._threads = [
            threading.Thread(target=self._work, name="agentgym-gateway", daemon=True)
            for _ in range(policy.workers or _THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, session: Session, pending: Pending) -> None:
        """See to the answer of a new call; `pending.future` will have it."""
        with self._lock:
            self._asking += 1
        self._waiting.put((session, pending))

    def close(self) -> None:
        """Answer nobody any more; a call of the policy that has begun is not interrupted."""
        if self._batches is not None:
            self._batches.stop()
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            self._answer(*job)

    def _answer(self, session: Session, pending: Pending) -> None:
        try:
            try:
                reply, calls = self._ask(session, pending)
            finally:
                with self._lock:
                    self._asking -= 1
            given = session.complete(pending, reply, calls)
        except BaseException as error:  # the policy's or a screen's: told to the program, and on the record
            pending.future.set_exception(session.fail(pending, error))
        else:
            pending.future.set_result(given)

    def _ask(self, session: Session, pending: Pending) -> tuple[Reply, tuple[MessageCall, ...]]:
        """The policy's reply, and its calls where a server gives them."""
        conversation, seed = pending.placed.conversation, pending.seed
        own = session.policy is not self.policy
        with session.turn if own else contextlib.nullcontext():
            if session.native:
                assert isinstance(session.policy, CallsTools)
                tools = () if pending.asked.choice == "none" else pending.asked.tools
                return session.policy.call(conversation, tools, seed=seed)
            if own or self._batches is None:
                return replies(session.policy, [conversation], [seed])[0], ()
        try:
            return self._batches.ask(conversation, seed), ()
        except ServerStopped:
            raise InfrastructureError("the gateway was stopped before it answered") from None
