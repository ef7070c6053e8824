"""One policy asked by many threads: conversations that wait at the same time are answered in one call."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentgym.errors import ContextOverflow
from agentgym.messages import Conversation
from agentgym.policies.base import Policy, Reply, replies


class ServerStopped(Exception):
    """The server was stopped before it answered."""


@dataclass(slots=True)
class _Request:
    conversation: Conversation
    seed: int
    order: int = 0
    leaves: bool = False  # nothing is asked: somebody who asked will ask no more
    done: threading.Event = field(default_factory=threading.Event)
    answer: Reply | BaseException | None = None


class BatchServer:
    """One thread that answers whatever conversations wait, up to the policy's `max_batch` at a time.

    Args:
        policy: asked from that thread only.
        busy: how many threads may ask at present.
    """

    # After a first request, waiting for more costs at most this share of the time the last batch took: enough to
    # bring episodes that fell out of step back into one batch, too little for a slow environment to matter.
    patience = 0.1

    def __init__(self, policy: Policy, busy: Callable[[], int]) -> None:
        self.policy = policy
        self.busy = busy
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self._last_seconds = 0.1
        self._thread = threading.Thread(target=self._serve, name="agentgym-policy", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more; a call of the policy that has begun is not interrupted."""
        with self._lock:
            self._stopped = True
            self._waiting.put(None)

    def ask(self, conversation: Conversation, seed: int, order: int = 0) -> Reply:
        """Wait for the reply to a conversation.

        Args:
            conversation: what to answer.
            seed: of the sampling.
            order: where it stands in a batch of `LockstepServer`; no other server looks at it.

        Raises:
            ServerStopped: `stop` came first.
            Exception: whatever the policy raised for the batch.
        """
        request = _Request(conversation, seed, order)
        with self._lock:
            if self._stopped:
                raise ServerStopped
            self._waiting.put(request)
        request.done.wait()
        if isinstance(request.answer, Reply):
            return request.answer
        assert request.answer is not None
        raise request.answer

    def _serve(self) -> None:
        while (first := self._waiting.get()) is not None and not self._stopped:
            batch = self._gather(first)
            start = time.perf_counter()
            for at in range(0, len(batch), self.policy.max_batch):
                part = batch[at : at + self.policy.max_batch]
                for request, answer in zip(part, self._answers(part), strict=True):
                    request.answer = answer
            self._last_seconds = time.perf_counter() - start
            for request in batch:
                request.done.set()
        left = first
        with contextlib.suppress(queue.Empty):
            while True:
                if left is not None:
                    left.answer = ServerStopped()
                    left.done.set()
                left = self._waiting.get_nowait()

    def _gather(self, first: _Request) -> list[_Request]:
        batch = [first]
        deadline = time.perf_counter() + self.patience * self._last_seconds
        while len(batch) < self.policy.max_batch:
            everybody = len(batch) >= self.busy()  # then nobody else can come
            left = 0.0 if everybody else max(0.0, deadline - time.perf_counter())
            try:
                request = self._waiting.get(timeout=left)
            except queue.Empty:
                break
            if request is None:
                self._waiting.put(None)  # for `_serve`
                break
            batch.append(request)
        return batch

    def _answers(self, batch: Sequence[_Request]) -> Sequence[Reply | BaseException]:
        try:
            conversations = [request.conversation for request in batch]
            return replies(self.policy, conversations, [request.seed for request in batch])
        except ContextOverflow as error:  # of one conversation; the others are asked again without it
            at = error.position % len(batch)
            others = [*batch[:at], *batch[at + 1 :]]
            answers = list(self._answers(others)) if others else []
            return [*answers[:at], error, *answers[at:]]
        except BaseException as error:
            return [error] * len(batch)


class LockstepServer(BatchServer):
    """Answers when everybody who may ask waits, in order: the same run asks the policy for the same batches.

    How long an environment takes then has no influence on who shares a batch, and so none on the last bits of the
    arithmetic. The price is that all wait for the slowest.

    Args:
        policy: asked from one thread only.
        live: how many threads ask; each says `leave` when it will ask no more.
    """

    def __init__(self, policy: Policy, live: int) -> None:
        super().__init__(policy, lambda: self._live)
        self._live = live

    def leave(self) -> None:
        """The calling thread asks no more."""
        with self._lock:
            self._waiting.put(_Request((), 0, leaves=True))

    def _gather(self, first: _Request) -> list[_Request]:
        batch: list[_Request] = []
        request: _Request | None = first
        while request is not None:
            if request.leaves:
                self._live -= 1
            else:
                batch.append(request)
            if len(batch) >= self._live:
                return sorted(batch, key=lambda request: request.order)
            request = self._waiting.get()
        self._waiting.put(None)  # for `_serve`; who waits here is told as well
        for request in batch:
            self._waiting.put(request)
        return []
