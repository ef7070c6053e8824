"""Where `VLLMPolicy` runs its model: vLLM's own class, or a server. Both take token ids and give token ids."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentgym.endpoint import Endpoint
from agentgym.errors import ContextOverflow, InfrastructureError, MissingDependency, UsageError
from agentgym.policies import models
from agentgym.policies.bridge import Bridge
from agentgym.policies.openai import OVERFLOW


@dataclass(frozen=True, slots=True)
class Sampling:
    """How every reply is sampled: from the whole distribution, nothing cut off and nothing penalised."""

    max_new_tokens: int
    temperature: float
    stop: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine sampled.

    Attributes:
        ids: all sampled tokens, a final end of turn included.
        logprobs: of the ids under the sampling distribution; None where the engine does not tell these.
        finish_reason: "stop" or "length".
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    finish_reason: str


class Engine(Protocol):
    """Where the model runs."""

    def complete(
        self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int], sampling: Sampling
    ) -> list[Completion]:
        """One completion for each prompt."""

    def load(self, weights: Path | Iterable[tuple[str, Any]]) -> None:
        """Take other weights, and forget what was computed with the old ones."""

    def sleep(self, level: int) -> None:
        """Give memory back."""

    def wake(self) -> None:
        """Take it again."""

    def close(self) -> None:
        """End."""


class LocalEngine:
    """``vllm.LLM`` in this process.

    Args:
        model: a directory or a name.
        options: more keywords of ``vllm.LLM``.
    """

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        # In one process, so that tensors can be handed over without being serialised; read when vllm is imported.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        try:
            self._vllm: Any = importlib.import_module("vllm")
        except ImportError:
            raise MissingDependency(
                "vllm:MODEL without base_url needs vLLM: pip install 'agentgym-suite[vllm]'"
            ) from None
        defaults = {"enable_sleep_mode": True, "logprobs_mode": "processed_logprobs"}
        self._llm = self._vllm.LLM(model=str(models.resolve(model)), **(defaults | dict(options)))
        self._context = int(self._llm.llm_engine.model_config.max_model_len)

    def complete(
        self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int], sampling: Sampling
    ) -> list[Completion]:
        """See `Engine`."""
        for position, prompt in enumerate(prompts):
            if len(prompt) >= self._context:
                raise ContextOverflow(
                    f"a prompt of {len(prompt)} tokens leaves no room in a context of {self._context}",
                    position,
                )
        params = [
            self._vllm.SamplingParams(
                max_tokens=min(sampling.max_new_tokens, self._context - len(prompt)),
                temperature=sampling.temperature,
                stop=list(sampling.stop),
                seed=seed,
                logprobs=0,
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        done = []
        for output in self._llm.generate(asked, params, use_tqdm=False):
            sampled = output.outputs[0]
            ids = tuple(sampled.token_ids)
            logprobs = tuple(float(entry[i].logprob) for entry, i in zip(sampled.logprobs, ids, strict=True))
            done.append(Completion(ids, logprobs, sampled.finish_reason))
        return done

    def load(self, weights: Path | Iterable[tuple[str, Any]]) -> None:
        """See `Engine`."""
        if isinstance(weights, Path):
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(weights)})
        else:
            self._llm.collective_rpc(_load_into, args=(list(weights),))
        self._llm.reset_prefix_cache()

    def sleep(self, level: int) -> None:
        """See `Engine`."""
        self._llm.sleep(level=level)

    def wake(self) -> None:
        """See `Engine`."""
        self._llm.wake_up()

    def close(self) -> None:
        """See `Engine`."""
        del self._llm


def _load_into(worker: Any, weights: list[tuple[str, Any]]) -> None:
    worker.model_runner.model.load_weights(weights)


class ServerEngine:
    """A server with OpenAI's ``/v1/completions``.

    Weights and sleep use vLLM's own endpoints, which it has with ``VLLM_SERVER_DEV_MODE=1``; sleep wants
    ``--enable-sleep-mode`` besides.

    Args:
        endpoint: the server.
        bridge: decodes.
        processed: it reports log-probs of the sampling distribution at any temperature.
        workers: requests at a time.
    """

    def __init__(self, endpoint: Endpoint, bridge: Bridge, processed: bool, workers: int) -> None:
        self._endpoint = endpoint
        self._bridge = bridge
        self._processed = processed
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="agentgym-vllm")

    def complete(
        self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int], sampling: Sampling
    ) -> list[Completion]:
        """See `Engine`."""
        waiting = [
            self._threads.submit(self._ask, prompt, seed, sampling)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        done = []
        for position, future in enumerate(waiting):
            try:
                done.append(future.result())
            except InfrastructureError as error:
                if not OVERFLOW.search(str(error)):
                    raise
                raise ContextOverflow(
                    f"{error}; keep the conversation under the limit with --compact and --tokens "
                    "(ContextCompaction)",
                    position,
                ) from None
        return done

    def _ask(self, prompt: tuple[int, ...], seed: int, sampling: Sampling) -> Completion:
        body = {
            "model": self._endpoint.model,
            "prompt": list(prompt),
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "seed": seed,
            "logprobs": 1,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "include_stop_str_in_output": True,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        answer = self._endpoint.post("/v1/completions", body)
        choice = answer["choices"][0]
        ids, logprobs = self._sampled(choice)
        self._check(prompt, ids, answer, choice)
        told = self._processed or sampling.temperature == 1.0
        return Completion(ids, logprobs if told else None, choice["finish_reason"])

    def _sampled(self, choice: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Ids and log-probs out of an answer, in vLLM's form or llama.cpp's."""
        told = choice.get("logprobs") or {}
        entries = told.get("content") or []
        if choice.get("token_ids"):
            return tuple(choice["token_ids"]), tuple(map(float, told["token_logprobs"]))
        if entries and all("id" in entry for entry in entries):
            return tuple(entry["id"] for entry in entries), tuple(float(e["logprob"]) for e in entries)
        raise UsageError(
            f"{self._endpoint.base_url} tells no token ids; expected a server that does, such as vLLM or llama.cpp "
            "(for others there is openai:MODEL)"
        )

    def _check(
        self,
        prompt: tuple[int, ...],
        ids: tuple[int, ...],
        answer: Mapping[str, Any],
        choice: Mapping[str, Any],
    ) -> None:
        """Refuse an answer to another prompt than was sent, and ids that are not those of its text.

        Either means that something between decoded and encoded again: then the ids are not what the model saw or wrote,
        and training on them would be training on something else.
        """
        echoed = choice.get("prompt_token_ids") or answer.get("prompt_token_ids")
        read = answer.get("usage", {}).get("prompt_tokens", len(prompt))
        if (echoed is not None and tuple(echoed) != prompt) or read != len(prompt):
            raise InfrastructureError(
                f"{self._endpoint.base_url} read another prompt than was sent: {read} tokens for {len(prompt)}"
            )
        written, texts = choice["text"], (self._bridge.decode(ids), self._bridge.decode(ids[:-1]))
        # A reply cut off inside a character ends in replacement characters, or without them.
        if not any(text.rstrip("\ufffd") == written.rstrip("\ufffd") for text in texts):
            raise InfrastructureError(
                f"{self._endpoint.base_url} gave ids of the text {texts[0]!r:.80} with the text {written!r:.80}"
            )

    def load(self, weights: Path | Iterable[tuple[str, Any]]) -> None:
        """See `Engine`."""
        if not isinstance(weights, Path):
            raise UsageError("a server reads weights from a folder; expected its path, got tensors")
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(weights)}})
        self._post("/reset_prefix_cache")

    def sleep(self, level: int) -> None:
        """See `Engine`."""
        self._post(f"/sleep?level={level}")

    def wake(self) -> None:
        """See `Engine`."""
        self._post("/wake_up")

    def _post(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        try:
            self._endpoint.post(path, body or {})
        except UsageError as error:
            raise UsageError(f"{error}; vLLM has {path} when started with VLLM_SERVER_DEV_MODE=1") from None

    def close(self) -> None:
        """See `Engine`."""
        self._threads.shutdown(cancel_futures=True)
        self._endpoint.close()
