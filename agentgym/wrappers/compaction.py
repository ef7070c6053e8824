"""`ContextCompaction`: the whole conversation under a token budget."""

from __future__ import annotations

import contextlib
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from agentgym.errors import ContextOverflow, InfrastructureError, UsageError
from agentgym.messages import Conversation, Message, assistant, user
from agentgym.trajectory.records import Compaction
from agentgym.wrappers.chat import ChatContext
from agentgym.wrappers.summaries import (
    STRATEGIES,
    SUMMARY_REQUEST,
    GivenSummarizer,
    Summarizer,
    cut,
    cut_mark,
    describe_turn,
    summary_by_rule,
    task_with_note,
    with_request,
)
from agentgym.wrappers.tokens import TokenCounter, TokenSource
from agentgym.wrappers.turns import Turn, changed, cut_message, flat, largest, without_answer


class ContextCompaction(ChatContext):
    """`ChatContext` under a budget: history is rewritten before too little room is left for the next reply.

    **Observation.** As in `ChatContext`, each conversation starts with the one before, until
    ``tokens(conversation) + reply_tokens`` would exceed `max_tokens`. Then the history is rewritten, and
    grows again from there. The system prompt and the task stay verbatim; an action and its answer stay or go
    together. A turn that does not fit and alone takes more than half of what the task leaves is cut to that
    half first: the middle of its longer text gives way to a line that says how much is missing. So every
    conversation that is to be answered has at most ``max_tokens - reply_tokens`` tokens, under any counter
    by which longer texts have more tokens.

    **Strategies** (`summarizer`):

    - ``"drop"``: old answers give way to a marker, the oldest first and only as many as needed; the last
      `keep_last` turns stay. Where that is not enough whole turns go, oldest first. Rewrites often, a little
      each time.
    - ``"last"``: only the last `keep_last` turns stay.
    - ``"rule"``: those, and a summary by rule of all turns that went: each call, and of its answer the first
      line and the last one that reports trouble. Where space is short the latest are listed.
    - ``"policy"``: those, and a summary that the policy itself writes, in a turn of its own. Below the newest
      answer stands a request (`SUMMARY_REQUEST`), ``info["summary_requested"]`` is True, and the next action is
      taken as the summary, whatever it looks like: the environment is not stepped, its turn counter does not
      move, the reward is 0.0.
    - ``"module:attribute"``, a function from a conversation to a text, a policy, or the name of a model for
      `make_policy` (``"hf:..."``, ``"vllm:..."``, ``"openai:..."``; it is loaded here and closed with the
      environment): those, and a summary that it writes at once. A policy is sent the request too, a function is
      not. One that takes seeds gets a new one each time, which follows from the seed of `reset` and the number of
      the request.

    The summary stands below the task, in the same message, and takes at most a third of what the task leaves;
    a written one that is longer is cut, an empty one leaves the former summary in force. If the last
    `keep_last` turns do not fit, fewer stay, but at least one.

    "policy" and given summarizers need room to be asked: for them a rewrite comes earlier, by the tokens of
    the request and of one more reply. They are asked at most `max_compactions` times in an episode, and not
    where an action longer than `reply_tokens` has used up that room. Where they are not asked, or the
    conversation is too long for a given model, the rewrite is that of ``"last"``, with the latest summary still
    in force.

    **Action, reward, ends.** Those of the wrapped environment. Its states, rewards, verdict and turns are the
    same with and without this wrapper, for a policy that acts the same. After the last turn nothing is
    rewritten or asked for: the final answer is appended, cut so that the conversation fits `max_tokens`.
    A given summarizer that raises `InfrastructureError` ends the episode, truncated, with
    ``info["infrastructure_error"]``.

    **Info.** ``segment``, the number of rewrites so far; ``context_tokens``; ``summary_requested`` where the
    next action is taken as a summary; ``compaction``, a `Compaction`, with the first conversation after a
    rewrite. Its old conversation is the one that would have been handed out, and for "policy" the one that
    was, request included. The task's message is never among the dropped: the new one holds it.

    Args:
        env: an environment whose observations are text.
        max_tokens: the model's window.
        reply_tokens: the most tokens that one reply may take.
        keep_last: turns that stay as they are; at least 1.
        summarizer: see above.
        max_compactions: how often a policy or given summarizer is asked in an episode.
        tokens: as in `ChatContext`, but always counted.
        system_prompt: as in `ChatContext`.

    Attributes:
        summary_requested: the next action is taken as a summary.
        strategy: the summarizer's name, as `Compaction` has it.

    Raises:
        UsageError: an argument makes no sense; from `reset`, the task leaves too little room in the window.
    """

    snapshot_exclude = ChatContext.snapshot_exclude | {
        "max_tokens",
        "reply_tokens",
        "keep_last",
        "max_compactions",
        "strategy",
        "_kind",
        "_summarizer",
    }

    _counter: TokenCounter  # always one here

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        max_tokens: int,
        reply_tokens: int = 512,
        keep_last: int = 2,
        summarizer: Summarizer = "drop",
        max_compactions: int = 3,
        tokens: TokenSource = "chars",
        system_prompt: str | None = None,
    ) -> None:
        for name, value, least in (
            ("max_tokens", max_tokens, 1),
            ("reply_tokens", reply_tokens, 1),
            ("keep_last", keep_last, 1),
            ("max_compactions", max_compactions, 0),
        ):
            if value < least:
                raise UsageError(f"expected {name} >= {least}, got {value}")
        RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            max_tokens=max_tokens,
            reply_tokens=reply_tokens,
            keep_last=keep_last,
            summarizer=summarizer,
            max_compactions=max_compactions,
            tokens=tokens,
            system_prompt=system_prompt,
        )
        super().__init__(env, system_prompt, tokens)
        self.max_tokens = max_tokens
        self.reply_tokens = reply_tokens
        self.keep_last = keep_last
        self.max_compactions = max_compactions
        self._kind = summarizer if summarizer in STRATEGIES else "given"
        self._summarizer = None if summarizer in STRATEGIES else GivenSummarizer(summarizer)
        self.strategy = self._summarizer.name if self._summarizer else self._kind
        self._last_info: dict[str, Any]
        self._seeds = np.random.default_rng()  # of a given summarizer's replies; part of a snapshot
        self._start(())

    # -- Gymnasium -------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Conversation, dict[str, Any]]:
        """Start an episode; the conversation holds the system prompt and the task."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._seeds = np.random.default_rng((seed, 1))  # not the environment's stream
        self._start(self._opening(observation))
        self._measure()
        return self._messages, self._annotated(info)

    def step(self, action: str) -> tuple[Conversation, SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn; or, where a summary is requested, the summary."""
        if self.summary_requested:
            return self._take_summary(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        line = describe_turn(action, observation, info.get("calls", ())) if self._kind == "rule" else ""
        self._append(Turn(assistant(action), user(observation), line))
        if terminated or truncated:
            self._fit_final_answer()
        elif self._tokens > self._limit():
            try:
                self._compact(info)
            except InfrastructureError as error:  # of a given summarizer
                truncated = True
                info["infrastructure_error"] = str(error)
                self._fit_final_answer()
        return self._messages, reward, terminated, truncated, self._annotated(info)

    def close(self) -> None:
        """Close a summarizer that was loaded here, and the environment."""
        try:
            if self._summarizer is not None:
                self._summarizer.close()
        finally:
            super().close()

    def _take_summary(self, text: str) -> tuple[Conversation, SupportsFloat, bool, bool, dict[str, Any]]:
        if not isinstance(text, str):
            raise UsageError(f"expected the summary as text, got {type(text).__name__}")
        self.summary_requested = False
        self._asked += 1
        info, self._last_info = self._last_info, {}
        self._rewrite("policy", text, self._messages, self._tokens, info)
        return self._messages, 0.0, False, False, self._annotated(info)

    def _annotated(self, info: dict[str, Any]) -> dict[str, Any]:
        info["segment"] = self._segment
        info["context_tokens"] = self._tokens
        if self.summary_requested:
            info["summary_requested"] = True
        return info

    # -- the budget ------------------------------------------------------------------------------------------

    def _start(self, opening: Conversation) -> None:
        """The state at the beginning of an episode."""
        self.summary_requested = False
        self._opened = opening  # system prompt and task
        self._head = opening  # the same with what stands for the turns that are gone
        self._turns: tuple[Turn, ...] = ()
        self._messages = opening  # what was handed out last: head, turns, and perhaps a request
        self._summary = ""
        self._gone_lines: tuple[str, ...] = ()  # of all turns that are gone; for the summary by rule
        self._segment = 0
        self._asked = 0
        self._last_info = {}  # of the turn at which a summary was requested
        self._tokens = self._opened_tokens = self._asking_tokens = 0

    def _measure(self) -> None:
        """Count what every conversation of the episode holds.

        Raises:
            UsageError: no turn fits beside it.
        """
        count = self._counter.count
        mark = cut_mark(10**7)
        self._tokens = self._opened_tokens = opened = count(self._opened)
        if self._may_ask():  # the answer to a request, the request, and an answer cut to nothing
            request = count((*self._opened, user(SUMMARY_REQUEST))) - opened
            self._asking_tokens = self.reply_tokens + request + count((*self._opened, user(mark))) - opened
        smallest = count((*self._with_note(""), assistant(mark), user(mark))) - opened
        needed = opened + self.reply_tokens + self._asking_tokens + 3 * smallest
        if needed > self.max_tokens:
            asking = f", asking for a summary {self._asking_tokens}" if self._asking_tokens else ""
            raise UsageError(
                f"expected max_tokens >= {needed} for this task with reply_tokens={self.reply_tokens}, got "
                f"{self.max_tokens}: system prompt and task take {opened} tokens, a reply {self.reply_tokens}{asking}, "
                f"the turns at least {3 * smallest}"
            )

    def _limit(self) -> int:
        """The most tokens of a conversation that is handed out for an ordinary turn."""
        return self.max_tokens - self.reply_tokens - (self._asking_tokens if self._may_ask() else 0)

    def _may_ask(self) -> bool:
        return self._kind in ("policy", "given") and self._asked < self.max_compactions

    def _append(self, turn: Turn) -> None:
        self._turns += (turn,)
        self._messages += (turn.action, turn.observation)
        self._tokens = self._counter.extend(self._tokens, self._messages, 2)

    def _set_messages(self, messages: Conversation) -> None:
        self._messages = messages
        self._tokens = self._counter.count(messages)

    def _fits(self, conversation: Conversation, limit: int) -> bool:
        return self._counter.count(conversation) <= limit

    # -- rewriting -------------------------------------------------------------------------------------------

    def _compact(self, info: dict[str, Any]) -> None:
        """The last turn does not fit: cut it if it alone is too large; then rewrite, or ask for a summary."""
        old, old_tokens = self._messages, self._tokens
        *before, action, _ = old
        turn = self._cut_if_large(self._turns[-1])
        self._turns = (*self._turns[:-1], turn)
        if turn.action is action:  # a cut action is no longer what was sampled: that takes a rewrite
            self._set_messages((*before, action, turn.observation))
            if self._tokens <= self._limit():
                return
        answer = self._answer_beside_request() if self._may_ask() else None
        kind, summary = (self._kind if self._kind in ("drop", "rule") else "last"), ""
        if answer is not None and self._summarizer is not None:
            self._asked += 1
            with contextlib.suppress(ContextOverflow):  # too long for its model: as where it is not asked
                seed = int(self._seeds.integers(1 << 63))
                kind, summary = "given", self._summarizer((*before, action, answer), seed)
        if answer is None or self._summarizer is not None:
            self._rewrite(kind, summary, old, old_tokens, info)
        else:
            self.summary_requested = True
            self._set_messages((*before, action, with_request(answer)))
            # What that turn did, it did once.
            told = info.keys() - {"invalid_action", "masked", "delegated"}
            self._last_info = {key: info[key] for key in told} | {"calls": ()}

    def _cut_if_large(self, turn: Turn) -> Turn:
        """The turn, cut to half of what the task leaves if it takes more, its longer text first."""
        half = (self._opened_tokens + self._limit()) // 2

        def shortened(keep: int) -> Turn:
            return turn._replace(
                action=cut_message(turn.action, keep), observation=cut_message(turn.observation, keep)
            )

        longest = max(len(turn.action.content), len(turn.observation.content))
        keep = largest(longest, lambda keep: self._fits(self._opened + flat([shortened(keep)]), half))
        return shortened(max(keep, 0))

    def _fit_final_answer(self) -> None:
        """Cut the last answer so that the conversation fits the window, as far as that goes."""
        if self._tokens > self.max_tokens:
            *before, answer = self._messages
            most = len(answer.content)
            keep = largest(
                most, lambda keep: self._fits((*before, cut_message(answer, keep)), self.max_tokens)
            )
            self._set_messages((*before, cut_message(answer, max(keep, 0))))

    def _answer_beside_request(self) -> Message | None:
        """The new answer, cut so that the request for a summary fits below it; None if that is not enough."""
        *before, answer = self._messages
        limit = self.max_tokens - self.reply_tokens
        keep = largest(
            len(answer.content),
            lambda keep: self._fits((*before, with_request(cut_message(answer, keep))), limit),
        )
        return cut_message(answer, keep) if keep >= 0 else None

    def _rewrite(
        self, kind: str, text: str, old: Conversation, old_tokens: int, info: dict[str, Any]
    ) -> None:
        """Replace the history by its last turns and what stands for the others; note that in `info`."""
        limit = self._limit()
        turns = self._drop_answers(limit) if kind == "drop" else self._turns
        if kind != "drop" or not self._fits(self._head + flat(turns), limit):
            turns = self._leave_out(turns, kind, text.strip() or self._summary, limit)
        self._turns = turns
        self._set_messages(self._head + flat(turns))
        self._segment += 1

        survivors = {id(message) for message in self._messages}
        task = old[len(self._opened) - 1]
        info["compaction"] = Compaction(
            segment=self._segment,
            strategy=self.strategy if kind == "given" else kind,
            before_tokens=old_tokens,
            after_tokens=self._tokens,
            dropped=tuple(m for m in old if id(m) not in survivors and m is not task),
            kept=sum(id(m) in survivors for m in old),
            summary=self._summary,
        )

    def _drop_answers(self, limit: int) -> tuple[Turn, ...]:
        """All turns, with as many old answers replaced by the marker as needed, or as there are."""
        turns, old = self._turns, max(0, len(self._turns) - self.keep_last)

        def dropped(count: int) -> tuple[Turn, ...]:
            return (*map(without_answer, turns[:count]), *turns[count:])

        spared = largest(old, lambda spared: self._fits(self._head + flat(dropped(old - spared)), limit))
        return dropped(old - max(spared, 0))

    def _leave_out(self, turns: tuple[Turn, ...], kind: str, summary: str, limit: int) -> tuple[Turn, ...]:
        """The last turns that fit beside the note on the others, which becomes part of the head."""
        third = (limit - self._opened_tokens) // 3  # the most that the note may take
        if kind == "rule":
            noted = third  # it is written once it is known which turns go
        else:
            noted = min(third, self._counter.count(self._with_note(summary)) - self._opened_tokens)
        most = len(turns) if kind == "drop" else min(self.keep_last, len(turns))
        number = largest(
            most, lambda n: self._fits(self._opened + flat(turns[len(turns) - n :]), limit - noted)
        )
        number = max(number, 1)  # one fits: see _cut_if_large
        gone, kept = turns[:-number], turns[-number:]

        if not gone and not summary and self._head == self._opened:  # a cut is all it took
            return kept

        self._gone_lines += tuple(turn.line for turn in gone)
        lines = self._gone_lines

        def shortened(n: int) -> str:
            return summary_by_rule(lines, n) if kind == "rule" else cut(summary, n)

        def fits(n: int) -> bool:
            head = self._with_note(shortened(n))
            return self._fits(head, self._opened_tokens + third) and self._fits(head + flat(kept), limit)

        n = largest(len(lines) if kind == "rule" else len(summary), fits)
        self._summary = shortened(n) if n >= 0 else ""
        self._head = self._with_note(self._summary)
        return kept

    def _with_note(self, summary: str) -> Conversation:
        """System prompt and task, which says that turns are left out and holds the summary."""
        *before, task = self._opened
        return (*before, changed(self._head[-1], task_with_note(task.content, summary)))
