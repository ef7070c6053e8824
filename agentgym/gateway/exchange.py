"""What one call is, whatever format it came in: the question, the answer, and the refusal of one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentgym.errors import AgentGymError, UsageError, whole_number
from agentgym.messages import Conversation, MessageCall
from agentgym.tools import Tool
from agentgym.trajectory.records import Reply

Choice: TypeAlias = Literal["auto", "required", "none"]
Finish: TypeAlias = Literal["stop", "length", "tool_calls"]
Kind: TypeAlias = Literal[
    "bad_request",  # the request makes no sense, or asks for what no policy here can do
    "unauthorized",  # no such session, or it has ended
    "not_found",  # no such route or earlier response
    "no_model",  # the gateway serves other names
    "too_large",  # more bytes than a request may have
    "context",  # the conversation leaves no room for a reply
    "exhausted",  # the session has used up what it may use
    "timeout",  # the policy took too long
    "failed",  # the policy, or a screen, failed
]


class Refusal(AgentGymError):
    """A call that gets no reply. Each format has its own words for `kind`; the text is for people."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind: Kind = kind


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a reply.

    Attributes:
        model: the name the program asked for.
        conversation: the program's; an assistant message may hold structured calls, "tool" messages answer them.
        tools: what the model may call; () where the program reads calls out of the text, or has none.
        choice: whether a call is wanted.
        stream: answer as server-sent events.
        usage_event: the stream ends with an event on the usage (chat completions).
        token_ids: the body also has token ids and log-probs, as vLLM writes them (chat completions).
        previous: id of the response this conversation goes on from (Responses); "" for none.
        ignored: what was asked for and is not applied, since it belongs to the policy.
    """

    model: str
    conversation: Conversation
    tools: tuple[Tool, ...] = ()
    choice: Choice = "auto"
    stream: bool = False
    usage_event: bool = False
    token_ids: bool = False
    previous: str = ""
    ignored: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Given:
    """What the program is given.

    Attributes:
        id: unique in the gateway; each format puts its own prefix before it.
        model: as it was asked for.
        content: text outside of structured calls; the whole text where there are none.
        calls: structured calls.
        finish: why the reply ended.
        reply: as it was sampled.
        created: seconds since the epoch.
    """

    id: str
    model: str
    content: str
    calls: tuple[MessageCall, ...]
    finish: Finish
    reply: Reply
    created: int = field(default_factory=lambda: int(time.time()))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a session may use. Reaching a limit is answered in the format's own error, and recorded.

    Args:
        calls: that are answered.
        sampled_tokens: all replies together; a reply that passes it is still given, the next call is refused.
        context_tokens: of one conversation, as the gateway counts tokens; the policy's own window holds besides.
        call_seconds: a call may take, its delivery included.
        session_seconds: from the opening of a session to the beginning of its last call.
        body_bytes: of one request.
        sessions: open at once.

    Raises:
        UsageError: one of them is not positive.
    """

    calls: int | None = None
    sampled_tokens: int | None = None
    context_tokens: int | None = None
    call_seconds: float = 600.0
    session_seconds: float | None = None
    body_bytes: int = 16 * 2**20
    sessions: int = 256

    def __post_init__(self) -> None:
        for name in ("calls", "sampled_tokens", "context_tokens", "body_bytes", "sessions"):
            if (value := getattr(self, name)) is not None:
                whole_number(name, value, least=1)
        for name in ("call_seconds", "session_seconds"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise UsageError(f"expected {name} > 0, got {value!r}")
