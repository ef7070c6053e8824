"""The one client for OpenAI-compatible endpoints: chat, answers as JSON, retries, counts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.errors import InfrastructureError, MissingDependency, UnusableAnswer, UsageError, finite
from agentgym.messages import Message, to_openai


@dataclass(frozen=True, slots=True)
class Answer:
    """One chat completion.

    Attributes:
        text: what the model wrote; "" where it wrote nothing.
        finish_reason: the server's word.
        prompt_tokens, completion_tokens: as the server counts them; 0 where it does not.
        choice: the answer as it came, for what servers add (log-probs, token ids).
        body: the whole response.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    choice: Mapping[str, Any] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)


@dataclass(slots=True)
class Counts:
    """What an endpoint was asked.

    Attributes:
        calls: that were answered.
        failures: that were not, after all retries.
        parse_failures: answers to `Endpoint.json` that were not the JSON asked for.
        prompt_tokens, completion_tokens: as the server counts them.
    """

    calls: int = 0
    failures: int = 0
    parse_failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Endpoint:
    """A model behind an OpenAI-compatible server. May be used from many threads.

    Args:
        model: its name on the server.
        base_url: for example ``http://127.0.0.1:8000/v1``; by default ``$OPENAI_BASE_URL``, else OpenAI's own.
        api_key: by default ``$OPENAI_API_KEY``; servers that are named by a base URL often need none.
        timeout: seconds a request may wait for an answer.
        max_retries: more attempts after status 408, 409, 429 or 5xx, a lost connection or a timeout. The waits grow
            from half a second to eight, or are what the server asks for.

    Raises:
        MissingDependency: the package openai is not installed.
        UsageError: there is neither a key nor a base URL.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 4,
    ) -> None:
        try:
            import openai
        except ImportError:
            raise MissingDependency("endpoints need openai: pip install 'agentgym-suite[judge]'") from None
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        api_key = api_key or os.environ.get("OPENAI_API_KEY") or None
        if api_key is None and base_url is None:
            raise UsageError(
                f"model {model!r}: expected an API key in OPENAI_API_KEY, or the base_url of a server of your own"
            )
        self.model = model
        self.counts = Counts()
        self._lock = threading.Lock()
        self._openai = openai
        self._client = openai.OpenAI(
            base_url=base_url, api_key=api_key or "none", timeout=timeout, max_retries=max_retries
        )
        self.base_url = str(self._client.base_url)

    def chat(self, messages: Iterable[Message], **params: Any) -> Answer:
        """The model's answer to a conversation.

        Args:
            messages: the conversation.
            **params: anything the server takes, for example ``temperature=0``.

        Raises:
            UsageError: the server refuses the key or does not know the model (status 401, 403, 404).
            InfrastructureError: it gave no usable answer, after all retries.
        """
        with self._reported():
            # Parameters travel in `extra_body` since servers have many that the client does not know.
            response = self._client.chat.completions.with_raw_response.create(
                model=self.model, messages=to_openai(messages), extra_body=params
            )
            answer = self._read(response.http_response.text)
        with self._lock:
            self.counts.calls += 1
            self.counts.prompt_tokens += answer.prompt_tokens
            self.counts.completion_tokens += answer.completion_tokens
        return answer

    def json(
        self, messages: Sequence[Message], keys: Mapping[str, type], *, tries: int = 2, **params: Any
    ) -> dict[str, Any]:
        """Ask for a JSON object and check it; for judges.

        The answer is the object and nothing else; or ends with it in a fence, its only one, after words without braces.
        A thought in ``<think>`` before it is no part of it. Any other does not parse, such as one that quotes an object
        and then says what it thinks of it.

        Args:
            messages: the conversation. What is expected is added to the end of its last message.
            keys: what the object must hold, for example ``{"score": float, "reason": str}``; types are str, bool, int,
                float (any finite number), list, dict. Other keys of the answer are dropped.
            tries: how often to ask before giving up. Each answer that does not parse is counted.
            **params: as in `chat`.

        Raises:
            UnusableAnswer: no answer parsed, so there is no judgement.
            InfrastructureError: as in `chat`.
        """
        listed = ", ".join(f'"{key}" ({_KINDS[kind]})' for key, kind in keys.items())
        wanted = f"\n\nAnswer with one JSON object with the keys {listed}, and nothing else."
        last = messages[-1]
        asked = (*messages[:-1], Message(last.role, last.content + wanted, last.name))
        problem = ""
        for _ in range(tries):
            answer = self.chat(asked, **params)
            try:
                return _object(answer.text, keys)
            except ValueError as error:
                problem = str(error)
                with self._lock:
                    self.counts.parse_failures += 1
        raise UnusableAnswer(f"{self.model} at {self.base_url}: no usable JSON in {tries} tries; {problem}")

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Ask what a server offers beside OpenAI's interface, for example llama.cpp's ``/tokenize``.

        Args:
            path: from the server's root, not from ``/v1``.
            body: sent as JSON.

        Returns:
            The answer, read from JSON.
        """
        root = self.base_url.rstrip("/").removesuffix("/v1")
        with self._reported():
            return self._client.post(root + path, body=body, cast_to=object)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextlib.contextmanager
    def _reported(self) -> Generator[None]:
        """Count what fails, and say it in one line."""
        try:
            yield
        except (self._openai.OpenAIError, InfrastructureError) as error:
            with self._lock:
                self.counts.failures += 1
            if isinstance(error, InfrastructureError):
                raise
            text = f"{self.model} at {self.base_url}: {_one_line(error)}"
            if getattr(error, "status_code", None) in (401, 403, 404):
                raise UsageError(text) from None
            raise InfrastructureError(text) from None

    def _read(self, body: str) -> Answer:
        try:
            read = json.loads(body)
            choice = read["choices"][0]
            message = choice["message"]
            usage = read.get("usage") or {}
            return Answer(
                # JSON may escape half of a surrogate pair, which nothing after us can encode.
                text=(message.get("content") or "").encode("utf-8", "replace").decode(),
                finish_reason=choice.get("finish_reason") or "",
                prompt_tokens=int(usage.get("prompt_tokens") or 0),
                completion_tokens=int(usage.get("completion_tokens") or 0),
                choice=choice,
                body=read,
            )
        except (ValueError, LookupError, TypeError, AttributeError):
            text = f"expected a chat completion, got {body[:80]!r}"
            raise InfrastructureError(f"{self.model} at {self.base_url}: {text}") from None


