"""A policy with a tokenizer of ambiguous merges, and programs that speak each format, to test the gateway with."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from agentgym.gateway.anthropic import Anthropic
from agentgym.gateway.chat import Chat
from agentgym.gateway.dialect import make_dialect
from agentgym.gateway.exchange import Limits
from agentgym.gateway.responses import Responses
from agentgym.gateway.session import Session
from agentgym.messages import Conversation
from agentgym.policies.base import Policy, Reply
from agentgym.wrappers.tokens import make_counter

END = 1
ROLES = {"system": 2, "user": 3, "assistant": 4}
PAIRS = ["th", "in", "er", "ab", "ba", "aa", "ll", "o ", '":', ' "', '{"', "to"]
FIRST_PAIR = 2_000_000


def greedy(text: str) -> list[int]:
    """The one encoding the renderer uses: pairs wherever they are."""
    return any_encoding(text, lambda: True)


def any_encoding(text: str, merge: Any) -> list[int]:
    """Some encoding of the text; `merge()` says whether a pair becomes one token."""
    ids, at = [], 0
    while at < len(text):
        pair = text[at : at + 2]
        if pair in PAIRS and merge():
            ids.append(FIRST_PAIR + PAIRS.index(pair))
            at += 2
        else:
            ids.append(100 + ord(text[at]))
            at += 1
    return ids


def render(conversation: Conversation) -> tuple[int, ...]:
    ids: list[int] = []
    for message in conversation:
        ids += [ROLES[message.role], *greedy(message.content), END]
    return (*ids, ROLES["assistant"])


def decode(ids: Sequence[int]) -> list[tuple[str, str]]:
    """Messages as (role, text)."""
    names = {number: role for role, number in ROLES.items()}
    messages: list[tuple[str, str]] = []
    for token in ids:
        if token in names:
            messages.append((names[token], ""))
        elif token != END:
            role, text = messages[-1]
            piece = PAIRS[token - FIRST_PAIR] if token >= FIRST_PAIR else chr(token - 100)
            messages[-1] = (role, text + piece)
    return messages


class ToyPolicy(Policy):
    """Says something new each time, in a random encoding; where there are tools it often calls one."""

    name = "toy"
    takes_seeds = True
    greedy = False  # sample the encoding that the renderer uses

    def act(self, conversations: Sequence[Conversation], *, seeds: Sequence[int]) -> list[Reply]:
        return [self.reply(c, random.Random(seed)) for c, seed in zip(conversations, seeds, strict=True)]

    def reply(self, conversation: Conversation, rng: random.Random) -> Reply:
        text = f"reply {rng.getrandbits(48):x} in the other tongue"
        if rng.random() < 0.3:
            text = f"<think>so it is {rng.random()}</think>" + text
        if "<tools>" in conversation[0].content and rng.random() < 0.6:
            for _ in range(rng.choice((1, 1, 2))):
                call = {
                    "name": "bash",
                    "arguments": {"command": f"ls {rng.random()}", "n": rng.randint(0, 3)},
                }
                text += f"\n<tool_call>{json.dumps(call)}</tool_call>"
        return self.saying(text, conversation, rng)

    def saying(self, text: str, conversation: Conversation, rng: random.Random) -> Reply:
        ids = (*any_encoding(text, lambda: self.greedy or rng.random() < 0.5), END)
        logprobs = tuple(-rng.random() - 0.01 for _ in ids)
        return Reply(text, render(conversation), ids, logprobs, 1.0, "stop", end_of_turn=(END,))


class Says(ToyPolicy):
    """Plays a list of texts, in every session from its beginning."""

    name = "says"

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.asked: list[Conversation] = []

    def for_episode(self, env: Any, rng: Any) -> Says:
        return type(self)(*self.texts)

    def reply(self, conversation: Conversation, rng: random.Random) -> Reply:
        self.asked.append(conversation)
        return self.saying(self.texts[len(self.asked) - 1], conversation, rng)


def call_text(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def make_session(
    policy: Policy | None = None, *, protocol: str = "hermes", key: str = "key", **more: Any
) -> Session:
    more = {"limits": Limits(), "counter": make_counter("chars")} | more
    policy = policy or ToyPolicy()
    return Session(key, policy, dialect=make_dialect(protocol, policy), **more)


SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["command"],
}


class Program:
    """A program's history in one format: how it asks, and how it takes an answer in.

    Args:
        rng: decides how it writes anew what it was given; None: as it was given.
    """

    form: Any

    def __init__(self, system: str, goal: str, rng: random.Random | None = None) -> None:
        self.system, self.rng = system, rng
        self.rows: list[dict[str, Any]] = []
        self.say(goal)

    def fork(self) -> Program:
        """The same history, to go on with in another way."""
        twin = type(self)(self.system, "", self.rng)
        twin.rows = list(self.rows)
        return twin

    def say(self, text: str) -> None:
        self.rows.append({"role": "user", "content": text})

    def body(self, tools: bool = True, **more: Any) -> dict[str, Any]:
        raise NotImplementedError

    def take(self, body: dict[str, Any], answer: Any) -> int:
        """Append a reply, and `answer(i)` to each of its calls; how many calls there were."""
        raise NotImplementedError

    def text(self, body: dict[str, Any]) -> str:
        """The text of an answer."""
        raise NotImplementedError

    def maybe(self) -> bool:
        return self.rng is not None and self.rng.random() < 0.5

    def rewritten(self, arguments: str) -> str:
        """The same arguments as other text."""
        if not self.maybe():
            return arguments
        return json.dumps(dict(reversed(json.loads(arguments).items())), indent=1)

    def stripped(self, content: str | None) -> str | None:
        """The content, perhaps without the thought, perhaps with blanks around it."""
        if content and content.startswith("<think>") and self.maybe():
            content = content.partition("</think>")[2]
        return f" {content}\n" if content and self.maybe() else content


class ChatProgram(Program):
    form = Chat()

    def body(self, tools: bool = True, **more: Any) -> dict[str, Any]:
        tool = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
        rows = [{"role": "system", "content": self.system}, *self.rows]
        return {"model": "m", "messages": rows} | ({"tools": [tool]} if tools else {}) | more

    def take(self, body: dict[str, Any], answer: Any) -> int:
        message = body["choices"][0]["message"]
        row: dict[str, Any] = {"role": "assistant", "content": self.stripped(message["content"])}
        calls = message.get("tool_calls") or []
        if calls:
            row["tool_calls"] = [
                call
                | {
                    "function": call["function"]
                    | {"arguments": self.rewritten(call["function"]["arguments"])}
                }
                for call in calls
            ]
            if self.maybe():
                row["content"] = None
        self.rows.append(row)
        for i, call in enumerate(calls):
            self.rows.append({"role": "tool", "tool_call_id": call["id"], "content": answer(i)})
        return len(calls)

    def text(self, body: dict[str, Any]) -> str:
        return body["choices"][0]["message"]["content"] or ""


class ResponsesProgram(Program):
    form = Responses()

    def body(self, tools: bool = True, **more: Any) -> dict[str, Any]:
        tool = {"type": "function", "name": "bash", "parameters": SCHEMA}
        return (
            {"model": "m", "instructions": self.system, "input": self.rows}
            | ({"tools": [tool]} if tools else {})
            | more
        )

    def take(self, body: dict[str, Any], answer: Any) -> int:
        calls = [item for item in body["output"] if item["type"] == "function_call"]
        for item in body["output"]:
            if item["type"] == "message":
                text = self.stripped(item["content"][0]["text"])
                if not (calls and self.maybe()):
                    self.rows.append(
                        {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
                    )
            else:
                self.rows.append(item | {"arguments": self.rewritten(item["arguments"])})
        for i, item in enumerate(calls):
            self.rows.append(
                {"type": "function_call_output", "call_id": item["call_id"], "output": answer(i)}
            )
        return len(calls)

    def text(self, body: dict[str, Any]) -> str:
        return "".join(item["content"][0]["text"] for item in body["output"] if item["type"] == "message")


class AnthropicProgram(Program):
    form = Anthropic()

    def body(self, tools: bool = True, **more: Any) -> dict[str, Any]:
        tool = {"name": "bash", "input_schema": SCHEMA}
        return (
            {"model": "m", "max_tokens": 100, "system": self.system, "messages": self.rows}
            | ({"tools": [tool]} if tools else {})
            | more
        )

    def take(self, body: dict[str, Any], answer: Any) -> int:
        calls = [block for block in body["content"] if block["type"] == "tool_use"]
        blocks = [
            block | {"text": self.stripped(block["text"])} if block["type"] == "text" else block
            for block in body["content"]
            if block["type"] != "text" or not calls or not self.maybe()
        ]
        self.rows.append({"role": "assistant", "content": blocks})
        if calls:
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": answer(i)}
                for i, block in enumerate(calls)
            ]
            self.rows.append({"role": "user", "content": results})
        return len(calls)

    def text(self, body: dict[str, Any]) -> str:
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")


PROGRAMS = (ChatProgram, ResponsesProgram, AnthropicProgram)


def ask(session: Session, program: Program, **body: Any) -> dict[str, Any]:
    """One call through the core: what the server does, without the sockets."""
    asked = program.form.read(program.body(**body))
    pending, _ = session.begin(asked)
    reply = session.policy.act([pending.placed.conversation], seeds=[pending.seed])[0]
    return program.form.body(asked, session.complete(pending, reply))
