"""`ChatContext`: the observation becomes the whole conversation."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium

from agentgym import spaces
from agentgym.core import AgentWrapper
from agentgym.errors import UsageError
from agentgym.messages import Conversation, assistant, system, user
from agentgym.wrappers.tokens import TokenSource, make_counter


class ChatContext(AgentWrapper):
    """Frame stacking for language: the observation is everything said so far, ready for a chat model.

    **Observation.** A tuple of frozen `Message`: the system prompt (if there is one), the first observation
    as a user message, then each action as an assistant message and each answer as a user message. A tuple
    that was handed out never changes, and each starts with the one before. The space is
    `agentgym.spaces.Conversation`.

    **Action, reward, ends.** Those of the wrapped environment.

    **Info.** Adds ``segment``, always 0 (`ContextCompaction` is the one that rewrites), and
    ``context_tokens`` where `tokens` is given.

    Args:
        env: an environment whose observations are text.
        system_prompt: instead of the environment's own; "" for none.
        tokens: how to count ``context_tokens``: "chars" (a quarter of the characters), "hf:NAME_OR_PATH"
            (exact, by that tokenizer and its chat template; "hf:smollm2" is the packaged model),
            "module:attribute" or a function from a conversation to an int. None: not counted.

    Raises:
        UsageError: the observations are not text, or `tokens` is none of these.

    Examples:
        >>> import agentgym, gymnasium
        >>> env = ChatContext(gymnasium.make("agentgym/Relay-v0"))
        >>> conversation, info = env.reset(seed=0)
        >>> conversation, *_ = env.step("take")
        >>> [message.role for message in conversation]
        ['user', 'assistant', 'user']
    """

    snapshot_exclude = frozenset({"_system_prompt", "_counter"})

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        system_prompt: str | None = None,
        tokens: TokenSource | None = None,
    ) -> None:
        expect_text(self, env)
        super().__init__(env, system_prompt=system_prompt, tokens=tokens)
        self.observation_space = spaces.Conversation()
        self._system_prompt = system_prompt
        self._counter = None if tokens is None else make_counter(tokens)
        self._messages: Conversation = ()
        self._tokens = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Conversation, dict[str, Any]]:
        """Start an episode; the conversation holds the system prompt and the task."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._messages = self._opening(observation)
        info["segment"] = 0
        if self._counter is not None:
            info["context_tokens"] = self._tokens = self._counter.count(self._messages)
        return self._messages, info

    def step(self, action: str) -> tuple[Conversation, SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn; the conversation grows by the action and its answer."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._messages += (assistant(action), user(observation))
        info["segment"] = 0
        if self._counter is not None:
            info["context_tokens"] = self._tokens = self._counter.extend(self._tokens, self._messages, 2)
        return self._messages, reward, terminated, truncated, info

    def _opening(self, observation: str) -> Conversation:
        prompt = self._system_prompt
        if prompt is None:
            prompt = self.env.get_wrapper_attr("system_prompt")
        return (system(prompt), user(observation)) if prompt else (user(observation),)


def expect_text(wrapper: AgentWrapper, env: gymnasium.Env[Any, Any]) -> None:
    """Refuse an environment whose observations are not text, with a `UsageError`."""
    space = env.observation_space
    if not isinstance(space, spaces.UnicodeText):
        got = "the conversations of another wrapper" if isinstance(space, spaces.Conversation) else space
        raise UsageError(
            f"{type(wrapper).__name__} reads text: expected observations in UnicodeText, got {got}"
        )
