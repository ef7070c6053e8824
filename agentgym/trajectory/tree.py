"""Conversations as paths in one tree of messages, so that what two of them share costs one walk to find."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agentgym.messages import Conversation, Message, assistant
from agentgym.trajectory.records import Event, Reply

Announced: TypeAlias = Literal["compaction", "delegation"]

ROOT = -1


@dataclass(slots=True)
class MessageTree:
    """A trie of messages. A node stands for a conversation; segments are open at the nodes where they end.

    Attributes:
        nodes: (parent node, message) -> node.
        open_at: node -> segments that end there and may be continued, in the order they came.
    """

    nodes: dict[tuple[int, Message], int] = field(default_factory=dict)
    open_at: dict[int, list[int]] = field(default_factory=dict)

    def child(self, node: int, message: Message) -> int:
        """The node after `node`, made if it does not exist."""
        return self.nodes.setdefault((node, message), len(self.nodes))

    def follow(self, path: list[int], conversation: Conversation) -> list[int]:
        """The path of a conversation as far as it is known, given that of its beginning."""
        path = list(path)
        for message in conversation[len(path) :]:
            node = self.nodes.get((path[-1] if path else ROOT, message))
            if node is None:
                break
            path.append(node)
        return path

    def open(self, node: int, segment: int) -> None:
        """Say that a segment ends at `node`."""
        self.open_at.setdefault(node, []).append(segment)

    def close(self, node: int, segment: int) -> None:
        """Say that a segment does not end at `node`, or not any more."""
        ends = self.open_at.get(node, [])
        if segment in ends:
            ends.remove(segment)
            if not ends:
                del self.open_at[node]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation lies among those already known."""

    path: list[int]  # trie node of each message that is known
    leaf: int | None  # the segment that ends in the longest match

    @property
    def depth(self) -> int:
        """How many of its messages are known."""
        return len(self.path)

    @property
    def node(self) -> int:
        """Tree node of the last known message."""
        return self.path[-1] if self.path else ROOT


@dataclass(frozen=True, slots=True)
class Incoming:
    """One reply on its way to its place; the arguments of `SegmentBuilder.add`."""

    conversation: Conversation
    messages: Conversation  # the conversation with the reply
    reply: Reply
    agent: str
    cause: Announced | None
    step: int | None
    accepted: bool | None
    parent: int | None
    now: int

    @property
    def has_ids(self) -> bool:
        """Whether its tokens are known."""
        return self.reply.prompt_ids is not None


@dataclass(slots=True)
class Leaf:
    """What the builder remembers of a segment beyond the record."""

    agent: str
    has_ids: bool
    path: list[int] = field(default_factory=list)  # trie node of each message
    prompt: Conversation = ()  # the conversation of the last reply,
    prompt_node: int = ROOT  # its trie node,
    prompt_ids: tuple[int, ...] = ()  # and its tokens as the backend rendered them
    superseded: Event | None = None  # logged when the last reply was superseded


def with_reply(conversation: Conversation, reply: Reply, message: Message | None = None) -> Conversation:
    """The conversation with the reply, or `message` in its place; a final assistant message is continued."""
    message = assistant(reply.text) if message is None else message
    if not conversation or conversation[-1].role != "assistant":
        return (*conversation, message)
    begun = conversation[-1]
    content, calls = begun.content + message.content, begun.tool_calls + message.tool_calls
    return (*conversation[:-1], Message("assistant", content, begun.name, calls))


def left_out(old: Conversation, new: Conversation) -> Conversation:
    """The messages of `old` that `new` does not hold, in order."""
    kept = Counter(new)
    gone = []
    for message in old:
        if kept[message] > 0:
            kept[message] -= 1
        else:
            gone.append(message)
    return tuple(gone)
