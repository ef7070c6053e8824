"""For learners that know numbers only: `IndexAction` makes actions a `Discrete`, `TextFeatures` texts a `Box`."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from agentgym.core import AgentEnv, AgentWrapper
from agentgym.errors import UsageError, whole_number
from agentgym.wrappers.chat import expect_text


class IndexAction(AgentWrapper):
    """The action is a place in ``info["admissible_actions"]``: ``Discrete(max_actions)``.

    **Action.** Index `i` sends the `i`-th admissible action. An index beyond the list sends the empty message: it costs
    a turn, changes nothing and sets ``info["invalid_action"]``. `action_masks` says which indices mean something, in
    the form that sb3-contrib's ``MaskablePPO`` asks for.

    **Observation, reward, ends, info.** Those of the wrapped environment.

    Args:
        env: an environment that lists its admissible actions.
        max_actions: the longest list there may be.

    Raises:
        UsageError: the environment lists no actions; from `reset` and `step`, it lists more than `max_actions` (none
            is left out in silence: it may be the one that is needed), or the action is no index.

    Examples:
        >>> import agentgym, gymnasium
        >>> env = IndexAction(gymnasium.make("agentgym/Relay-v0"), max_actions=16)
        >>> _, info = env.reset(seed=0)
        >>> info["admissible_actions"], int(env.action_masks().sum())
        (('take',), 1)
        >>> *_, info = env.step(0)
        >>> info["admissible_actions"][2]
        'go south'
    """

    def __init__(self, env: gymnasium.Env[Any, Any], max_actions: int) -> None:
        super().__init__(env, max_actions=max_actions)
        expect_admissible(self)
        self.action_space = Discrete(whole_number("max_actions", max_actions, least=1))
        self._actions: tuple[str, ...] = ()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._take(info)
        return observation, info

    def step(self, action: int | np.integer[Any]) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Send the action that stands at this place of the list."""
        if not self.action_space.contains(action):
            raise UsageError(f"expected an index in {self.action_space}, got {action!r:.60}")
        index = int(action)
        text = self._actions[index] if index < len(self._actions) else ""
        observation, reward, terminated, truncated, info = self.env.step(text)
        if not (terminated or truncated):  # nobody chooses from the last list
            self._take(info)
        return observation, reward, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """For each index, whether it stands for an action now; shape (max_actions,)."""
        return np.arange(self.max_actions) < len(self._actions)

    @property
    def max_actions(self) -> int:
        """The longest list there may be."""
        return int(self.action_space.n)  # type: ignore[attr-defined]  # a Discrete, set above

    def _take(self, info: dict[str, Any]) -> None:
        actions = info["admissible_actions"]
        if len(actions) > self.max_actions:
            raise UsageError(
                f"expected max_actions >= {len(actions)}, got {self.max_actions}: so many actions are admissible"
                f" in task {info['task_id']!r} now"
            )
        self._actions = actions


class TextFeatures(AgentWrapper):
    """The observation is a `Box` of hashed words: one row for each text that a policy needs.

    **Observation.** An array of float32 in [-1, 1] with `size` columns and these rows: the observation;
    ``info["anchor"]``, where the environment has one (the state without history, which a policy without memory cannot
    do without); and around `IndexAction` one row for each index, the words of the action that it stands for, zeros
    beyond the list. So a policy reads what an index means instead of learning it by heart.

    **Rows.** Each n-gram of words, lower case, adds +1 or -1 in one column; which, a hash (BLAKE2) of the n-gram says,
    so they are the same in every process and on every machine. A row is then scaled to length 1. Numbers count as
    words, punctuation is left out.

    **Action, reward, ends, info.** Those of the wrapped environment.

    Args:
        env: an environment whose observations are text. Put `IndexAction` inside.
        size: columns. Two n-grams meet in one column with probability 1 / size.
        ngrams: the longest run of words that counts: 1 for single words, 2 for pairs too.

    Raises:
        UsageError: the observations are not text, or an argument is not a whole number from 1.

    Examples:
        >>> import agentgym, gymnasium
        >>> env = IndexAction(gymnasium.make("agentgym/Relay-v0"), max_actions=16)
        >>> TextFeatures(env, size=64).observation_space.shape
        (18, 64)
    """

    def __init__(self, env: gymnasium.Env[Any, Any], size: int = 256, ngrams: int = 2) -> None:
        super().__init__(env, size=size, ngrams=ngrams)
        expect_text(self, env)
        self.size = whole_number("size", size, least=1)
        self.ngrams = whole_number("ngrams", ngrams, least=1)
        self._anchored = type(self.agent_env).anchor is not AgentEnv.anchor
        self._choices = int(env.action_space.n) if isinstance(env.action_space, Discrete) else 0
        self._rows = 1 + self._anchored + self._choices
        self.observation_space = Box(-1.0, 1.0, (self._rows, self.size), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._features(observation, info), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._features(observation, info), reward, terminated, truncated, info

    def _features(self, observation: str, info: dict[str, Any]) -> NDArray[np.float32]:
        texts = [observation, info.get("anchor", "")] if self._anchored else [observation]
        if self._choices:
            texts += info.get("admissible_actions", ())
        features = np.zeros((self._rows, self.size), np.float32)
        for row, text in zip(features, texts, strict=False):
            row[:] = hashed(text, self.size, self.ngrams)
        return features


@functools.lru_cache(maxsize=8192)
def hashed(text: str, size: int, ngrams: int) -> NDArray[np.float32]:
    """The row of a text, see `TextFeatures`; not to be changed.

    Args:
        text: any.
        size: columns.
        ngrams: the longest run of words that counts.
    """
    row = np.zeros(size, np.float32)
    for gram in _grams(re.findall(r"\w+", text.lower()), ngrams):
        digest = int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "little")
        row[(digest >> 1) % size] += 1.0 if digest & 1 else -1.0
    length = float(np.linalg.norm(row))
    if length:
        row /= length
    row.flags.writeable = False
    return row


def _grams(words: list[str], longest: int) -> Iterator[str]:
    for count in range(1, longest + 1):
        for start in range(len(words) - count + 1):
            yield " ".join(words[start : start + count])


def expect_admissible(wrapper: AgentWrapper) -> None:
    """Refuse an environment that does not list its admissible actions, with a `UsageError`."""
    inner = type(wrapper.agent_env)
    if inner.admissible_actions is AgentEnv.admissible_actions:
        raise UsageError(
            f"{type(wrapper).__name__} needs a list of admissible actions; {inner.__name__} gives none"
        )
