"""`OpenAIPolicy`: a model behind an OpenAI-compatible server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from agentgym.endpoint import Answer, Endpoint
from agentgym.errors import ContextOverflow, InfrastructureError
from agentgym.messages import Conversation, MessageCall, from_openai, to_openai
from agentgym.policies.base import Policy, Reply
from agentgym.tools import Tool

Tokens: TypeAlias = tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[float, ...] | None]

# How OpenAI, vLLM and llama.cpp refuse a conversation that leaves no room for the reply.
OVERFLOW = re.compile(r"maximum context length|available context size|context window of this model")


class OpenAIPolicy(Policy):
    """Asks a server, many conversations at a time; the server does its own batching.

    `max_batch` is 1: in a rollout each worker sends its own requests, so a long reply holds up nobody. `act` with
    several conversations sends them at the same time.

    Args:
        model: its name on the server.
        base_url: see `Endpoint`.
        api_key: the same.
        timeout: the same.
        max_retries: the same.
        max_new_tokens: most tokens of a reply; None for the server's own limit.
        temperature: None leaves it to the server.
        stop: texts that end a reply. Servers leave them out of the text.
        token_ids: ask for token ids and log-probs, which vLLM and llama.cpp tell, and switch off whatever else shapes
            their sampling (top-p, top-k, min-p, penalties). OpenAI's own servers refuse these parameters; from any
            other server that does not tell, replies come without ids.
            Servers report log-probs before temperature; so they are kept only at temperature 1, where these are the
            log-probs of the sampling distribution.
        workers: requests at a time, also the number of environments a rollout starts by default.
        params: more parameters for each request.

    Raises:
        MissingDependency: the package openai is not installed.
        UsageError: no key and no base URL; from `act`, the server refuses the key or does not know the model.
        ContextOverflow: from `act` with one conversation, the server says that it is too long for the model.
    """

    takes_seeds = True  # `act` takes seeds=

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 4,
        max_new_tokens: int | None = 256,
        temperature: float | None = 1.0,
        stop: Sequence[str] = (),
        token_ids: bool = False,
        workers: int = 16,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = f"openai:{model}"
        self.endpoint = Endpoint(
            model, base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries
        )
        self.temperature = temperature
        self.token_ids = token_ids
        self.workers = workers
        self._params: dict[str, Any] = {}
        if max_new_tokens is not None:
            self._params["max_completion_tokens"] = max_new_tokens
        if temperature is not None:
            self._params["temperature"] = temperature
        if stop:
            self._params["stop"] = [stop] if isinstance(stop, str) else list(stop)
        if token_ids:
            self._params |= {"logprobs": True, "top_logprobs": 1, "return_token_ids": True}
            self._params |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        self._params |= params or {}
        self.settings = {"base_url": self.endpoint.base_url, **self._params}
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="agentgym-openai")

    def act(
        self, conversations: Sequence[Conversation], *, seeds: Sequence[int] | None = None
    ) -> list[Reply]:
        """One reply each; all requests are sent at once, up to `workers` at a time.

        Args:
            conversations: any number.
            seeds: one for each, sent to the server; by default none is.
        """
        each: Sequence[int | None] = [None] * len(conversations) if seeds is None else seeds
        asked = list(zip(conversations, each, strict=True))
        if len(asked) == 1:
            try:
                return [self._ask(*asked[0])[0]]
            except InfrastructureError as error:
                raise _overflow(error) from None
        return list(self._threads.map(lambda pair: self._ask(*pair)[0], asked))

    def call(
        self, conversation: Conversation, tools: Sequence[Tool], *, seed: int | None = None
    ) -> tuple[Reply, tuple[MessageCall, ...]]:
        """One reply of a server that takes tools and gives calls by itself.

        Args:
            conversation: may hold structured calls and the answers to them.
            tools: what may be called.
            seed: as for `act`.

        Returns:
            The reply, whose text does not hold the calls (its ids do), and the calls.
        """
        try:
            reply, answer = self._ask(conversation, seed, tools)
        except InfrastructureError as error:
            raise _overflow(error) from None
        rows = answer.choice["message"].get("tool_calls") or []
        try:
            (said,) = from_openai([{"role": "assistant", "content": reply.text, "tool_calls": rows}])
        except ValueError as error:
            raise InfrastructureError(f"{self.name}: {error}") from None
        return reply, said.tool_calls

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(cancel_futures=True)
        self.endpoint.close()

    def _ask(
        self, conversation: Conversation, seed: int | None, tools: Sequence[Tool] = ()
    ) -> tuple[Reply, Answer]:
        # Servers read the seed into 32 bits, llama.cpp keeps the highest value for "random".
        params = self._params if seed is None else self._params | {"seed": seed % (1 << 31)}
        if tools:
            params = params | {"tools": [tool.to_openai() for tool in tools]}
        answer = self.endpoint.chat(conversation, **params)
        prompt, sampled, logprobs = (
            self._tokens(conversation, answer, tools) if self.token_ids else (None, None, None)
        )
        reply = Reply(
            answer.text,
            prompt_ids=prompt,
            sampled_ids=sampled,
            logprobs=logprobs if self.temperature == 1.0 else None,
            temperature=self.temperature,
            finish_reason=answer.finish_reason,
            prompt_tokens=answer.prompt_tokens,
            sampled_tokens=answer.completion_tokens,
        )
        return reply, answer

    def _tokens(self, conversation: Conversation, answer: Answer, tools: Sequence[Tool]) -> Tokens:
        """Prompt ids, sampled ids and log-probs; the ids of both or of neither."""
        entries = (answer.choice.get("logprobs") or {}).get("content") or []
        logprobs = tuple(float(entry["logprob"]) for entry in entries)
        if answer.choice.get("token_ids"):  # vLLM
            prompt, sampled = answer.body.get("prompt_token_ids"), answer.choice["token_ids"]
        elif entries and all("id" in entry for entry in entries):  # llama.cpp
            ids = self._llama_cpp_prompt(conversation, tools)
            prompt = ids if len(ids) == answer.prompt_tokens else None  # else it was another prompt
            sampled = [entry["id"] for entry in entries]
        else:
            prompt = sampled = None
        if not prompt or not sampled:
            return None, None, None
        return tuple(prompt), tuple(sampled), logprobs if len(logprobs) == len(sampled) else None

    def _llama_cpp_prompt(self, conversation: Conversation, tools: Sequence[Tool]) -> list[int]:
        """The ids llama.cpp read: it does not return them, but tells its template and tokens when asked."""
        asked: dict[str, Any] = {"messages": to_openai(conversation)}
        if tools:
            asked["tools"] = [tool.to_openai() for tool in tools]
        prompt = self.endpoint.post("/apply-template", asked)["prompt"]
        body = {"content": prompt, "add_special": True, "parse_special": True}
        tokens: list[int] = self.endpoint.post("/tokenize", body)["tokens"]
        return tokens


def _overflow(error: InfrastructureError) -> Exception:
    """The error itself, or what it means where the server says that the conversation is too long."""
    if not OVERFLOW.search(str(error)):
        return error
    advice = "keep the conversation under the limit with --compact and --tokens (ContextCompaction)"
    return ContextOverflow(f"{error}; {advice}")
