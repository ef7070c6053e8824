"""One session: the calls of one program in one episode, and the trajectory they become.

Nothing here knows of sockets or formats. A call goes through `begin`, then the policy, then `complete` or `fail`, from
whatever thread. Calls of one session are answered side by side and recorded in the order in which they began.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from agentgym.core import Verdict
from agentgym.errors import ContextOverflow, InfrastructureError
from agentgym.gateway.dialect import Dialect, Native, Read
from agentgym.gateway.exchange import Asked, Finish, Given, Kind, Limits, Refusal
from agentgym.gateway.history import History, Placed
from agentgym.gateway.recording import Pending, Recorder
from agentgym.messages import Conversation, Message, MessageCall
from agentgym.policies.base import Policy, Reply
from agentgym.tools import ToolCall
from agentgym.trajectory.records import Call, Trajectory
from agentgym.trajectory.store import jsonable
from agentgym.wrappers.tokens import TokenCounter


class Screened(NamedTuple):
    """What a screen says of one call.

    Attributes:
        call: what the program is given in its place; None: the call itself.
        note: for the record, as `ToolResult.note`.
    """

    call: ToolCall | None
    note: str = ""


Screen: TypeAlias = "Callable[[ToolCall, Session], Screened | None]"


class Session:
    """The calls made with one key. Made by `Gateway.open`.

    Args:
        key: what the program shows as its API key.
        policy: who answers.
        dialect: how calls are written.
        limits: of this session.
        counter: counts the tokens of conversations for the limits.
        screen: asked of each call of a reply, in order, before the program sees it; never twice at a time.
        forks: "error" refuses a conversation that rewrites a known one without being a compaction.
        seed: each call's seed follows from it and the call's number.
        id: of the trajectory.
        task_id: the same.

    Attributes:
        failure: why the last call failed, if it was no fault of the program; None once a later call is answered.
        exhausted: the limit that was reached first: the name of a field of `Limits`, or "context" for the policy's own
            window; "" for none.
        closed: `finish` was called; the key is refused.
        used: when a call last began or ended, in monotonic seconds.
        native: the policy's server takes tools and gives calls by itself.
        calls: how many calls were let through.
        sampled_tokens: of all replies.
    """

    def __init__(
        self,
        key: str,
        policy: Policy,
        *,
        dialect: Dialect,
        limits: Limits,
        counter: TokenCounter,
        screen: Screen | None = None,
        forks: Literal["count", "error"] = "count",
        seed: int = 0,
        id: str = "",
        task_id: str = "",
    ) -> None:
        self.key = key
        self.policy = policy
        self.limits = limits
        self.failure: InfrastructureError | None = None
        self.exhausted = ""
        self.closed = False
        self.calls = 0
        self.sampled_tokens = 0
        self.native = isinstance(dialect, Native)
        self._opened = self.used = time.monotonic()
        self._dialect, self._counter, self._screen = dialect, counter, screen
        self._forks, self._seed = forks, seed
        self._tag = hashlib.blake2b(key.encode(), digest_size=4).hexdigest()
        self._lock = threading.RLock()
        self.turn = threading.Lock()  # held while a policy of the session's own is asked
        self._screening = threading.Lock()
        self._history = History(dialect)
        self._recorder = Recorder()
        self._pending: list[Pending] = []
        self._by_request_id: dict[str, Pending] = {}
        self._responses: dict[str, Conversation] = {}
        self._messages: dict[Message, Message] = {}  # one copy of each, of the hundreds that requests repeat
        self._failed = -1  # number of the call that `failure` is about
        self._trajectory = Trajectory(id, task_id=task_id, seed=seed, policy=policy.name, started=time.time())

    def note(self, kind: str, **data: Any) -> None:
        """Put an event of one's own into the record.

        Args:
            kind: of the event.
            data: JSON values.
        """
        with self._lock:
            self._recorder.note(kind, **data)

    # -- one call --------------------------------------------------------------------------------------------

    def begin(self, asked: Asked, *, agent: str = "", request_id: str = "") -> tuple[Pending, bool]:
        """Take a request in.

        Args:
            asked: the request.
            agent: who asks, where the program says it.
            request_id: equal for repetitions of one request: they share one answer.

        Returns:
            The call, and whether it is new; the answer of one that is not is being seen to.

        Raises:
            Refusal: a limit is reached, the session has ended, or the conversation cannot be answered.
        """
        with self._lock:
            self._require_open()
            self.used = time.monotonic()
            known = self._by_request_id.get(request_id) if request_id else None
            if known is not None and not (known.future.done() and known.future.exception()):
                if known.asked != self._whole(asked):
                    raise Refusal("bad_request", f"the id {request_id!r:.80} stands for another request")
                return known, False
            self._check_budget()
            asked = self._whole(asked)
            placed = self._history.place(asked, agent)
            if placed.boundary == "fork" and self._forks == "error":
                text = "the conversation rewrites a known one, and forks are refused here"
                raise Refusal("bad_request", text)
            self._check_context(placed)
            if placed.replies:
                self._pending[placed.replies[-1].number].answered_by(placed.news)
            for name, value in asked.ignored.items():
                self._recorder.count("ignored", name, value=value)
            seed = int(np.random.SeedSequence((self._seed, self.calls)).generate_state(1)[0])
            pending = Pending(self.calls, asked, placed, seed)
            self.calls += 1
            self._pending.append(pending)
            self._recorder.expect(pending)
            if request_id:
                self._by_request_id[request_id] = pending
            return pending, True

    def complete(self, pending: Pending, reply: Reply, calls: tuple[MessageCall, ...] = ()) -> Given:
        """Take the policy's reply; what the program is given for it.

        Args:
            pending: the call.
            reply: to it.
            calls: of the reply, where the policy's server gives them beside the text.

        Raises:
            Refusal: the session has ended meanwhile.
            Exception: whatever the screen raises; the call is then to `fail`.
        """
        asked = pending.asked
        said = Message("assistant", reply.text, tool_calls=calls)
        read = self._dialect.read(said, asked.tools)
        screened = self._screened(pending, read.calls)
        with self._lock:
            self._require_open()
            self.used = time.monotonic()
            text, calls = reply.text, ()
            finish: Finish = "length" if reply.finish_reason == "length" else "stop"
            if not asked.tools or asked.choice == "none":
                text = self._dialect.rewrite(reply.text, read.calls, screened)
            elif read.calls:
                text, calls, finish = read.content, self._structured(pending, read, screened), "tool_calls"
            elif read.problem:
                pending.flags["unread_call"] = True
            given = Given(f"{self._tag}{pending.number}", asked.model, text, calls, finish, reply)
            message = Message("assistant", text, tool_calls=calls)
            pending.shown = self._history.show(pending.number, pending.placed, said, message)
            self._responses[given.id] = (*asked.conversation, message)
            self.sampled_tokens += reply.sampled_tokens
            if pending.number > self._failed:
                self.failure = None
            self._recorder.settle(pending, reply)
        return given

    def fail(self, pending: Pending, error: BaseException) -> Refusal:
        """Say that there is no reply; the refusal that the program gets."""
        with self._lock:
            if not self.closed:
                self._recorder.settle(pending, None)
            if isinstance(error, Refusal):
                return error
            if isinstance(error, ContextOverflow):
                self._recorder.note("context_overflow", call=pending.number, why=str(error))
                return self._limit("context", "context", str(error))
            if not isinstance(error, InfrastructureError):
                error = InfrastructureError(f"{self.policy.name}: {type(error).__name__}: {error}")
            self.failure, self._failed = error, pending.number
            self._recorder.note("failed", call=pending.number, why=str(error))
            return Refusal("failed", str(error))

    def lose(self, pending: Pending, why: str) -> None:
        """Say that the program did not get the answer: the reply is trained only if something continues it."""
        with self._lock:
            if not (pending.lost or pending.delivered or self.closed):
                pending.lost = True
                self._recorder.note("lost", call=pending.number, why=why)

    def delivered(self, pending: Pending) -> None:
        """Say that the program got the answer, the first or a repeated time."""
        with self._lock:
            pending.delivered, pending.lost = True, False

    def time_out(self, pending: Pending) -> Refusal:
        """Say that the answer took too long; the refusal that the program gets."""
        self.lose(pending, "call_seconds")
        return self._limit("call_seconds", "timeout", f"no reply in {self.limits.call_seconds:g} seconds")

    def too_large(self) -> Refusal:
        """Say that a request was too large; the refusal that the program gets."""
        most = self.limits.body_bytes
        return self._limit("body_bytes", "too_large", f"expected a body of at most {most} bytes")

    def broken(self, error: Exception) -> None:
        """Say that the gateway itself failed in a call: the episode says nothing about the policy."""
        with self._lock:
            self.failure, self._failed = (
                InfrastructureError(f"gateway: {type(error).__name__}: {error}"),
                self.calls,
            )

    def count_tokens(self, asked: Asked) -> int:
        """How long a request's prompt is, as `Limits.context_tokens` are counted. It is no call, and not recorded.

        Raises:
            Refusal: the session has ended, or the conversation cannot be put to the policy.
        """
        with self._lock:
            self._require_open()
            return self._counter.count(self._history.prompt(asked))

    def refused(self, refusal: Refusal) -> None:
        """Count a request that was refused."""
        with self._lock:
            if not self.closed:
                self._recorder.count("refused", refusal.kind, first=str(refusal)[:200])

    def finish(
        self, verdict: Verdict | None = None, *, reward: float | None = None, infrastructure_error: str = ""
    ) -> Trajectory:
        """End the session: from now on its key is refused. A second call returns the same trajectory.

        Args:
            verdict: what the verifier says.
            reward: of the episode, given to the last reply of the main agent; by default the verdict's score.
            infrastructure_error: what broke, where that is known; by default `failure`. With one there is no reward.
        """
        with self._lock:
            trajectory = self._trajectory
            if not self.closed:
                self.closed = True
                trajectory.seconds = time.monotonic() - self._opened
                trajectory.infrastructure_error = infrastructure_error or str(self.failure or "")
                self._recorder.finish(trajectory, verdict, reward)
            return trajectory

    # -- inside ----------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self.closed:
            raise Refusal("unauthorized", "the session of this API key has ended")

    def _whole(self, asked: Asked) -> Asked:
        """The request with the conversation that it goes on from, of messages that are held once."""
        conversation = asked.conversation
        if asked.previous:
            if asked.previous not in self._responses:
                raise Refusal(
                    "not_found", f"there is no earlier response {asked.previous!r:.80} in this session"
                )
            heads = _heads(conversation)
            before = self._responses[asked.previous]  # its own instructions do not carry over
            conversation = (*conversation[:heads], *before[_heads(before) :], *conversation[heads:])
        if not conversation or conversation[-1].role not in ("user", "tool", "system"):
            text = "expected the last message to be a user's or a tool's; a message that was begun is not gone on with"
            raise Refusal("bad_request", text)
        held = tuple(self._messages.setdefault(message, message) for message in conversation)
        return dataclasses.replace(asked, conversation=held)

    def _check_budget(self) -> None:
        limits, seconds = self.limits, time.monotonic() - self._opened
        if limits.calls is not None and self.calls >= limits.calls:
            raise self._limit("calls", "exhausted", f"all {limits.calls} calls of this session are used up")
        if limits.sampled_tokens is not None and self.sampled_tokens >= limits.sampled_tokens:
            text = f"all {limits.sampled_tokens} tokens that this session may sample are used up"
            raise self._limit("sampled_tokens", "exhausted", text)
        if limits.session_seconds is not None and seconds >= limits.session_seconds:
            raise self._limit(
                "session_seconds",
                "exhausted",
                f"the {limits.session_seconds:g} seconds of this session are over",
            )

    def _check_context(self, placed: Placed) -> None:
        most = self.limits.context_tokens
        if most is None:
            return
        tokens = self._counter.count(placed.conversation)
        if tokens > most:
            text = f"the maximum context length is {most} tokens, the conversation has {tokens}"
            raise self._limit("context_tokens", "context", text)

    def _limit(self, name: str, kind: Kind, text: str) -> Refusal:
        with self._lock:
            self.exhausted = self.exhausted or name
            if not self.closed:
                self._recorder.count("limit", name)
        return Refusal(kind, text)

    def _screened(self, pending: Pending, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """The calls that the program is given; what was called is on the record."""
        given = []
        with self._screening:
            for call in calls:
                record = Call(call.name, jsonable(call.arguments), "")
                pending.calls.append(record)
                said = self._screen(call, self) if self._screen is not None else None
                if said is not None:
                    record.note = said.note
                    if said.call is not None and said.call != call:
                        record.blocked = True
                        row = {"name": said.call.name, "arguments": said.call.arguments}
                        self.note("screened", call=pending.number, name=call.name, given=row, note=said.note)
                        call = said.call
                given.append(call)
        return given

    def _structured(self, pending: Pending, read: Read, given: Sequence[ToolCall]) -> tuple[MessageCall, ...]:
        """The calls as the program gets them; those that a server gave and no screen changed as they came."""
        calls = []
        for i, call in enumerate(given):
            known = read.structured[i] if read.structured else None
            id = known.id if known is not None and known.id else f"call_{self._tag}{pending.number}_{i}"
            arguments = json.dumps(jsonable(call.arguments), ensure_ascii=False)
            if known is not None and call is read.calls[i]:
                arguments = known.arguments
            calls.append(MessageCall(id, call.name, arguments))
        pending.ids = tuple(call.id for call in calls)
        return tuple(calls)


def _heads(conversation: Conversation) -> int:
    """How many system messages lead a conversation."""
    return next((i for i, message in enumerate(conversation) if message.role != "system"), len(conversation))
