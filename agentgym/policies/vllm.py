"""`VLLMPolicy`: vLLM, in this process or behind a server, with token ids in and token ids out.

Prompts are built here, with the model's own tokenizer, as `HFPolicy` builds them: a conversation goes on with the ids
it holds (`bridge.py`). The engine sees ids only, so nothing is encoded twice, and its prefix cache does the rest.

Any server with OpenAI's ``/v1/completions`` will do that takes a list of ids as the prompt and tells the ids it
sampled: vLLM does, and llama.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.endpoint import Endpoint
from agentgym.errors import UsageError
from agentgym.messages import Conversation
from agentgym.policies import models
from agentgym.policies.base import Policy, Reply
from agentgym.policies.bridge import Bridge
from agentgym.policies.engines import Engine, LocalEngine, Sampling, ServerEngine


class VLLMPolicy(Policy):
    """Generates with vLLM.

    Args:
        model: a directory, a name in the local Hugging Face cache, or, for a server, its name there.
        base_url: of a running server, for example ``"http://127.0.0.1:8000/v1"``; None runs the engine in this process.
        tokenizer: the model's, in memory or by name; by default that of `model`.
        version: which weights the model has; on every reply.
        max_new_tokens: most tokens of a reply.
        temperature: of the sampling; 0 takes the likeliest token, and replies have no log-probs.
        seed: of the sampling, where `act` is given no seeds.
        stop: texts that end a reply; they stay in it.
        end_ids: token ids that end a reply, for a server whose model is not on this machine. Known are the tokenizer's
            and those of the generation config of `model`, or of `tokenizer`, by name.
        processed_logprobs: with a server, whether it was started with ``--logprobs-mode processed_logprobs``. Else it
            reports log-probs before temperature, which are kept only at temperature 1, where these are the same.
        workers: with a server, requests at a time.
        api_key: with a server, see `Endpoint`.
        timeout: the same.
        max_retries: the same.
        engine: without one, more keywords of ``vllm.LLM``.

    Raises:
        MissingDependency: without a server, vLLM is not installed.
        UsageError: no tokenizer of that name on this machine, or one without a chat template.
        ContextOverflow: from `act`, a conversation leaves no room for a reply.
        InfrastructureError: from `act`, the server failed, or its ids are not those of the text it gave.
    """

    takes_seeds = True  # `act` takes seeds=

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        tokenizer: Any = None,
        version: str = "",
        max_new_tokens: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        end_ids: Iterable[int] = (),
        processed_logprobs: bool = False,
        workers: int = 16,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 4,
        engine: Mapping[str, Any] | None = None,
    ) -> None:
        if max_new_tokens < 1 or temperature < 0:
            raise UsageError(
                f"expected max_new_tokens >= 1 and temperature >= 0, got {max_new_tokens} and {temperature}"
            )
        generation = models.generation_config(model)
        if tokenizer is None or isinstance(tokenizer, str):
            generation = generation or models.generation_config(tokenizer or model)
            tokenizer = models.tokenizer(tokenizer or model)
        if not tokenizer.chat_template:
            raise UsageError(
                f"the tokenizer of {model!r} has no chat template; an instruction-tuned model has one"
            )
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        self.name = f"vllm:{model}"
        self.version = version
        self.tokenizer = tokenizer
        self.sampling = Sampling(max_new_tokens, float(temperature), stop)
        self.end_ids = models.end_ids(tokenizer, generation) | frozenset(end_ids)
        self.settings = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "seed": seed,
            "stop": list(stop),
        }
        self._bridge = Bridge(tokenizer, self.end_ids)
        self._seeds = np.random.default_rng(seed)
        self.engine: Engine
        if base_url is None:
            self.engine = LocalEngine(model, engine or {})
            self.max_batch = 1024  # it schedules by itself; all that wait are given to it at once
        else:
            endpoint = Endpoint(
                model, base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries
            )
            self.settings["base_url"] = endpoint.base_url
            self.engine = ServerEngine(endpoint, self._bridge, processed_logprobs, workers)
            self.workers = workers  # each sends its own requests, so a long reply holds up nobody

    def act(
        self, conversations: Sequence[Conversation], *, seeds: Sequence[int] | None = None
    ) -> list[Reply]:
        """One reply each.

        Args:
            conversations: any number.
            seeds: one for each; by default they are drawn from the policy's own seed.
        """
        if seeds is None:
            seeds = [int(seed) for seed in self._seeds.integers(1 << 31, size=len(conversations))]
        prompts = [self._bridge.prompt(conversation) for conversation in conversations]
        completions = self.engine.complete(
            [prompt.ids for prompt in prompts], [seed % (1 << 31) for seed in seeds], self.sampling
        )
        replies = []
        for prompt, done in zip(prompts, completions, strict=True):
            ended = done.ids[-1] in self.end_ids
            text = self._bridge.decode(done.ids[:-1] if ended else done.ids)
            reply = Reply(
                text,
                prompt_ids=prompt.ids,
                sampled_ids=done.ids,
                logprobs=done.logprobs if self.sampling.temperature else None,
                temperature=self.sampling.temperature,
                finish_reason=done.finish_reason,
                policy_version=self.version,
                end_of_turn=tuple(sorted(self.end_ids)),
            )
            self._bridge.hold(prompt, done.ids, reply.text)
            replies.append(reply)
        return replies

    def update_weights(self, weights: str | Path | Iterable[tuple[str, Any]], version: str) -> None:
        """Take other weights.

        Args:
            weights: a folder as ``save_pretrained`` writes it, which the engine can read; or, in this process, names
                and tensors as ``named_parameters()`` gives them.
            version: for the replies to come.

        Raises:
            UsageError: tensors for a server.
        """
        self.engine.load(Path(weights) if isinstance(weights, str) else weights)
        self.version = version

    def sleep(self, level: int = 1) -> None:
        """Give the GPU's memory to somebody else, for example a training step.

        Args:
            level: 1 moves the weights to main memory, 2 forgets them: then call `update_weights` after `wake`.
        """
        self.engine.sleep(level)

    def wake(self) -> None:
        """Take the memory again."""
        self.engine.wake()

    def close(self) -> None:
        """End the engine, or the connections to the server."""
        self.engine.close()
