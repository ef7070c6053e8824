"""Token counters: how long a conversation is for the model that will answer it."""

from __future__ import annotations

import abc
import functools
import importlib
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from agentgym.errors import MissingDependency, UsageError
from agentgym.messages import Conversation, Message, to_openai

TokenSource: TypeAlias = "str | Callable[[Conversation], int]"


class TokenCounter(abc.ABC):
    """Counts the tokens a model reads when it is asked to answer a conversation."""

    @abc.abstractmethod
    def count(self, conversation: Conversation) -> int:
        """Tokens of the whole prompt, what asks for the reply included."""

    def extend(self, tokens: int, conversation: Conversation, new: int) -> int:
        """`count(conversation)`, where without its `new` last messages it had `tokens`.

        Counters that add up message by message need not look at the old ones again; others count anew.
        """
        return self.count(conversation)


class CharCounter(TokenCounter):
    """A quarter of the characters, rounded up, and `overhead` for the role and the ends of each message.

    An estimate for English prose; code can have one and a half times as many, other scripts several times.
    Needs no packages. Where `max_tokens` is a real model's window, count with that model's tokenizer.
    """

    characters_per_token = 4
    overhead = 4

    def count(self, conversation: Conversation) -> int:
        """The sum over the messages, and the opening of the reply."""
        return self.overhead + sum(map(self._message, conversation))

    def extend(self, tokens: int, conversation: Conversation, new: int) -> int:
        """Adds the new messages."""
        return tokens + sum(map(self._message, conversation[len(conversation) - new :]))

    def _message(self, message: Message) -> int:
        return self.overhead - (-len(message.content) // self.characters_per_token)


class CallableCounter(TokenCounter):
    """A function from a conversation to its tokens, for example a trainer's own renderer."""

    def __init__(self, function: Callable[[Conversation], int]) -> None:
        self._function = function

    def count(self, conversation: Conversation) -> int:
        """What the function says."""
        return self._function(conversation)


class HFCounter(TokenCounter):
    """The exact length under a Hugging Face tokenizer and its chat template, generation prompt included.

    The tokenizer is loaded at the first count and shared by all counters of that name in the process.

    Args:
        name: a folder, a name in the local Hugging Face cache, or "smollm2", the packaged model.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def count(self, conversation: Conversation) -> int:
        """Tokens of the templated conversation."""
        return _templated(self.name).count(conversation)


class _Templated:
    """A loaded tokenizer that remembers how long each piece of text between special tokens is."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            raise UsageError(
                f"tokens='hf:{name}': that tokenizer has no chat template; expected one that has"
            )
        self._tokenizer = tokenizer
        self._special = _special_tokens(tokenizer)
        self._length = functools.lru_cache(maxsize=4096)(self._encode)

    def count(self, conversation: Conversation) -> int:
        text = self._tokenizer.apply_chat_template(
            to_openai(conversation), tokenize=False, add_generation_prompt=True
        )
        if self._special is None:
            return self._encode(text)
        return sum(self._length(piece) for piece in self._special.split(text) if piece)

    def _encode(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))


def _special_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """A pattern to cut text at special tokens; None where the pieces' lengths might not add up.

    They add up for byte-level tokenizers, which cut there before anything else. Tokenizers that look beyond a
    piece (a space before the first word, special tokens that swallow blanks) count the whole text each time.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    added = [token for token in tokenizer.added_tokens_decoder.values() if token.special]
    if backend is None or "ByteLevel" not in repr(backend.pre_tokenizer) or not added:
        return None
    if "Prepend" in repr(backend.normalizer) or "add_prefix_space=True" in repr(backend.pre_tokenizer):
        return None
    if any(token.lstrip or token.rstrip or token.single_word or token.normalized for token in added):
        return None
    longest_first = sorted((re.escape(token.content) for token in added), key=len, reverse=True)
    return re.compile("(" + "|".join(longest_first) + ")")


@functools.lru_cache(maxsize=8)
def _templated(name: str) -> _Templated:
    # The same names as the policy `hf:NAME` knows; nothing is downloaded.
    from agentgym.policies import models

    try:
        tokenizer = models.tokenizer(name)
    except (UsageError, MissingDependency) as error:
        raise type(error)(f"tokens='hf:{name}': {error}") from None
    return _Templated(name, tokenizer)


def make_counter(tokens: TokenSource) -> TokenCounter:
    """The counter that a wrapper's `tokens` argument names.

    Args:
        tokens: "chars"; "hf:NAME_OR_PATH"; "module:attribute" or a function, from a conversation to an int.

    Raises:
        UsageError: none of these.
    """
    if tokens == "chars":
        return CharCounter()
    if isinstance(tokens, str) and tokens.startswith("hf:"):
        return HFCounter(tokens.removeprefix("hf:"))
    if isinstance(tokens, str) and ":" in tokens:
        tokens = load_attribute(tokens, "tokens")
    if not callable(tokens):
        raise UsageError(
            f"expected tokens to be 'chars', 'hf:NAME', 'module:attribute' or a function, got {tokens!r}"
        )
    return CallableCounter(tokens)


def load_attribute(name: str, argument: str) -> Any:
    """What ``module:attribute`` names; `argument` is the one it was given for, for the error."""
    module, _, attribute = name.partition(":")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{argument}={name!r}: expected module:attribute to import, but {error}") from None