def fenced(title: str, text: str, mark: str) -> str:
    """Text of others for a model to judge, between markers that nobody could put into it.

    Args:
        title: what it is.
        text: the data.
        mark: drawn for this question alone, for example by ``secrets.token_hex(8)``.
    """
    return f"{title}:\n<<<data {mark}\n{text}\ndata {mark}>>>"


_KINDS: dict[type, str] = {
    str: "text",
    bool: "true or false",
    int: "whole number",
    float: "number",
    list: "list",
    dict: "object",
}


_THOUGHT = re.compile(r"\A\s*<think>.*</think>", re.DOTALL)
_LANGUAGE = re.compile(r"\A[ \t]*json\b", re.IGNORECASE)


def _object(text: str, keys: Mapping[str, type]) -> dict[str, Any]:
    """The object in an answer that is nothing else, or that ends with it in its only fenced block.

    An answer may quote the page or program under judgement, which may hold JSON, fences and all. So nothing may follow
    the block, and text before it may hold no brace: whoever writes the page does not write the end of the answer. For
    the same reason a thought must have one end only. That a block is the only one is seen by its being JSON as a whole.
    """
    answer = _THOUGHT.sub("", text) if text.count("</think>") == 1 else text
    before, _, rest = answer.partition("```")
    block, fence, after = rest.rpartition("```")
    alone = fence and not after.strip() and "{" not in before
    try:
        value = json.loads(_LANGUAGE.sub("", block) if alone else answer)
    except (ValueError, RecursionError):
        raise ValueError(f"expected a JSON object, got {text[:80]!r}") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {text[:80]!r}")
    for key, kind in keys.items():
        if key not in value:
            raise ValueError(f"expected the key {key!r}, got {sorted(value)}")
        if not _fits(value[key], kind):
            raise ValueError(f"expected {key!r} to be a {_KINDS[kind]}, got {value[key]!r}")
    return {key: float(value[key]) if kind is float else value[key] for key, kind in keys.items()}


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, int | float) and finite(value) is not None
    return isinstance(value, kind)


def _one_line(error: Exception) -> str:
    """What went wrong, with the cause the client hides behind "Connection error."."""
    text = str(error)
    if error.__cause__ is not None and str(error.__cause__):
        text += f" ({error.__cause__})"
    return " ".join(text.split())[:300]
