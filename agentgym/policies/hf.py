"""`HFPolicy`: a local Hugging Face model that answers in batches and says exactly which tokens it read and wrote.

Prompt ids come from the model's chat template, sampled ids are the ones drawn, and the log-probs are those of the
distribution they were drawn from (none at temperature 0, where nothing is drawn). Sampling is by the inverse of the
cumulative distribution with one uniform number a token, drawn from each conversation's own seed: what else stands in
the batch changes a reply only through the last bits of the arithmetic.

A turn costs its new tokens. The next prompt of a conversation begins with the ids it holds (`bridge.py`), whose keys
and values are kept (`caches.py`); what conversations share, such as the prompt of a group, is computed once; and no
token stands for padding (`attention.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.errors import ContextOverflow, InfrastructureError, UsageError
from agentgym.messages import Conversation
from agentgym.policies import models
from agentgym.policies.base import Policy, Reply
from agentgym.policies.bridge import Bridge, Prompt


@dataclass(slots=True)
class Counts:
    """Tokens since the policy was made.

    Attributes:
        computed: tokens of prompts that went through the model.
        reused: tokens of prompts that did not, since they were kept or stood in another prompt of the batch.
        generated: tokens of replies.
    """

    computed: int = 0
    reused: int = 0
    generated: int = 0


class HFPolicy(Policy):
    """Generates with transformers, on the CPU or a GPU.

    A reply ends with the model's end-of-turn token, with a `stop` text, at `max_new_tokens`, or where the model's
    context is full. Its text is the decoded sampled ids, control tokens included, without a final end-of-turn token; a
    stop text stays in it.

    Args:
        name: ``"smollm2"`` (the packaged model), a directory, or a name in the local Hugging Face cache. With `model`,
            only what to call it.
        model: to generate from a model in memory, for example the one that is being trained. Its attention
            implementation is set to one that is "sdpa" for everybody else.
        tokenizer: of `model`; give both or neither.
        version: which weights the model has; on every reply. See `weights_changed`.
        max_new_tokens: most tokens of a reply.
        temperature: logits are divided by it before sampling; 0 takes the likeliest token. Replies have no log-probs
            there: nothing was sampled, and a trainer must not take it for sampling.
        seed: of the sampling, where `act` is given no seeds.
        dtype: "float32", or "bfloat16": half the memory, faster on hardware made for it, and log-probs that a second
            pass over the same ids reproduces only to some tenths. With `model`, its dtype counts.
        autocast: compute in bfloat16 with float32 weights.
        device: "auto" (cuda where there is one), or as torch names it.
        max_batch: conversations generated at a time.
        stop: texts that end a reply.
        cache_tokens: of how many tokens keys and values are kept between calls (SmolLM2 in float32: 45 KiB each);
            those used least recently go, and are computed again should they be needed.

    Attributes:
        counts: tokens computed, reused and generated.

    Raises:
        MissingDependency: torch or transformers is not installed.
        UsageError: no such model on this machine, or one that is no plain decoder.
        ContextOverflow: from `act`, a conversation leaves no room for a reply.
        InfrastructureError: from `act`, the logits are not finite.
    """

    takes_seeds = True  # `act` takes seeds=

    def __init__(
        self,
        name: str | Path,
        *,
        model: Any = None,
        tokenizer: Any = None,
        version: str = "",
        max_new_tokens: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
        dtype: str = "float32",
        autocast: bool = False,
        device: str = "auto",
        max_batch: int = 8,
        stop: Sequence[str] = (),
        cache_tokens: int = 32_768,
    ) -> None:
        if max_new_tokens < 1 or max_batch < 1 or temperature < 0 or cache_tokens < 0:
            raise UsageError(
                "expected max_new_tokens >= 1, max_batch >= 1, temperature >= 0 and cache_tokens >= 0, "
                f"got {max_new_tokens}, {max_batch}, {temperature} and {cache_tokens}"
            )
        if (model is None) != (tokenizer is None):
            raise UsageError("expected a model with its tokenizer or neither, got one of them")
        self.name = f"hf:{name}"
        self.version = version
        self.max_new_tokens = max_new_tokens
        self.temperature = float(temperature)
        self.autocast = autocast
        self.max_batch = max_batch
        self.stop = (stop,) if isinstance(stop, str) else tuple(stop)
        if model is None:
            model, tokenizer = models.load(name, dtype, device)
        self.model, self.tokenizer = model, tokenizer
        if not self.tokenizer.chat_template:
            raise UsageError(
                f"the tokenizer of {str(name)!r} has no chat template; an instruction-tuned model has one"
            )
        from agentgym.policies import attention, caches

        attention.install(self.model)
        self.context = int(self.model.config.max_position_embeddings)
        self.end_ids = models.end_ids(self.tokenizer, self.model.generation_config)
        self.settings = {
            "max_new_tokens": max_new_tokens,
            "temperature": self.temperature,
            "seed": seed,
            "dtype": dtype,
            "stop": list(self.stop),
        } | ({"autocast": True} if autocast else {})
        self.counts = Counts()
        self._bridge = Bridge(self.tokenizer, self.end_ids)
        self._cache = caches.PrefixCache(cache_tokens)
        self._seeds = np.random.default_rng(seed)
        self._lock = threading.Lock()  # one generation at a time, whoever asks

    def act(
        self, conversations: Sequence[Conversation], *, seeds: Sequence[int] | None = None
    ) -> list[Reply]:
        """One reply each.

        Args:
            conversations: any number; they are generated `max_batch` at a time.
            seeds: one for each: the same seed and conversation give the same reply, up to rounding. By
                default they are drawn from the policy's own seed, so the same calls in the same order repeat.
        """
        with self._lock:
            if seeds is None:
                seeds = [int(seed) for seed in self._seeds.integers(1 << 63, size=len(conversations))]
            prompts = [self._prompt(conversation) for conversation in conversations]
            for position, prompt in enumerate(prompts):  # before anything is generated
                if len(prompt.ids) >= self.context:
                    raise ContextOverflow(self._too_long(len(prompt.ids)), position)
            replies: list[Reply] = []
            for start in range(0, len(prompts), self.max_batch):
                part = slice(start, start + self.max_batch)
                replies += self._generate([prompt.ids for prompt in prompts[part]], seeds[part])
            for prompt, reply in zip(prompts, replies, strict=True):
                self._bridge.hold(prompt, reply.sampled_ids or (), reply.text)
            return replies

    def prompt_ids(self, conversation: Conversation) -> list[int]:
        """The token ids the model reads: the conversation in its chat template, and the beginning of a reply.

        Replies of this policy stand in it as they were sampled, unless the template rewrites them.
        """
        with self._lock:
            return list(self._prompt(conversation).ids)

    def weights_changed(self, version: str) -> None:
        """Say that the model's weights are others now: what was computed with the old ones is forgotten.

        Not the ids that conversations hold: whoever is in the middle of one goes on from what was sampled.

        Args:
            version: of the new weights, for the replies to come.
        """
        with self._lock:
            self.version = version
            self._cache.clear()

    def forget(self) -> None:
        """Forget all conversations: their ids, and what was computed for them."""
        with self._lock:
            self._cache.clear()
            self._bridge.clear()

    def close(self) -> None:
        """Forget what was kept."""
        self.forget()

    def _prompt(self, conversation: Conversation) -> Prompt:
        return self._bridge.prompt(conversation, self.context - self.max_new_tokens)

    def _too_long(self, tokens: int) -> str:
        reply = min(self.max_new_tokens, self.context // 4)
        return (
            f"{self.name}: a prompt of {tokens} tokens leaves no room for a reply in its context of {self.context}; "
            f"keep the conversation under it with --compact {self.context} --reply-tokens {reply} "
            f"--tokens {self.name} (ContextCompaction); a first message of that length needs a model with a longer "
            "context"
        )

    def _generate(self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int]) -> list[Reply]:
        """Generate one batch of B replies."""
        import torch

        from agentgym.policies.attention import hidden_states
        from agentgym.policies.caches import Rows

        drafts = [
            _Draft(
                np.array(prompt, np.int64),
                min(self.max_new_tokens, self.context - len(prompt)),
                np.random.default_rng(seed).random(self.max_new_tokens),
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        with self._inference():
            rows = Rows([draft.prompt for draft in drafts], self._cache, *self._kept_form())
            self.counts.reused += rows.reused
            self.counts.computed += len(rows.ids)
            states = hidden_states(self.model, rows.ids, rows.positions, rows)[rows.last]  # (B, hidden)
            live = list(drafts)  # the draft of each row; a finished one leaves, and the last takes its row
            while True:
                self._draw(live, states)
                for row in reversed(range(len(live))):
                    if live[row].finish_reason:
                        self._cache.add(live[row].known(), rows.kept(row))
                        rows.remove(row)
                        live[row] = live[-1]
                        live.pop()
                if not live:
                    break
                positions = rows.advance()
                ids = torch.tensor([draft.ids[-1] for draft in live], device=positions.device)
                states = hidden_states(self.model, ids, positions, rows)  # (n, hidden)
        self.counts.generated += sum(len(draft.ids) for draft in drafts)
        return [self._reply(draft) for draft in drafts]

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """No gradients, no dropout; the model is left as it was."""
        import torch

        training, kind = self.model.training, self.model.device.type
        self.model.eval()
        try:
            with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=self.autocast):
                yield
        finally:
            self.model.train(training)

    def _kept_form(self) -> tuple[tuple[int, int, int], Any, Any]:
        """Layers, kv heads and d of the keys and values; their dtype and device."""
        import torch

        config = self.model.config.get_text_config()
        heads = config.num_attention_heads
        d = getattr(config, "head_dim", None) or config.hidden_size // heads
        shape = (config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or heads, d)
        return shape, torch.bfloat16 if self.autocast else self.model.dtype, self.model.device

    def _draw(self, live: Sequence[_Draft], states: Any) -> None:
        """Add one token to each draft, and say which are finished; states are (n, hidden)."""
        from agentgym.policies.attention import head

        uniforms = np.array([draft.uniforms[len(draft.ids)] for draft in live])
        tokens, logprobs = self._sample(head(self.model)(states), uniforms)  # (n,), (n,)
        for draft, token, logprob in zip(live, tokens.tolist(), logprobs.tolist(), strict=True):
            draft.ids.append(token)
            draft.logprobs.append(logprob)
            if token in self.end_ids or self._stopped(draft.ids):
                draft.finish_reason = "stop"
            elif len(draft.ids) == draft.most:
                draft.finish_reason = "length"

    def _sample(self, logits: Any, uniforms: Any) -> tuple[Any, Any]:
        """The next token of each row and its log-prob; logits are (n, V). At temperature 0 nobody keeps the second."""
        import torch

        # (n, V); cumulated over V, float32 is too coarse
        scaled = logits.double() / (self.temperature or 1.0)
        largest = scaled.amax(dim=-1, keepdim=True)
        if not largest.isfinite().all():
            raise InfrastructureError(f"{self.name}: the model's logits are no numbers; its weights diverged")
        scaled -= largest
        cumulated = scaled.exp().cumsum(dim=-1)
        total = cumulated[:, -1:]
        if self.temperature == 0:
            tokens = scaled.argmax(dim=-1)
        else:
            targets = torch.from_numpy(uniforms).to(logits.device)[:, None] * total
            tokens = torch.searchsorted(cumulated, targets, right=True)[:, 0]
        return tokens, scaled.gather(1, tokens[:, None])[:, 0] - total[:, 0].log()

    def _stopped(self, ids: Sequence[int]) -> bool:
        if not self.stop:
            return False
        # A token is at least one byte, so the stop text lies in the last so many tokens.
        tail = self._bridge.decode(ids[-max(len(text.encode()) for text in self.stop) :])
        return any(text in tail for text in self.stop)

    def _reply(self, draft: _Draft) -> Reply:
        ended = draft.ids[-1] in self.end_ids
        return Reply(
            self._bridge.decode(draft.ids[:-1] if ended else draft.ids),
            prompt_ids=tuple(draft.prompt.tolist()),
            sampled_ids=tuple(draft.ids),
            logprobs=tuple(draft.logprobs) if self.temperature else None,
            temperature=self.temperature,
            finish_reason=draft.finish_reason,
            policy_version=self.version,
            end_of_turn=tuple(sorted(self.end_ids)),
        )


@dataclass(slots=True)
class _Draft:
    """A reply in the making."""

    prompt: np.ndarray
    most: int  # tokens that fit
    uniforms: np.ndarray  # what each token is drawn with
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""

    def known(self) -> np.ndarray:
        """The tokens whose keys and values are computed: all but the last."""
        return np.concatenate([self.prompt, np.array(self.ids[:-1], np.int64)])
