"""The texts of a rewritten conversation: markers and cuts, the request for a summary, and who writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from agentgym.errors import UsageError, nearest
from agentgym.messages import Conversation, Message
from agentgym.policies import Policy, is_model, make_policy
from agentgym.tools import CallRecord
from agentgym.wrappers.tokens import load_attribute

STRATEGIES = ("drop", "last", "rule", "policy")

SUMMARY_REQUEST = """\
Your context is nearly full. Do not act now and call no tool: your next message is not run. It replaces this \
conversation, of which only the task and the latest turns stay. Write a summary in plain text, to yourself:
1. the goal;
2. what was done;
3. what was observed that still matters, with exact names, paths and values;
4. errors that are not resolved;
5. the current state;
6. the next step."""

DROPPED = "[This result was removed to save space.]"
LEFT_OUT = "[Earlier turns are left out.]"
SUMMARIZED = "[Earlier turns are left out. This is a summary of them:]"


def cut(text: str, keep: int) -> str:
    """`text` with its middle replaced by a line that says how much is gone.

    `keep` characters stay, half of them at each end. A text that would not become shorter is returned as is.
    """
    head, tail = (keep + 1) // 2, keep // 2
    shorter = text[:head] + cut_mark(len(text) - keep) + text[len(text) - tail :]
    return shorter if len(shorter) < len(text) else text


def cut_mark(characters: int) -> str:
    """What stands where `characters` were cut."""
    return f"\n[... {characters} characters cut ...]\n"


def task_with_note(task: str, summary: str) -> str:
    """The task's message: the task verbatim, and below it what stands for the turns that are gone."""
    return f"{task}\n\n{SUMMARIZED}\n{summary}" if summary else f"{task}\n\n{LEFT_OUT}"


def with_request(answer: Message) -> Message:
    """The newest answer with the request below it: one message, since templates want the roles to alternate."""
    return Message(answer.role, f"{answer.content}\n\n{SUMMARY_REQUEST}")


# -- the summary by rule -------------------------------------------------------------------------------------

_TROUBLE = re.compile(r"error|exception|traceback|fail|denied|not found|invalid", re.IGNORECASE)


def describe_turn(action: str, observation: str, calls: Sequence[CallRecord]) -> str:
    """One line for each call of a turn: what was called and the lines of the answer that say most."""
    if not calls:
        return f"- {_clip(' '.join(action.split()), 80)} -> {_key_lines(observation)}"
    return "\n".join(f"- {_call(record)} -> {_key_lines(record.result.text)}" for record in calls)


def summary_by_rule(turns: Sequence[str], latest: int) -> str:
    """What `describe_turn` said of the `latest` of all turns, oldest first."""
    if not latest:
        return ""
    missing = len(turns) - latest
    heading = [f"({missing} turns before these are not listed)"] if missing else []
    return "\n".join([*heading, *turns[missing:]])


def _call(record: CallRecord) -> str:
    arguments = record.call.arguments
    if record.call.name == "act":  # a plain text move
        return _clip(" ".join(str(arguments["text"]).split()), 80)
    return f"{record.call.name}({', '.join(f'{k}={_clip(repr(v), 60)}' for k, v in arguments.items())})"


def _key_lines(text: str) -> str:
    """The first line, and the last one that reports trouble."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "(nothing)"
    trouble = [line for line in lines[1:] if _TROUBLE.search(line)]
    return " ... ".join(_clip(line, 120) for line in [lines[0], *trouble[-1:]])


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


# -- given summarizers ---------------------------------------------------------------------------------------


class Summarizing(Protocol):
    """The part of `agentgym.policies.base.Policy` that is used here."""

    def act(self, conversations: Sequence[Conversation]) -> list[Any]:
        """One reply for each conversation; with `takes_seeds`, given `seeds`, one for each."""


Summarizer: TypeAlias = "str | Callable[[Conversation], str] | Summarizing"


class GivenSummarizer:
    """A function or policy, by itself, as "module:attribute" or by a model's name, asked for a summary.

    Attributes:
        name: what it was given as, its own name, or its class's.

    Raises:
        UsageError: it is none of these, or what it returns is no text.
    """

    def __init__(self, source: Summarizer) -> None:
        self._made: Policy | None = None
        if is_model(source):
            source = self._made = make_policy(str(source))
        if isinstance(source, str):
            if ":" not in source:
                raise UsageError(f"unknown summarizer {source!r}.{nearest(source, STRATEGIES)}")
            self.name = source
            self._target: Any = load_attribute(source, "summarizer")
        else:
            self.name = getattr(source, "name", getattr(source, "__name__", type(source).__name__))
            self._target = source
        self._is_policy = hasattr(self._target, "act")
        if not self._is_policy and not callable(self._target):
            raise UsageError(
                f"expected summarizer among {', '.join(STRATEGIES)}, 'module:attribute', a function or a "
                f"policy, got {source!r}"
            )

    def close(self) -> None:
        """Close a model that was loaded here; one that was given is somebody else's."""
        if self._made is not None:
            self._made.close()

    def __call__(self, conversation: Conversation, seed: int) -> str:
        """The summary of a conversation; a policy is asked for it, a function knows.

        Args:
            conversation: what is to be summed up.
            seed: for a policy that takes one. Drawing from a generator of its own, which others use at the same time,
                it would answer as the threads happen to run.
        """
        if self._is_policy:
            seeds = {"seeds": (seed,)} if getattr(self._target, "takes_seeds", False) else {}
            text = self._target.act([(*conversation[:-1], with_request(conversation[-1]))], **seeds)[0].text
        else:
            text = self._target(conversation)
        if not isinstance(text, str):
            raise UsageError(f"expected a text from the summarizer {self.name}, got {type(text).__name__}")
        return text
