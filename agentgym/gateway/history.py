"""From the conversation a program sends to the one the policy is conditioned on, and who is speaking in it.

A program keeps its history in the words of its format: calls are structured, arguments are written anew, reasoning or
the text beside a call may be gone. The policy must read what it sampled, or the token ids of the past are lost. So an
assistant message that comes back is recognised by what the program was given, and stands in the prompt as it was
sampled.

**Whose conversation it is** is decided by this rule, unless the program names the agent:

1. It shares a message beyond the leading system messages with a known conversation: the agent who owns the deepest
   message they share. So a rewritten history that keeps the goal is the same agent's.
2. Else, if a reply that nothing has continued, and that nobody was told of, stands whole in one of its system or user
   messages: that reply was a summary, and this is its author's conversation after a compaction. Should something
   continue that reply after all, it was none, and rule 3 holds; the session's end tells.
3. Else it is a new agent, called by the one before it: a delegation. The system prompt alone makes nobody the same.

A rewrite under 1 that quotes a reply as in 2 is a compaction too; any other is a fork.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agentgym.gateway.dialect import Dialect
from agentgym.gateway.exchange import Asked
from agentgym.messages import Conversation, Message, MessageCall
from agentgym.tools import read_json
from agentgym.trajectory.tree import ROOT, MessageTree

MAIN = "policy"
STRANGER = "#"  # no program can name an agent so
_SHORTEST_SUMMARY = 20  # characters; a shorter reply may stand in another text by chance
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)

Boundary: TypeAlias = Literal["start", "append", "again", "compaction", "delegation", "fork"]
_Form: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]  # the text, and the calls: names and arguments


@dataclass(slots=True, eq=False)
class Shown:
    """A reply that a program was given.

    Attributes:
        number: of the call it answered.
        sampled: as the policy wrote it.
        given: as the program has it.
        node: of the conversation it answered.
        agent: who replied.
        continued: a later request held it.
    """

    number: int
    sampled: Message
    given: Message
    node: int
    agent: str
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A request's conversation, as the policy reads it.

    Attributes:
        conversation: with the tools in its system message.
        node: of the conversation in the history's tree.
        agent: who is asked; one that begins with `STRANGER` has no name yet.
        boundary: how it goes on from what is known; the recorder finds out by itself whether tokens agree.
        summary: the reply it is written around, with the boundary "compaction".
        replies: those recognised in it, in order.
        news: what follows the last of them, as the program sent it.
    """

    conversation: Conversation
    node: int
    agent: str
    boundary: Boundary
    summary: Shown | None
    replies: tuple[Shown, ...]
    news: Conversation


