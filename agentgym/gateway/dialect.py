"""Between a program's structured calls and a policy: how tools, calls and answers are put to it, and read from it.

Most policies write text: `Written` lists the tools in the prompt, reads calls out of the text by a protocol, and puts
the answers back as text. A server that does all that by itself is spoken to as the program speaks: `Native`.
"""

from __future__ import annotations

import abc
import functools
import re
import typing
from collections.abc import Sequence
from typing import NamedTuple

from agentgym.errors import UsageError
from agentgym.gateway.exchange import Choice, Refusal
from agentgym.messages import Conversation, Message, MessageCall, assistant, system, user
from agentgym.policies.base import Policy, Reply
from agentgym.protocols import ParseError, Protocol, make_protocol
from agentgym.tasks import FrozenDict
from agentgym.tools import ArgumentChecker, CallRecord, Tool, ToolCall, ToolResult, read_json

# Of each protocol, how a call begins, and what is call and not prose once `Protocol.parse` has accepted the text.
_CALLS: dict[str, tuple[str, re.Pattern[str] | None]] = {
    "hermes": ("<tool_call>", re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)),
    "xml": ("<function=", re.compile(r"<function=.*?</function>", re.DOTALL)),
    "bash": ("```bash", re.compile(r"^```bash[ \t]*\n.*?^```[ \t]*$", re.DOTALL | re.MULTILINE)),
    "react": ("Action:", re.compile(r"^Action:.*\Z", re.DOTALL | re.MULTILINE)),
}
_UNKNOWN: tuple[str, re.Pattern[str] | None] = ("", None)
_ANSWER = "The one exception: when nothing is left to do, write your answer as plain text without a call."


class Read(NamedTuple):
    """What a reply's text holds.

    Attributes:
        content: the text outside of the calls.
        calls: in order; () where there is none that can be read.
        structured: the same as the policy's server gave them; () where they were read out of the text.
        problem: why a call that seems to be meant cannot be read; "" where none is.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    structured: tuple[MessageCall, ...] = ()
    problem: str = ""


class Dialect(abc.ABC):
    """How one policy is spoken to."""

    @abc.abstractmethod
    def with_tools(self, conversation: Conversation, tools: tuple[Tool, ...], choice: Choice) -> Conversation:
        """The conversation as the policy reads it, where it may call these tools.

        Raises:
            Refusal: it cannot call these.
        """

    @abc.abstractmethod
    def read(self, said: Message, tools: tuple[Tool, ...]) -> Read:
        """The calls in a reply, strictly: if one cannot be read, there is none."""

    @abc.abstractmethod
    def rewrite(self, text: str, before: Sequence[ToolCall], after: Sequence[ToolCall]) -> str:
        """The text with other calls in it, for programs that read calls out of the text themselves."""

    @abc.abstractmethod
    def written(self, message: Message) -> Message:
        """An assistant message that was not sampled here (an example, an edited reply), as the policy reads it.

        Raises:
            Refusal: its calls cannot be written.
        """

    @abc.abstractmethod
    def answers(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The answers to the calls of one reply, as the policy reads them."""


