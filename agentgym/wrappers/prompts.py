"""`PublishedPrompts`: the observation is one prompt, phrased as published agents' prompts are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium

from agentgym import spaces
from agentgym.core import AgentEnv, AgentWrapper
from agentgym.errors import UsageError, nearest, whole_number
from agentgym.messages import Conversation, assistant, user
from agentgym.trajectory.records import Compaction
from agentgym.wrappers.actions import expect_admissible
from agentgym.wrappers.chat import expect_text
from agentgym.wrappers.prompt_forms import FORMS, Form, read_templates
from agentgym.wrappers.tokens import TokenSource, make_counter


class PublishedPrompts(AgentWrapper):
    """One user message a turn: task, last turns, observation, admissible actions; replies in ``<action>`` tags.

    In place of `ChatContext`, so that numbers can be compared with those of agents trained with verl-agent and its
    relatives (GiGPO, OPID). What stands in a prompt, how it is joined, which part of a reply reaches the environment
    and which replies count as invalid is as there. The sentences are our own unless `template` names a file.

    **Observation.** A conversation of a single user message. It shows the last `history` turns only, so each turn's
    prompt is a segment of its own, announced as a `Compaction` by the strategy "window".

    **Action.** The reply, ``<think>...</think><action>...</action>``; with the form "search"
    ``<think>...</think><search>...</search>`` or ``<answer>...</answer>``. The environment gets what stands between
    the tags, in lower case (searches and answers as they are); without tags the last 30 characters of the reply
    ("webshop": 20; "search": the empty text).

    **Reward, ends.** Those of the wrapped environment. (The published runs pay 10 for success; scale it in the
    trainer.)

    **Info.** ``malformed``, True where the reply was not of that form, and the counts of the episode so far,
    ``malformed_total`` and ``inadmissible_total``. A well formed reply whose action is not admissible counts in the
    second only; that it is invalid for the environment is in ``invalid_action`` as ever. ``segment``, the number of
    prompts before this one; ``context_tokens``; ``compaction``.

    Args:
        env: an environment whose observations are text.
        form: "alfworld"; "webshop" (``observation_mode="text"``); "search" (``protocol="search-r1"``); or "text", for
            other worlds with admissible actions: as "alfworld", the whole first observation being the task.
        history: how many earlier turns are shown; None: as published, 5, 2 and 4.
        template: a Python file that assigns the two texts, for example a ``prompts/alfworld.py`` of verl-agent; see
            `read_templates`. It is read, not run.
        tokens: how ``context_tokens`` are counted, as in `ChatContext`.

    Raises:
        UsageError: an unknown form, a template that cannot be read, an environment without admissible actions; from
            `reset`, a first observation in which the form finds no task.

    Examples:
        >>> import agentgym, gymnasium
        >>> env = PublishedPrompts(gymnasium.make("agentgym/Relay-v0"), form="text")
        >>> conversation, info = env.reset(seed=0)
        >>> conversation, *_, info = env.step("<think>First the word.</think><action>take</action>")
        >>> len(conversation), info["malformed_total"]
        (1, 0)
    """

    snapshot_exclude = frozenset({"form", "history", "_templates", "_counter"})

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        form: str,
        history: int | None = None,
        template: str | Path | None = None,
        tokens: TokenSource = "chars",
    ) -> None:
        if form not in FORMS:
            raise UsageError(f"unknown form of prompts {form!r}.{nearest(form, FORMS)}")
        path = None if template is None else str(template)
        super().__init__(env, form=form, history=history, template=path, tokens=tokens)
        expect_text(self, env)
        self.form = form
        self._check_actions()
        self._templates = self._form.templates if path is None else read_templates(path)
        self._counter = make_counter(tokens)
        self.history = self._form.history if history is None else whole_number("history", history, least=0)
        self.observation_space = spaces.Conversation()
        self._start("", "")

    def _start(self, task: str, seen: str) -> None:
        """The state at the beginning of an episode."""
        self._task = task
        self._seen = seen  # the last observation, as it is shown
        self._lines: tuple[str, ...] = ()  # of the turns that a prompt may show
        self._turns = self._malformed = self._inadmissible = 0
        self._messages: Conversation = ()
        self._tokens = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Conversation, dict[str, Any]]:
        """Start an episode with the prompt that has no history."""
        observation, info = self.env.reset(seed=seed, options=options)
        task = self._form.task(observation)
        self._start(task, self._form.screen(observation, task))
        self._show(info)
        return self._messages, info

    def step(self, action: str) -> tuple[Conversation, SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn: what the reply comes to is sent, the next prompt says what came of it."""
        if not isinstance(action, str):
            return self.env.step(action)  # it says what is wrong
        sent, well_formed = self._form.read(action)
        observation, reward, terminated, truncated, info = self.env.step(sent)
        self._turns += 1
        answered = self._form.screen(observation, self._task)
        if self.history:
            line = self._form.turn(self._turns, self._seen, sent, answered)
            self._lines = (*self._lines, line)[-self.history :]
        self._seen = answered
        if not well_formed:
            self._malformed += 1
            info["malformed"] = True
        elif info.get("invalid_action"):
            self._inadmissible += 1
        before, before_tokens = (*self._messages, assistant(action)), self._tokens
        self._show(info)
        if not (terminated or truncated):  # nothing will be answered under the last one
            info["compaction"] = Compaction(
                segment=self._turns,
                strategy="window",
                before_tokens=self._counter.extend(before_tokens, before, 1),
                after_tokens=self._tokens,
                dropped=before,
                kept=0,
            )
        return self._messages, reward, terminated, truncated, info

    def write_action(self, action: str) -> str:
        """A well formed reply, without thoughts, that comes to `action`; for scripted policies."""
        return self._form.write(action)

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def _form(self) -> Form:  # looked up, so that the wrapper pickles
        return FORMS[self.form]

    def _check_actions(self) -> None:
        """Refuse an environment that cannot read what this form sends."""
        form, inner = self._form, self.agent_env
        if form.listing is not None:
            expect_admissible(self)
        spoken = inner.protocol.name if inner.tools else None
        lists = type(inner).admissible_actions is not AgentEnv.admissible_actions
        if (inner.tools or lists) and spoken != form.protocol:  # others may read any text
            wanted = f"protocol={form.protocol!r}" if form.protocol else "an environment of plain text moves"
            raise UsageError(
                f"form {form.name!r} needs {wanted}, got {type(inner).__name__} with protocol={spoken!r}"
            )

    def _show(self, info: dict[str, Any]) -> None:
        """Phrase the prompt for what is seen now, and note in `info` what belongs to it."""
        self._messages = (user(self._prompt(info.get("admissible_actions", ()))),)
        self._tokens = self._counter.count(self._messages)
        info["segment"] = self._turns
        info["context_tokens"] = self._tokens
        info["malformed_total"] = self._malformed
        info["inadmissible_total"] = self._inadmissible

    def _prompt(self, admissible: tuple[str, ...]) -> str:
        form = self._form
        listed = form.listing(admissible) if form.listing is not None else ""
        history = "\n".join(self._lines)
        fields = {
            "task_description": self._task,
            "step_count": self._turns,
            "history_length": len(self._lines),
            "action_history": history,
            "memory_context": history,
            "current_step": self._turns + 1,
            "current_observation": self._seen,
            "admissible_actions": listed,
            "available_actions": listed,
        }
        if self._lines:
            prompt = self._templates.later.format_map(fields)
            if form.longest is None or len(prompt) <= form.longest:
                return prompt
        return self._templates.first.format_map(fields)