@dataclass(slots=True)
class History:
    """What one session's program was given, and the conversations it sent.

    Args:
        dialect: how calls are written.
    """

    dialect: Dialect
    _tree: MessageTree = field(default_factory=MessageTree)
    _owner: dict[int, str] = field(default_factory=dict)  # node -> agent
    _ends: set[int] = field(default_factory=set)  # nodes that are replies
    _by_form: dict[_Form, list[Shown]] = field(default_factory=dict)
    _uncontinued: dict[int, Shown] = field(default_factory=dict)  # number -> reply
    # Node -> when it came first
    _first: dict[int, tuple[Boundary, Shown | None]] = field(default_factory=dict)
    _answered: set[int] = field(default_factory=set)  # nodes that were
    _agents: list[str] = field(default_factory=list)

    def place(self, asked: Asked, name: str = "") -> Placed:
        """Take a request's conversation in.

        Args:
            asked: the request.
            name: of the agent, where the program says it.
        """
        read, replies, news = self._as_sampled(asked.conversation)
        conversation = self.dialect.with_tools(read, asked.tools, asked.choice)
        path = self._tree.follow([], read)
        agent, boundary, summary = self._whose(read, path, name)
        if agent not in self._agents:
            self._agents.append(agent)
        for reply in replies:
            reply.continued = True
            self._uncontinued.pop(reply.number, None)
        node = path[-1] if path else ROOT
        for message in read[len(path) :]:
            node = self._tree.child(node, message)
            self._owner[node] = agent
        if boundary == "again":  # where it was never answered, this is the first time
            first, summary = self._first[node]
            boundary = boundary if node in self._answered else first
        self._first.setdefault(node, (boundary, summary))
        if boundary == "append":  # what a sub-agent reported is no summary of its own conversation
            while (reported := self._quoted(read[len(path) :])) is not None:
                del self._uncontinued[reported.number]
        return Placed(conversation, node, agent, boundary, summary, tuple(replies), news)

    def prompt(self, asked: Asked) -> Conversation:
        """What the policy would read; nothing is remembered of the request."""
        read, _, _ = self._as_sampled(asked.conversation)
        return self.dialect.with_tools(read, asked.tools, asked.choice)

    def show(self, number: int, placed: Placed, sampled: Message, given: Message) -> Shown:
        """Remember a reply as it was sampled and as the program was given it."""
        shown = Shown(number, sampled, given, placed.node, placed.agent)
        for form in set(_forms(given)):
            self._by_form.setdefault(form, []).append(shown)
        self._uncontinued[number] = shown
        self._answered.add(placed.node)
        end = self._tree.child(placed.node, sampled)
        self._owner.setdefault(end, placed.agent)
        self._ends.add(end)
        return shown

    # -- recognising replies ---------------------------------------------------------------------------------

    def _as_sampled(self, conversation: Conversation) -> tuple[Conversation, list[Shown], Conversation]:
        """The conversation in the policy's words, the replies found in it, and what follows the last one."""
        read: list[Message] = []
        replies: list[Shown] = []
        answers: list[Message] = []
        news_from, node = 0, ROOT
        for position, message in enumerate(conversation):
            if message.role == "tool":
                answers.append(message)
                if position + 1 < len(conversation) and conversation[position + 1].role == "tool":
                    continue
                new, answers = self.dialect.answers(answers), []
            elif message.role == "assistant":
                shown = self._recognise(message, node)
                if shown is not None:
                    replies.append(shown)
                    news_from = position + 1
                new = [self.dialect.written(message) if shown is None else shown.sampled]
            else:
                new = [Message(message.role, message.content)]
            for message in new:
                read.append(message)
                node = self._tree.nodes.get((node, message), _UNKNOWN)
        return tuple(read), replies, conversation[news_from:]

    def _recognise(self, message: Message, node: int) -> Shown | None:
        """The reply that a program sent back.

        Of several of one form, that to this conversation; else the one with these ids; else the latest.
        """
        found = self._by_form.get(_form(message, message.content))
        if not found:
            return None
        ids = [call.id for call in message.tool_calls]
        return max(
            found,
            key=lambda shown: (
                shown.node == node,
                bool(ids) and [call.id for call in shown.given.tool_calls] == ids,
                shown.number,
            ),
        )

    # -- whose conversation it is ----------------------------------------------------------------------------

    def _whose(self, read: Conversation, path: list[int], name: str) -> tuple[str, Boundary, Shown | None]:
        """The agent, the kind of boundary and the summary behind it, by the rule at the top."""
        if not self._agents:
            return name or MAIN, "start", None
        heads = next((i for i, message in enumerate(read) if message.role != "system"), len(read))
        known = len(path) > heads or (len(path) == len(read) > 0)
        agent = name or (self._owner[path[-1]] if known else f"{STRANGER}{len(self._agents)}")
        if known and len(path) == len(read):
            return agent, "again", None
        if known and path[-1] in self._ends:
            return agent, "append", None
        if name and name not in self._agents:
            return agent, "delegation", None
        summary = self._quoted(read[len(path) :])
        if summary is not None:
            return agent, "compaction", summary
        return agent, "fork" if agent in self._agents else "delegation", None

    def _quoted(self, news: Conversation) -> Shown | None:
        """The latest reply without calls that nothing continued and that stands in one of these messages."""
        for shown in reversed(self._uncontinued.values()):
            text = shown.given.content.strip()
            if shown.given.tool_calls or len(text) < _SHORTEST_SUMMARY:
                continue
            if any(text in message.content for message in news if message.role != "assistant"):
                return shown
        return None


_UNKNOWN = -2  # no node of any tree


def _forms(given: Message) -> Iterator[_Form]:
    """How a program may send back what it was given: whole, without the thought before it or the text beside calls."""
    yield _form(given, given.content)
    yield _form(given, _THOUGHT.sub("", given.content))
    if given.tool_calls:
        yield _form(given, "")


def _form(message: Message, content: str) -> _Form:
    return content.strip(), tuple((call.name, _canonical(call)) for call in message.tool_calls)


def _canonical(call: MessageCall) -> str:
    """Arguments that mean the same as the same text."""
    try:
        return json.dumps(read_json(call.arguments.strip() or "{}"), sort_keys=True)
    except ValueError:
        return call.arguments