class Written(Dialect):
    """A policy that writes its calls by a protocol.

    Args:
        protocol: how the policy writes its calls.
    """

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self._opening, self._call = _CALLS.get(protocol.name, _UNKNOWN)
        self._checker = functools.lru_cache(maxsize=8)(ArgumentChecker)

    def with_tools(self, conversation: Conversation, tools: tuple[Tool, ...], choice: Choice) -> Conversation:
        """The tools go into the system message.

        They stand there too where the program wants no call this time: a prompt that loses its tools for one question
        would begin a segment of its own.
        """
        if not tools:
            return conversation
        try:
            self.protocol.require(tools)
        except UsageError as error:
            raise Refusal("bad_request", str(error)) from None
        told = self.protocol.describe(tools)
        if choice != "required":
            told += f" {_ANSWER}"
        if conversation and conversation[0].role == "system":
            return (system(f"{conversation[0].content}\n\n{told}"), *conversation[1:])
        return (system(told), *conversation)

    def read(self, said: Message, tools: tuple[Tool, ...]) -> Read:
        """See `Dialect.read`."""
        text = said.content
        try:
            calls = tuple(self.protocol.parse(text, self._checker(tools)))
        except ParseError as error:
            meant = bool(self._opening) and self._opening in text
            return Read(text, problem=str(error) if meant else "")
        return Read("" if self._call is None else self._call.sub("", text).strip(), calls)

    def rewrite(self, text: str, before: Sequence[ToolCall], after: Sequence[ToolCall]) -> str:
        """See `Dialect.rewrite`.

        A changed call stands where the old one stood if that is written as `Protocol.render_call` writes it;
        otherwise the text is given up and only the new calls are left.
        """
        for old, new in zip(before, after, strict=True):
            if new is old:
                continue
            written = self.protocol.render_call(old)
            if text.count(written) != 1:
                return "\n".join(map(self.protocol.render_call, after))
            text = text.replace(written, self.protocol.render_call(new))
        return text

    def written(self, message: Message) -> Message:
        """As text."""
        if not message.tool_calls:
            return assistant(message.content)
        calls = [ToolCall(call.name, read_arguments(call)) for call in message.tool_calls]
        try:
            lines = [message.content, *map(self.protocol.render_call, calls)]
        except UsageError as error:
            raise Refusal("bad_request", str(error)) from None
        return assistant("\n".join(filter(None, lines)))

    def answers(self, messages: Sequence[Message]) -> Sequence[Message]:
        """One message, as environments write it."""
        records = [CallRecord(ToolCall(""), ToolResult(message.content)) for message in messages]
        return [user(self.protocol.render_results(records))]


class Native(Dialect):
    """A policy behind a server that takes tools and gives calls by itself; see `CallsTools`."""

    def with_tools(self, conversation: Conversation, tools: tuple[Tool, ...], choice: Choice) -> Conversation:
        """The conversation itself: the tools go beside it."""
        return conversation

    def read(self, said: Message, tools: tuple[Tool, ...]) -> Read:
        """See `Dialect.read`."""
        try:
            calls = tuple(ToolCall(call.name, read_arguments(call)) for call in said.tool_calls)
        except Refusal as problem:
            return Read(said.content, problem=str(problem))
        return Read(said.content, calls, said.tool_calls)

    def rewrite(self, text: str, before: Sequence[ToolCall], after: Sequence[ToolCall]) -> str:
        """The text itself: it holds no calls."""
        return text

    def written(self, message: Message) -> Message:
        """The message itself."""
        return message

    def answers(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages themselves."""
        return messages


@typing.runtime_checkable
class CallsTools(typing.Protocol):
    """A policy whose server takes tools and gives calls by itself, such as `OpenAIPolicy`."""

    def call(
        self, conversation: Conversation, tools: Sequence[Tool], *, seed: int | None = None
    ) -> tuple[Reply, tuple[MessageCall, ...]]:
        """One reply: its text, which the calls are no part of, and the calls."""


def make_dialect(protocol: str | Protocol, policy: Policy) -> Dialect:
    """How a policy is spoken to.

    Args:
        protocol: by which it writes calls; "native": its server gives them.
        policy: who is spoken to.

    Raises:
        UsageError: no such protocol, or the policy's server gives no calls.
    """
    if protocol != "native":
        return Written(make_protocol(protocol))
    if not isinstance(policy, CallsTools):
        raise UsageError(f"protocol 'native' is for policies such as openai:MODEL, got {policy.name!r}")
    return Native()


def read_arguments(call: MessageCall) -> FrozenDict:
    """The arguments of a structured call that a program sent.

    Raises:
        Refusal: they are no JSON object.
    """
    try:
        value = read_json(call.arguments.strip() or "{}")
    except ValueError as error:
        raise Refusal(
            "bad_request", f"the arguments of the call {call.name!r} are no JSON: {error}"
        ) from None
    if not isinstance(value, dict):
        raise Refusal(
            "bad_request",
            f"expected the arguments of the call {call.name!r} to be a JSON object, got {call.arguments!r:.60}",
        )
    return FrozenDict(value)
